"""What a history says: where each series may have changed; and what of it is kept."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_fsstack.command import CommandLineError
from pytest_fsstack.command.words import Parser, as_option
from pytest_fsstack.judging.past import budgeted
from pytest_fsstack.judging.trend import ALPHA, FIGURES, OVERHEADS, change_points, choose, trends
from pytest_fsstack.over_time import history
from pytest_fsstack.report.trend import ASCII, BLOCKS, lines


def trend(words: list[str]) -> int:
    """Show each series of each machine, and where it may have changed. Raises `CommandLineError`."""
    parser = Parser("trend")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--smallest", type=as_option("max-regression"), default="1%")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args(words)
    files = _files("trend", given.directory)
    ramp = BLOCKS if _can_show(BLOCKS) else ASCII
    shown = 0
    for path in files:
        try:
            found = history.read(path)
        except OSError as error:
            raise CommandLineError(f"trend: {path}: {error.strerror}") from None
        for problem in found.problems:
            print(f"fsstack: {problem}", file=sys.stderr)
        chosen = choose(found.runs)
        print(f"machine {path.stem}: {len(chosen.runs)} of {len(found.runs)} runs")
        for reason, number in chosen.left_out.items():
            print(f"  left out: {number}, because {reason}")
        # Those that a comparison of the newest run would have.
        measures = None if given.all else budgeted(chosen.runs[-1:])
        series = trends(chosen.runs, FIGURES if given.figures else OVERHEADS, measures)
        for each in series:
            shown += 1
            print("\n".join(["", *lines(each, change_points(each, ALPHA / len(series), given.smallest), ramp)]))
        print()
    if not shown:
        raise CommandLineError(f"trend: {given.directory}: no run has an overhead to show")
    return 0


def prune(words: list[str]) -> int:
    """Remove the runs that are older than what is kept. Raises `CommandLineError`."""
    parser = Parser("prune")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--keep", type=_days, required=True, metavar="365d")
    given = parser.parse_args(words)
    before = (datetime.now(timezone.utc) - given.keep).isoformat(timespec="seconds")
    for path in _files("prune", given.directory):
        try:
            kept, removed, torn = history.prune(path, before)
        except OSError as error:
            raise CommandLineError(f"prune: {path}: {error.strerror}") from None
        aside = f"; {torn} bytes of lines that are no runs are in {history.aside_of(path)}" if torn else ""
        print(f"{path}: {removed} removed, {kept} kept{aside}")
    return 0


def _days(text: str) -> timedelta:
    if not re.fullmatch(r"[1-9][0-9]{0,4}d", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"must be a number of days such as 365d (got {text})")
    return timedelta(days=int(text[:-1]))


def _files(name: str, directory: Path) -> list[Path]:
    """The files of a history. Raises `CommandLineError`."""
    if not directory.is_dir():
        raise CommandLineError(f"{name}: there is no directory {directory}")
    if found := sorted(directory.glob("*.jsonl")):
        return found
    raise CommandLineError(f"{name}: there is no history in {directory}: --fsstack-history={directory} makes one")


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
