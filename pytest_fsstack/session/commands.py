"""Tests without a Python file: those of ``--fsstack-command``, with the ids ``command::NAME[STACK]``."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_fsstack.machine import commands, needs
from pytest_fsstack.options.commands import parse_check
from pytest_fsstack.options.settings import Settings
from pytest_fsstack.rounds.chains import parameter_of
from pytest_fsstack.stack.places import Directory
from pytest_fsstack.workloads import BUILT_IN, command, fio_job, jobfile, needs_of
from pytest_fsstack.workloads.command import split

if TYPE_CHECKING:
    from pytest_fsstack.machine.needs import Need
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

#: The first part of the ids of commands, in place of a file name.
FILE = "command"


class Step(NamedTuple):
    """A command to measure, with the commands before and after it."""

    name: str
    line: str
    setup: Sequence[str]
    check: Sequence[str]
    shell: bool

    @property
    def programs(self) -> list[str]:
        """Return the programs of its commands, as far as they are visible in advance."""
        lines = [*self.setup, self.line, *self.check]
        words = ["sh"] if self.shell else [split(line)[0] for line in lines]
        return [word for word in dict.fromkeys(words) if "{}" not in word and (os.sep not in word or word[0] == os.sep)]


def steps(settings: Settings) -> list[Step]:
    """Return the steps that the options define. Raises `pytest.UsageError`."""
    commands, setup, shell = settings.commands, settings.setup, settings.shell
    names = [name for name, _ in commands]
    with settings.blaming("command"):
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two steps are called {twice!r}: name them, as in 'first={dict(commands)[twice]}'")
        if not shell:
            for _, line in commands:
                split(line)
    with settings.blaming("setup"):
        _check_words(setup, shell)
    with settings.blaming("check"):
        checks = [parse_check(text, names, shell=shell) for text in settings.checks]
        _check_words([line for _, line in checks], shell)
    result: list[Step] = []
    for name, line in commands:
        check = [text for step, text in checks if step in ("", name)]
        result.append(Step(name, line, () if result else setup, check, shell))
    return result


def _check_words(lines: Sequence[str], shell: bool) -> None:
    for line in lines:
        if shell and not line.strip():
            raise ValueError("there is no command")
        if not shell:
            split(line)


def _failing_shortly(act: Callable[[Timed, Built], None], timed: Timed, fsstack: Built) -> None:
    """Run a step. Hide the lines of this file from the traceback."""
    try:
        act(timed, fsstack)
        return
    except (AssertionError, commands.CommandError, jobfile.JobFileError) as error:
        reason = str(error)
    # Outside of the handler, so that pytest does not show the reason twice.
    pytest.fail(reason, pytrace=False)


def _described(test: Any, name: str, summary: str, requirements: Iterable[Need]) -> None:
    """Set the attributes of a function that pytest, the doctor and reports use."""
    test.__name__ = test.__qualname__ = name
    test.__doc__, test.__test__, test.needs = summary, True, tuple(requirements)


class CommandFile(pytest.Module):
    """A virtual test file. The methods of its only class are the steps of --fsstack-command."""

    steps: list[Step]

    def _getobj(self) -> ModuleType:
        methods = {step.name: _method_of(step) for step in self.steps}
        module = ModuleType(self.name)
        setattr(module, self.name, type(self.name, (), {**methods, "__test__": True, "__module__": self.name}))
        return module

    def collect(self) -> Iterable[pytest.Collector]:
        return [pytest.Class.from_parent(self, name=self.name, nodeid=self.nodeid)]


def _method_of(step: Step) -> Callable[..., None]:
    def act(timed: Timed, fsstack: Built) -> None:
        command(timed, fsstack, step.line, setup=step.setup, check=step.check, shell=step.shell)

    def test(self: object, timed: Timed, fsstack: Built) -> None:
        _failing_shortly(act, timed, fsstack)

    _described(test, step.name, f"Run `{step.line}`", _needs(step))
    return test


def _needs(step: Step) -> list[Need]:
    known = {need: None for function in BUILT_IN.values() for need in needs_of(function)}
    tools = tuple(need for need in known if isinstance(need, needs.Tool))
    return [needs.AnyTool(program, tools) for program in step.programs]


class Commands:
    """A plugin that collects the commands, or a selection of them. Raises `pytest.UsageError`."""

    def __init__(self, config: pytest.Config) -> None:
        settings = Settings.of(config)
        self.steps = steps(settings)
        if not settings.stacks:
            raise pytest.UsageError(
                "--fsstack-command: on which stacks? Add --fsstack-stacks=ext4, or --stack ext4 to `fsstack bench`"
            )
        if not settings.only_looks:
            with settings.blaming("command"):
                if lacks := needs.missing(need for step in self.steps for need in _needs(step)):
                    raise ValueError("; ".join(lacks))
        self._chosen: list[str] = []
        if config.args_source is not config.ArgsSource.ARGS:
            config.args[:] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Remove the ids of commands from the arguments that pytest would look up as files."""
        config = session.config
        place = config.rootpath / FILE
        for word in list(config.args):
            file, _, test = word.partition("::")
            if test and config.invocation_params.dir / file == place:
                config.args.remove(word)
                self._chosen.append(f"{FILE}::{test}")

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        report = yield
        if isinstance(collector, pytest.Session) and report.passed:
            file: CommandFile = CommandFile.from_parent(collector, path=collector.config.rootpath / FILE)
            file.steps = self.steps
            report.result.append(file)
        return report

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if not self._chosen:
            return
        chosen = tuple(f"{test}[" for test in self._chosen)
        others = [
            item
            for item in items
            if item.getparent(CommandFile) and not (item.nodeid in self._chosen or item.nodeid.startswith(chosen))
        ]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item not in others]


