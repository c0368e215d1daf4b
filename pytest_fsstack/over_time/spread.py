"""One or two runs against earlier ones of the same machine, whose spread says how much runs differ anyway.

Numbers in are one logarithm a run, as in `judging.runs`, which needs three runs a side and assumes less. Here runs are
taken as normally distributed and independent of each other, around a level that may have changed in the past.

- The spread comes from differences of successive runs, so a level that grows slowly is no spread (von Neumann and
  others, Annals of Mathematical Statistics 12 (1941) 153). The largest difference counts as the second largest: a
  single jump, such as an accepted improvement, is no spread either.
- Runs are compared twice: with the latest runs, because what was gained must not be lost again, and with the first
  ones, because many small losses must not add up. Each comparison may fail falsely at half of alpha.
- To pass, both comparisons must pass, so each of them may use all of alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import ceil, expm1, floor, inf, isfinite, log1p, sqrt
from statistics import fmean
from typing import NamedTuple

from pytest_fsstack.judging.verdict import GRID, Estimate, Looks, Outcome, Verdict
from pytest_fsstack.report.quantiles import student_quantile, student_share

#: Fewest earlier runs for a verdict: with fewer, their spread is hardly known.
MIN_EARLIER_RUNS = 5
#: How many of the latest runs, and of the first ones. Where there are fewer than the latter, all runs are one window.
LATEST_RUNS, FIRST_RUNS = 5, 10
#: The share of unchanged runs that a limit should decide before it counts as one that can be decided.
DECIDED_SHARE = 0.97


class Window(NamedTuple):
    """Some of the earlier runs, by number, and their name: ``the last 5``."""

    name: str
    runs: range


class Spread(NamedTuple):
    """The standard deviation of runs, as a logarithm, and the degrees of freedom that it is known with."""

    deviation: float
    freedom: float

    def quantile(self, share: float) -> float:
        """Return Student's t."""
        return self._between_degrees(lambda freedom: student_quantile(share, freedom))

    def share_below(self, t: float) -> float:
        """Return Student's distribution function."""
        return self._between_degrees(lambda freedom: student_share(t, freedom))

    def _between_degrees(self, function: Callable[[int], float]) -> float:
        """Return a function of the degrees of freedom; between whole ones, by their reciprocal."""
        low, high = floor(self.freedom), ceil(self.freedom)
        weight = (1 / low - 1 / self.freedom) / (1 / low - 1 / high) if low < high else 0.0
        return function(low) + weight * (function(high) - function(low))


class SpreadVerdict(NamedTuple):
    """The verdict, or only the estimate where there is no limit, and the window that it is of."""

    window: Window
    estimate: Estimate
    verdict: Verdict | None


def windows(history: Sequence[float]) -> list[Window]:
    """Return the parts of a history that runs are compared with."""
    number = len(history)
    if number < FIRST_RUNS:
        return [Window(f"{number}", range(number))]
    return [
        Window(f"the last {LATEST_RUNS}", range(number - LATEST_RUNS, number)),
        Window(f"the first {FIRST_RUNS}", range(FIRST_RUNS)),
    ]


def spread(history: Sequence[float]) -> Spread:
    """Return the spread of earlier runs in their order.

    Without the largest difference the variance is too low by 1.5 / H for H normally distributed runs. The degrees of
    freedom are those of the mean of H - 1 squared differences less 0.8. Both were fitted to simulations with 5 to 60
    runs. Raises ValueError if there are fewer than `MIN_EARLIER_RUNS`.
    """
    number = len(history)
    if number < MIN_EARLIER_RUNS or not all(map(isfinite, history)):
        raise ValueError(f"needs {MIN_EARLIER_RUNS} earlier runs, each a finite logarithm (got {list(history)})")
    squares = sorted((after - before) ** 2 / 2 for before, after in pairwise(history))
    squares[-1] = squares[-2]
    freedom = 2 * (number - 1) ** 2 / (3 * number - 4) - 0.8
    return Spread(sqrt(fmean(squares) / (1 - 1.5 / number)), freedom)


