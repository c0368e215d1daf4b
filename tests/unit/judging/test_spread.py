"""A run against the spread of earlier ones: the t distribution, and no verdict from too few."""

from __future__ import annotations

from math import expm1, log1p, sqrt
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from pytest_fsstack.judging.spread import FEWEST_EARLIER, estimate, judge

# Sums of eighths are exact, so that what is at the limit is.
figures = st.integers(-40, 40).map(lambda eighths: eighths / 8)
ours = st.lists(figures, min_size=1, max_size=2)
theirs = st.lists(figures, min_size=FEWEST_EARLIER, max_size=12)
budgets = st.sampled_from([-0.5, 0.0, 0.05, 1.0])
alphas = st.sampled_from([0.01, 0.05, 0.2])


@given(ours, theirs, alphas)
def test_the_interval_is_the_prediction_interval_of_the_t_distribution(
    ours: list[float], theirs: list[float], alpha: float
) -> None:
    found = estimate(ours, theirs, alpha)
    half = t.ppf(1 - alpha, len(theirs) - 1) * stdev(theirs) * sqrt(1 / len(ours) + 1 / len(theirs))
    shift = fmean(ours) - fmean(theirs)
    assert log1p(found.overhead) == pytest.approx(shift, abs=1e-9)
    assert found.low == pytest.approx(expm1(shift - half), rel=1e-9, abs=1e-9)
    assert found.high == pytest.approx(expm1(shift + half), rel=1e-9, abs=1e-9)
    assert (found.confidence, found.rounds) == (1 - 2 * alpha, len(ours))


@given(ours, theirs, budgets, alphas)
def test_the_interval_says_what_the_verdict_says(
    ours: list[float], theirs: list[float], budget: float, alpha: float
) -> None:
    verdict = judge(ours, theirs, budget, alpha)
    assert verdict is not None
    margin = 1e-8 * (1 + verdict.estimate.high)
    if verdict.outcome == "fail":
        assert verdict.estimate.low > budget - margin
    elif verdict.outcome == "pass":
        assert verdict.estimate.high <= budget + margin
    else:
        assert verdict.estimate.low <= budget + margin
        assert verdict.estimate.high > budget - margin


@given(ours, theirs, figures, alphas)
def test_only_differences_count(ours: list[float], theirs: list[float], moved: float, alpha: float) -> None:
    one = judge(ours, theirs, 0.05, alpha)
    other = judge([each + moved for each in ours], [each + moved for each in theirs], 0.05, alpha)
    assert one is not None
    assert other is not None
    assert one.outcome == other.outcome


@given(theirs)
def test_a_run_like_the_earlier_ones_never_fails_and_one_far_above_always_does(theirs: list[float]) -> None:
    like, above = judge([fmean(theirs)], theirs, 0.05, 0.05), judge([fmean(theirs) + 1000], theirs, 0.05, 0.05)
    assert like is not None
    assert above is not None
    assert like.outcome != "fail"
    assert above.outcome == "fail"


def test_fewer_than_five_earlier_runs_give_no_verdict() -> None:
    assert judge([1.0], [0.0] * 4, 0.05, 0.05) is None
    assert judge([1.0], [0.0] * 5, 0.05, 0.05) is not None


def test_runs_that_are_all_alike_are_judged_without_rounding_errors() -> None:
    at = judge([log1p(0.05)], [0.0] * 5, 0.05, 0.05)
    above = judge([log1p(0.051)], [0.0] * 5, 0.05, 0.05)
    assert at is not None
    assert above is not None
    assert (at.outcome, above.outcome) == ("pass", "fail")


@pytest.mark.parametrize(
    ("ours", "theirs"), [([], [0.0, 1.0]), ([1.0], [0.0]), ([float("inf")], [0.0, 1.0]), ([1.0], [float("nan"), 1.0])]
)
def test_what_is_no_run_is_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match="two earlier ones"):
        estimate(ours, theirs, 0.05)
