"""Repetitions in a round: the sample that they make, and how many are best."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given, strategies as st

from benchmarks import repeats
from benchmarks.machines import BUDGET, STEP, above, course_of
from pytest_fsstack.judging.cells import CellRun, Policy, StepRun
from pytest_fsstack.judging.repetition import (
    MAX_COUNT,
    RepeatCount,
    Repeated,
    best,
    combined,
    describe,
    variances,
)
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.sample import METRICS, Metric, Sample
from pytest_fsstack.records.verdicts import Looks, Repetition


def _base(stack: str) -> str:
    """Return what every stack is compared with."""
    return "base"


def sample(seconds: float, **values: float) -> Sample:
    return Sample({"seconds": seconds, **values})


def test_the_sample_of_a_round_is_the_median_of_each_metric() -> None:
    found = combined([sample(3.0, read_bytes=10), sample(1.0, read_bytes=30), sample(2.0, read_bytes=20)])
    assert found.values == {"seconds": 2.0, "read_bytes": 20}
    assert found.repetitions == 3


def test_what_is_kept_is_that_of_the_repetition_nearest_to_the_median() -> None:
    samples = [Sample({"seconds": value}, kept={"said": value}) for value in (9.0, 1.0, 2.0, 3.0)]
    assert combined(samples).kept == {"said": 2.0}


def test_metrics_of_a_workload_and_a_repetition_that_did_not_do_the_work_are_in_it() -> None:
    own = {**METRICS, "links": Metric("links", "1", "higher")}
    found = combined(
        [sample(1.0), Sample({"seconds": 2.0, "links": 4.0}, own), Sample({"seconds": 3.0}, incomplete="no")]
    )
    assert (found["links"], found.metrics["links"].better, found.incomplete) == (4.0, "higher", "no")


def test_a_repetition_without_a_time_is_incomplete_and_counts_as_no_time() -> None:
    timeless = Sample({}, incomplete="no")
    found = combined([timeless, sample(2.0), sample(3.0)])
    assert (found.values, found.incomplete) == ({"seconds": 2.5}, "no")
    assert combined([timeless, timeless]).values == {}
    repeated = Repeated(3, Looks())
    repeated.add("stack", 0, [sample(1.0), timeless, sample(1.0)], 3.0)
    assert not repeated._logs


def test_one_repetition_is_the_sample_itself() -> None:
    assert combined([one := sample(1.0)]) is one


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=9), st.floats(0.5, 5))
def test_a_stack_that_takes_so_many_times_as_long_has_a_median_that_is_so_many_times_as_long(
    seconds: list[float], factor: float
) -> None:
    base, stack = combined([*map(sample, seconds)]), combined([sample(factor * value) for value in seconds])
    assert stack["seconds"] == pytest.approx(factor * base["seconds"])


@pytest.mark.parametrize(
    ("costs", "ratio", "number"),
    [
        ((12, 1), 1.0, 3),  # sqrt(12) = 3.46
        ((18, 1), 0.25, 3),
        ((14, 1), 0.25, 1),
        ((22, 1), 1.0, 5),
        ((1, 16), 1.0, 1),
        ((15.6, 1), 32.0, MAX_COUNT),  # as of `du`
        ((100, 1), 100.0, MAX_COUNT),
        ((1, 1.1), math.inf, 1),
        ((4.9, 1), math.inf, 3),  # five would cost more than the build
        ((5, 1), math.inf, 5),
        ((5, 1), 0.0, 1),
        ((0, 0), 1.0, MAX_COUNT),
        ((0, 1), 1.0, 1),
    ],
)
def test_the_best_number_is_that_of_kalibera_and_jones(costs: tuple[float, float], ratio: float, number: int) -> None:
    assert best(*costs, ratio) == number


@given(*[st.floats(0.1, 100)] * 2, *[st.floats(1e-4, 1)] * 2)
def test_no_other_number_gives_a_more_precise_mean_at_the_same_cost(
    build: float, repetition: float, between: float, within: float
) -> None:
    def variance_by_cost(number: float) -> float:
        return (build + number * repetition) * (between + within / number)

    exact = math.sqrt(build / repetition * within / between)
    chosen = best(build, repetition, within / between)
    assert chosen == 1 or chosen * repetition <= build
    numbers = [number for number in range(1, MAX_COUNT + 1, 2) if number == 1 or number * repetition <= build]
    # There is no better odd number far from it.
    assert chosen in (1, numbers[-1]) or abs(chosen - exact) <= 1
    assert variance_by_cost(chosen) <= 1.1 * min(map(variance_by_cost, numbers))


def logs_of(
    rng: random.Random, rounds: int, repetitions: int, build: float, noise: float, drift: float
) -> dict[str, dict[int, list[float]]]:
    found: dict[str, dict[int, list[float]]] = {"base": {}, "crypt": {}}
    for number in range(rounds):
        for stack, overhead in (("base", 0.0), ("crypt", 0.2)):
            level = overhead + drift * number + rng.gauss(0, build)
            found[stack][number] = [level + rng.gauss(0, noise) for _ in range(repetitions)]
    return found


@pytest.mark.parametrize(("build", "noise"), [(0.1, 0.05), (0.05, 0.1), (0.0, 0.1)])
def test_variances_are_told_apart_whatever_the_machine_drifts(build: float, noise: float) -> None:
    logs = logs_of(random.Random(1), 500, 3, build, noise, drift=0.01)
    for stack in logs:
        # Here and there, a repetition takes three times as long.
        for number in range(0, 500, 10):
            logs[stack][number][0] += math.log(3)
    found = variances(logs, _base)
    assert found is not None
    assert found[0] == pytest.approx(build**2, rel=0.3, abs=6e-4)
    assert found[1] == pytest.approx(noise**2, rel=0.3)


def test_without_a_comparison_or_repetitions_nothing_is_known() -> None:
    assert variances({"base": {0: [1.0, 2.0], 1: [1.0, 2.0]}}, _base) is None
    assert variances({"base": {0: [1.0], 1: [2.0]}, "crypt": {0: [1.0], 1: [2.0]}}, _base) is None


def feed(repeated: Repeated, rounds: int, build: float, noise: float, cost: float) -> None:
    logs = logs_of(random.Random(2), rounds, repeated.count, build, noise, drift=0.0)
    for number in range(rounds):
        for stack in ("crypt", "base"):
            samples = [sample(math.exp(value)) for value in logs[stack][number]]
            repeated.add(stack, number, samples, took=cost * len(samples))
            repeated.end(10.0 + cost * len(samples))


def counts_of(repeated: Repeated, rounds: int, build: float, noise: float, cost: float) -> list[int]:
    """Return the numbers of repetitions in rounds with these CVs of builds and repetitions. A build takes 10 s."""
    counts, rng = [], random.Random(2)
    for number in range(rounds):
        counts.append(repeated.count)
        logs = logs_of(rng, 1, repeated.count, build, noise, drift=0.0)
        for stack in ("crypt", "base"):
            samples = [sample(math.exp(value)) for value in logs[stack][0]]
            repeated.add(stack, number, samples, took=cost * len(samples))
            repeated.end(10.0 + cost * len(samples))
        repeated.end_round()
    return counts


@pytest.mark.parametrize(
    ("build", "noise", "cost", "first", "least", "most"),
    [
        (0.1, 0.01, 1.0, 5, 1, 1),
        (0.01, 0.1, 1.0, 5, 9, 9),
        (0.01, 0.1, 0.1, 15, MAX_COUNT, MAX_COUNT),
        (0.1, 0.1, 2.5, 3, 1, 3),
        (0.01, 0.1, 11.0, 1, 1, 1),
    ],
)
def test_auto_begins_with_the_cost_and_goes_on_with_the_variances(
    build: float, noise: float, cost: float, first: int, least: int, most: int
) -> None:
    repeated = Repeated("auto", Looks())
    assert counts_of(repeated, 8, build, noise, cost) == [1] + [first] * 7
    repetition = repeated.settle(_base)
    assert least <= repeated.count == repetition.count <= most
    assert repetition.cost == pytest.approx(cost / (10 + cost))
    assert (repetition.variance is None) == (first == 1)
    assert counts_of(repeated, 8, 0.0, 1.0, 0.01) == [repetition.count] * 8, "fixed for the rest of the chain"
    assert repeated.settle(_base).count == repetition.count


def test_sanity_limits_alone_need_no_repetition_before_the_first_look() -> None:
    repeated = Repeated("auto", Looks(), sanity_only=True)
    assert counts_of(repeated, 8, 0.01, 0.1, 1.0) == [1] * 8
    assert repeated.settle(_base).count == repeated.count == 5


@pytest.mark.parametrize(
    ("sanity", "limit", "second"), [((True, True), None, 1), ((True, False), None, 5), ((), None, 5), ((True,), 0.1, 5)]
)
def test_a_course_repeats_a_step_at_once_if_a_figure_of_it_matters(
    sanity: tuple[bool, ...], limit: float | None, second: int
) -> None:
    budgets = {"base": [], "crypt": [Budget(overhead=9.0, sanity=each) for each in sanity]}
    course = course_of(random.Random(1), budgets, Policy(limit=limit), repeats={STEP: "auto"})
    for expected in (1, second):
        tasks = course.next_tasks()
        assert tasks[0].repetitions == {STEP: expected}
        for task in tasks:
            samples = tuple(sample(1.0) for _ in range(expected))
            course.add(task, CellRun((StepRun(STEP, samples, float(expected)),), 10.0 + expected))
        course.end_tasks({})


@pytest.mark.parametrize("exchanged", [False, True])
def test_the_number_does_not_depend_on_which_stack_is_which(exchanged: bool) -> None:
    repeated = Repeated("auto", Looks())
    for stack, cost in zip(("base", "crypt"), (2.0, 0.1) if exchanged else (0.1, 2.0), strict=True):
        repeated.add(stack, 0, [sample(cost)], cost)
        repeated.end(40.0 + cost)
    repeated.end_round()
    assert repeated.count == 9


@pytest.mark.parametrize(
    ("repeat", "looks", "counts"),
    [
        (5, Looks(), [5] * 8),
        ("auto", Looks.fixed(20), [1] + [5] * 7),  # all of its rounds are one block
        ("auto", Looks.fixed(1), [1] * 8),  # nothing is judged
        ("auto", Looks.fixed(4), [1] * 8),
    ],
)
def test_no_figure_changes_a_number_in_a_plan_of_one_block(
    repeat: RepeatCount, looks: Looks, counts: list[int]
) -> None:
    repeated = Repeated(repeat, looks)
    assert counts_of(repeated, 8, 0.0, 0.1, 1.0) == counts
    assert repeated.settle(_base).count == repeated.count == counts[-1]


def test_a_round_in_which_a_repetition_is_missing_tells_nothing() -> None:
    repeated = Repeated(3, Looks())
    for number in range(8):
        repeated.add("base", number, [sample(1.0), sample(1.1)], 1.0)
        repeated.add("crypt", number, [sample(1.0), sample(1.1)], 1.0)
        repeated.end(2.0)
    assert repeated.settle(_base) == Repetition(3, False)


def test_choosing_the_number_costs_no_error_rate_and_repeating_finds_more() -> None:
    rng = random.Random(3)
    kept = [repeats.session(rng, 0.05, 0.1, BUDGET, BUDGET, "auto")[0].outcome for _ in range(300)]
    # Of 300 sessions at 5 %, more than 26 would be seen once in a thousand times.
    assert kept.count("fail") <= 26
    assert kept.count("pass") <= 26
    numbers: tuple[RepeatCount, ...] = (1, "auto")
    once, often = (
        [repeats.session(rng, 0.02, 0.1, above(0.05), BUDGET, number)[0].outcome for _ in range(60)]
        for number in numbers
    )
    assert often.count("fail") > once.count("fail") + 4


def test_a_line_says_how_often_and_why() -> None:
    for repetition, expected in (
        (Repetition(4, True, 0.71, 0.12), r"du \D*4 \D*\(auto\): 71 % \D*12 % \D*"),
        (Repetition(1, True, None, 0.6), r"du \D*1 \D*\(auto\): \D*60 % \D*"),
        (Repetition(1, True), r"du \D*1 \D*\(auto\)"),
        (Repetition(3, False), r"du \D*3 [^(\d]*"),
    ):
        assert re.fullmatch(expected, describe(repetition, "du"))
