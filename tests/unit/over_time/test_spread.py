"""Verdicts by the spread of earlier runs: two windows, successive differences, and no verdict from too few."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from math import expm1, log, log1p, sqrt
from statistics import fmean

import pytest
from hypothesis import given, strategies as st
from scipy.stats import t

from pytest_fsstack.over_time.spread import (
    DECIDED_SHARE,
    FIRST_RUNS,
    LATEST_RUNS,
    MANY_RUNS,
    MIN_EARLIER_RUNS,
    judge,
    power,
    spread,
    windows,
)

# Sums of eighths are exact, so that what is at the limit is.
figures = st.integers(-40, 40).map(lambda eighths: eighths / 8)
ours = st.lists(figures, min_size=1, max_size=2)
histories = st.lists(figures, min_size=MIN_EARLIER_RUNS, max_size=24)
budgets = st.sampled_from([-0.5, 0.0, 0.05, 1.0])
alphas = st.sampled_from([0.01, 0.05, 0.2])


def outcome(now: list[float], history: list[float], limit: float = 0.05, alpha: float = 0.05) -> str | None:
    return judge(now, history, limit, alpha).outcome


@given(ours, histories, alphas)
def test_the_interval_is_a_prediction_interval_of_the_t_distribution(
    now: list[float], history: list[float], alpha: float
) -> None:
    found = judge(now, history, 0.05, alpha)
    differences = sorted((after - before) ** 2 / 2 for before, after in pairwise(history))
    differences[-1] = differences[-2]
    number = len(history)
    deviation = sqrt(fmean(differences) / (1 - 1.5 / number))
    freedom = 2 * (number - 1) ** 2 / (3 * number - 4) - 0.8
    window = [history[place] for place in found.window.runs]
    error = deviation * sqrt(1 / len(now) + 1 / len(window))
    shift = fmean(now) - fmean(window)
    share = alpha / len(windows(history))
    estimate = found.estimate
    assert log1p(estimate.overhead) == pytest.approx(shift, abs=1e-9)
    # Quantiles between whole degrees of freedom are interpolated.
    low, high = shift - t.ppf(1 - share, freedom) * error, shift + t.ppf(1 - alpha, freedom) * error
    # A ratio below exp(-36) is an overhead of -1 in floating point.
    assert log1p(max(estimate.low, expm1(-36))) == pytest.approx(max(low, -36), rel=0.05, abs=0.2 * error + 1e-9)
    assert log1p(min(estimate.high, 1e300)) == pytest.approx(min(high, log(1e300)), rel=0.05, abs=0.2 * error + 1e-9)
    assert estimate.confidence == pytest.approx(1 - share - alpha)
    assert estimate.rounds == len(now)


@given(ours, histories, budgets, alphas)
def test_the_interval_says_what_the_verdict_says(
    now: list[float], history: list[float], budget: float, alpha: float
) -> None:
    _, estimate, found = judge(now, history, budget, alpha)
    margin = 1e-8 * (1 + estimate.high)
    if found == "fail":
        assert estimate.low > budget - margin
    elif found == "pass":
        assert estimate.high <= budget + margin
    else:
        assert estimate.low <= budget + margin
        assert estimate.high > budget - margin


@given(ours, histories, figures, alphas)
def test_only_differences_count(now: list[float], history: list[float], moved: float, alpha: float) -> None:
    shifted = [each + moved for each in history]
    assert outcome(now, history, alpha=alpha) == outcome([each + moved for each in now], shifted, alpha=alpha)


@given(histories)
def test_a_run_far_above_all_earlier_ones_always_fails(history: list[float]) -> None:
    assert outcome([max(history) + 1000], history) == "fail"


def test_runs_that_are_all_alike_are_judged_without_rounding_errors() -> None:
    assert outcome([log1p(0.05)], [0.0] * 5) == "pass"
    assert outcome([log1p(0.051)], [0.0] * 5) == "fail"


@pytest.mark.parametrize("now", [[], [float("inf")]])
def test_what_is_no_run_is_refused(now: list[float]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(now))):
        judge(now, [0.0] * 5, 0.05, 0.05)


@pytest.mark.parametrize("history", [[0.0] * 4, [0.0] * 5 + [float("nan")]])
def test_what_is_no_history_is_refused(history: list[float]) -> None:
    with pytest.raises(ValueError, match=rf"\b{MIN_EARLIER_RUNS} .*{re.escape(str(history))}"):
        judge([0.0], history, 0.05, 0.05)


# -- over time ---------------------------------------------------------------------------------------------------------


def test_few_runs_are_one_window_and_more_are_two() -> None:
    assert [len(window.runs) for window in windows([0.0] * (MANY_RUNS - 1))] == [MANY_RUNS - 1]
    latest, first = windows([0.0] * 30)
    assert (list(latest.runs), list(first.runs)) == (list(range(30 - LATEST_RUNS, 30)), list(range(FIRST_RUNS)))


def noisy(levels: list[float], seed: int = 1, deviation: float = 0.01) -> list[float]:
    noise = random.Random(seed)
    return [level + noise.gauss(0, deviation) for level in levels]


@pytest.mark.parametrize("since", [3, 5])
def test_an_accepted_improvement_is_no_spread_and_what_it_gained_is_not_lost_again(since: int) -> None:
    """An improvement of 10 %, then a regression of 15.5 %, which is within 5 % of the first runs."""
    history = noisy([0.0] * (20 - since) + [-log1p(0.10)] * since)
    assert spread(history).deviation < 0.015
    found = judge([log1p(0.155) - log1p(0.10)], history, 0.05, 0.05)
    assert (found.outcome, found.window.runs) == ("fail", range(20 - LATEST_RUNS, 20))


def test_what_grows_slowly_fails_by_the_first_runs() -> None:
    history = noisy([number * log1p(0.005) for number in range(30)])
    found = judge([30 * log1p(0.005)], history, 0.05, 0.05)
    assert (found.outcome, found.window.runs) == ("fail", range(FIRST_RUNS))


@pytest.mark.parametrize("number", [5, 10, 20, 40])
def test_the_spread_of_independent_runs_is_their_standard_deviation(number: int) -> None:
    noise = random.Random(number)
    squares = [spread([noise.gauss(0, 0.02) for _ in range(number)]).deviation ** 2 for _ in range(4000)]
    assert sqrt(fmean(squares)) == pytest.approx(0.02, rel=0.03)


# -- before a session --------------------------------------------------------------------------------------------------


def test_more_rounds_help_unless_runs_differ_by_themselves() -> None:
    history = noisy([0.0] * 20, deviation=0.02)
    deviation = spread(history).deviation
    # All of the spread is that of rounds; none of it is.
    by_rounds = power(history, deviation * sqrt(8), 8, 0.05, 0.05)
    by_runs = power(history, 0.0, 8, 0.05, 0.05)
    assert by_rounds.rounds is not None
    assert by_rounds.rounds > 8
    assert by_runs.rounds is None
    enough = power(history, deviation * sqrt(8), 8, by_rounds.smallest + 1e-9, 0.05)
    assert enough.decided == pytest.approx(DECIDED_SHARE, abs=0.001)
    assert enough.rounds in (7, 8)


def test_the_share_that_is_decided_is_the_share_of_unchanged_runs_that_pass() -> None:
    noise = random.Random(3)
    expected, passed = [], []
    for _ in range(1500):
        history = [noise.gauss(0, 0.01) for _ in range(9)]
        expected.append(power(history, 0.0, 8, 0.05, 0.05).decided)
        passed.append(outcome([noise.gauss(0, 0.01)], history) == "pass")
    assert fmean(passed) == pytest.approx(fmean(expected), abs=0.03)


def test_runs_without_any_spread_are_always_decided() -> None:
    assert power([0.0] * 6, 0.0, 8, 0.05, 0.05).decided == 1.0
    assert expm1(spread([0.0] * 6).deviation) == 0
