"""Hosts as random effects: their heterogeneity, a prediction for the next host, and the host that differs.

The input is one logarithm of a ratio for each host, as in `judging.runs`. The verdict over hosts comes from the exact
signed-rank test (`judging.verdict`), which does not assume a normal distribution. The prediction and the search for the
host that differs do.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, expm1, fsum, inf, lgamma, log, log1p, sqrt
from statistics import fmean
from typing import NamedTuple

import msgspec

from pytest_fsstack.judging.quantiles import student_quantile, student_share

#: The smallest number of hosts for a verdict. All on one side have the probability 1/32.
MIN_HOSTS = 5
#: The smallest number of hosts for a prediction, and for finding one that differs from the others.
MIN_PREDICTED, MIN_COMPARED = 3, 4


class Range(NamedTuple):
    """A range of logarithms."""

    low: float
    high: float


def predicted(hosts: Sequence[float], alpha: float) -> Range | None:
    """Return the range of the next host with the probability 1 - 2 alpha, or None for fewer than three hosts.

    It is m -+ t(k - 1) s sqrt(1 + 1/k), with the mean m and the standard deviation s of k hosts: Higgins, Thompson &
    Spiegelhalter, Journal of the Royal Statistical Society A 172 (2009) 137, section 4.2, with equal weights. s
    includes the noise of rounds, so the range is that of the next measured figure.
    """
    number = len(hosts)
    if number < MIN_PREDICTED:
        return None
    reach = student_quantile(1 - alpha, number - 1) * sqrt(_variance(hosts) * (1 + 1 / number))
    return Range(fmean(hosts) - reach, fmean(hosts) + reach)


class Heterogeneity(msgspec.Struct, frozen=True, gc=False):
    """The heterogeneity of hosts: Cochran's Q, its degrees of freedom and p, and I squared.

    I squared is the share of the variance between hosts that is not noise of their rounds (Higgins & Thompson,
    Statistics in Medicine 21 (2002) 1539).
    """

    q: float
    freedom: int
    p: float
    i_squared: float


def heterogeneity(hosts: Sequence[float], errors: Sequence[float], rounds: Sequence[int]) -> Heterogeneity | None:
    """Return the heterogeneity of hosts, or None for fewer than two hosts, two rounds, or without errors.

    `errors` are the standard errors of the hosts. Those of few rounds are uncertain, which makes Q too large. So Q is
    divided by the correction of Welch (Biometrika 38 (1951) 330), and p is that of his F test.
    """
    number = len(hosts)
    # Smaller errors are those of the arithmetic.
    if number < 2 or min(rounds) < 2 or min(errors) < 1e-12:
        return None
    weights = [error**-2 for error in errors]
    total = sum(weights)
    mean = sum(weight * host for weight, host in zip(weights, hosts)) / total
    unequal = sum((1 - weight / total) ** 2 / (count - 1) for weight, count in zip(weights, rounds))
    correction = 1 + 2 * (number - 2) / (number**2 - 1) * unequal
    q = sum(weight * (host - mean) ** 2 for weight, host in zip(weights, hosts)) / correction
    freedom = number - 1
    p = 1 - _fisher_share(q / freedom, freedom, (number**2 - 1) / (3 * unequal))
    return Heterogeneity(q, freedom, p, max(0.0, 1 - freedom / q) if q else 0.0)


class FarthestHost(NamedTuple):
    """The host that is farthest from the others, by its index, and the p value of that distance."""

    host: int
    p: float


def farthest(hosts: Sequence[float]) -> FarthestHost | None:
    """Return the host that differs most from the others, or None for fewer than four hosts.

    The host is compared with the prediction of the others: the externally studentized residual, t with k - 2 degrees of
    freedom. p is multiplied by the number of hosts (Grubbs' test: F. E. Grubbs, Technometrics 11 (1969) 1).
    """
    number = len(hosts)
    if number < MIN_COMPARED:
        return None
    mean = fmean(hosts)
    host = max(range(number), key=lambda at: abs(hosts[at] - mean))
    distance = _distance(hosts[host], [*hosts[:host], *hosts[host + 1 :]])
    tail = 0.0 if distance == inf else 2 * (1 - student_share(distance, number - 2))
    return FarthestHost(host, min(1.0, number * tail))


def overhead_of(ratio: float) -> float:
    """Return the overhead of a log-ratio. It is finite, also if the end of a range is far beyond all figures."""
    return expm1(min(ratio, 700.0))


def _distance(host: float, others: Sequence[float]) -> float:
    off = abs(host - fmean(others))
    spread = sqrt(_variance(others) * (1 + 1 / len(others)))
    # Smaller differences are those of the arithmetic.
    return off / spread if spread > 1e-12 else inf if off > 1e-12 else 0.0


def _variance(hosts: Sequence[float]) -> float:
    # `statistics.variance` is exact, and a hundred times slower.
    mean = fmean(hosts)
    return fsum([(host - mean) ** 2 for host in hosts]) / (len(hosts) - 1)


def _fisher_share(ratio: float, above: float, below: float) -> float:
    """Return P(F <= ratio): Abramowitz & Stegun, 26.6.2."""
    if ratio <= 0:
        return 0.0
    return _beta_share(above * ratio / (above * ratio + below), above / 2, below / 2)


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if not 0 < x < 1:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(1 - x, b, a)
    factor = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    # From the inside out. 200 terms are more than the largest numbers of hosts and rounds need.
    value = 1.0
    for m in range(200, 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        value = 1 + even / (1 + odd / value)
    return factor / (1 - (a + b) * x / (a + 1) / value)
