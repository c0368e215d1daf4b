"""A series over many runs of a machine: its points in order, and where it changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from pytest_fsstack.judging import changes
from pytest_fsstack.judging.past import Measure, Place, is_compared, unlike
from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.series import Kind, Series, series

#: What a stack costs over its reference; and what each stack takes.
OVERHEADS: tuple[Kind, ...] = ("overhead", "kernel_overhead")
FIGURES: tuple[Kind, ...] = ("figure",)
#: How often something is found in all series together, if none of them changes.
ALPHA = 0.05


class Point(NamedTuple):
    """What a run says of a series: the median of a figure in its unit, or an overhead (0.3 is 30 %)."""

    run: Results
    value: float


@dataclass(frozen=True)
class Trend:
    """The points of a series, the oldest first."""

    place: Place
    kind: Kind
    unit: str
    points: tuple[Point, ...]

    @property
    def ratios(self) -> list[float]:
        """What changes are looked for in: a stack's cost as a multiple of its reference, or the figures."""
        return [point.value + (self.kind != "figure") for point in self.points]


class ChangePoint(NamedTuple):
    """A stretch of runs that differs from the one before it.

    `before` and `after` are the medians of the two, as the points are. `size` is how much more it costs now (0.1 is
    10 %): of an overhead, over its reference, as a comparison of runs has it.
    """

    point: int
    before: float
    after: float
    size: float


class Chosen(NamedTuple):
    """The runs of a history that go on with the newest one, the oldest first, and why others do not, with how many."""

    runs: list[Results]
    left_out: dict[str, int]


def choose(history: Iterable[Results]) -> Chosen:
    """Leave out runs that ended early, and those that cannot be compared with the newest of the others."""
    found = Chosen([], {})
    whole = []
    for run in history:
        if run.interrupted:
            found.left_out["ended early"] = found.left_out.get("ended early", 0) + 1
        else:
            whole.append(run)
    # A run of no known time stays where it was added.
    whole.sort(key=lambda run: run.start)
    for run in whole:
        if reasons := unlike(whole[-1], run):
            found.left_out[reasons[0]] = found.left_out.get(reasons[0], 0) + 1
        else:
            found.runs.append(run)
    return found


def trends(
    runs: Sequence[Results], kinds: Collection[Kind] = OVERHEADS, measures: Collection[Measure] | None = None
) -> list[Trend]:
    """Return the series of those kinds in some runs, which are in order; by kernel, or device, if a run has several.

    If `measures` have budgets, only the series that a comparison has are returned; None: all.
    """

    def is_shown(each: Series) -> bool:
        return measures is None or is_compared((each.test, each.step, each.metric), measures)

    entries = [[each for each in series(run) if each.kind in kinds and is_shown(each)] for run in runs]
    by = [part for part in ("kernel", "device") if any(_several(found, part) for found in entries)]
    points: dict[Place, list[Point]] = {}
    some: dict[Place, Series] = {}
    for run, found in zip(runs, entries):
        for each in found:
            kernel, device = (each.labels.get(part, "") if part in by else "" for part in ("kernel", "device"))
            place = Place(each.test, each.step, each.stack, each.metric, each.name, kernel, device)
            points.setdefault(place, []).append(Point(run, each.value))
            some[place] = each
    return [Trend(place, some[place].kind, some[place].unit, tuple(found)) for place, found in points.items()]


def _several(found: Iterable[Series], part: str) -> bool:
    values: dict[str, set[str]] = {}
    for each in found:
        values.setdefault(each.name, set()).add(each.labels.get(part, ""))
    return any(len(each) > 1 for each in values.values())


def change_points(trend: Trend, level: float, smallest: float = 0.0) -> list[ChangePoint]:
    """Return where the series may have changed, by at least `smallest` (0.01 is 1 %); see `changes.change_points`."""
    points = changes.change_points(trend.ratios, level)
    while points:
        found = [_change(trend, *stretch) for stretch in zip([0, *points], points, [*points[1:], len(trend.points)])]
        least = min(found, key=lambda change: abs(change.size))
        if abs(least.size) >= smallest:
            return found
        points.remove(least.point)
    return []


def _change(trend: Trend, start: int, point: int, end: int) -> ChangePoint:
    ratios, values = trend.ratios, [point.value for point in trend.points]
    before, after = median(ratios[start:point]), median(ratios[point:end])
    size = after / before - 1 if before else float("inf")
    return ChangePoint(point, median(values[start:point]), median(values[point:end]), size)
