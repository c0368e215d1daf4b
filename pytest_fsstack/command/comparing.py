"""Comparison of finished runs, like ``--fsstack-compare``, but without measuring."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.command import USAGE_ERROR, CommandLineError
from pytest_fsstack.over_time import comparison
from pytest_fsstack.over_time.plugin import earlier_runs, refusals
from pytest_fsstack.over_time.text import describe, lines, plan_lines
from pytest_fsstack.units import show

if TYPE_CHECKING:
    from pytest_fsstack.records.results import Results


def compare(arguments: argparse.Namespace) -> int:
    """Compare runs. Return 1 if a limit is broken, 4 if they cannot be compared or none could be judged.

    Raises `CommandLineError`.
    """
    if arguments.plan:
        return _plan(arguments)
    if arguments.now is None:
        if len(arguments.then) != 2:
            raise CommandLineError(
                "compare: name one older and one newer file or directory, use --now NEW.json ..., or --plan"
            )
        arguments.now = [arguments.then.pop()]
    then, now = _read(arguments.then), _read(arguments.now)
    ids = {comparison.run_id(results) or path.resolve() for path, results in then.items()}
    for path, results in now.items():
        if (comparison.run_id(results) or path.resolve()) in ids:
            raise CommandLineError(f"compare: {path} is on both sides; leave it out of one")
    if _are_refused(now, then, arguments.anyway):
        return USAGE_ERROR
    runs = list(now.values()), list(then.values())
    result = comparison.compare(*runs, limit=arguments.limit, alpha=arguments.alpha, session=arguments.strict)
    if not result.compared:
        raise CommandLineError("not compared: no overhead was measured on both sides")
    for line in lines(result, *runs):
        show(line)
    return 0 if arguments.limit is None else _judge(result, runs[0], arguments.strict)


def _plan(arguments: argparse.Namespace) -> int:
    """Show the power of the limit for one more run. Return 1 if many unchanged runs would be inconclusive.

    Raises `CommandLineError`.
    """
    if arguments.limit is None or arguments.now is not None:
        raise CommandLineError("compare: --plan needs --max-regression, and takes earlier runs only")
    runs = sorted(_read(arguments.then).items(), key=lambda run: run[1].start)
    if _are_refused(dict(runs[-1:]), dict(runs[:-1]), arguments.anyway):
        return USAGE_ERROR
    series = comparison.outlook(
        [results for _, results in runs],
        arguments.limit,
        alpha=arguments.alpha,
        session=arguments.strict,
        rounds=arguments.rounds,
    )
    if not series:
        raise CommandLineError("compare: --plan: no overhead was measured in these runs, or their machine is not known")
    for line in plan_lines(series, arguments.limit):
        show(line)
    return 0 if all(outlook.decides for outlook in series) else 1


def _read(names: list[str]) -> dict[Path, Results]:
    """Return the runs of one side by file. Raises `CommandLineError`."""
    try:
        return earlier_runs(*map(Path, names))
    except ValueError as error:
        raise CommandLineError(f"compare: {error}") from None


def _are_refused(now: dict[Path, Results], then: dict[Path, Results], anyway: bool) -> bool:
    """Print why runs cannot be compared. Return whether there is a reason."""
    reasons = [] if anyway else refusals(now, then)
    for reason in reasons:
        show(f"fsstack: not compared: {reason}", error=True)
    return bool(reasons)


def _judge(result: comparison.Comparison, now: list[Results], strict: bool) -> int:
    """Print the broken limits, and return the exit code."""
    undecided = [change for change in result.judged if change.outcome in (None, "inconclusive")]
    wrong = [describe(change, result).partition("\n")[0] for change in result.regressions]
    if strict:
        wrong += [f"{describe(change, result).partition(chr(10))[0]} (--strict)" for change in undecided]
        tests = {chain.id for results in now for chain in results.chains}
        missing = [place for place in result.only_then if place.test in tests]
        wrong += [f"{place.stack}: {place.metric} was measured then and is not now (--strict)" for place in missing]
    for text in wrong:
        show(f"fsstack: {text}", error=True)
    if wrong:
        return 1
    if all(change.outcome is None for change in result.compared):
        raise CommandLineError(f"compare: nothing was judged by --limit: {result.compared[0].explanation}")
    return 0
