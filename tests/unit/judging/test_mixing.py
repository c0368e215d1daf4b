"""With two or three stacks, the runs of several rounds are in one order, so that a run follows any other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import exp, log1p

import pytest

from benchmarks.carry_over import session
from benchmarks.machines import MACHINES, STEP, course_of
from pytest_fsstack.judging.cells import CellRun, KernelBoot, Policy, StepRun, Task
from pytest_fsstack.judging.conditions import Rule
from pytest_fsstack.judging.course import Course
from pytest_fsstack.judging.judge import find_carry_over
from pytest_fsstack.judging.mixing import rounds_differ, rounds_to_mix
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import Results
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Looks

BUSY = Rule("load", 2.0)


def course(stacks: int, policy: Policy | None = None) -> Course:
    names = [f"s{number}" for number in range(stacks)]
    budgets = {name: [Budget(overhead=0.05)] if name != "s0" else [] for name in names}
    return course_of(random.Random(1), budgets, policy)


def run_tasks(running: Course, tasks: list[Task], log_of: Callable[[Task], float] = lambda task: 0.0) -> None:
    for task in tasks:
        if running.can_run(task):
            running.add(task, CellRun((StepRun(STEP, (Sample({"seconds": exp(log_of(task))}),)),)))


def numbers(running: Course, log_of: Callable[[Task], float]) -> list[list[int]]:
    """Run a course. Return the rounds that were mixed."""
    found = []
    while tasks := running.next_tasks():
        assert Counter((task.cell, task.number) for task in tasks).most_common(1)[0][1] == 1
        found.append(sorted({task.number for task in tasks}))
        run_tasks(running, tasks, log_of)
        running.end_tasks({})
    running.conclude()
    return found


def close(seed: int = 2, dear: float = log1p(0.05)) -> Callable[[Task], float]:
    """Return times of stacks that are at their budget, or that cost more."""
    rng = random.Random(seed)
    return lambda task: rng.gauss(0, 0.1) + (0.0 if task.cell.stack == "s0" else dear)


@pytest.mark.parametrize(
    ("cells", "left", "parts"),
    [(2, 5, [3, 2]), (2, 8, [4, 4]), (3, 8, [4, 4]), (3, 9, [3, 3, 3]), (2, 1, [1]), (4, 8, [1] * 8), (1, 8, [1] * 8)],
)
def test_up_to_four_rounds_are_mixed_and_never_across_a_look(cells: int, left: int, parts: list[int]) -> None:
    found = []
    while left:
        found.append(rounds_to_mix(cells, left))
        left -= found[-1]
    assert found == parts


@pytest.mark.parametrize("stacks", [2, 3])
def test_the_first_round_is_alone_and_mixed_ones_end_at_looks(stacks: int) -> None:
    found = numbers(course(stacks), close())
    assert found[:5] == [[0], [1, 2, 3], [4, 5], [6, 7, 8, 9], [10, 11, 12, 13]]
    assert set(Looks().rounds[:3]) <= {rounds[-1] + 1 for rounds in found}


def test_with_four_stacks_each_round_is_alone() -> None:
    assert all(len(rounds) == 1 for rounds in numbers(course(4, Policy(Looks.fixed(9))), close()))


def test_rounds_are_no_longer_mixed_after_the_first_look_if_they_differ() -> None:
    rng, place, level = random.Random(1), 0, 0.0

    def drifting(task: Task) -> float:
        nonlocal place, level
        place, level = place + 1, level + rng.gauss(0, 0.1)
        return level + rng.gauss(0, 0.001)

    found = numbers(course(2), drifting)
    assert found[:3] == [[0], [1, 2, 3], [4, 5]]
    assert all(len(rounds) == 1 for rounds in found[3:])
    # All rounds are one block, so their order must not depend on figures.
    place, level = 0, 0.0
    assert max(map(len, numbers(course(2, Policy(Looks.fixed(30))), drifting)[4:])) == 4


def test_independent_times_and_the_cost_of_a_stack_do_not_make_rounds_differ() -> None:
    differ = 0
    for seed in range(40):
        running = course(2, Policy(Looks.fixed(6)))
        numbers(running, close(seed, dear=1.0))
        differ += rounds_differ(running.chain)
    assert differ <= 8


@pytest.mark.parametrize("stacks", [2, 3])
def test_a_stack_that_slows_down_the_next_run_rarely_passes_falsely(stacks: int) -> None:
    rng, trouble = random.Random(stacks), MACHINES["normal"]
    outcomes = [session(rng, trouble, stacks, 0.05, Looks.fixed(14))[0] for _ in range(60)]
    # With single rounds, 70 and 40 % pass.
    assert outcomes.count("pass") / len(outcomes) < 0.35


def test_the_log_has_a_line_for_mixed_rounds() -> None:
    running, lines = course(2, Policy(Looks.fixed(8))), list[bytes]()
    results, log_of = Results(chains=[running.chain]), close()
    while tasks := running.next_tasks():
        run_tasks(running, tasks, log_of)
        running.end_tasks({"load": 1.0})
        lines.append(saved.log_line(results, len(lines) + 1, [running.chain]))
    assert len(lines) == 3
    (read,) = saved.loads(b"".join(lines)).chains
    for field in ("orders", "mixed", "conditions", "samples"):
        assert getattr(read, field) == getattr(running.chain, field), field
    # One of the lines is missing at its end.
    cut = saved.loads(b"".join(lines[:-1]))
    assert cut.chains[0].rounds == cut.chains[0].mixed[-1].numbers.stop == 5
    assert " 5 rounds" in cut.interrupted
    blocks = [0], [1, 2, 3, 4], [5, 6, 7]
    expected = [[(number, stack) for number in block for stack in ("s0", "s1")] for block in blocks]
    assert [sorted(runs) for _, runs in read.draws()] == expected


def test_a_rule_that_discards_rounds_discards_one_at_a_time() -> None:
    running = course(2, Policy(Looks.fixed(8), discard=(BUSY,)))
    assert all(len(rounds) == 1 for rounds in numbers(running, close()))


def test_a_session_that_ends_amid_mixed_rounds_has_the_runs_so_far() -> None:
    for seed in range(20):
        running, log_of = course(2), close(seed)
        for count in (99, 99, 99, seed % 8):
            run_tasks(running, running.next_tasks()[:count], log_of)
            if count == 99:
                running.end_tasks({})
        running.conclude()
        chain = running.chain
        runs = [run for _, order in chain.draws() for run in order]
        assert len(runs) == 2 * 6 + seed % 8 == sum(map(len, chain.orders))
        assert chain.rounds == max(number for number, _ in runs) + 1
        (judgement,) = chain.judgements_of(STEP, "s1")
        assert judgement.verdict is not None
        assert judgement.verdict.estimate.rounds == sum(len(order) == 2 for order in chain.orders)


def test_what_fails_amid_mixed_rounds_runs_no_more_and_its_reference_neither() -> None:
    running = course(2)
    for _ in range(3):
        run_tasks(running, running.next_tasks(), close())
        running.end_tasks({})
    tasks = running.next_tasks()
    first = next(task for task in tasks if task.cell.stack == "s1")
    running.add(first, CellRun((StepRun(STEP, ending="failed", cause="no space"),)))
    assert not any(map(running.can_run, tasks))
    running.end_tasks({})
    assert not running.next_tasks()


def test_mixed_rounds_without_any_run_are_forgotten() -> None:
    running = course(2)
    for _ in range(2):
        run_tasks(running, running.next_tasks())
        running.end_tasks({})
    assert running.next_tasks()
    running.lose(KernelBoot())
    running.end_tasks({})
    assert not running.next_tasks()
    assert running.chain.rounds == 4
    assert [number for number, _ in running.chain.draws()] == [0, 1]


def test_carry_over_is_found_in_the_order_of_time() -> None:
    running, rng, before = course(2, Policy(Looks.fixed(60))), random.Random(1), [""]

    def carrying(task: Task) -> float:
        effect = 0.1 if before[0] == "s1" else 0.0
        before[0] = task.cell.stack
        return rng.gauss(0, 0.03) + effect

    numbers(running, carrying)
    assert [(carry.after, round(carry.overhead, 1)) for carry in find_carry_over(running.chain)] == [("s1", 0.1)]
