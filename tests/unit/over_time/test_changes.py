"""Change points: changes are found, and none is found in a constant series."""

from __future__ import annotations

import random
from itertools import islice, pairwise
from statistics import fmean

import pytest
from hypothesis import given, strategies as st

from benchmarks.machines import correlated, heavy, normal
from pytest_fsstack.over_time.changes import MIN_RUNS, change_points, correlation, residuals

SERIES = 60


def following(noise: random.Random, number: int, closely: float = 0.5) -> list[float]:
    return [0.02 * value for value in islice(correlated(noise, normal, closely), number)]


@pytest.mark.parametrize("number", [30, 365])
def test_a_year_of_unchanged_runs_with_heavy_tails_changes_in_at_most_one_series_of_ten(number: int) -> None:
    noise = random.Random(number)
    series = ([1.3 + 0.02 * heavy(noise) for _ in range(number)] for _ in range(SERIES))
    assert sum(bool(change_points(values, 0.05)) for values in series) <= SERIES // 10


def test_runs_that_follow_each_other_are_no_steps() -> None:
    noise = random.Random(1)
    series = [following(noise, 100) for _ in range(SERIES)]
    assert sum(bool(change_points(values, 0.05)) for values in series) <= 0.15 * SERIES


def test_two_steps_are_found_where_they_are() -> None:
    noise = random.Random(2)
    values = [1 + 0.05 * (10 <= number < 22) + noise.gauss(0, 0.004) for number in range(40)]
    assert change_points(values, 0.05) == [10, 22]


@given(st.lists(st.floats(-1e6, 1e6), max_size=40))
def test_points_are_inside_in_order_and_stretches_are_not_empty(values: list[float]) -> None:
    points = change_points(values, 0.05)
    assert all(before < after for before, after in pairwise([0, *points, len(values)])) or not points


@given(st.lists(st.floats(-1e6, 1e6), max_size=MIN_RUNS - 1))
def test_nothing_is_found_in_too_few_runs(values: list[float]) -> None:
    assert change_points(values, 0.05) == []


def test_equal_runs_have_no_change() -> None:
    assert change_points([1.3] * 50, 0.05) == []


def test_the_lag_one_correlation_is_shown_where_it_is_and_not_where_a_run_was_improved() -> None:
    noise = random.Random(4)
    independent = [correlation([noise.gauss(0, 1) + 5 * (number < 15) for number in range(30)]) for _ in range(200)]
    assert sum(map(bool, independent)) <= 8
    dependent = [correlation(following(noise, 60, 0.7)) for _ in range(50)]
    assert fmean(map(bool, dependent)) > 0.8
    assert correlation([1.0, 2.0, 3.0]) == 0


def test_residuals_are_without_the_median_of_their_stretch() -> None:
    assert residuals([1.0, 2.0, 3.0, 10.0, 12.0], [3]) == [-1.0, 0.0, 1.0, -1.0, 1.0]
