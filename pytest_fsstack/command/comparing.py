"""Runs that have ended, now against then: as ``--fsstack-compare``, but nothing is measured."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.command import USAGE_ERROR, CommandLineError
from pytest_fsstack.command.words import Parser, as_option
from pytest_fsstack.judging import past
from pytest_fsstack.judging.series import test_of
from pytest_fsstack.over_time.plugin import earlier_runs, refusals
from pytest_fsstack.report.past import describe, lines, plan_lines

if TYPE_CHECKING:
    from pytest_fsstack.judging.results import Results


def compare(words: list[str]) -> int:
    """Compare runs; returns 1 if one cost more than the limit, 4 if they cannot be compared or none could be judged.

    Raises `CommandLineError`.
    """
    parser = Parser("compare")
    parser.add_argument("then", nargs="+", metavar="OLD.json")
    parser.add_argument("--now", nargs="+", metavar="NEW.json")
    parser.add_argument("--limit", "--max-regression", type=as_option("max-regression"), dest="limit")
    parser.add_argument("--alpha", type=as_option("alpha"), default="0.05")
    parser.add_argument("--anyway", action="store_true")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--rounds", type=as_option("rounds"))
    given = parser.parse_args(words)
    if given.plan:
        return _plan(given)
    if given.now is None:
        if len(given.then) != 2:
            raise CommandLineError(
                "compare: name one older and one newer file or directory, use --now NEW.json ..., or --plan"
            )
        given.now = [given.then.pop()]
    then, now = _read(given.then), _read(given.now)
    if both := [path for path in now if path.resolve() in {each.resolve() for each in then}]:
        raise CommandLineError(f"compare: {both[0]} is on both sides")
    if not given.anyway and (reasons := refusals(now.values(), then)):
        for reason in reasons:
            print(f"fsstack: not compared: {reason}", file=sys.stderr)
        return USAGE_ERROR
    runs = list(now.values()), list(then.values())
    found = past.compare(*runs, limit=given.limit, alpha=given.alpha, session=given.strict)
    if not found.compared:
        raise CommandLineError("not compared: no overhead was measured on both sides")
    for line in lines(found, *runs):
        print(line)
    return 0 if given.limit is None else _judge(found, runs[0], given.strict)


def _plan(given: argparse.Namespace) -> int:
    """Show what the limit can tell of one more run; returns 1 if it decides less than nearly all unchanged runs.

    Raises `CommandLineError`.
    """
    if given.limit is None or given.now is not None:
        raise CommandLineError("compare: --plan takes earlier runs only, and --max-regression")
    then = list(_read(given.then).values())
    series = past.outlook(then, given.limit, alpha=given.alpha, session=given.strict, rounds=given.rounds)
    if not series:
        raise CommandLineError("compare: --plan: no overhead was measured in these runs, or their machine is not known")
    for line in plan_lines(series, given.limit):
        print(line)
    return 0 if all(each.decides for each in series) else 1


def _read(names: list[str]) -> dict[Path, Results]:
    """The runs of one side, by file. Raises `CommandLineError`."""
    found: dict[Path, Results] = {}
    for name in names:
        try:
            found |= earlier_runs(Path(name))
        except ValueError as error:
            raise CommandLineError(f"compare: {error}") from None
    return found


def _judge(found: past.Comparison, now: list[Results], strict: bool) -> int:
    """Say what does not keep to the limit; the exit code."""
    undecided = [change for change in found.compared if change.outcome in (None, "inconclusive")]
    wrong = [describe(change, found).partition("\n")[0] for change in found.regressions]
    if strict:
        wrong += [f"{describe(change, found).partition(chr(10))[0]} (--strict)" for change in undecided]
        tests = {test_of(chain) for results in now for chain in results.chains}
        missing = [place for place in found.only_then if place.test in tests]
        wrong += [f"{place.stack}: {place.metric} was measured then and is not now (--strict)" for place in missing]
    for text in wrong:
        print(f"fsstack: {text}", file=sys.stderr)
    if wrong:
        return 1
    if all(change.outcome is None for change in found.compared):
        raise CommandLineError(f"compare: nothing was judged by --limit: {found.compared[0].how}")
    return 0
