"""Rounds of chains: where they end, and that those of one chain are none of another's."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from benchmarks.machines import STEP, course_of
from pytest_fsstack.judging.cells import CellRun, EndKind, StepRun
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.rounds.progress import Progress
from pytest_fsstack.rounds.rounds import Rounds


class Chains:
    """Chains of two stacks in a session that ends after so many failures."""

    def __init__(self, max_failures: int | None = None) -> None:
        self.config: Any = SimpleNamespace(getoption=lambda name, default: max_failures)
        self.rounds: dict[int, Rounds] = {}
        self.logged: list[int] = []

    def add(self) -> Rounds:
        course = course_of(random.Random(1), {"ext4": [], "luks": []})
        session, number = self.rounds.values(), len(self.rounds)
        rounds = Rounds(course, self.config, Progress(None), lambda course: self.logged.append(number), session)
        self.rounds[number] = rounds
        return rounds


def run_one(rounds: Rounds, ending: EndKind = "") -> bool:
    """Run a round, in which the first cell ends so. Return whether there was one."""
    tasks = rounds.next()
    for number, task in enumerate(tasks):
        step = StepRun(STEP, (Sample({"seconds": 1.0}),), ending="" if number else ending)
        rounds.add(task, CellRun((step,)))
    return bool(tasks)


def test_enough_failures_in_all_chains_together_end_the_rounds() -> None:
    chains = Chains(max_failures=2)
    first, second = chains.add(), chains.add()
    assert run_one(first, "failed")
    assert run_one(first)
    first.end()
    assert run_one(second, "failed")
    assert not run_one(second)
    assert (first.course.stopped, second.course.stopped) == (False, True)
    assert chains.logged == [0, 0, 1]


def test_a_round_that_a_chain_has_left_is_none_of_the_next_one() -> None:
    chains = Chains()
    first, second = chains.add(), chains.add()
    assert first.next()
    while run_one(second):
        pass
    chain = second.course.chain
    assert chain.rounds == len(chain.conditions) == 6
    # One line for the first round, and one for three and for two mixed ones.
    assert chains.logged.count(1) == 3
    assert not first.course.chain.conditions
