"""Changes in a series of runs: Pettitt's rank test on the series without its lag-1 correlation.

Ranks make single runs that took far longer harmless. Runs that follow each other, because the machine does, look like
steps. So the lag-1 correlation of the residuals is estimated and taken out first (prewhitening).

A. N. Pettitt, Journal of the Royal Statistical Society C 28 (1979) 126, has the test and its p; S. Yue and others,
Hydrological Processes 16 (2002) 1807, take the correlation from the series without its change.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import exp, sqrt
from statistics import NormalDist, median

#: With fewer runs, nothing is looked for.
MIN_RUNS = 6
#: Fewest runs of which a lag-1 correlation is tested.
_MIN_CORRELATED_RUNS = 10
#: How often the correlation is estimated anew from the stretches between the changes.
_PASSES = 3
#: How far a change may be from where the test sees it.
_NEIGHBOURS = 2
#: No series is taken to follow itself more closely.
_MAX_CORRELATION = 0.9


def change_points(values: Sequence[float], level: float) -> list[int]:
    """Return the numbers of the values at which another stretch begins.

    In a series that does not change, something is found with a probability of about `level`. Fewer than `MIN_RUNS`
    values give nothing.
    """
    if len(values) < MIN_RUNS:
        return []
    points = [_split(values)[0]]
    for _ in range(_PASSES):
        correlation = _correlation(residuals(values, points), len(points))
        white = [value - correlation * before for before, value in pairwise(values)] if correlation else list(values)
        shift = len(values) - len(white)
        previous, points = points, _placed(values, [point + shift for point in _segments(white, 0, level)])
        if points == previous:
            break
    return points


def correlation(values: Sequence[float], level: float = 0.01) -> float:
    """Return the lag-1 rank correlation of a series without its largest step; 0 if it is not shown at `level`."""
    if len(values) < _MIN_CORRELATED_RUNS:
        return 0.0
    value = _lag_one(residuals(values, [_split(values)[0]]))
    return value if value * sqrt(len(values)) > NormalDist().inv_cdf(1 - level) else 0.0


def residuals(values: Sequence[float], points: Sequence[int]) -> list[float]:
    """Return the values without the median of their stretch."""
    stretches = [values[start:end] for start, end in pairwise([0, *points, len(values)]) if start < end]
    return [value - median(stretch) for stretch in stretches for value in stretch]


def _placed(values: Sequence[float], points: Sequence[int]) -> list[int]:
    """Move each point to where the values differ least from the medians of both sides: ranks are a run or two off."""
    placed: list[int] = []
    for start, point, end in zip([0, *points], points, [*points[1:], len(values)]):
        start = placed[-1] if placed else start
        places = range(max(start + 1, point - _NEIGHBOURS), min(end, point + _NEIGHBOURS + 1))
        stretch = values[start:end]
        placed.append(min(places, key=lambda place: sum(map(abs, residuals(stretch, [place - start])))))
    return placed


def _segments(values: Sequence[float], start: int, level: float) -> list[int]:
    """Split a series where it changed, then both parts again."""
    if len(values) < MIN_RUNS:
        return []
    point, p = _split(values)
    if p >= level:
        return []
    before, after = values[:point], values[point:]
    return [*_segments(before, start, level), start + point, *_segments(after, start + point, level)]


def _split(values: Sequence[float]) -> tuple[int, float]:
    """Return where the ranks on both sides differ most, and p for a series that does not change there."""
    n = len(values)
    sums = list(accumulate(_centred_ranks(values)))[:-1]
    point = max(range(len(sums)), key=lambda index: abs(sums[index]))
    return point + 1, min(1.0, 2 * exp(-6 * (2 * sums[point]) ** 2 / (n**3 + n**2)))


def _centred_ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks less their average; equal values share the average of theirs."""
    ordered = sorted(values)
    first = {value: index for index, value in reversed(list(enumerate(ordered)))}
    last = {value: index for index, value in enumerate(ordered)}
    return [(first[value] + last[value] - len(values) + 1) / 2 for value in values]


def _lag_one(values: Sequence[float]) -> float:
    ranks = _centred_ranks(values)
    square = sum(rank * rank for rank in ranks)
    return sum(before * after for before, after in pairwise(ranks)) / square if square else 0.0


def _correlation(values: Sequence[float], points: int) -> float:
    """Return the lag-1 correlation of residuals; each stretch whose median was taken away makes it too low."""
    lag = _lag_one(values)
    return min(_MAX_CORRELATION, max(0.0, lag + (1 + points) * (1 + 3 * lag) / len(values)))
