"""Runs against runs. Each run (a boot of a kernel, or a session) is one figure, and the two sides are not paired.

Rounds of one run share the effects of that run, so with more rounds a test on rounds would become worse. The unit is
therefore the run. Each input is the logarithm of a time, or of a ratio to a baseline. All differences between runs of
the two sides are formed.

- The estimate is their median (the Hodges-Lehmann shift).
- *fail* is reached if at most c of them are at or below the limit log(1 + budget), *pass* if at most c are above it.
- The interval reaches from the (c + 1)-th lowest to the (c + 1)-th highest.

A run of which not all is known has the smallest and largest figure that it could have. *fail* then takes the smallest
differences, *pass* the largest ones, and the interval reaches from the one to the other.

c is that of the exact Mann-Whitney test, counted in integers (Hollander, Wolfe & Chicken, *Nonparametric Statistical
Methods*, 3rd ed., Wiley 2014, sections 4.1 to 4.3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate, product
from math import comb, inf, isfinite, log1p

from pytest_fsstack.judging.verdict import GRID, overhead_beside
from pytest_fsstack.records.verdicts import Estimate, Looks, Outcome, Verdict

#: The smallest number of runs per side for a verdict, at any error rate. With two, no one could tell which is the
#: outlier.
MIN_RUNS = 3


#: The smallest and largest figure that each run of the new and of the old side could have.
Ranges = tuple[Sequence[tuple[float, float]], Sequence[tuple[float, float]]]


@cache
def arrangements(new: int, old: int) -> tuple[int, ...]:
    """Count the orders of the runs of both sides in which 0, 1, 2, ... of the pairs have the new run above the old one.

    They are the coefficients of the Gaussian binomial: the product of (1 - q^(old + i)) / (1 - q^i) for i from 1 to
    `new`.
    """
    counts = [1] + [0] * (new * old)
    for i in range(1, new + 1):
        for power in range(len(counts) - 1, old + i - 1, -1):
            counts[power] -= counts[power - old - i]
        for power in range(i, len(counts)):
            counts[power] += counts[power - i]
    return tuple(counts)


@cache
def boundary(new: int, old: int, alpha: float) -> int:
    """Return how many pairs may be on the wrong side of the limit for a verdict at `alpha`, or -1 if there is no such
    number.
    """
    allowed = int(Fraction(alpha) * comb(new + old, new))
    return bisect_right(list(accumulate(arrangements(new, old))), allowed) - 1


def min_runs(alpha: float) -> int:
    """Return the smallest number of runs per side for a verdict at `alpha`."""
    runs = MIN_RUNS
    while boundary(runs, runs, alpha) < 0:
        runs += 1
    return runs


def pseudo_median(values: Sequence[float]) -> float:
    """Return the median of the means of all pairs of values, each value paired with itself too (Hodges & Lehmann)."""
    ordered, number = sorted(values), len(values)
    pairs, earlier = number * (number + 1) // 2, number * (number - 1) // 2
    low, high = 2 * ordered[0], 2 * ordered[-1]
    # The sums of each value with the values from it on ascend. These are the parts of them in which the median is.
    starts, ends = list(range(number)), [number] * number
    while sum(ends) - sum(starts) > 4 * number and low < (middle := (low + high) / 2) < high:
        cuts, cut = [], number
        for index, one in enumerate(ordered):
            while cut > index and one + ordered[cut - 1] > middle:
                cut -= 1
            cuts.append(max(cut, index))
        below = sum(cuts) - earlier
        if below > pairs // 2:
            ends, high = cuts, middle
        elif below <= (pairs - 1) // 2:
            starts, low = cuts, middle
        else:
            break
    sums = sorted([one + other for one, *part in zip(ordered, starts, ends) for other in ordered[slice(*part)]])
    first = sum(starts) - earlier
    return (sums[(pairs - 1) // 2 - first] + sums[pairs // 2 - first]) / 4


def estimate(
    new: Sequence[float], old: Sequence[float], alpha: float, *, around: float = 0.0, ranges: Ranges | None = None
) -> Estimate:
    """Estimate the overhead of the new runs from one logarithm per run, with its 1 - 2 alpha confidence interval.

    `around` is the overhead at which equality must be exact: the budget, if there is one. The result's `rounds` is the
    smaller number of runs. Raises ValueError if a side is empty, or a logarithm is not finite.
    """
    if not new or not old or not all(map(isfinite, [*new, *old])):
        raise ValueError(f"both sides need one run or more, each a finite logarithm (got {new} and {old})")
    excesses = sorted(_excess(one, other, around) for one in new for other in old)
    sizes, least, largest = _extremes(new, old, around, ranges)
    cut = boundary(*sizes, alpha) + 1
    middle, odd = divmod(len(excesses), 2)
    twice = 2 * excesses[middle] if odd else excesses[middle - 1] + excesses[middle]
    return Estimate(
        overhead=overhead_beside(around, twice, 2),
        low=overhead_beside(around, least[cut - 1], 1) if cut and isfinite(least[cut - 1]) else -1.0,
        high=overhead_beside(around, largest[-cut], 1) if cut and isfinite(largest[-cut]) else inf,
        confidence=1 - 2 * alpha,
        rounds=min(sizes),
        missing=sum(low < high for side in ranges or () for low, high in side),
    )


def judge(
    new: Sequence[float], old: Sequence[float], budget: float, alpha: float, ranges: Ranges | None = None
) -> Verdict | None:
    """Judge the overhead of the new runs against `budget` (0.3 is 30 %). Return None if there are too few runs.

    A false *fail*, and a false *pass*, have at most the probability `alpha` if runs of both sides are exchangeable at
    the budget. Raises ValueError as `estimate`.
    """
    sizes, least, largest = _extremes(new, old, budget, ranges)
    limit = boundary(*sizes, alpha)
    if limit < 0 or min(sizes) < MIN_RUNS:
        return None
    outcome: Outcome = "inconclusive"
    if sum(excess <= 0 for excess in least) <= limit:
        outcome = "fail"
    elif sum(excess > 0 for excess in largest) <= limit:
        outcome = "pass"
    numbers = estimate(new, old, alpha, around=budget, ranges=ranges)
    return Verdict(outcome, numbers, budget, Looks.fixed(numbers.rounds, alpha), 1, runs=sizes)


def _extremes(
    new: Sequence[float], old: Sequence[float], around: float, ranges: Ranges | None
) -> tuple[tuple[int, int], list[float], list[float]]:
    """Return the numbers of runs of both sides, and the smallest and largest excesses over a limit, ascending."""
    ranges = ranges or ([(value, value) for value in new], [(value, value) for value in old])
    pairs = list(product(*ranges))
    least = sorted(_excess(low, high, around) for (low, _), (_, high) in pairs)
    largest = sorted(_excess(high, low, around) for (_, high), (low, _) in pairs)
    return (len(ranges[0]), len(ranges[1])), least, largest


def _excess(new: float, old: float, around: float) -> float:
    """Return the excess of a difference over a limit, in whole steps of the grid."""
    excess = new - old - log1p(around)
    return round(excess / GRID) if isfinite(excess) else excess
