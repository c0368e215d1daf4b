"""Runs against runs: a boot of a kernel, or a session, is one figure, and those of two sides are no pairs.

Rounds of one run have in common what differs from run to run, so that more rounds would make a test on rounds worse.
The unit is the run: numbers in are one logarithm each, of a time or of a ratio to a baseline. All differences between a
run of one side and one of the other are formed.

- The estimate is their median (the Hodges-Lehmann shift).
- *fail* is reached if at most c of them are at or below the limit log(1 + budget), *pass* if at most c are above it.
- The interval reaches from the (c + 1)-th lowest to the (c + 1)-th highest.

c is that of the exact Mann-Whitney test, counted in integers (Hollander, Wolfe & Chicken, *Nonparametric Statistical
Methods*, 3rd ed., Wiley 2014, sections 4.1 to 4.3).
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import comb, inf, isfinite, log1p

from pytest_fsstack.judging.verdict import GRID, Estimate, Looks, Outcome, Verdict, overhead_beside

#: Fewest runs a side for a verdict, whatever the error rate: with two, one of them is as likely the odd one out.
FEWEST = 3


@cache
def arrangements(ours: int, theirs: int) -> tuple[int, ...]:
    """In how many orders of so many runs of each side 0, 1, 2, ... of the pairs have ours above theirs.

    They are the coefficients of the Gaussian binomial: the product of (1 - q^(theirs + i)) / (1 - q^i) for i to `ours`.
    """
    found = [1] + [0] * (ours * theirs)
    for i in range(1, ours + 1):
        for power in range(len(found) - 1, theirs + i - 1, -1):
            found[power] -= found[power - theirs - i]
        for power in range(i, len(found)):
            found[power] += found[power - i]
    return tuple(found)


@cache
def boundary(ours: int, theirs: int, alpha: float) -> int:
    """The most pairs that may be on the wrong side of the limit for a verdict at `alpha`; -1 if none suffices."""
    allowed = int(Fraction(alpha) * comb(ours + theirs, ours))
    return bisect_right(list(accumulate(arrangements(ours, theirs))), allowed) - 1


def fewest(alpha: float) -> int:
    """How many runs a side it takes for a verdict at `alpha`."""
    runs = FEWEST
    while boundary(runs, runs, alpha) < 0:
        runs += 1
    return runs


def pseudo_median(values: Sequence[float]) -> float:
    """Return the median of the means of all pairs of values, each value with itself included (Hodges & Lehmann)."""
    return statistics.median((one + other) / 2 for index, one in enumerate(values) for other in values[index:])


def estimate(ours: Sequence[float], theirs: Sequence[float], alpha: float, *, around: float = 0.0) -> Estimate:
    """Estimate how much more our runs cost, from one logarithm a run, with the interval of confidence 1 - 2 alpha.

    `around` is the overhead to which equality is exact, which is the budget if there is one. `rounds` of the result is
    the smaller number of runs. Raises ValueError if a side has no run, or a logarithm is not finite.
    """
    excesses = _excesses(ours, theirs, around)
    cut = boundary(len(ours), len(theirs), alpha) + 1
    middle, odd = divmod(len(excesses), 2)
    twice = 2 * excesses[middle] if odd else excesses[middle - 1] + excesses[middle]
    return Estimate(
        overhead=overhead_beside(around, twice, 2),
        low=overhead_beside(around, excesses[cut - 1], 1) if cut else -1.0,
        high=overhead_beside(around, excesses[-cut], 1) if cut else inf,
        confidence=1 - 2 * alpha,
        rounds=min(len(ours), len(theirs)),
    )


def judge(ours: Sequence[float], theirs: Sequence[float], budget: float, alpha: float) -> Verdict | None:
    """Judge one logarithm a run of both sides against `budget` (0.3 is 30 %); None if there are too few runs.

    A false *fail*, and a false *pass*, have at most the probability `alpha` if runs of both sides are exchangeable at
    the budget. Raises ValueError as `estimate`.
    """
    excesses = _excesses(ours, theirs, budget)
    most = boundary(len(ours), len(theirs), alpha)
    if most < 0 or min(len(ours), len(theirs)) < FEWEST:
        return None
    above = sum(excess > 0 for excess in excesses)
    outcome: Outcome = "inconclusive"
    if len(excesses) - above <= most:
        outcome = "fail"
    elif above <= most:
        outcome = "pass"
    found = estimate(ours, theirs, alpha, around=budget)
    return Verdict(outcome, found, budget, Looks.fixed(found.rounds, alpha), 1, runs=(len(ours), len(theirs)))


def _excesses(ours: Sequence[float], theirs: Sequence[float], around: float) -> list[int]:
    """The differences between runs of both sides: their excess over a limit in whole steps of the grid, ascending."""
    if not ours or not theirs or not all(map(isfinite, [*ours, *theirs])):
        raise ValueError(f"both sides need one run or more, each a finite logarithm (got {ours} and {theirs})")
    limit = log1p(around)
    return sorted(round((one - other - limit) / GRID) for one in ours for other in theirs)
