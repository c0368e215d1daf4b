"""Pooling of the same sessions on several hosts: ``fsstack pool``."""

from __future__ import annotations

import argparse
import gc
import shutil
from pathlib import Path

from pytest_fsstack.command import USAGE_ERROR, CommandLineError
from pytest_fsstack.fleet.pooling import hosts, pool_page, pool_text
from pytest_fsstack.fleet.pooling.hosts import SessionFile
from pytest_fsstack.fleet.pooling.pool import Pool, pool as pool_sessions, refusals
from pytest_fsstack.report import ReportError
from pytest_fsstack.session.files import ReportFile, check_all
from pytest_fsstack.units import show

#: Reports to files, by option.
WRITERS = {"html": pool_page.report, "markdown": pool_text.markdown_report, "json": pool_text.json}


def pool(arguments: argparse.Namespace) -> int:
    """Pool hosts. Return 1 if a budget is broken, 4 if they cannot be pooled or none could be judged.

    Raises `CommandLineError`.
    """
    if arguments.each and arguments.limit is not None:
        raise CommandLineError("pool: --each takes the verdicts of the sessions, so --limit would judge nothing")
    sessions, unreadable = _read(_files(arguments.runs))
    unreadable |= arguments.lost
    for name, reason in unreadable.items():
        show(f"fsstack: pool: {name}: {reason}", error=True)
    if not sessions:
        raise CommandLineError("pool: none of the files has a session")
    if not arguments.anyway and (reasons := refusals(sessions)):
        for reason in reasons:
            show(f"fsstack: not pooled: {reason}", error=True)
        return USAGE_ERROR
    result = pool_sessions(
        sessions, unreadable, limit=arguments.limit, alpha=arguments.alpha, shared_alpha=arguments.strict
    )
    _print(result)
    return max(_write(result, arguments), _judge(result, arguments), bool(unreadable and arguments.complete))


def _files(names: list[str]) -> list[Path]:
    """Return the files, with those in directories. Raises `CommandLineError`."""
    files: dict[Path, None] = {}
    for name in names:
        path = Path(name)
        inside = sorted([*path.glob("*.json"), *path.glob("*.jsonl")]) if path.is_dir() else [path]
        if not inside:
            raise CommandLineError(f"pool: {name}: the directory has no *.json or *.jsonl files")
        files |= dict.fromkeys(inside)
    return list(files)


def _read(files: list[Path]) -> tuple[list[SessionFile], dict[str, str]]:
    """Return the sessions, and why other files contain none."""
    sessions, unreadable = [], {}
    # Records have no cycles, and searches of all of them for cycles would take a fifth of the time.
    gc.disable()
    try:
        for path in files:
            try:
                sessions.append(hosts.read(path))
            except ValueError as error:
                unreadable[str(path)] = str(error)
    finally:
        gc.freeze()
        gc.enable()
    return sessions, unreadable


def _judge(result: Pool, arguments: argparse.Namespace) -> int:
    """Print the broken budgets, and return the exit code. Raises `CommandLineError` if a budget was never judged."""
    failing = (*(("inconclusive", None) if arguments.strict else ()), "fail")
    outcomes = [(entry, entry.outcome, pool_text.in_short(entry)) for entry in result.budgeted]
    if arguments.each:
        # Limits in a unit are judged on hosts only.
        outcomes = [
            (entry, host.outcome, pool_text.host_line(host))
            for entry in result.series
            if any(host.outcome for host in entry.hosts)
            for host in entry.hosts
        ]
    wrong = [f"{entry.label}: {text}" for entry, outcome, text in outcomes if outcome in failing and not entry.expected]
    if arguments.strict:
        wrong += [f"{text} (--strict)" for text in pool_text.problems(result)]
    for text in wrong:
        show(f"fsstack: pool: {text}", error=True)
    if wrong:
        return 1
    if outcomes and not any(outcome for _, outcome, _ in outcomes):
        reason = result.budgeted[0].why_no_verdict
        raise CommandLineError(f"pool: nothing was judged over hosts: {reason} (--each judges each host)")
    return 0


def _print(result: Pool) -> None:
    width = shutil.get_terminal_size().columns
    for line in pool_text.lines(result, width):
        show(line)


def _write(result: Pool, arguments: argparse.Namespace) -> int:
    """Write the reports. Return 1 if one cannot be written."""
    files = [
        (ReportFile(name, Path(file).absolute()), writer)
        for name, writer in WRITERS.items()
        if (file := getattr(arguments, name))
    ]
    try:
        check_all(file for file, _ in files)
        for file, writer in files:
            file.write(writer(result))
            if not file.is_stream():
                show(f"wrote {file.report} to {file.shown}")
    except ReportError as error:
        show(f"fsstack: pool: {error}", error=True)
        return 1
    return 0
