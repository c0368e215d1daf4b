"""Which overhead stands for a stack while its rounds run."""

from __future__ import annotations

import random

from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.judging.plan import State, combined_state
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.judging.standing import costliest, standings
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, StackInfo
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Looks

STATES: dict[str, State] = {"ext4": "measured", "xfs": "running"}


def chain(rounds: int, noise: float = 0.0, **costs: float) -> ChainResults:
    """Steps of which each costs so much on xfs, with that noise, and one second on ext4."""
    found = ChainResults("test_it.py::TestA", ["loop"], "ext4", Looks(), 1, steps=list(costs))
    found.stacks = {name: StackInfo(name, name) for name in ("ext4", "xfs", "absent")}
    rng = random.Random(1)
    for _ in range(rounds):
        found.orders.append(["ext4", "xfs"])
        for step, cost in costs.items():
            found.add(step, "ext4", Sample({"seconds": 1.0}))
            found.add(step, "xfs", Sample({"seconds": cost * (1 + noise * rng.uniform(-1, 1))}))
    return found


def budget(found: ChainResults, step: str, overhead: float) -> None:
    judge_all(found, step, "xfs", Budget(overhead=overhead))


def test_without_budgets_a_stack_stands_with_its_costliest_step() -> None:
    baseline, xfs = standings(Readings(chain(3, read=1.1, write=1.4, delete=1.2)), STATES)
    assert (baseline.stack, baseline.state, baseline.estimate) == ("ext4", "measured", None)
    assert (xfs.step, xfs.budget) == ("write", None)
    dear = costliest(Readings(chain(3, read=1.1, write=1.4, delete=1.2)))
    assert dear is not None
    assert (dear.stack, dear.step) == ("xfs", "write")


def test_one_round_says_nothing() -> None:
    assert [each.estimate for each in standings(Readings(chain(1, read=1.1)), STATES)] == [None, None]
    assert costliest(Readings(chain(1, read=1.1))) is None


def test_the_times_of_a_scenario_that_only_counts_say_nothing() -> None:
    found = chain(3, read=1.1, write=1.4)
    found.tables = [("counts", {})]
    assert costliest(Readings(found)) is None
    assert [each.estimate for each in standings(Readings(found), STATES)] == [None, None]


def test_the_budget_that_keeps_a_stack_running_stands_for_it() -> None:
    found = chain(8, noise=0.05, read=1.1, write=3.0)
    budget(found, "write", 0.3)
    budget(found, "read", 0.101)
    (_, xfs) = standings(Readings(found), STATES)
    assert (xfs.step, xfs.budget) == ("read", 0.101)


def test_once_all_are_decided_the_one_that_came_worst_off_stands_for_it() -> None:
    found = chain(8, noise=0.01, read=1.2, write=3.0)
    budget(found, "write", 5.0)
    budget(found, "read", 0.05)
    (_, xfs) = standings(Readings(found), STATES | {"xfs": "fail"})
    assert (xfs.state, xfs.step, xfs.metric, xfs.budget) == ("fail", "read", "seconds", 0.05)


def test_a_stack_that_runs_for_several_reasons_runs_for_as_long_as_one_of_them_holds() -> None:
    assert combined_state(["pass", "running", "fail"]) == "running"
    assert combined_state(["pass", "fail", "measured"]) == "fail"
    assert combined_state(["running", "ended"]) == "ended"
