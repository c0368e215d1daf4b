"""How long a run of a stack takes, by earlier sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pytest_fsstack.judging.results import ChainResults, Results
from pytest_fsstack.judging.series import test_of


def seconds_of_run(
    earlier: Sequence[Results], test: str, device: str, steps: Iterable[str], stack: str, *, scale: str
) -> float | None:
    """Seconds that one run of a stack took in the last session that measured these steps of it; None if none did.

    They are what the session took in all but its timed blocks, shared equally among all runs of stacks in it, and the
    medians of the timed blocks of this stack.
    """
    wanted = set(steps)
    for results in reversed(earlier):
        for chain in results.chains if results.scale in ("", scale) else ():
            measured = [step for step in chain.steps if step in wanted and chain.of(step, chain.baseline)]
            medians = [chain.median(step, stack) for step in measured]
            known = [median for median in medians if median is not None]
            if test_of(chain) == test and chain.device == device and known and len(known) == len(medians):
                share = _untimed(results)
                return None if share is None else share + sum(known)
    return None


def _untimed(results: Results) -> float | None:
    """Seconds of a session outside of timed blocks, for each run of a stack; None if it does not say when it was."""
    if not (results.start and results.stop):
        return None
    wall = (datetime.fromisoformat(results.stop) - datetime.fromisoformat(results.start)).total_seconds()
    timed = sum(sum(chain.series(step, stack, "seconds")) for chain in results.chains for step, stack in chain.samples)
    runs = sum(map(_runs, results.chains))
    return max(0.0, wall - timed) / runs if runs else None


def _runs(chain: ChainResults) -> int:
    discarded = sum(len({stack for _, stack in each.samples}) for each in chain.discarded)
    return sum(map(len, chain.orders)) + discarded
