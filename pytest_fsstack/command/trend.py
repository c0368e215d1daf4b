"""What a history says: where each series changed, by Apache Otava; and what of it is kept."""

from __future__ import annotations

import argparse
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_fsstack import history
from pytest_fsstack.command import CommandLineError
from pytest_fsstack.command.words import Parser, as_option
from pytest_fsstack.judging.past import compared_metrics
from pytest_fsstack.judging.trend import FIGURES, OVERHEADS, Detector, change_points, choose, trends
from pytest_fsstack.report.files import ReportError
from pytest_fsstack.report.trend import ASCII, BLOCKS, lines

#: The error rate of a change, as Otava has it by default.
_P = 0.001
NO_OTAVA = (
    "trend: Apache Otava finds the changes, and is not here: pip install 'pytest-fsstack[trend]', or beside another "
    "numpy: pip install numpy scipy, then pip install --no-deps 'apache-otava<0.9'"
)


def trend(words: list[str]) -> int:
    """Show each series of each machine, and where it changed. Raises `CommandLineError`."""
    parser = Parser("trend")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--smallest", type=as_option("max-regression"), default="1%")
    parser.add_argument("--figures", action="store_true")
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args(words)
    files, detect = _files("trend", given.directory), _otava(given.smallest)
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
        metrics = None if given.all else compared_metrics(chosen.runs[-1:])
        for each in trends(chosen.runs, FIGURES if given.figures else OVERHEADS, metrics):
            shown += 1
            print("\n".join(["", *lines(each, change_points(each, detect), ramp)]))
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
        except ReportError as error:
            raise CommandLineError(f"prune: {error}") from None
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


def _otava(smallest: float) -> Detector:
    """Finds changes of at least that size (0.01 is 1 %). Raises `CommandLineError` if Otava is not installed."""
    try:
        # Imported alone, as its program reads a database and its extra dependencies first.
        from otava.analysis import compute_change_points
    except ImportError:
        raise CommandLineError(NO_OTAVA) from None
    compute: Callable[..., tuple[list[object], object]] = compute_change_points

    def detect(values: Sequence[float]) -> list[int]:
        with warnings.catch_warnings():
            # Stretches without any spread are divided by zero.
            warnings.simplefilter("ignore", RuntimeWarning)
            points, _ = compute(list(values), max_pvalue=_P, min_magnitude=smallest)
        return [int(point.index) for point in points]  # type: ignore[attr-defined]

    return detect


def _can_show(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