# -- files of fio jobs -------------------------------------------------------------------------------------------------


class FioFile(pytest.Module):
    """A file of fio jobs, with one test. Refuse files that are not allowed before anything starts."""

    def _getobj(self) -> ModuleType:
        job = self.path

        def act(timed: Timed, fsstack: Built) -> None:
            fio_job(timed, fsstack, job, sections=True)

        def test(timed: Timed, fsstack: Built) -> None:
            _failing_shortly(act, timed, fsstack)

        step = re.sub(r"[^\w.+-]", "_", job.stem)
        _described(test, step, f"Run the fio jobs of {job.name}", needs_of(fio_job))
        direction = "read" if "read" in jobfile.directions(job) else "write"
        marked = pytest.mark.fsstack_table("fio", metrics={step: f"fio_{direction}_iops"})(test)
        module = ModuleType(self.name)
        setattr(module, step, marked)
        return module

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        try:
            self.check(is_directory=False)
        except (jobfile.JobFileError, OSError) as error:
            raise self.CollectError(str(error)) from None
        return super().collect()

    def check(self, *, is_directory: bool) -> None:
        """Check the jobs for a stack that is not mounted yet, whose links are checked later.

        Raises `jobfile.JobFileError` or OSError.
        """
        place = Path("/fsstack")
        environment = {**os.environ, "FSSTACK": str(place)}
        jobfile.check(self.path, place, environment, sections=True, is_directory=is_directory)


class FioFiles:
    """A plugin that collects files of fio jobs: arguments, and those of --fsstack-fio."""

    def __init__(self, config: pytest.Config) -> None:
        settings = Settings.of(config)
        self._patterns = settings.fio
        #: Patterns of the command line that have matched no file. The ini also applies to other sessions.
        self._unmatched = self._patterns if settings.is_typed("fio") else []

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        is_named = file_path.suffix == ".fio" and parent.session.isinitpath(file_path)
        self._unmatched = [pattern for pattern in self._unmatched if not file_path.match(pattern)]
        if is_named or any(map(file_path.match, self._patterns)):
            file: FioFile = FioFile.from_parent(parent, path=file_path)
            return file
        return None

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            file, parameter = item.getparent(FioFile), parameter_of(item)
            if file and parameter and parameter.stack.layers[-1].gives is Directory:
                try:
                    file.check(is_directory=True)
                except (jobfile.JobFileError, OSError) as error:
                    raise pytest.UsageError(f"{error} ({parameter.id})") from None
        if self._unmatched:
            raise pytest.UsageError(
                f"--fsstack-fio={self._unmatched[0]}: no file in the collected directories has such a name"
            )
