"""A series over many runs of a machine: its points in order, and where it changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from pytest_fsstack.judging.past import Place, unlike
from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.series import Kind, Series, series

#: What a stack costs over its reference; and what each stack takes.
OVERHEADS: tuple[Kind, ...] = ("overhead", "kernel_overhead")
FIGURES: tuple[Kind, ...] = ("figure",)
#: With fewer runs, nothing is looked for.
FEWEST = 6
#: The numbers of the points at which another stretch begins.
Detector = Callable[[Sequence[float]], Sequence[int]]


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
    runs: Sequence[Results], kinds: Collection[Kind] = OVERHEADS, metrics: Collection[str] | None = None
) -> list[Trend]:
    """The series of those kinds and metrics (None: all) in some runs; by kernel, or device, if a run has several.

    The runs are in order.
    """
    entries = [
        [each for each in series(run) if each.kind in kinds and (metrics is None or each.metric in metrics)]
        for run in runs
    ]
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


def change_points(trend: Trend, detect: Detector) -> list[ChangePoint]:
    """Where the series changed; nothing if there are fewer than `FEWEST` points."""
    ratios, values = trend.ratios, [point.value for point in trend.points]
    if len(ratios) < FEWEST:
        return []
    bounds = [0, *detect(ratios), len(ratios)]
    found = []
    for start, point, end in zip(bounds, bounds[1:], bounds[2:]):
        before, after = median(ratios[start:point]), median(ratios[point:end])
        size = after / before - 1 if before else float("inf")
        found.append(ChangePoint(point, median(values[start:point]), median(values[point:end]), size))
    return found
