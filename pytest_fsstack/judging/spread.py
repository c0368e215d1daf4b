"""One or two runs against earlier ones of the same machine, whose spread says how much runs differ anyway.

Numbers in are one logarithm a run, as in `judging.runs`, which needs three runs a side and assumes less: here the runs
of a machine are taken as normally distributed around what the stack costs, with one spread for all. Then the difference
of the averages, over the spread of the earlier runs, has Student's t distribution with H - 1 degrees of freedom for H
earlier runs (the prediction interval for a further observation).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, inf, isfinite, log1p, sqrt
from statistics import fmean, stdev

from pytest_fsstack.judging.quantiles import student_quantile
from pytest_fsstack.judging.verdict import GRID, Estimate, Looks, Outcome, Verdict

#: Fewest earlier runs for a verdict: with fewer, their spread is hardly known.
FEWEST_EARLIER = 5


def estimate(ours: Sequence[float], theirs: Sequence[float], alpha: float) -> Estimate:
    """Estimate how much more our runs cost than the earlier ones, `theirs`, with an interval of confidence 1 - 2 alpha.

    `rounds` of the result is the number of our runs. Raises ValueError if we have no run, if there are fewer than two
    earlier ones, or if a logarithm is not finite.
    """
    shift, half = _shift(ours, theirs, alpha)
    low, high = _overhead(shift - half), _overhead(shift + half)
    return Estimate(_overhead(shift), low, high, 1 - 2 * alpha, len(ours))


def judge(ours: Sequence[float], theirs: Sequence[float], budget: float, alpha: float) -> Verdict | None:
    """Judge our runs against `budget` (0.05 is 5 % more); None if there are fewer earlier ones than `FEWEST_EARLIER`.

    A false *fail*, and a false *pass*, have the probability `alpha` at the budget if the runs are as said above. A
    difference at the limit counts as not above it. Raises ValueError as `estimate`.
    """
    if len(theirs) < FEWEST_EARLIER:
        return None
    shift, half = _shift(ours, theirs, alpha)
    excess = shift - log1p(budget)
    outcome: Outcome = "inconclusive"
    # In whole steps, so that runs that are exactly at the limit are not judged by a rounding error.
    if round((excess - half) / GRID) > 0:
        outcome = "fail"
    elif round((excess + half) / GRID) <= 0:
        outcome = "pass"
    looks = Looks.fixed(len(ours), alpha)
    return Verdict(outcome, estimate(ours, theirs, alpha), budget, looks, 1, runs=(len(ours), len(theirs)))


def _overhead(logarithm: float) -> float:
    # No float holds more.
    return expm1(logarithm) if logarithm < 700 else inf


def _shift(ours: Sequence[float], theirs: Sequence[float], alpha: float) -> tuple[float, float]:
    """The difference of the averages, and the half-width of its interval."""
    if not ours or len(theirs) < 2 or not all(map(isfinite, [*ours, *theirs])):
        raise ValueError(f"needs a run and two earlier ones, each a finite logarithm (got {ours} and {theirs})")
    error = stdev(theirs) * sqrt(1 / len(ours) + 1 / len(theirs))
    return fmean(ours) - fmean(theirs), student_quantile(1 - alpha, len(theirs) - 1) * error
