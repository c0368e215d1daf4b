"""The status of a chain while its rounds run: what is decided of each stack, and the overhead that matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pytest_fsstack.judging.plan import State
from pytest_fsstack.judging.results import ChainResults, Judgement
from pytest_fsstack.judging.verdict import Estimate, Verdict, expected_rounds

Phase = Literal["planned", "confirming"]


class StackStatus(NamedTuple):
    """A stack with one of its overheads: that of a step over the reference, by a metric.

    `estimate` is None as long as nothing compares; `budget` (0.3 is 30 %) if it has none, or one that is no overhead.
    """

    stack: str
    state: State
    step: str = ""
    metric: str = ""
    estimate: Estimate | None = None
    budget: float | None = None


class TimeLeft(NamedTuple):
    """Seconds that a chain has yet to run: at most, and if all trends hold (None while some show none)."""

    expected: float | None
    most: float


class ProgressState(NamedTuple):
    """The progress of a chain.

    `round` counts from 1 those of its phase, of which there are at most `most`. `running` is the stack that runs now;
    it is empty once the round is over. `decided` is as of `plan.in_words`. `elapsed` is in seconds. `results` has what
    was measured, once a round is over.
    """

    chain: str
    device: str
    round: int
    most: int
    phase: Phase = "planned"
    running: str = ""
    step: str = ""
    stacks: tuple[StackStatus, ...] = ()
    decided: str = ""
    costliest: StackStatus | None = None
    elapsed: float = 0.0
    left: TimeLeft | None = None
    results: ChainResults | None = None


def standings(chain: ChainResults, states: Mapping[str, State]) -> list[StackStatus]:
    """Each of the stacks, in the order of the chain. A stack is what `_shown` says of it.

    Of a stack that runs on it is the budget that will take longest, because that is what everybody waits for. Once all
    are decided it is the one that came worst off against its budget. Without budgets it is the costliest step.
    """
    return [_standing(chain, stack, states[stack]) for stack in chain.stacks if stack in states]


def costliest(chain: ChainResults) -> StackStatus | None:
    """The step on a stack that costs the most time over its reference, once there are two rounds of it."""
    costs = [
        StackStatus(stack, "running", step, "seconds", estimate)
        for step in chain.steps
        for stack in chain.stacks
        if stack not in chain.controls and (estimate := _of_rounds(chain, step, stack))
    ]
    return max(costs, key=_cost, default=None)


def _standing(chain: ChainResults, stack: str, state: State) -> StackStatus:
    judged = [
        (step, each, verdict)
        for step in chain.steps
        for each in chain.judgements_of(step, stack)
        if each.budget.overhead is not None and (verdict := each.confirmed or each.verdict)
    ]
    if judged:
        step, judgement, verdict = max(judged, key=lambda each: _urgency(each[1], each[2]))
        return StackStatus(stack, state, step, judgement.budget.metric, verdict.estimate, verdict.budget)
    steps = [
        StackStatus(stack, state, step, "seconds", estimate)
        for step in chain.steps
        if (estimate := _of_rounds(chain, step, stack))
    ]
    return max(steps, key=_cost, default=StackStatus(stack, state))


def _urgency(judgement: Judgement, verdict: Verdict) -> tuple[int, float]:
    """More for what takes more rounds to decide, then for what exceeds its budget by more."""
    open_until = 0 if verdict.settled else expected_rounds(verdict)
    return open_until, (1 + verdict.estimate.overhead) / (1 + verdict.budget)


def _of_rounds(chain: ChainResults, step: str, stack: str) -> Estimate | None:
    """A single round says nothing."""
    estimate = chain.estimate(step, stack)
    return estimate if estimate and estimate.rounds > 1 else None


def _cost(standing: StackStatus) -> float:
    assert standing.estimate is not None
    return standing.estimate.overhead
