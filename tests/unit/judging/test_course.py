"""The course of a chain, over stacks, kernels and boots: what runs, what is judged, and how each test ends."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from math import exp, log

import msgspec
import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from benchmarks.machines import STEP, course_of, run
from pytest_fsstack.judging.cells import (
    Cell,
    CellRun,
    ChainPlan,
    KernelBoot,
    PlannedStack,
    PlannedTest,
    Policy,
    StepRun,
)
from pytest_fsstack.judging.conditions import Rule
from pytest_fsstack.judging.course import Course
from pytest_fsstack.judging.decisions import Decision
from pytest_fsstack.judging.describe import judgement_in_words, remarks
from pytest_fsstack.judging.endings import End
from pytest_fsstack.judging.plan import RoundsLeft
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.notices import ControlDiffers
from pytest_fsstack.records.results import ChainResults, Note, Results, Unjudged
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Looks, Verdict
from pytest_fsstack.units import percent

KERNELS = ("old", "new")
LIMIT = Policy(limit=0.05, judges_one_boot=True)
BUSY = Rule("load", 2.0)


def noisy(cost: Callable[[Cell], float], seed: int = 1, noise: float = 0.01) -> Callable[[Cell], float]:
    """Return the logarithm of what a cell costs, with some noise."""
    rng = random.Random(seed)
    return lambda cell: log(cost(cell)) + rng.gauss(0, noise)


def stacks(budget: float | None = None) -> dict[str, list[Budget]]:
    return {"ext4": [], "luks": [] if budget is None else [Budget(overhead=budget)]}


def finished(course: Course, cost: Callable[[Cell], float], noise: float = 0.01) -> Course:
    run(course, noisy(cost, noise=noise))
    course.conclude()
    return course


def of_kernels(policy: Policy = LIMIT, budget: float | None = None, boots: int = 1) -> Course:
    return course_of(random.Random(1), stacks(budget), policy, kernels=KERNELS, boots=boots)


def runs_of(course: Course) -> dict[str, int]:
    return {name: sum(name in order for order in course.chain.orders) for name in course.cells}


def slower(cell: Cell) -> float:
    """Cost more with luks, and more on the new kernel."""
    return (2.0 if cell.stack == "luks" else 1.0) * (1.2 if cell.kernel == "new" else 1.0)


# -- the plan ----------------------------------------------------------------------------------------------------------


def orders(seed: int) -> list[list[str]]:
    return finished(course_of(random.Random(seed), stacks(), kernels=KERNELS), slower).chain.orders


def test_the_order_of_a_round_is_drawn_over_all_cells_and_the_seed_replays_it() -> None:
    assert orders(1) == orders(1) != orders(2)
    assert all(sorted(order) == sorted(orders(1)[0]) for order in orders(1))
    kernels = [[name.partition(":")[2] for name in order] for order in orders(1)]
    assert ["old", "new", "old", "new"] in kernels or ["new", "old", "new", "old"] in kernels


def test_without_budgets_each_cell_runs_for_one_block() -> None:
    assert set(runs_of(finished(of_kernels(Policy()), slower)).values()) == {6}


def test_a_cell_runs_until_its_verdict_between_kernels_is_reached_and_no_other_does() -> None:
    course = finished(of_kernels(), lambda cell: 1.05 if cell == Cell("luks", "new") else 1.0, noise=0.05)
    runs = runs_of(course)
    assert runs["ext4:old"] == runs["ext4:new"] < runs["luks:old"] == runs["luks:new"]
    assert course.views.between().worst(STEP, "ext4:new") == "pass"
    # How often a kept limit fails because boots differ.
    between = course.views.between()
    assert "41 / 24 / 13 %" in judgement_in_words(between, STEP, "ext4:new", between.judgements_of(STEP, "ext4:new")[0])


def test_a_kernels_own_budget_keeps_its_stack_and_its_baseline_running_there_only() -> None:
    course = of_kernels(Policy(), 0.05)
    finished(course, lambda cell: 1.05 if cell == Cell("luks", "new") else 1.0, noise=0.03)
    runs = runs_of(course)
    assert runs["ext4:new"] == runs["luks:new"] > runs["luks:old"]
    assert course.chain.worst(STEP, "luks:old") == "pass"


def of_steps(policy: Policy, **costs: list[float]) -> dict[str, dict[str, int]]:
    """Run stacks with a budget of 5 % on each of three steps, at these costs. Return the rounds of each by stack."""
    names, steps = ["ext4", *costs], ("fill", "read", "delete")
    tests = [PlannedTest(step, name, (Budget(overhead=0.05),)) for name in costs for step in steps]
    chain = {"steps": steps, "tests": tuple(tests), "control": "control" if "control" in costs else ""}
    stacks = {name: PlannedStack(name, steps) for name in names}
    course = Course({KernelBoot(): replace_plan(stacks=stacks, **chain)}, policy, "")
    rng = random.Random(1)
    while tasks := course.next_tasks():
        for task in tasks:
            planned = [costs.get(task.cell.stack, [1.0] * 3)[steps.index(step)] for step in task.steps]
            times = [sample(cost * exp(rng.gauss(0, 0.02))) for cost in planned]
            course.add(task, CellRun(tuple(StepRun(step, (time,)) for step, time in zip(task.steps, times))))
        course.end_tasks({})
    course.conclude()
    found = {name: {step: len(course.chain.of(step, name)) for step in steps} for name in names}
    for step, name, (judgement,) in course.chain.all_judgements():
        assert judgement.final is not None
        # Of a stack without fresh rounds of its own, all rounds count.
        assert judgement.final.estimate.rounds == min(found[name][step], course.policy.looks.max_rounds)
    return found


def test_what_is_decided_is_not_measured_again_unless_a_later_step_needs_it() -> None:
    found = of_steps(Policy(), clear=[0.8, 0.8, 0.8], close=[1.0, 1.05, 2.0], last=[1.5, 1.0, 1.05])
    assert found["clear"] == {"fill": 6, "read": 6, "delete": 6}
    assert found["close"]["fill"] == found["close"]["read"] > found["close"]["delete"] == 6
    assert len(set(found["last"].values())) == 1
    assert found["ext4"]["delete"] == found["last"]["delete"]
    assert found["ext4"]["read"] == max(found["close"]["read"], found["last"]["read"])


def test_a_control_runs_each_step_as_long_as_any_stack() -> None:
    found = of_steps(Policy(), close=[1.0, 1.05, 2.0], control=[1.0, 1.0, 1.0])
    assert found["control"] == found["ext4"] == found["close"]


def test_failures_are_confirmed_up_to_the_last_step_that_failed() -> None:
    found = of_steps(Policy(Looks.fixed(8), sharing=6), late=[0.8, 0.8, 1.5], early=[1.5, 0.8, 0.8])
    assert found["late"] == {"fill": 16, "read": 16, "delete": 16} == found["ext4"]
    assert found["early"] == {"fill": 16, "read": 8, "delete": 8}


def test_fixed_rounds_run_all_steps() -> None:
    found = of_steps(Policy(Looks.fixed(7)), clear=[1.0, 1.0, 1.0], close=[1.0, 1.05, 2.0])
    assert {count for counts in found.values() for count in counts.values()} == {7}


@pytest.mark.parametrize(("later", "outcome"), [(1.0, "pass"), (1.5, "fail")])
def test_a_failure_between_kernels_is_confirmed_by_fresh_rounds_of_both(later: float, outcome: str) -> None:
    course = of_kernels(replace(LIMIT, looks=Looks.fixed(8), sharing=4))

    def cost(cell: Cell) -> float:
        return (1.5 if course.chain.rounds <= 8 else later) if cell == Cell("luks", "new") else 1.0

    finished(course, cost)
    assert runs_of(course) == {"ext4:old": 8, "ext4:new": 8, "luks:old": 16, "luks:new": 16}
    chain = course.views.between()
    (judged,) = chain.judgements_of(STEP, "luks:new")
    assert judged.verdict is not None
    assert judged.verdict.outcome == "fail"
    assert judged.outcome == outcome
    assert judged.confirmed is not None
    assert judged.confirmed.outcome == outcome
    text = judgement_in_words(chain, STEP, "luks:new", judged)
    assert re.search(rf"\b8 [^:]*: {percent(judged.verdict.estimate.overhead)}", text)
    (read,) = saved.loads(saved.dumps(Results({}, [chain]))).chains
    assert read.worst(STEP, "luks:new") == outcome


def test_failures_of_budgets_and_between_kernels_are_confirmed_by_the_same_rounds() -> None:
    course = finished(of_kernels(replace(LIMIT, looks=Looks.fixed(8), sharing=4), 0.5), slower)
    assert course.chain.rounds == 16
    assert set(runs_of(course).values()) == {16}
    judged = [
        course.chain.judgements_of(STEP, "luks:new")[0],
        course.views.between().judgements_of(STEP, "luks:new")[0],
    ]
    assert [(each.outcome, each.confirmed is not None) for each in judged] == [("fail", True)] * 2


def test_repetitions_are_chosen_once_for_all_kernels() -> None:
    course = course_of(random.Random(1), stacks(0.05), kernels=KERNELS, repeats={STEP: "auto"})
    tasks = course.next_tasks()
    assert tasks[0].repetitions == {STEP: 1}
    # What differs is from repetition to repetition, and these are cheap.
    run(course, noisy(lambda cell: 1.05 if cell.stack == "luks" else 1.0, noise=0.05), build=10.0)
    found = course.chain.repeated[STEP]
    assert found.variance is not None
    assert found.count > 3


def test_what_failed_runs_no_more_and_is_compared_with_nothing() -> None:
    course = of_kernels()
    while tasks := course.next_tasks():
        for task in tasks:
            assert course.can_run(task)
            failed = task.cell == Cell("luks", "new")
            ending = StepRun(STEP, ending="failed", cause="no space") if failed else StepRun(STEP, (sample(1.0),))
            course.add(task, CellRun((ending,)))
        course.end_tasks({})
    course.conclude()
    assert runs_of(course) == {"ext4:old": 6, "ext4:new": 6, "luks:old": 6, "luks:new": 1}
    assert course.endings.failures == 1
    assert course.decision(STEP, Cell("luks", "new")).as_run
    assert course.decision(STEP, Cell("luks", "old")).outcome == "passed"
    (judged,) = course.views.between().judgements_of(STEP, "luks:new")
    assert judged.unjudged is Unjudged.NOT_MEASURED


def sample(seconds: float) -> Sample:
    return Sample({"seconds": seconds})


def test_a_kernel_that_goes_down_leaves_the_others_results() -> None:
    course = of_kernels()
    tasks = course.next_tasks()
    course.lose(KernelBoot("new"))
    assert [course.can_run(task) for task in tasks] == [task.cell.kernel == "old" for task in tasks]
    finished(course, slower)
    assert runs_of(course) == {"ext4:old": 5, "ext4:new": 0, "luks:old": 5, "luks:new": 0}
    assert list(course.views.between().stacks) == ["ext4:old", "ext4:new", "luks:old", "luks:new"]


def test_what_is_left_and_decided_is_known_after_each_round() -> None:
    course = of_kernels(replace(LIMIT, looks=Looks.fixed(8), sharing=4))
    assert course.runs_left == RoundsLeft(4 * 8, 4 * 16)
    run_one(course, slower)
    assert course.runs_left == RoundsLeft(4 * 7, 4 * 15)
    assert course.progress.decided == ""
    while course.chain.rounds < 8:
        run_one(course, slower)
    assert course.progress.decided == "2 fail"
    assert course.progress.phase == "planned"
    run_one(course, slower)
    assert (course.progress.phase, course.progress.round, course.progress.max_rounds) == ("confirming", 1, 8)
    status = {each.stack: each for each in course.progress.stacks}["luks:new"]
    assert status.estimate is not None
    assert status.estimate.overhead == pytest.approx(0.2, abs=0.05)
    assert status.budget == 0.05


def run_one(course: Course, cost: Callable[[Cell], float]) -> None:
    tasks = course.next_tasks()
    log_of = noisy(cost, course.chain.rounds)
    for task in tasks:
        course.add(task, CellRun((StepRun(STEP, (sample(exp(log_of(task.cell))),)),)))
    course.end_tasks({})


# -- views of one result -----------------------------------------------------------------------------------------------


def test_kernels_are_compared_stack_by_stack_and_stacks_within_each_kernel() -> None:
    between, within = finished(of_kernels(Policy()), slower).views.final()
    assert (between.id, between.view, within.view) == (within.id, "between", "within")
    assert list(between.stacks) == list(within.stacks) == ["ext4:old", "ext4:new", "luks:old", "luks:new"]
    for name, expected in {"ext4:old": None, "luks:old": None, "ext4:new": 0.2, "luks:new": 0.2}.items():
        found = Readings(between).estimate(STEP, name)
        assert (found and found.overhead) == (expected and pytest.approx(expected, abs=0.03))
    for name, expected in {"ext4:old": None, "luks:old": 1.0, "ext4:new": None, "luks:new": 1.0}.items():
        found = Readings(within).estimate(STEP, name)
        assert (found and found.overhead) == (expected and pytest.approx(expected, abs=0.03))


def test_on_one_kernel_stacks_are_compared_and_judged_as_without() -> None:
    course = finished(course_of(random.Random(1), stacks(0.3), kernels=("only",)), slower)
    (chain,) = course.views.final()
    assert chain.worst(STEP, "luks:only") == "fail"
    found = Readings(chain).estimate(STEP, "luks:only")
    assert found is not None
    assert found.overhead == pytest.approx(1.0, abs=0.05)


def test_boots_of_one_kernel_are_judged_each_by_itself_and_shown_together() -> None:
    course = finished(course_of(random.Random(1), stacks(0.3), kernels=("only",), boots=3), slower)
    assert [course.chain.worst(STEP, f"luks:only (boot {boot})") for boot in (1, 2, 3)] == ["fail"] * 3
    (chain,) = course.views.final()
    assert list(chain.stacks) == ["ext4:only", "luks:only"]
    assert len(Readings(chain).log_ratios(STEP, "luks:only", "seconds")) == 3


@pytest.mark.parametrize(("sharing", "outcome"), [(0, "fail"), (2, "inconclusive")])
def test_boots_of_two_kernels_are_no_pairs_and_three_of_each_decide(sharing: int, outcome: str) -> None:
    course = of_kernels(replace(LIMIT, sharing=sharing), boots=3)
    finished(course, lambda cell: (1.0, 1.2, 1.1)[cell.boot] * (1.3 if cell.kernel == "new" else 1.0))
    # Rounds of several boots do not decide between kernels.
    assert set(runs_of(course).values()) == {6}
    chain = course.views.between()
    (judged,) = chain.judgements_of(STEP, "luks:new")
    assert judged.outcome == outcome
    text = judgement_in_words(chain, STEP, "luks:new", judged)
    assert re.search(r"\b3 \D*\b3 boots\b", text)
    assert outcome == "fail" or re.search(r"\b0\.025 .*\b4 .*\(--fsstack-boots\)", text)
    found = Readings(chain).estimate(STEP, "luks:new")
    assert found is not None
    assert found.overhead == pytest.approx(0.3, abs=0.05)
    (read,) = saved.loads(saved.dumps(Results({}, [chain]))).chains
    assert read.judgements == chain.judgements


@pytest.mark.parametrize(("boots", "lost"), [(1, ()), (2, ()), (3, (0, 2)), (3, (1,))])
def test_fewer_than_three_boots_of_a_kernel_give_figures_and_no_verdict(boots: int, lost: tuple[int, ...]) -> None:
    course = of_kernels(replace(LIMIT, judges_one_boot=False, looks=Looks.fixed(6)), boots=boots)
    for boot in lost:
        # A guest that does not get through its first round.
        course.lose(KernelBoot("new", boot))
    finished(course, slower)
    assert course.chain.rounds == 6
    between = course.views.between()
    for stack in "ext4:new", "luks:new":
        (judgement,) = between.judgements_of(STEP, stack)
        assert (judgement.unjudged, judgement.verdict, judgement.outcome) == (Unjudged.FEW_BOOTS, None, "inconclusive")
        estimate = Readings(between).estimate(STEP, stack)
        assert estimate is not None
        assert estimate.overhead == pytest.approx(0.2, abs=0.05)
    assert {decision.outcome for _, decision in course.decisions_between()} == {"skipped"}


def test_boots_are_compared_by_the_rounds_that_all_of_them_have() -> None:
    course = of_kernels(LIMIT, boots=3)
    run_one(course, lambda cell: 1.0)
    course.lose(KernelBoot("new", 0))
    # The machine gets slower, and one boot went down early.
    finished(course, lambda cell: float(course.chain.rounds))
    found = Readings(course.views.between()).estimate(STEP, "luks:new")
    assert found is not None
    assert found.overhead == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize(("boots", "name"), [(1, "luks:new"), (2, "luks:new (boot 1)")])
def test_what_a_cell_adds_to_the_next_one_is_noticed(boots: int, name: str) -> None:
    course = of_kernels(Policy(Looks.fixed(60)), boots=boots)
    run(course, carrying(Cell("luks", "new")))
    course.conclude()
    between, _ = course.views.final()
    assert {carry.after for carry in between.carry_over} == {name}
    assert name in remarks(between)[-1]


@pytest.mark.parametrize(("strict", "limit", "fails"), [(True, 0.1, True), (True, 1.0, False), (False, 0.1, False)])
def test_a_verdict_between_kernels_that_carry_over_could_change_fails_a_strict_gate(
    strict: bool, limit: float, fails: bool
) -> None:
    course = of_kernels(replace(LIMIT, looks=Looks.fixed(60), strict=strict, limit=limit))
    run(course, carrying(Cell("luks", "new")))
    course.conclude()
    outcomes = [outcome for _, outcome in course.decisions_between()]
    assert any(re.search(r": pass, but .* \(--fsstack-strict\)$", outcome.text) for outcome in outcomes) == fails
    assert {outcome.outcome for outcome in outcomes} - {"passed"} == ({"failed"} if fails else set())


@pytest.mark.parametrize(("strict", "outcome"), [(True, ("failed", "")), (False, ("passed", "BUG-1"))])
def test_a_doubtful_verdict_is_not_the_failure_that_was_expected(strict: bool, outcome: tuple[str, str]) -> None:
    budgets = {"ext4": [], "luks": [Budget(overhead=0.05), Budget(overhead=9.0, xfail="BUG-1")]}
    course = course_of(random.Random(1), budgets, Policy(Looks.fixed(60), strict=strict))
    run(course, carrying(Cell("luks")))
    course.conclude()
    found = course.decision(STEP, Cell("luks"))
    assert (found.outcome, found.expected) == outcome


def carrying(before: Cell) -> Callable[[Cell], float]:
    """Return the logarithm of what a cell costs: more after one cell, and some noise."""
    rng, last = random.Random(1), [Cell("")]

    def log_of(cell: Cell) -> float:
        carried = log(1.1) if last[0] == before else 0.0
        last[0] = cell
        return rng.gauss(0, 0.03) + carried

    return log_of


def test_a_control_is_run_on_each_kernel_and_compared_with_the_baseline_there() -> None:
    plan = replace_plan(control="control")
    course = Course({KernelBoot(kernel): plan for kernel in KERNELS}, LIMIT, "", KERNELS)
    finished(course, lambda cell: 1.5 if cell == Cell("control", "new") else 1.0)
    between, within = course.views.final()
    assert between.controls == within.controls == ["control:old", "control:new"]
    assert not between.judgements_of(STEP, "control:new")
    for chain, number in (between, 0), (within, 1):
        doubts = [notice for notice in chain.notices if isinstance(notice, ControlDiffers)]
        assert len(doubts) == number
    assert (doubts[0].baseline, doubts[0].control) == ("ext4:new", "control:new")
    assert [difference.step for difference in doubts[0].differences] == [STEP]


def replace_plan(**changes: object) -> ChainPlan:
    names = ["ext4", "luks", *(["control"] if "control" in changes else [])]
    plan = ChainPlan("test_it.py::T", "loop", "ext4", (STEP,), {name: PlannedStack(name, (STEP,)) for name in names})
    return msgspec.structs.replace(plan, **changes)


# -- outcomes ----------------------------------------------------------------------------------------------------------


def local(policy: Policy, test: PlannedTest, cost: float = 1.0, **changes: object) -> Decision:
    """Return the outcome of one test on luks, which costs so much, beside the baseline."""
    plan = replace_plan(tests=(PlannedTest(STEP, "ext4"), test), **changes)
    course = Course({KernelBoot(): plan}, replace(policy, looks=Looks.fixed(8)), "")
    finished(course, lambda cell: cost if cell.stack == "luks" else 1.0)
    return course.decision(STEP, Cell("luks"))


def gate(xfail: str | None = None) -> PlannedTest:
    return PlannedTest(STEP, "luks", (Budget(overhead=0.3, xfail=xfail),), "has a budget")


def test_an_expected_failure_is_told_to_pytest_with_its_reason() -> None:
    assert local(Policy(), gate(xfail="BUG-1"), 2.0).expected == "BUG-1"
    undecided = local(Policy(), gate(xfail="BUG-1"), 1.3)
    assert (undecided.outcome, undecided.expected) == ("failed", "BUG-1")
    assert local(Policy(runxfail=True), gate(xfail="BUG-1"), 1.3).outcome == "skipped"


@pytest.mark.parametrize(("load", "text"), [(0.0, "measured nothing"), (9.0, "no round counts")])
def test_a_budget_of_a_step_that_measures_is_never_waived(load: float, text: str) -> None:
    plan = replace_plan(tests=(PlannedTest(STEP, "luks", (Budget(overhead=0.3),)),))
    course = Course({KernelBoot(): plan}, Policy(Looks.fixed(5), strict=True, discard=(BUSY,)), "")
    while tasks := course.next_tasks():
        for task in tasks:
            course.add(task, CellRun((StepRun(STEP, (sample(1.0),) if task.cell.stack == "ext4" else ()),)))
        course.end_tasks({"load": load})
    course.conclude()
    outcome = course.decision(STEP, Cell("luks"))
    assert (outcome.outcome, course.waived) == ("failed", 0)
    assert text in outcome.text


def test_work_that_was_not_done_fails_a_test_also_if_no_round_counts() -> None:
    course = Course({KernelBoot(): replace_plan(tests=(gate(),))}, Policy(Looks.fixed(5), discard=(BUSY,)), "")
    while tasks := course.next_tasks():
        for task in tasks:
            course.add(task, CellRun((StepRun(STEP, (Sample({"seconds": 1.0}, incomplete="half of it"),)),)))
        course.end_tasks({"load": 9.0})
    course.conclude()
    outcome = course.decision(STEP, Cell("luks"))
    assert (outcome.outcome, outcome.text.rpartition(": ")[2]) == ("failed", "half of it")


@pytest.mark.parametrize("cause", ["no moon", ""])
@pytest.mark.parametrize(("xfail", "outcome"), [(None, "failed"), ("BUG-1", "skipped")])
def test_a_skip_in_a_later_round_undoes_no_failure(cause: str, xfail: str | None, outcome: str) -> None:
    # One budget is broken in the first block. The other keeps the stack running.
    test = PlannedTest(STEP, "luks", (Budget(overhead=0.3, xfail=xfail), Budget(overhead=1.0)), "has a budget")
    course = Course({KernelBoot(): replace_plan(tests=(test,))}, Policy(), "")
    log_of = noisy(lambda cell: 2.0 if cell.stack == "luks" else 1.0, noise=0.1)
    while tasks := course.next_tasks():
        for task in filter(course.can_run, tasks):
            step = StepRun(STEP, (sample(exp(log_of(task.cell))),))
            if task.number == 6 and task.cell.stack == "luks":
                step = StepRun(STEP, ending="skipped", cause=cause)
            course.add(task, CellRun((step,)))
        course.end_tasks({})
    course.conclude()
    # A mixed round may have run before it.
    assert 7 <= course.chain.rounds <= 10
    assert course.decision(STEP, Cell("luks")).outcome == outcome


def lacking(stack: str) -> dict[str, PlannedStack]:
    return {
        name: PlannedStack(name, (STEP,), ("needs cryptsetup",) if name == stack else ()) for name in ("ext4", "luks")
    }


@pytest.mark.parametrize(
    ("policy", "stack", "outcome", "text"),
    [
        (Policy(), "luks", "skipped", "^luks on loop: needs cryptsetup$"),
        (Policy(strict=True), "luks", "failed", r"\bluks on loop: needs cryptsetup \(--fsstack-strict\)$"),
        (Policy(strict=True, allowed=("*needs crypt*",)), "luks", "skipped", "^luks on loop: needs cryptsetup$"),
        (Policy(strict=True, allowed=("needs crypt",)), "luks", "failed", r"=.\*needs cryptsetup\*.$"),
        (Policy(missing_fails=True), "luks", "failed", r" \(--fsstack-if-unavailable=fail\)$"),
        (Policy(), "ext4", "skipped", r"^luks on loop: .*\bext4 on loop .*\(needs cryptsetup\).*--fsstack-baseline"),
        (Policy(strict=True), "ext4", "failed", r"\bext4 on loop .*\(needs cryptsetup\).* \(--fsstack-strict\)$"),
        (Policy(strict=True, allowed=("*needs crypt*",)), "ext4", "skipped", r"\bext4 on loop .*\(needs cryptsetup\)"),
    ],
)
def test_what_the_machine_lacks_skips_a_test_or_fails_it(policy: Policy, stack: str, outcome: str, text: str) -> None:
    found = local(policy, gate(), stacks=lacking(stack))
    assert (found.outcome, found.in_setup) == (outcome, True)
    assert re.search(text, found.text, re.MULTILINE)


@pytest.mark.parametrize("kernels", [("",), KERNELS])
def test_what_crosses_to_another_process_comes_back_as_it_was(kernels: tuple[str, ...]) -> None:
    course = finished(course_of(random.Random(1), stacks(0.3), kernels=kernels), slower)
    plan = replace_plan(tests=(gate(),), repeats={STEP: "auto"}, tables=(("times", {"of": [1]}),))
    one = StepRun(STEP, (Sample({"seconds": 1.0, "links": 3.0}, kept={"said": [1, "x"]}),), 1.5, "failed", "why", True)
    cell = Cell("luks", kernels[0])
    course_said = course.decision(STEP, cell), course.figures(STEP, cell, full=True)
    for message in (plan, CellRun((one,), 2.0, ("/x",)), *course_said):
        sent = msgspec.json.encode(message)
        assert msgspec.json.encode(msgspec.json.decode(sent, type=type(message))) == sent


# -- any sequence ------------------------------------------------------------------------------------------------------


def verdicts_of(chain: ChainResults) -> list[Verdict | None]:
    return [judgement.final for _, _, judgements in sorted(chain.all_judgements()) for judgement in judgements]


class AnyCourse(RuleBasedStateMachine):
    """Any course of two stacks on one or two kernels, with any samples, failures, lost kernels and busy rounds."""

    @initialize(
        kernels=st.sampled_from([("",), ("one",), KERNELS]),
        boots=st.integers(1, 2),
        looks=st.sampled_from([Looks.fixed(1), Looks.fixed(5), Looks((8, 16, 24))]),
        strict=st.booleans(),
        sharing=st.sampled_from([0, 3]),
        limit=st.sampled_from([None, 0.05]),
        judges_one_boot=st.booleans(),
        budget=st.sampled_from([None, 0.0, 0.5]),
    )
    def begin(
        self,
        kernels: tuple[str, ...],
        boots: int,
        looks: Looks,
        strict: bool,
        sharing: int,
        limit: float | None,
        judges_one_boot: bool,
        budget: float | None,
    ) -> None:
        self.policy = Policy(
            looks, 7, strict, discard=(BUSY,), sharing=sharing, limit=limit, judges_one_boot=judges_one_boot
        )
        judged = () if budget is None else (Budget(overhead=budget),)
        tests = (PlannedTest(STEP, "ext4"), PlannedTest(STEP, "luks", judged))
        boots = 1 if kernels == ("",) else boots
        plans = {KernelBoot(kernel, boot): replace_plan(tests=tests) for boot in range(boots) for kernel in kernels}
        self.course = Course(plans, self.policy, "any", kernels, boots)
        self.again = Course(plans, self.policy, "any", kernels, boots)
        self.over = False

    @precondition(lambda self: not self.over)
    @rule(
        data=st.data(),
        busy=st.booleans(),
        happens=st.sampled_from(["nothing"] * 8 + ["failure", "skip", "no sample", "lost"]),
    )
    def one_round(self, data: st.DataObject, busy: bool, happens: str) -> None:
        tasks = self.course.next_tasks()
        assert tasks == self.again.next_tasks(), "the plan depends on the seed and on what was measured only"
        if not tasks:
            self.over = True
            return
        assert len({(task.cell, task.number) for task in tasks}) == len(tasks)
        chosen = data.draw(st.sampled_from(tasks)).cell
        if happens == "lost" and chosen.kernel:
            self.course.lose(chosen.kernel_boot)
            self.again.lose(chosen.kernel_boot)
        for task in tasks:
            cell = task.cell
            if self.course.can_run(task):
                measured = (sample(data.draw(st.sampled_from([1.0, 1.01, 1.7]))),)
                step = StepRun(STEP, measured if happens != "no sample" or cell != chosen else ())
                if cell == chosen and happens in ("failure", "skip"):
                    step = StepRun(STEP, measured, ending="failed" if happens == "failure" else "skipped")
                for course in (self.course, self.again):
                    course.add(task, CellRun((step,)))
        for course in (self.course, self.again):
            course.end_tasks({"load": 9.0 if busy else 0.0})

    @precondition(lambda self: self.over)
    @rule()
    def rest(self) -> None:
        assert not self.course.next_tasks()

    def teardown(self) -> None:
        course, own = self.course, self.course.chain
        course.conclude()
        assert own.rounds <= 2 * own.looks.max_rounds
        assert len(own.discarded) <= own.looks.max_rounds
        for (step, name), test in course._tests.items():
            outcome = course.decision(step, course.cells[name])
            assert outcome == course.decision(step, course.cells[name])
            assert outcome.text or outcome.as_run or outcome.outcome == "passed"
            if outcome.outcome == "passed" and test.budgets:
                assert own.worst(step, name) == "pass", "a gate passed that was not judged"
            assert outcome.outcome == "failed" or own.worst(step, name) != "fail", "a broken budget passed"
        between = course.views.between()
        verdicts = [between.worst(step, stack) for step, stack, _ in between.all_judgements()]
        outcomes = [outcome.outcome for _, outcome in course.decisions_between()]
        assert len(outcomes) == len(verdicts)
        assert outcomes.count("passed") <= verdicts.count("pass")
        assert course.judged <= course.budgets
        for chain in course.views.final():
            (read,) = saved.loads(saved.dumps(Results({}, [chain]))).chains
            assert verdicts_of(read) == verdicts_of(chain)


TestAnyCourse = AnyCourse.TestCase
TestAnyCourse.settings = settings(
    max_examples=40, stateful_step_count=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


def test_a_cell_that_is_dropped_says_why_it_did_not_run() -> None:
    course = course_of(random.Random(1), stacks(0.3))
    course.drop(Cell("luks"), End("not run", "no disk", Note("cannot run", "no disk")))
    finished(course, slower)
    assert course.decision(STEP, Cell("luks")) == Decision("skipped", "no disk", in_setup=True)
    assert course.chain.note(STEP, "luks") == Note("cannot run", "no disk")


@pytest.mark.parametrize("ends", [["left out", "lost"], ["lost", "left out"], ["left out", "lost", "left out"]])
def test_the_own_end_of_a_step_outranks_what_happens_elsewhere(ends: list[str]) -> None:
    course = of_kernels()
    for end in ends:
        if end == "lost":
            course.lose(KernelBoot("new"))
        else:
            course.endings.add("luks:new", 0, StepRun(STEP, ending="left out", cause="no moon"))
    assert course.endings.of(STEP, "luks:new").text == "no moon"
    assert course.chain.note(STEP, "luks:new") == Note("left out", "no moon")
    assert course.endings.of(STEP, "ext4:new").kind == "not run"


def test_boots_without_their_baseline_are_shown_together_too() -> None:
    plan = replace_plan(stacks={"luks": PlannedStack("luks", (STEP,))})
    course = finished(Course({KernelBoot("only", boot): plan for boot in range(2)}, Policy(), "", ("only",), 2), slower)
    (chain,) = course.views.final()
    assert list(chain.stacks) == ["luks:only"]
    assert {key.boot for key in chain.of(STEP, "luks:only")} == {0, 1}
