"""Runs against runs: counted exactly, by brute force and by scipy alike."""

from __future__ import annotations

import re
from itertools import combinations
from math import comb, inf, log1p
from statistics import median

import pytest
from hypothesis import given, strategies as st
from scipy.stats import mannwhitneyu

from pytest_fsstack.judging.runs import MIN_RUNS, arrangements, boundary, estimate, judge, min_runs, pseudo_median
from pytest_fsstack.judging.verdict import advice, describe
from pytest_fsstack.records.verdicts import Verdict
from pytest_fsstack.units import percent

sizes = st.integers(1, 6)
alphas = st.sampled_from([0.01, 0.025, 0.05, 0.1])
# Sums and halves of eighths are exact, so that ties are ties.
figures = st.lists(st.integers(-40, 40).map(lambda eighths: eighths / 8), min_size=3, max_size=6)


def orders(ours: int, theirs: int) -> list[tuple[int, ...]]:
    """The ranks of our runs in each order of all runs."""
    return list(combinations(range(ours + theirs), ours))


@given(sizes, sizes)
def test_arrangements_are_those_of_all_orders(ours: int, theirs: int) -> None:
    counts = [0] * (ours * theirs + 1)
    for ranks in orders(ours, theirs):
        counts[sum(rank - index for index, rank in enumerate(ranks))] += 1
    assert list(arrangements(ours, theirs)) == counts
    assert sum(counts) == comb(ours + theirs, ours)


@pytest.mark.parametrize(("ours", "theirs"), [(3, 3), (3, 5), (5, 5), (8, 8), (10, 7), (20, 20)])
def test_the_boundary_is_that_of_scipy(ours: int, theirs: int) -> None:
    most = boundary(ours, theirs, 0.05)
    # Runs whose U is the boundary, and the next one.
    for wrong, significant in (most, True), (most + 1, False):
        above = [(wrong - index * theirs) for index in range(ours)]
        x = [min(max(each, 0), theirs) - 0.5 for each in above]
        x = [value + index * 1e-6 for index, value in enumerate(x)]
        found = mannwhitneyu(x, range(theirs), alternative="less", method="exact")
        assert found.statistic == wrong
        assert (found.pvalue <= 0.05) == significant


@given(st.integers(3, 5), st.integers(3, 5), alphas)
def test_at_the_budget_at_most_alpha_of_all_orders_fail_and_at_most_alpha_pass(
    ours: int, theirs: int, alpha: float
) -> None:
    outcomes = []
    for ranks in orders(ours, theirs):
        # Of a step and a half, so that nothing is exactly at the limit.
        others = [rank for rank in range(ours + theirs) if rank not in ranks]
        found = judge([log1p(0.05) + rank for rank in ranks], [float(rank) for rank in others], 0.05, alpha)
        outcomes.append(found.outcome if found else "inconclusive")
    assert outcomes.count("fail") <= alpha * len(outcomes)
    assert outcomes.count("fail") == outcomes.count("pass")
    assert ("fail" in outcomes) == (boundary(ours, theirs, alpha) >= 0)


@given(figures, figures, st.sampled_from([-0.5, 0.0, 0.05, 1.0]))
def test_the_interval_says_what_the_verdict_says(ours: list[float], theirs: list[float], budget: float) -> None:
    verdict = judge(ours, theirs, budget, 0.05)
    assert verdict is not None
    found = verdict.estimate
    assert found.low <= found.overhead <= found.high
    assert (verdict.outcome == "fail") == (found.low > budget)
    # A difference at the limit counts as not above it.
    assert (verdict.outcome == "pass") == (found.high <= budget)
    assert estimate(theirs, ours, 0.05).overhead == pytest.approx(1 / (1 + estimate(ours, theirs, 0.05).overhead) - 1)


def test_three_runs_of_each_side_decide_at_5_percent_and_two_never_do() -> None:
    assert MIN_RUNS == min_runs(0.05) == 3
    assert (min_runs(0.025), min_runs(0.01)) == (4, 5)
    assert judge([1.0, 1.1], [0.0, 0.1], 0.05, 0.4) is None
    assert judge([1.0, 1.1, 1.2], [0.0, 0.1, 0.2], 0.05, 0.04) is None
    assert estimate([1.0, 1.1], [0.0, 0.1], 0.05).high == inf
    slower = judge([1.0, 1.1, 1.2], [0.0, 0.1, 0.2], 0.05, 0.05)
    assert slower is not None
    assert slower.outcome == "fail"
    assert [boundary(runs, runs, 0.05) for runs in (3, 4, 5, 8)] == [0, 1, 4, 15]


def test_words_are_those_of_boots() -> None:
    open_one = judge([0.05, 0.2, 0.1], [0.0, 0.06, 0.02], 0.05, 0.05)
    assert isinstance(open_one, Verdict)
    assert open_one.outcome == "inconclusive"
    assert re.search(r"\b3 \D*\b3 boots\b", describe(open_one))
    assert "--fsstack-boots=" in advice(open_one)
    close = judge([0.05, 0.2, -0.1], [0.0, 0.06, -0.06], 0.05, 0.05)
    assert close is not None
    assert "--fsstack-boots" not in advice(close)
    assert all(percent(end) in advice(close) for end in (close.estimate.low, close.estimate.high))


@pytest.mark.parametrize(("ours", "theirs"), [([], [1.0]), ([1.0], []), ([inf], [1.0])])
def test_what_is_no_run_is_refused(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match=rf"{re.escape(str(ours))} .*{re.escape(str(theirs))}"):
        estimate(ours, theirs, 0.05)


@given(st.lists(st.integers(-100, 100).map(float), min_size=1, max_size=40))
def test_the_pseudo_median_is_the_median_of_all_averages_and_moves_with_its_values(ratios: list[float]) -> None:
    averages = sorted((a + b) / 2 for i, a in enumerate(ratios) for b in ratios[i:])
    assert pseudo_median(ratios) == median(averages)
    assert pseudo_median([-ratio for ratio in ratios]) == pytest.approx(-pseudo_median(ratios))
    assert pseudo_median([ratio + 7 for ratio in ratios]) == pytest.approx(pseudo_median(ratios) + 7)
