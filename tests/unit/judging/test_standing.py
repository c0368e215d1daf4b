"""Which overhead stands for a stack while its rounds run."""

from __future__ import annotations

import random
from collections.abc import Mapping

from pytest_fsstack.judging.plan import State, combined_state
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.judging.standing import costliest, standings
from pytest_fsstack.records.results import ChainResults
from pytest_fsstack.records.verdicts import Looks
from tests.chains import Series, a_chain

STATES: dict[str, State] = {"ext4": "measured", "xfs": "running"}


def chain(rounds: int, noise: float = 0.0, *, budgets: Mapping[str, float] = {}, **costs: float) -> ChainResults:
    """Return a chain whose steps cost so much on xfs, with that noise, and one second on ext4."""
    rng = random.Random(1)
    figures: dict[str, dict[str, Series]] = {
        step: {"ext4": 1.0, "xfs": [cost * (1 + noise * rng.uniform(-1, 1)) for _ in range(rounds)]}
        for step, cost in costs.items()
    }
    chain = a_chain(figures, looks=Looks()).with_stack("absent")
    for step, overhead in budgets.items():
        chain = chain.with_budget(step, "xfs", overhead=overhead)
    return chain.built


def test_without_budgets_a_stack_stands_with_its_costliest_step() -> None:
    baseline, xfs = standings(Readings(chain(3, read=1.1, write=1.4, delete=1.2)), STATES)
    assert (baseline.stack, baseline.state, baseline.estimate) == ("ext4", "measured", None)
    assert (xfs.step, xfs.budget) == ("write", None)
    dear = costliest(Readings(chain(3, read=1.1, write=1.4, delete=1.2)))
    assert dear is not None
    assert (dear.stack, dear.step) == ("xfs", "write")


def test_one_round_says_nothing() -> None:
    assert [standing.estimate for standing in standings(Readings(chain(1, read=1.1)), STATES)] == [None, None]
    assert costliest(Readings(chain(1, read=1.1))) is None


def test_the_times_of_a_scenario_that_only_counts_say_nothing() -> None:
    counting = chain(3, read=1.1, write=1.4)
    counting.tables = [("counts", {})]
    assert costliest(Readings(counting)) is None
    assert [standing.estimate for standing in standings(Readings(counting), STATES)] == [None, None]


def test_the_budget_that_keeps_a_stack_running_stands_for_it() -> None:
    judged = chain(8, noise=0.05, read=1.1, write=3.0, budgets={"write": 0.3, "read": 0.101})
    (_, xfs) = standings(Readings(judged), STATES)
    assert (xfs.step, xfs.budget) == ("read", 0.101)


def test_once_all_are_decided_the_one_that_came_worst_off_stands_for_it() -> None:
    judged = chain(8, noise=0.01, read=1.2, write=3.0, budgets={"write": 5.0, "read": 0.05})
    (_, xfs) = standings(Readings(judged), STATES | {"xfs": "fail"})
    assert (xfs.state, xfs.step, xfs.metric, xfs.budget) == ("fail", "read", "seconds", 0.05)


def test_a_stack_that_runs_for_several_reasons_runs_for_as_long_as_one_of_them_holds() -> None:
    assert combined_state(["pass", "running", "fail"]) == "running"
    assert combined_state(["pass", "fail", "measured"]) == "fail"
    assert combined_state(["running", "ended"]) == "ended"
