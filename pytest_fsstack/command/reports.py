"""Reports of a finished session, from its saved JSON."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_fsstack.command import CommandLineError, Parser
from pytest_fsstack.judging.overall import parse_weights, unknown_step
from pytest_fsstack.judging.readings import Readings, settle
from pytest_fsstack.machine import reading
from pytest_fsstack.records import saved
from pytest_fsstack.report import ReportError
from pytest_fsstack.report.side_by_side import side_by_side
from pytest_fsstack.session.files import ReportFile, check_all
from pytest_fsstack.units import show

if TYPE_CHECKING:
    import pytest

    from pytest_fsstack.records.results import Results

#: The report that is printed by default.
DEFAULT_REPORT = "markdown"


def report(arguments: argparse.Namespace) -> int:
    """Write the reports. Return 1 if one could not be written. Raises `CommandLineError`."""
    from pytest_fsstack.command.sessions import ask

    return ask(lambda config: _report(arguments.words, config))


def _report(words: list[str], config: pytest.Config) -> int:
    from pytest_fsstack.options.built_in import brought

    writers = brought(config, "reports")
    parser = Parser("report", add_help=False, allow_abbrev=False)
    parser.add_argument("runs", metavar="RUN.json", nargs="+")
    parser.add_argument("--weights", metavar="STEP=N,...")
    for name in writers:
        parser.add_argument(f"--{name}", metavar="FILE", dest=f"to {name}")
    arguments = vars(parser.parse_args(words))
    results = settle(_read_all(arguments["runs"]))
    results.table_layouts = _Layouts(brought(config, "tables"))
    if not results.chains and not results.tests:
        raise CommandLineError(f"{', '.join(arguments['runs'])}: nothing was measured in that session")
    if arguments["weights"] is not None:
        _apply_weights(results, arguments["weights"])
    selected = {name: file for name in writers if (file := arguments[f"to {name}"]) is not None}
    if "json" in selected and len(arguments["runs"]) > 1:
        raise CommandLineError("report: --json takes one run; other reports can show several")
    if not selected:
        return _exit_code_of(DEFAULT_REPORT, lambda: print(writers[DEFAULT_REPORT](results), end=""))
    files = [ReportFile(name, Path(file).absolute()) for name, file in selected.items()]
    for file in files:
        if not file.path.parent.is_dir():
            raise CommandLineError(f"report: --{file.report}: there is no directory {file.path.parent}")
    try:
        check_all(files)
    except ReportError as error:
        raise CommandLineError(f"report: {error}") from None
    return max(_exit_code_of(file.report, partial(_write, file, writers[file.report], results)) for file in files)


def _apply_weights(results: Results, text: str) -> None:
    """Apply weights to the steps in the overall cost. Raises `CommandLineError`."""
    steps = [step for chain in results.chains for step in chain.steps]
    try:
        weights = parse_weights(text)
    except ValueError as error:
        raise CommandLineError(f"report: --weights: {error}") from None
    if problem := unknown_step(weights, steps):
        raise CommandLineError(f"report: --weights: {problem}")
    for environment in (results.environment, *(chain.environment for chain in results.chains)):
        if isinstance(environment, dict):
            environment.setdefault("settings", {})["weights"] = weights
    for chain in results.chains:
        chain.overall = Readings(chain).costs(weights)


def _write(file: ReportFile, writer: Callable[[Results], str], results: Results) -> None:
    file.write(writer(results))
    if not file.is_stream():
        show(f"wrote {file.report} to {file.shown}")


def _exit_code_of(name: str, write: Callable[[], object]) -> int:
    """Write a report, and return the exit code. Errors do not stop the other reports."""
    try:
        write()
    except BrokenPipeError:
        # The reader of the standard output has read enough. No report failed.
        raise
    except ReportError as error:
        show(f"fsstack: {error}", error=True)
    except Exception as error:
        # A report of another project failed.
        show(f"fsstack: {name} not written: {type(error).__name__}: {' '.join(str(error).split())}", error=True)
    else:
        return 0
    return 1


class _Layouts(dict[str, Any]):
    """Tables by name. Unknown ones belong to plugins that are not installed."""

    def __missing__(self, name: str) -> NoReturn:
        raise ReportError(f"there is no table {name!r}: install the plugin that defines it")


def _read_all(names: list[str]) -> Results:
    """Return the results in a file, or merge those of several files. Raises `CommandLineError`."""
    if len(names) == 1:
        return _read(names[0])
    stems = [Path(name).stem for name in names]
    if twice := next((stem for stem in stems if stems.count(stem) > 1), ""):
        raise CommandLineError(
            f"report: several files have the name {twice}, which would identify their results; rename them"
        )
    return side_by_side({stem: _read(name) for stem, name in zip(stems, names)})


def _read(name: str) -> Results:
    """Return the results in a file. Raises `CommandLineError`."""
    try:
        return saved.loads(reading.read_bytes(Path(name), reading.RESULTS))
    except OSError as error:
        raise CommandLineError(f"{name}: {error.strerror}") from None
    except saved.FormatError as error:
        raise CommandLineError(f"{name}: {error}") from None
