"""A series over many runs as text: a drawing in one line, and a line for each change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from statistics import median

from pytest_fsstack.over_time.changes import MIN_RUNS
from pytest_fsstack.over_time.comparison import differences
from pytest_fsstack.over_time.trend import ChangePoint, Trend
from pytest_fsstack.units import OverheadUnit, counted, format_quantity

#: Characters from the lowest to the highest value, for terminals with and without Unicode.
BLOCKS, ASCII = "▁▂▃▄▅▆▇█", "_.:-=+*#"
#: The maximum width of a drawing. If there are more runs, several share a column.
_WIDTH = 80
#: The maximum number of differences of the environment that are shown for a change.
_MAX_DIFFERENCES = 4


def sparkline(values: Sequence[float], ramp: str = BLOCKS, width: int = _WIDTH) -> str:
    """Draw the values as heights between the lowest and the highest. Equal values are in the middle."""
    buckets = [median(values[start:end]) for start, end in _buckets(len(values), width)]
    low, high = min(buckets), max(buckets)
    if low == high:
        return ramp[len(ramp) // 2] * len(buckets)
    return "".join(ramp[round((value - low) / (high - low) * (len(ramp) - 1))] for value in buckets)


def lines(trend: Trend, points: Sequence[ChangePoint], ramp: str = BLOCKS) -> list[str]:
    """Return the newest value of a series, its drawing with ``^`` below each change, and a line for each change."""
    values = [point.value for point in trend.points]
    text = [f"{trend.key}: {_value(trend, values[-1])} in the newest of {counted(len(values), 'run')}"]
    text.append(f"  {sparkline(values, ramp)}  {_value(trend, min(values))} to {_value(trend, max(values))}")
    if points:
        changed = {change.point for change in points}
        marks = ("^" if changed & set(range(*part)) else " " for part in _buckets(len(values), _WIDTH))
        text.append(f"  {''.join(marks)}".rstrip())
    elif len(values) < MIN_RUNS:
        text.append(f"  too few runs to look for a change: it takes {MIN_RUNS}")
    for change in points:
        run, before = trend.points[change.point].run, trend.points[change.point - 1].run
        size = f"{OverheadUnit.fitting([change.size]).signed(change.size)}" if isfinite(change.size) else "from nothing"
        text.append(
            f"  may have changed: {size} since {run.start or 'a run of no known date'}{_commit(run.labels)}: "
            f"{_value(trend, change.before)} -> {_value(trend, change.after)}"
        )
        differs = differences([run], [before])
        text += [f"    differs: {part}" for part in differs[:_MAX_DIFFERENCES]]
        text += [f"    differs: {len(differs) - _MAX_DIFFERENCES} more"] if len(differs) > _MAX_DIFFERENCES else []
    return text


def _buckets(number: int, width: int) -> list[tuple[int, int]]:
    """Return the index ranges of the values in each column of a drawing."""
    places = min(number, width)
    return list(pairwise(number * place // places for place in range(places + 1)))


def _value(trend: Trend, value: float) -> str:
    return format_quantity(value, trend.unit) if trend.kind == "figure" else OverheadUnit.fitting([value]).signed(value)


def _commit(labels: dict[str, str]) -> str:
    return f", commit {labels['commit'][:12]}" if "commit" in labels else ""
