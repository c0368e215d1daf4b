"""A figure that only one side has in some rounds: it could be any, so it counts against both verdicts."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import inf

import pytest

from benchmarks import missing
from benchmarks.machines import STEP, course_of, run_steps
from pytest_fsstack.judging import runs
from pytest_fsstack.judging.cells import CellRun, Policy, StepRun, Task
from pytest_fsstack.judging.conditions import parse
from pytest_fsstack.judging.course import Course
from pytest_fsstack.judging.describe import describe_undecided
from pytest_fsstack.judging.readings import settle
from pytest_fsstack.judging.verdict import judge
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import Results
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.records.verdicts import Looks
from pytest_fsstack.report import html, markdown
from pytest_fsstack.report.answer import answer
from pytest_fsstack.report.model import View

ANY = (-inf, inf)
COUNT = Metric("count", better="lower", resolution=0.001)
#: Returns the figures of a run on a stack in a round, or None for a run without a sample.
Figures = Callable[[str, int], dict[str, float] | None]


def judged(figures: Figures, budget: Budget) -> Course:
    course = course_of(random.Random(1), {"base": [], "stack": [budget]}, Policy(Looks.fixed(12)))

    def step_of(task: Task) -> StepRun:
        of_run = figures(task.cell.stack, task.number)
        samples = () if of_run is None else (Sample(of_run, {"count": COUNT}),)
        return StepRun(STEP, samples)

    run_steps(course, step_of)
    course.conclude()
    return course


def without(stack: str, *rounds: int, cost: float = 1.0) -> Figures:
    """Return figures that a stack lacks in some rounds."""

    def figures(name: str, number: int) -> dict[str, float]:
        times = {"seconds": 1.0 + 0.01 * (name == "stack")}
        return times if name == stack and number in rounds else {**times, "count": cost if name == "stack" else 1.0}

    return figures


@pytest.mark.parametrize("stack", ["stack", "base"])
def test_rounds_that_one_side_lacks_prevent_a_pass_and_a_fail(stack: str) -> None:
    for cost, outcome in (1.0, "pass"), (2.0, "fail"):
        few, many = (
            judged(without(stack, *lacking, cost=cost), Budget("count", 0.3)).chain.judgements_of(STEP, "stack")[0]
            for lacking in ((3,), (1, 3, 7))
        )
        assert (few.outcome, many.outcome) == (outcome, "inconclusive")
        assert few.verdict is not None
        assert many.verdict is not None
        assert (few.verdict.estimate.missing, many.verdict.estimate.missing) == (1, 3)
        assert few.verdict.estimate.rounds == 12
        assert few.verdict.estimate.has_interval
        assert not many.verdict.estimate.has_interval


def test_a_round_that_both_sides_lack_is_left_out() -> None:
    lacking = {1, 3, 7}
    figures = without("stack")
    both = judged(lambda name, n: {"seconds": 1.0} if n in lacking else figures(name, n), Budget("count", 0.3))
    (judgement,) = both.chain.judgements_of(STEP, "stack")
    assert judgement.verdict is not None
    assert (judgement.outcome, judgement.verdict.estimate.rounds, judgement.verdict.estimate.missing) == ("pass", 9, 0)


def test_a_round_without_a_timed_block_on_one_side_counts_too_and_one_on_no_side_does_not() -> None:
    lacking = {2, 5, 8}
    of_time = Budget(overhead=0.3)
    course = judged(lambda name, n: None if name == "stack" and n in lacking else {"seconds": 1.0}, of_time)
    (judgement,) = course.chain.judgements_of(STEP, "stack")
    assert judgement.outcome == "inconclusive"
    assert judgement.verdict
    assert judgement.verdict.estimate.missing == 3
    course = judged(lambda name, n: None if n in lacking else {"seconds": 1.0}, of_time)
    (judgement,) = course.chain.judgements_of(STEP, "stack")
    assert judgement.outcome == "pass"
    assert judgement.verdict
    assert judgement.verdict.estimate.missing == 0
    # A step that only prepares has no samples at all.
    assert not judged(lambda name, n: None, of_time).chain.samples


def test_incomplete_work_of_the_reference_is_no_reason_to_pass() -> None:
    course = course_of(random.Random(1), {"base": [], "stack": [Budget(overhead=0.3)]}, Policy(Looks.fixed(8)))

    def step_of(task: Task) -> StepRun:
        reason = "no space" if task.cell.stack == "base" and task.number in (1, 3) else ""
        return StepRun(STEP, (Sample({"seconds": 1.0}, incomplete=reason),))

    run_steps(course, step_of)
    course.conclude()
    assert course.chain.judgements_of(STEP, "stack")[0].outcome == "inconclusive"


def test_an_absolute_limit_does_not_hold_for_rounds_without_the_figure() -> None:
    limit = Budget("count", limit=2.0)
    for lacking, outcome in ((), "pass"), ((3,), "pass"), ((1, 3, 5, 7), "inconclusive"):
        assert judged(without("stack", *lacking), limit).chain.judgements_of(STEP, "stack")[0].outcome == outcome


def test_a_metric_that_the_first_round_lacks_is_judged() -> None:
    (judgement,) = judged(without("stack", 0), Budget("count", 0.3)).chain.judgements_of(STEP, "stack")
    assert judgement.outcome == "pass"


def test_discarded_rounds_are_not_missing() -> None:
    policy = Policy(Looks.fixed(8), discard=parse("load>1"))
    course = course_of(random.Random(1), {"base": [], "stack": [Budget(overhead=0.3)]}, policy)
    turns = 0
    while tasks := course.next_tasks():
        turns += 1
        for task in tasks:
            samples = () if turns == 2 and task.cell.stack == "stack" else (Sample({"seconds": 1.0}),)
            course.add(task, CellRun((StepRun(STEP, samples),)))
        course.end_tasks({"load": 9.0 if turns == 2 else 0.0})
    course.conclude()
    (judgement,) = course.chain.judgements_of(STEP, "stack")
    assert len(course.chain.discarded) == 1
    assert judgement.outcome == "pass"
    assert judgement.verdict
    assert judgement.verdict.estimate.missing == 0


def test_a_remark_the_advice_and_every_report_name_the_rounds() -> None:
    course = judged(without("stack", 1, 3, 7), Budget("count", 0.3))
    assert "3 of 12 rounds" in describe_undecided(course.chain, STEP, "stack")
    (remark,) = View(course.chain).missing
    assert STEP in remark
    assert "count: 3 of 12" in remark
    results = settle(Results(chains=[course.chain]))
    # JSON has no infinity.
    again = saved.loads(saved.dumps(results))
    assert saved.dumps(again) == saved.dumps(results)
    reading = again.chains[0].reading(STEP, "stack", "count")
    assert reading
    assert reading.estimate
    assert reading.estimate.missing == 3
    assert not reading.coarse
    for report in markdown.report, html.report:
        assert "count: 3 of 12" in report(results)


def test_a_stack_with_missing_times_has_no_cost_over_all_steps() -> None:
    slow = {2, 5}
    course = judged(lambda name, n: None if name == "stack" and n in slow else {"seconds": 1.0}, Budget(overhead=0.3))
    results = settle(Results(chains=[course.chain]))
    assert not results.chains[0].overall
    assert "stack is incomplete" in " ".join(map(str, answer(results)))


def test_several_boots_take_the_range_of_each_boot() -> None:
    new, old = [0.20, 0.21, 0.22], [0.0, 0.01, 0.02]
    known = [(value, value) for value in new], [(value, value) for value in old]
    for verdict in runs.judge(new, old, 0.05, 0.05), runs.judge(new, old, 0.05, 0.05, known):
        assert verdict is not None
        assert verdict.outcome == "fail"
    unknown = runs.judge(new[:2], old, 0.05, 0.05, ([*known[0][:2], ANY], known[1]))
    assert unknown is not None
    assert unknown.outcome == "inconclusive"
    assert (unknown.estimate.missing, unknown.estimate.high, unknown.runs) == (1, inf, (3, 3))


def test_kernels_count_boots_that_lack_the_figure() -> None:
    policy = Policy(Looks.fixed(8), limit=0.05)
    for lacking in False, True:
        course = course_of(random.Random(1), {"base": [], "stack": []}, policy, kernels=("one", "two"), boots=3)

        def step_of(task: Task, lacking: bool = lacking) -> StepRun:
            seconds = 1.0 if task.cell.kernel == "one" else 0.5
            slow = lacking and task.cell.kernel == "two" and task.number % 2 == 0
            return StepRun(STEP, () if slow else (Sample({"seconds": seconds + task.number * 1e-3}),))

        run_steps(course, step_of)
        course.conclude()
        outcomes = {judgement.outcome for _, _, of in course.views.between().all_judgements() for judgement in of}
        assert outcomes == {"inconclusive" if lacking else "pass"}


@pytest.mark.parametrize("rounds", [8, 16, 80])
def test_the_interval_says_what_the_verdict_says(rounds: int) -> None:
    rng = random.Random(rounds)
    for _ in range(30):
        numbers = range(rounds)
        unknown = {number: ANY for number in numbers if rng.random() < 0.06}
        ratios = {number: rng.gauss(rng.choice((0, 0.3)), 0.05) for number in numbers if number not in unknown}
        verdict = judge(ratios, 0.15, Looks() if rounds > 64 else Looks.fixed(rounds), rounds, unknown)
        low, high = verdict.estimate.low, verdict.estimate.high
        expected = "fail" if low > 0.15 else "pass" if high <= 0.15 else "inconclusive"
        assert verdict.outcome == expected
        assert low <= verdict.estimate.overhead <= high


def test_a_metric_that_is_missing_in_the_slowest_rounds_does_not_pass() -> None:
    lacks = missing._LACKS["the slowest fifth of the stack's"]
    rng = random.Random(4)
    outcomes = [missing.outcome(rng, lacks, 0.10, 0.05, without_sample=number % 2 == 1) for number in range(12)]
    # Without such rounds, about six of twelve passed.
    assert outcomes.count("pass") <= 2
