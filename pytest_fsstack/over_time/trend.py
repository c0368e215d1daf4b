"""Series over many runs of a machine, and their change points."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from pytest_fsstack.over_time import changes
from pytest_fsstack.over_time.comparison import Measure, SeriesKey, is_compared, mismatches, varying
from pytest_fsstack.records.names import Kind
from pytest_fsstack.records.results import Results
from pytest_fsstack.report.series import Series, series

#: Kinds of series: overheads over a reference, or absolute figures.
OVERHEADS: tuple[Kind, ...] = ("overhead", "kernel_overhead")
FIGURES: tuple[Kind, ...] = ("figure",)
#: The probability of finding a change in any of the series if none changes.
ALPHA = 0.05


class Point(NamedTuple):
    """The value of a run in a series: the median of a figure in its unit, or an overhead (0.3 is 30 %)."""

    run: Results
    value: float


@dataclass(frozen=True)
class Trend:
    """The points of a series, the oldest first."""

    key: SeriesKey
    kind: Kind
    unit: str
    points: tuple[Point, ...]

    @property
    def ratios(self) -> list[float]:
        """Return the values for the search for changes: costs as multiples of the reference, or the figures."""
        return [point.value + (self.kind != "figure") for point in self.points]


class ChangePoint(NamedTuple):
    """A stretch of runs that differs from the one before it.

    `before` and `after` are the medians of both stretches, in the unit of the points. `size` is the relative change of
    the cost (0.1 is 10 %). For an overhead, that is the change of the ratio to the reference.
    """

    point: int
    before: float
    after: float
    size: float


class ComparableRuns(NamedTuple):
    """The runs that are comparable with the newest one, the oldest first, and counts of the others by reason."""

    runs: list[Results]
    left_out: dict[str, int]


def select_comparable(history: Iterable[Results]) -> ComparableRuns:
    """Leave out runs that ended early, and those that cannot be compared with the newest of the others."""
    selection = ComparableRuns([], {})
    whole = []
    for run in history:
        if run.interrupted:
            selection.left_out["ended early"] = selection.left_out.get("ended early", 0) + 1
        else:
            whole.append(run)
    # Sorting is stable, so runs without a known time keep their order.
    whole.sort(key=lambda run: run.start)
    for run in whole:
        if reasons := mismatches(whole[-1], run):
            selection.left_out[reasons[0]] = selection.left_out.get(reasons[0], 0) + 1
        else:
            selection.runs.append(run)
    return selection


def trends(
    runs: Sequence[Results], kinds: Collection[Kind] = OVERHEADS, measures: Collection[Measure] | None = None
) -> list[Trend]:
    """Return the series of those kinds over runs in order. Kernels and devices are separate if a run has several.

    With `measures`, which have budgets, only the series that a comparison would show are returned.
    """

    def is_shown(entry: Series) -> bool:
        return measures is None or is_compared((entry.test, entry.step, entry.metric), measures)

    entries = [{_key(entry): entry for entry in series(run) if entry.kind in kinds and is_shown(entry)} for run in runs]
    same = dict.fromkeys({"kernel", "device"} - varying(entries), "")
    points: dict[SeriesKey, list[Point]] = {}
    entry_of: dict[SeriesKey, Series] = {}
    for run, of_run in zip(runs, entries):
        for key, entry in of_run.items():
            key = key._replace(**same)
            points.setdefault(key, []).append(Point(run, entry.value))
            entry_of[key] = entry
    return [Trend(key, entry_of[key].kind, entry_of[key].unit, tuple(of_run)) for key, of_run in points.items()]


def _key(entry: Series) -> SeriesKey:
    places = (entry.labels.get(part, "") for part in ("kernel", "device"))
    stack = f"{entry.stack} (emulated)" if "emulated" in entry.labels else entry.stack
    return SeriesKey(entry.test, entry.step, stack, entry.metric, entry.name, *places)


def change_points(trend: Trend, level: float, smallest: float = 0.0) -> list[ChangePoint]:
    """Return the change points of a series with a size of at least `smallest` (0.01 is 1 %).

    `level` is that of `changes.change_points`.
    """
    points = changes.change_points(trend.ratios, level)
    while points:
        candidates = [
            _change(trend, *stretch) for stretch in zip([0, *points], points, [*points[1:], len(trend.points)])
        ]
        smallest_change = min(candidates, key=lambda change: abs(change.size))
        if abs(smallest_change.size) >= smallest:
            return candidates
        points.remove(smallest_change.point)
    return []


def _change(trend: Trend, start: int, point: int, end: int) -> ChangePoint:
    ratios, values = trend.ratios, [point.value for point in trend.points]
    before, after = median(ratios[start:point]), median(ratios[point:end])
    size = after / before - 1 if before else float("inf")
    return ChangePoint(point, median(values[start:point]), median(values[point:end]), size)
