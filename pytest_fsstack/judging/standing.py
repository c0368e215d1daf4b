"""Where each stack of a chain stands while its rounds run: what is decided of it, and the overhead that matters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pytest_fsstack.judging.plan import State
from pytest_fsstack.judging.results import ChainResults, Judgement
from pytest_fsstack.judging.verdict import Estimate, Verdict, expected_rounds


class Standing(NamedTuple):
    """A stack with one of its overheads: that of a step over the reference, by a metric.

    `estimate` is None as long as nothing compares; `budget` (0.3 is 30 %) if it has none, or one that is no overhead.
    """

    stack: str
    state: State
    step: str = ""
    metric: str = ""
    estimate: Estimate | None = None
    budget: float | None = None


def standings(chain: ChainResults, states: Mapping[str, State]) -> list[Standing]:
    """Each of the stacks, in the order of the chain. A stack is what `_shown` says of it.

    Of a stack that runs on it is the budget that will take longest, because that is what everybody waits for. Once all
    are decided it is the one that came worst off against its budget. Without budgets it is the costliest step.
    """
    return [_standing(chain, stack, states[stack]) for stack in chain.stacks if stack in states]


def costliest(chain: ChainResults) -> Standing | None:
    """The step on a stack that costs the most time over its reference, once there are two rounds of it."""
    found = [
        Standing(stack, "running", step, "seconds", estimate)
        for step in chain.steps
        for stack in chain.stacks
        if stack not in chain.controls and (estimate := _of_rounds(chain, step, stack))
    ]
    return max(found, key=_cost, default=None)


def together(states: Iterable[State]) -> State:
    """The state of a stack that runs for several reasons."""
    order: tuple[State, ...] = ("ended", "running", "fail", "given up", "pass", "measured")
    found = set(states)
    return next(state for state in order if state in found)


def _standing(chain: ChainResults, stack: str, state: State) -> Standing:
    judged = [
        (step, each, verdict)
        for step in chain.steps
        for each in chain.judgements.get((step, stack), [])
        if each.budget.overhead is not None and (verdict := each.confirmed or each.verdict)
    ]
    if judged:
        step, judgement, verdict = max(judged, key=lambda each: _urgency(each[1], each[2]))
        return Standing(stack, state, step, judgement.budget.metric, verdict.estimate, verdict.budget)
    steps = [
        Standing(stack, state, step, "seconds", estimate)
        for step in chain.steps
        if (estimate := _of_rounds(chain, step, stack))
    ]
    return max(steps, key=_cost, default=Standing(stack, state))


def _urgency(judgement: Judgement, verdict: Verdict) -> tuple[int, float]:
    """More for what takes more rounds to decide, then for what exceeds its budget by more."""
    open_until = 0 if verdict.settled else expected_rounds(verdict)
    return open_until, (1 + verdict.estimate.overhead) / (1 + verdict.budget)


def _of_rounds(chain: ChainResults, step: str, stack: str) -> Estimate | None:
    """A single round says nothing."""
    found = chain.estimate(step, stack)
    return found if found and found.rounds > 1 else None


def _cost(standing: Standing) -> float:
    assert standing.estimate is not None
    return standing.estimate.overhead
