"""Durations of a stack's runs, from earlier sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.sample import Sample


def seconds_of_run(
    earlier: Sequence[Results], test: str, device: str, steps: Iterable[str], stack: str, *, scale: str
) -> float | None:
    """Return the seconds of one run of a stack in the last session that measured these steps, or None.

    This is the sum of two parts: the session's time outside of timed blocks, divided equally among all runs, and the
    medians of this stack's timed blocks.
    """
    names = set(steps)
    for results in reversed(earlier):
        for chain in results.chains if results.scale in ("", scale) else ():
            readings = Readings(chain)
            measured = [step for step in chain.steps if step in names and chain.measures(step, chain.baseline)]
            medians = [readings.median(step, stack) for step in measured]
            measurable = [median for median in medians if median is not None]
            if chain.id == test and chain.device == device and measurable and len(measurable) == len(medians):
                share = _untimed(results)
                return None if share is None else share + sum(measurable)
    return None


def timed_share(results: Results) -> float | None:
    """Return the share of timed blocks in the session's duration, or None if that is unknown."""
    wall = wall_seconds(results)
    return round(min(1.0, _timed(results) / wall), 3) if wall else None


def wall_seconds(results: Results) -> float | None:
    """Return the duration of a session, or None if it is unknown."""
    if not (results.start and results.stop):
        return None
    return (datetime.fromisoformat(results.stop) - datetime.fromisoformat(results.start)).total_seconds()


def _timed(results: Results) -> float:
    """Return the seconds of all timed blocks. Repetitions are estimated by their median."""
    samples: list[Sample] = []
    for chain in results.chains:
        samples += [sample for _, _, rounds in chain.all_samples() for sample in rounds.values()]
        samples += [sample for one in chain.discarded for stacks in one.samples.values() for sample in stacks.values()]
    return sum(sample.values.get("seconds", 0.0) * sample.repetitions for sample in samples)


def _untimed(results: Results) -> float | None:
    """Return a session's seconds outside of timed blocks, per run of a stack. None if unknown."""
    wall, runs = wall_seconds(results), sum(map(_runs, results.chains))
    return max(0.0, wall - _timed(results)) / runs if runs and wall is not None else None


def _runs(chain: ChainResults) -> int:
    discarded = sum(len(set().union(*one.samples.values())) for one in chain.discarded)
    return sum(map(len, chain.orders)) + discarded
