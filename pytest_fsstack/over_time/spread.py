"""Verdicts on one or two runs, by the spread of earlier runs of the same machine.

The input is one logarithm for each run, as in `judging.runs`, which needs three runs a side and assumes less. Here runs
are assumed to be independent and normally distributed, around a level that may have changed in the past.

- The spread is computed from differences of successive runs, so a slowly growing level does not increase it (von
  Neumann and others, Annals of Mathematical Statistics 12 (1941) 153). The largest difference is replaced by the second
  largest, so a single jump, such as an accepted improvement, does not increase it either.
- Runs are compared twice. The comparison with the latest runs protects improvements. The comparison with the first runs
  finds many small losses that add up. Each comparison may fail falsely at half of alpha.
- To pass, both comparisons must pass, so each of them may use all of alpha.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import ceil, expm1, floor, inf, isfinite, log1p, sqrt
from statistics import fmean
from typing import NamedTuple

from pytest_fsstack.judging.quantiles import student_quantile, student_share
from pytest_fsstack.judging.verdict import GRID
from pytest_fsstack.records.verdicts import Estimate, Outcome

#: The smallest number of earlier runs for a verdict. The spread of fewer is too uncertain.
MIN_EARLIER_RUNS = 5
#: The sizes of the windows of the latest and of the first runs. With larger ones, a regression right after an
#: improvement is missed, and slow growth is found later.
LATEST_RUNS, FIRST_RUNS = 3, 7
#: The number of runs from which on there are two windows.
MANY_RUNS = 10
#: The share of unchanged runs that a limit must decide to count as decidable.
DECIDED_SHARE = 0.97


class Window(NamedTuple):
    """Some of the earlier runs, by number, and their name: ``the last 5``."""

    name: str
    runs: range


class Spread(NamedTuple):
    """The standard deviation of runs, as a logarithm, and its degrees of freedom."""

    deviation: float
    freedom: float

    def quantile(self, share: float) -> float:
        """Return the quantile of Student's t at `share`."""
        return self._between_degrees(lambda freedom: student_quantile(share, freedom))

    def share_below(self, t: float) -> float:
        """Return the distribution function of Student's t at `t`."""
        return self._between_degrees(lambda freedom: student_share(t, freedom))

    def _between_degrees(self, function: Callable[[int], float]) -> float:
        """Interpolate a function of whole degrees of freedom, linearly in their reciprocal."""
        low, high = floor(self.freedom), ceil(self.freedom)
        weight = (1 / low - 1 / self.freedom) / (1 / low - 1 / high) if low < high else 0.0
        return function(low) + weight * (function(high) - function(low))


class SpreadVerdict(NamedTuple):
    """A verdict and its estimate, with the window of earlier runs. The outcome is None without a limit."""

    window: Window
    estimate: Estimate
    outcome: Outcome | None


def windows(history: Sequence[float]) -> list[Window]:
    """Return the windows of a history with which runs are compared."""
    number = len(history)
    if number < MANY_RUNS:
        return [Window(f"{number}", range(number))]
    return [
        Window(f"the last {LATEST_RUNS}", range(number - LATEST_RUNS, number)),
        Window(f"the first {FIRST_RUNS}", range(FIRST_RUNS)),
    ]


def spread(history: Sequence[float]) -> Spread:
    """Return the spread of earlier runs in their order.

    Without the largest difference, the variance of H normally distributed runs is too low by the share 1.5 / H. The
    degrees of freedom are those of the mean of H - 1 squared differences, minus 0.8. Both corrections were fitted to
    simulations with 5 to 60 runs. Raises ValueError if there are fewer than `MIN_EARLIER_RUNS`.
    """
    number = len(history)
    if number < MIN_EARLIER_RUNS or not all(map(isfinite, history)):
        raise ValueError(f"needs {MIN_EARLIER_RUNS} earlier runs, each a finite logarithm (got {list(history)})")
    squares = sorted((after - before) ** 2 / 2 for before, after in pairwise(history))
    squares[-1] = squares[-2]
    freedom = 2 * (number - 1) ** 2 / (3 * number - 4) - 0.8
    return Spread(sqrt(fmean(squares) / (1 - 1.5 / number)), freedom)


def judge(now: Sequence[float], history: Sequence[float], limit: float | None, alpha: float) -> SpreadVerdict:
    """Judge runs by a limit (0.05 is 5 % more than earlier).

    At the limit, false *fail* and false *pass* each have at most the probability `alpha`, under the assumptions of this
    module. A difference that equals the limit is not above it. Raises ValueError without a run now, like `spread`, or
    if a number is not finite.
    """
    if not now or not all(map(isfinite, now)):
        raise ValueError(f"needs a run, each a finite logarithm (got {list(now)})")
    return max(_judge_windows(now, history, limit, alpha), key=_badness)


def _badness(judged: SpreadVerdict) -> tuple[int, float]:
    order: tuple[Outcome, ...] = ("pass", "inconclusive", "fail")
    return order.index(judged.outcome) if judged.outcome else 0, judged.estimate.low


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
        outcome = None if limit is None else _outcome(low - log1p(limit), high - log1p(limit))
        yield SpreadVerdict(window, estimate, outcome)


def _outcome(low: float, high: float) -> Outcome:
    # In steps of GRID, so that rounding errors do not judge runs that are exactly at the limit.
    if round(low / GRID) > 0:
        return "fail"
    return "pass" if round(high / GRID) <= 0 else "inconclusive"


def _overhead(logarithm: float) -> float:
    # exp(710) overflows a float.
    return expm1(logarithm) if logarithm < 700 else inf


# -- before a session --------------------------------------------------------------------------------------------------


class Power(NamedTuple):
    """The power of a limit for one run, estimated from the earlier runs.

    `decided` is the share of unchanged runs that pass. `smallest` is the smallest limit (0.05 is 5 %) that enough of
    them pass, and `decides` is true if the limit is not below it. `rounds` is the number of rounds with which a run
    could pass the limit. It is None if runs differ too much for any number.
    """

    spread: Spread
    decided: float
    decides: bool
    smallest: float
    rounds: int | None


def power(
    history: Sequence[float], within: float, rounds: int, limit: float, alpha: float, decided: float = DECIDED_SHARE
) -> Power:
    """Return the power of a limit for a run with so many rounds. `within` is the standard deviation of a round.

    A share `decided` of unchanged runs should pass, each against all windows. The spread is only estimated, so both
    quantiles are those of Student's t. Raises ValueError like `spread`.
    """
    between, compared = spread(history), windows(history)
    error = sqrt(1 + 1 / min(len(window.runs) for window in compared))
    units, quantile = error * between.deviation, between.quantile(1 - alpha)
    missed = 1 - between.share_below(log1p(limit) / units - quantile) if units else 0.0
    distance = (quantile + between.quantile(1 - (1 - decided) / len(compared))) * error
    smallest = _overhead(distance * between.deviation)
    # The variance between runs that more rounds do not reduce.
    remaining = max(0.0, between.deviation**2 - within**2 / rounds)
    room = (log1p(limit) / distance) ** 2 - remaining
    share = max(0.0, 1 - len(compared) * missed)
    return Power(between, share, limit >= smallest, smallest, _rounds(within, room))


def _rounds(within: float, room: float) -> int | None:
    if room <= 0:
        return None
    return max(1, ceil(within**2 / room - GRID))