def judge(now: Sequence[float], history: Sequence[float], limit: float | None, alpha: float) -> SpreadVerdict | None:
    """Judge runs now against `limit` (0.05 is 5 % more than earlier); None if there are too few earlier runs.

    A false *fail*, and a false *pass*, have at most the probability `alpha` at the limit if runs are as said above. A
    difference at the limit counts as not above it. Raises ValueError without a run now, or for what is not finite.
    """
    if len(history) < MIN_EARLIER_RUNS:
        return None
    if not now or not all(map(isfinite, now)):
        raise ValueError(f"needs a run, each a finite logarithm (got {list(now)})")
    return max(_judge_windows(now, history, limit, alpha), key=_badness)


def _badness(judged: SpreadVerdict) -> tuple[int, float]:
    order: tuple[Outcome, ...] = ("pass", "inconclusive", "fail")
    return order.index(judged.verdict.outcome) if judged.verdict else 0, judged.estimate.low


def _judge_windows(
    now: Sequence[float], history: Sequence[float], limit: float | None, alpha: float
) -> Iterator[SpreadVerdict]:
    compared, between = windows(history), spread(history)
    share = alpha / len(compared)
    for window in compared:
        error = between.deviation * sqrt(1 / len(now) + 1 / len(window.runs))
        shift = fmean(now) - fmean(history[number] for number in window.runs)
        low, high = shift - between.quantile(1 - share) * error, shift + between.quantile(1 - alpha) * error
        estimate = Estimate(_overhead(shift), _overhead(low), _overhead(high), 1 - share - alpha, len(now))
        verdict = None
        if limit is not None:
            outcome = _outcome(low - log1p(limit), high - log1p(limit))
            looks = Looks.fixed(len(now), alpha)
            verdict = Verdict(outcome, estimate, limit, looks, 1, runs=(len(now), len(window.runs)))
        yield SpreadVerdict(window, estimate, verdict)


def _outcome(low: float, high: float) -> Outcome:
    # In whole steps, because runs that are exactly at the limit must not be judged by a rounding error.
    if round(low / GRID) > 0:
        return "fail"
    return "pass" if round(high / GRID) <= 0 else "inconclusive"


def _overhead(logarithm: float) -> float:
    # No float holds more.
    return expm1(logarithm) if logarithm < 700 else inf


# -- before a session --------------------------------------------------------------------------------------------------


class Power(NamedTuple):
    """The power of a limit for one run, estimated from the earlier runs.

    `decided` is the share of unchanged runs that pass. `smallest` is the limit (0.05 is 5 %) that enough of them pass,
    and `decides` says whether this limit is as large. `rounds` is how many rounds a run needs for that. It is None if
    runs differ too much for any number.
    """

    spread: Spread
    decided: float
    decides: bool
    smallest: float
    rounds: int | None


def power(
    history: Sequence[float], within: float, rounds: int, limit: float, alpha: float, decided: float = DECIDED_SHARE
) -> Power:
    """Return what a limit can tell, if a run has so many rounds and `within` is the deviation of one of them.

    A share `decided` of unchanged runs should pass, each against all windows. The spread of the next run is as
    uncertain as that of the earlier ones, so both quantiles are Student's. Raises ValueError as `spread`.
    """
    between, compared = spread(history), windows(history)
    error = sqrt(1 + 1 / min(len(window.runs) for window in compared))
    units, quantile = error * between.deviation, between.quantile(1 - alpha)
    missed = 1 - between.share_below(log1p(limit) / units - quantile) if units else 0.0
    distance = (quantile + between.quantile(1 - (1 - decided) / len(compared))) * error
    smallest = expm1(distance * between.deviation)
    # What differs from run to run whatever the rounds are.
    remaining = max(0.0, between.deviation**2 - within**2 / rounds)
    room = (log1p(limit) / distance) ** 2 - remaining
    share = max(0.0, 1 - len(compared) * missed)
    return Power(between, share, limit >= smallest, smallest, _rounds(within, room))


def _rounds(within: float, room: float) -> int | None:
    if room <= 0:
        return None
    return max(1, ceil(within**2 / room - GRID))
