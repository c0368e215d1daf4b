"""Changes in a series of runs: Pettitt's rank test on the series without its lag-1 correlation.

With ranks, single runs that took far longer do no harm. Correlated runs, from a machine that drifts, look like steps.
So the lag-1 correlation of the residuals is estimated and removed first (prewhitening).

The test and its p are from A. N. Pettitt, Journal of the Royal Statistical Society C 28 (1979) 126. The correlation of
the series without its change is from S. Yue and others, Hydrological Processes 16 (2002) 1807.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import exp, sqrt
from statistics import NormalDist, median

#: The smallest number of runs in which a change is searched.
MIN_RUNS = 6
#: The smallest number of runs for a test of the lag-1 correlation.
_MIN_CORRELATED_RUNS = 10
#: The maximum number of estimates of the correlation. Each uses the changes that the previous one found.
_MAX_PASSES = 3
#: The maximum distance in runs between a change and the place where the test finds it.
_NEIGHBOURS = 2
#: The largest correlation that is removed.
_MAX_CORRELATION = 0.9


def change_points(values: Sequence[float], level: float) -> list[int]:
    """Return the indices at which the series changes.

    In a series without changes, it finds one with a probability of about `level`. Fewer than `MIN_RUNS`
    values give nothing.
    """
    if len(values) < MIN_RUNS:
        return []
    points = [_split(values)[0]]
    for _ in range(_MAX_PASSES):
        correlation = _correlation(residuals(values, points), len(points))
        white = [value - correlation * before for before, value in pairwise(values)] if correlation else list(values)
        shift = len(values) - len(white)
        previous, points = points, _placed(values, [point + shift for point in _segments(white, 0, level)])
        if points == previous:
            break
    return points


def correlation(values: Sequence[float], level: float = 0.01) -> float:
    """Return the lag-1 rank correlation of a series without its largest step, or 0 if not significant at `level`."""
    if len(values) < _MIN_CORRELATED_RUNS:
        return 0.0
    value = _lag_one(residuals(values, [_split(values)[0]]))
    return value if value * sqrt(len(values)) > NormalDist().inv_cdf(1 - level) else 0.0


def residuals(values: Sequence[float], points: Sequence[int]) -> list[float]:
    """Return the values minus the median of the stretch between two `points`."""
    stretches = [values[start:end] for start, end in pairwise([0, *points, len(values)]) if start < end]
    return [value - median(stretch) for stretch in stretches for value in stretch]


def _placed(values: Sequence[float], points: Sequence[int]) -> list[int]:
    """Move each point, which may be off by a run or two, to the smallest distances from the medians of both sides."""
    placed: list[int] = []
    for start, point, end in zip([0, *points], points, [*points[1:], len(values)]):
        start = placed[-1] if placed else start
        places = range(max(start + 1, point - _NEIGHBOURS), min(end, point + _NEIGHBOURS + 1))
        stretch = values[start:end]
        placed.append(min(places, key=lambda place: sum(map(abs, residuals(stretch, [place - start])))))
    return placed


def _segments(values: Sequence[float], start: int, level: float) -> list[int]:
    """Split a series where it changed, then split both parts again. Return the indices plus `start`."""
    if len(values) < MIN_RUNS:
        return []
    point, p = _split(values)
    if p >= level:
        return []
    before, after = values[:point], values[point:]
    return [*_segments(before, start, level), start + point, *_segments(after, start + point, level)]


def _split(values: Sequence[float]) -> tuple[int, float]:
    """Return the index at which the ranks of both sides differ most, and its p value."""
    n = len(values)
    sums = list(accumulate(_centred_ranks(values)))[:-1]
    point = max(range(len(sums)), key=lambda index: abs(sums[index]))
    return point + 1, min(1.0, 2 * exp(-6 * (2 * sums[point]) ** 2 / (n**3 + n**2)))


def _centred_ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks minus their average. Equal values share the average of their ranks."""
    ordered = sorted(values)
    first = {value: index for index, value in reversed(list(enumerate(ordered)))}
    last = {value: index for index, value in enumerate(ordered)}
    return [(first[value] + last[value] - len(values) + 1) / 2 for value in values]


def _lag_one(values: Sequence[float]) -> float:
    ranks = _centred_ranks(values)
    square = sum(rank * rank for rank in ranks)
    return sum(before * after for before, after in pairwise(ranks)) / square if square else 0.0


def _correlation(values: Sequence[float], points: int) -> float:
    """Return the lag-1 correlation of residuals, corrected for the median that was subtracted from each stretch."""
    lag = _lag_one(values)
    return min(_MAX_CORRELATION, max(0.0, lag + (1 + points) * (1 + 3 * lag) / len(values)))
