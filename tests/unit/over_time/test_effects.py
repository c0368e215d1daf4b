"""Hosts as random effects, against scipy."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from pytest_fsstack.fleet.pooling import effects

LOGS = st.floats(-2, 2).map(lambda value: round(value, 6))
ERRORS = st.floats(1e-3, 0.5)


@given(st.floats(1e-3, 1e3), st.integers(1, 300), st.floats(1, 20_000))
def test_the_share_below_an_f_is_that_of_scipy(ratio: float, above: int, below: float) -> None:
    assert effects._fisher_share(ratio, above, below) == pytest.approx(stats.f.cdf(ratio, above, below), abs=1e-9)


@given(st.lists(LOGS, min_size=3, max_size=20, unique=True), st.sampled_from([0.05, 0.025]))
def test_the_prediction_is_that_of_one_more_draw_of_a_normal_sample(hosts: list[float], alpha: float) -> None:
    ends = effects.predicted(hosts, alpha)
    assert ends is not None
    scale = statistics.stdev(hosts) * math.sqrt(1 + 1 / len(hosts))
    low, high = stats.t.interval(1 - 2 * alpha, len(hosts) - 1, statistics.fmean(hosts), scale)
    assert ends == pytest.approx((low, high), rel=1e-9, abs=1e-9)


@given(st.lists(st.tuples(LOGS, ERRORS, st.integers(2, 80)), min_size=2, max_size=20, unique_by=lambda host: host[0]))
def test_heterogeneity_is_welchs_test(facts: list[tuple[float, float, int]]) -> None:
    hosts, errors, rounds = zip(*facts)
    spread, number = effects.heterogeneity(hosts, errors, rounds), len(hosts)
    assert spread is not None
    weights = np.array(errors) ** -2.0
    mean = np.average(hosts, weights=weights)
    between = np.sum(weights * (np.array(hosts) - mean) ** 2) / (number - 1)
    unequal = np.sum((1 - weights / weights.sum()) ** 2 / (np.array(rounds) - 1))
    w = between / (1 + 2 * (number - 2) * unequal / (number**2 - 1))
    assert spread.q / spread.freedom == pytest.approx(w, rel=1e-6)
    assert spread.p == pytest.approx(stats.f.sf(w, number - 1, (number**2 - 1) / (3 * unequal)), abs=1e-9)
    assert 0 <= spread.i_squared < 1
    assert (spread.i_squared == 0) == (spread.q <= spread.freedom)


def test_two_hosts_of_equal_rounds_are_welchs_t() -> None:
    one, two = [0.1, 0.12, 0.13, 0.1, 0.11], [0.3, 0.2, 0.25, 0.2, 0.21, 0.3]
    means, errors = zip(*((statistics.fmean(side), statistics.stdev(side) / len(side) ** 0.5) for side in (one, two)))
    spread = effects.heterogeneity(means, errors, [5, 6])
    assert spread is not None
    assert spread.p == pytest.approx(stats.ttest_ind(one, two, equal_var=False).pvalue)


@given(st.lists(LOGS, min_size=4, max_size=20, unique=True))
def test_the_farthest_host_is_that_of_grubbs(hosts: list[float]) -> None:
    other, number = effects.farthest(hosts), len(hosts)
    assert other is not None
    middle, deviation = statistics.fmean(hosts), statistics.stdev(hosts)
    g = max(abs(host - middle) for host in hosts) / deviation
    assert abs(hosts[other.host] - middle) / deviation == pytest.approx(g)
    # The largest G is a monotone function of t.
    ratio = g * g * number / (number - 1) ** 2
    t = math.sqrt(number * (number - 2) * g * g / ((number - 1) ** 2 - number * g * g)) if ratio < 1 else math.inf
    assert other.p == pytest.approx(min(1.0, 2 * number * stats.t.sf(t, number - 2)), abs=1e-6)


def test_too_few_hosts_and_errors_that_are_not_known_give_nothing() -> None:
    assert effects.predicted([0.1, 0.2], 0.05) is None
    assert effects.farthest([0.1, 0.2, 0.3]) is None
    assert effects.heterogeneity([0.1], [0.1], [8]) is None
    assert effects.heterogeneity([0.1, 0.2], [0.0, 0.1], [8, 8]) is None
    assert effects.heterogeneity([0.1, 0.2], [0.1, 0.1], [1, 8]) is None


def test_hosts_that_are_equal_do_not_differ() -> None:
    assert effects.farthest([0.1] * 6) == effects.FarthestHost(0, 1.0)
    other = effects.farthest([0.1] * 5 + [0.5])
    assert other == effects.FarthestHost(5, 0.0)
