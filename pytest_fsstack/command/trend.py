"""Subcommands for histories: show possible changes of series, and remove old runs."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_fsstack.command import CommandLineError
from pytest_fsstack.over_time import history
from pytest_fsstack.over_time.comparison import budgeted
from pytest_fsstack.over_time.sparkline import ASCII, BLOCKS, lines
from pytest_fsstack.over_time.trend import ALPHA, FIGURES, OVERHEADS, change_points, select_comparable, trends
from pytest_fsstack.units import show


def trend(arguments: argparse.Namespace) -> int:
    """Show each series of each machine, with possible changes. Raises `CommandLineError`."""
    files = _files("trend", arguments.directory)
    ramp = BLOCKS if _can_show(BLOCKS) else ASCII
    count = 0
    for path in files:
        try:
            stored = history.read(path)
        except OSError as error:
            raise CommandLineError(f"trend: {path}: {error.strerror}") from None
        for problem in stored.problems:
            show(f"fsstack: {problem}", error=True)
        selection = select_comparable(stored.runs)
        show(f"machine {path.stem}: {len(selection.runs)} of {len(stored.runs)} runs")
        for reason, number in selection.left_out.items():
            show(f"  left out: {number}, because {reason}")
        # Metrics that a comparison of the newest run would use.
        measures = None if arguments.all else budgeted(selection.runs[-1:])
        series = trends(selection.runs, FIGURES if arguments.figures else OVERHEADS, measures)
        for entry in series:
            count += 1
            show("\n".join(["", *lines(entry, change_points(entry, ALPHA / len(series), arguments.smallest), ramp)]))
        show("")
    if not count:
        raise CommandLineError(f"trend: {arguments.directory}: no run has an overhead to show")
    return 0


def prune(arguments: argparse.Namespace) -> int:
    """Remove old runs. Raises `CommandLineError`."""
    before = (datetime.now(timezone.utc) - _days(arguments.keep)).isoformat(timespec="seconds")
    for path in _files("prune", arguments.directory):
        try:
            kept, removed, torn = history.prune(path, before)
        except OSError as error:
            raise CommandLineError(f"prune: {path}: {error.strerror}") from None
        aside = f"; {torn} bytes of lines that are no runs are in {history.aside_of(path)}" if torn else ""
        show(f"{path}: {removed} removed, {kept} kept{aside}")
    return 0


def _days(text: str) -> timedelta:
    """Parse a number of days. Raises `CommandLineError`."""
    if not re.fullmatch(r"[1-9][0-9]{0,4}d", text, re.ASCII):
        raise CommandLineError(f"prune: argument --keep: must be a number of days such as 365d (got {text})")
    return timedelta(days=int(text[:-1]))


def _files(name: str, directory: Path) -> list[Path]:
    """Return the files of a history. Raises `CommandLineError`."""
    if not directory.is_dir():
        raise CommandLineError(f"{name}: there is no directory {directory}")
    if files := sorted(directory.glob("*.jsonl")):
        return files
    raise CommandLineError(f"{name}: there is no history in {directory}: --fsstack-history={directory} makes one")


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
