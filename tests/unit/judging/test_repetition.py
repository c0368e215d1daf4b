"""Repetitions in a round: the sample that they make, and how many are best."""

from __future__ import annotations

import math
import random
import re

import pytest
from hypothesis import given, strategies as st

from benchmarks import repeats
from benchmarks.machines import BUDGET, above
from pytest_fsstack.judging.repetition import (
    INITIAL_COUNT,
    MAX_COUNT,
    RepeatCount,
    Repeated,
    best,
    combined,
    describe,
    variances,
)
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
    ("costs", "found", "number"),
    [
        ((12, 1), (1.0, 1.0), 3),  # sqrt(12) = 3.46
        ((18, 1), (4.0, 1.0), 3),
        ((14, 1), (4.0, 1.0), 1),
        ((22, 1), (1.0, 1.0), MAX_COUNT),
        ((1, 16), (1.0, 1.0), 1),
        ((100, 1), (1.0, 100.0), MAX_COUNT),
        ((5, 1), (0.0, 1.0), MAX_COUNT),
        ((5, 1), (1.0, 0.0), 1),
        ((5, 1), (0.0, 0.0), 1),
        ((0, 0), (1.0, 1.0), MAX_COUNT),
    ],
)
def test_the_best_number_is_that_of_kalibera_and_jones(
    costs: tuple[float, float], found: tuple[float, float], number: int
) -> None:
    assert best(*costs, *found) == number


@given(*[st.floats(0.1, 100)] * 2, *[st.floats(1e-4, 1)] * 2)
def test_no_other_number_gives_a_more_precise_mean_at_the_same_cost(
    build: float, repetition: float, between: float, within: float
) -> None:
    def variance_by_cost(number: float) -> float:
        return (build + number * repetition) * (between + within / number)

    exact = math.sqrt(build / repetition * within / between)
    chosen = best(build, repetition, between, within)
    # There is no better odd number far from it.
    assert chosen in (1, MAX_COUNT) or abs(chosen - exact) <= 1
    others = [variance_by_cost(number) for number in range(1, MAX_COUNT + 1, 2)]
    assert variance_by_cost(chosen) <= 1.1 * min(others)


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


@pytest.mark.parametrize(
    ("build", "noise", "cost", "least", "most"),
    [(0.1, 0.01, 1.0, 1, 1), (0.03, 0.1, 1.0, MAX_COUNT, MAX_COUNT), (0.1, 0.1, 2.5, 1, 4)],
)
def test_auto_begins_with_three_and_settles_on_what_was_seen(
    build: float, noise: float, cost: float, least: int, most: int
) -> None:
    repeated = Repeated("auto", Looks())
    assert repeated.count == INITIAL_COUNT == 3
    feed(repeated, 8, build, noise, cost)
    found = repeated.settle(_base)
    assert least <= repeated.count == found.count <= most
    assert found.cost == pytest.approx(cost / (10 + cost))
    assert 0 <= (found.variance or 0) <= 1
    feed(repeated, 8, 0.0, 1.0, 0.01)
    assert repeated.settle(_base).count == found.count, "fixed for the rest of the chain"


@pytest.mark.parametrize(
    ("repeat", "looks", "count"),
    [
        (5, Looks(), 5),
        ("auto", Looks.fixed(20), 3),  # all of its rounds are one block
        ("auto", Looks.fixed(1), 1),  # nothing is judged
        ("auto", Looks.fixed(4), 1),
    ],
)
def test_what_is_not_chosen_stays_as_it_is(repeat: RepeatCount, looks: Looks, count: int) -> None:
    repeated = Repeated(repeat, looks)
    feed(repeated, 8, 0.0, 0.1, 1.0)
    assert repeated.settle(_base).count == repeated.count == count


def test_a_round_in_which_a_repetition_is_missing_tells_nothing() -> None:
    repeated = Repeated("auto", Looks())
    for number in range(8):
        repeated.add("base", number, [sample(1.0), sample(1.1)], 1.0)
        repeated.add("crypt", number, [sample(1.0), sample(1.1)], 1.0)
        repeated.end(2.0)
    assert repeated.settle(_base) == Repetition(3, True)


def test_choosing_the_number_costs_no_error_rate_and_repeating_finds_more() -> None:
    rng = random.Random(3)
    kept = [repeats.session(rng, 0.05, 0.1, BUDGET, BUDGET, "auto")[0].outcome for _ in range(300)]
    # Of 300 sessions at 5 %, more than 26 would be seen once in a thousand times.
    assert kept.count("fail") <= 26
    assert kept.count("pass") <= 26
    numbers: tuple[RepeatCount, ...] = (1, "auto")
    once, often = (
        [repeats.session(rng, 0.05, 0.1, above(0.05), BUDGET, number)[0].outcome for _ in range(40)]
        for number in numbers
    )
    assert often.count("fail") > once.count("fail") + 4


def test_a_line_says_how_often_and_why() -> None:
    for repetition, expected in (
        (Repetition(4, True, 0.71, 0.12), r"du \D*4 \D*\(auto; 3\b[^)]*\): 71 % \D*12 % \D*"),
        (Repetition(1, True), r"du \D*1 \D*\(auto; 3\b[^)]*\)"),
        (Repetition(3, True), r"du \D*3 \D*\(auto\)"),
        (Repetition(3, False), r"du \D*3 [^(\d]*"),
    ):
        assert re.fullmatch(expected, describe(repetition, "du"))
