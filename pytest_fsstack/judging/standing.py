"""The status of a chain while its rounds run: the decisions on each stack, and its most important overhead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pytest_fsstack.judging.plan import State
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.judging.verdict import expected_rounds
from pytest_fsstack.records.results import ChainResults, Judgement
from pytest_fsstack.records.verdicts import Estimate, Verdict

Phase = Literal["planned", "confirming"]


class StackStatus(NamedTuple):
    """A stack with its most important overhead: of a step over the reference, by a metric.

    `estimate` is None if nothing is comparable yet. `budget` (0.3 is 30 %) is None without an overhead budget.
    """

    stack: str
    state: State
    step: str = ""
    metric: str = ""
    estimate: Estimate | None = None
    budget: float | None = None


class TimeLeft(NamedTuple):
    """The remaining seconds of a chain: at most, and if all trends hold (None if some show none yet)."""

    expected: float | None
    maximum: float


class ProgressState(NamedTuple):
    """The progress of a chain.

    `round` counts from 1 within its phase, which has at most `max_rounds`. If it `decides` budgets, it may end earlier.
    It is the last one of `mixed` rounds, whose runs are in one order. Of their `cells` runs, `cells_run` are done.
    `running` is the running stack, and empty between rounds. `decided` is a text as from `plan.in_words`. `elapsed` is
    in seconds. `results` is set between rounds.
    """

    chain: str
    device: str
    round: int
    max_rounds: int
    phase: Phase = "planned"
    decides: bool = True
    cells_run: int = 0
    cells: int = 0
    mixed: int = 1
    running: str = ""
    step: str = ""
    stacks: tuple[StackStatus, ...] = ()
    decided: str = ""
    costliest: StackStatus | None = None
    elapsed: float = 0.0
    time_left: TimeLeft | None = None
    results: ChainResults | None = None


def standings(readings: Readings, states: Mapping[str, State]) -> list[StackStatus]:
    """Return the status of each stack, in the order of the chain.

    For a running stack, it shows the budget that will take longest to decide. Once all are decided, it shows the one
    with the least margin, or the largest excess. Without budgets, it shows the costliest step.
    """
    return [_standing(readings, stack, states[stack]) for stack in readings.chain.stacks if stack in states]


def costliest(readings: Readings) -> StackStatus | None:
    """Return the step and stack with the largest overhead in time, once there are two rounds and times matter."""
    stacks = [stack for stack in readings.chain.stacks if stack not in readings.chain.controls]
    costs = [status for stack in stacks for status in _costs(readings, stack, "running")]
    return max(costs, key=_cost, default=None)


def _costs(readings: Readings, stack: str, state: State) -> list[StackStatus]:
    """Return the overhead in time of each step of a stack, if times matter."""
    chain = readings.chain
    steps = [] if chain.only_counts or chain.is_emulated(stack) else chain.steps
    estimates = {step: _of_rounds(readings, step, stack) for step in steps}
    return [StackStatus(stack, state, step, "seconds", each) for step, each in estimates.items() if each]


def _standing(readings: Readings, stack: str, state: State) -> StackStatus:
    judged = [
        (step, each, verdict)
        for step in readings.chain.steps
        for each in readings.chain.judgements_of(step, stack)
        if each.budget.overhead is not None and (verdict := each.confirmed or each.verdict)
    ]
    if judged:
        step, judgement, verdict = max(judged, key=lambda each: _urgency(each[1], each[2]))
        return StackStatus(stack, state, step, judgement.budget.metric, verdict.estimate, verdict.budget)
    return max(_costs(readings, stack, state), key=_cost, default=StackStatus(stack, state))


def _urgency(judgement: Judgement, verdict: Verdict) -> tuple[int, float]:
    """Return a sort key: first the budgets that need more rounds to decide, then those with the larger excess."""
    open_until = 0 if verdict.settled else expected_rounds(verdict)
    return open_until, (1 + verdict.estimate.overhead) / (1 + verdict.budget)


def _of_rounds(readings: Readings, step: str, stack: str) -> Estimate | None:
    """Return the estimate of a step on a stack, or None after a single round, which proves nothing."""
    estimate = readings.estimate(step, stack)
    return estimate if estimate and estimate.rounds > 1 else None


def _cost(standing: StackStatus) -> float:
    assert standing.estimate is not None
    return standing.estimate.overhead
