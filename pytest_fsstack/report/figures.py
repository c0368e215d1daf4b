"""Pictures of a report and their figures: costs over all steps, cards of steps, latency, space, curves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import log
from typing import Any

from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.sample import METRICS
from pytest_fsstack.report import ReportError, draw
from pytest_fsstack.report.answer import emulation, groups
from pytest_fsstack.report.draw import Interval, Line, Mark
from pytest_fsstack.report.model import Figure, View, by_chance, reference, title_of
from pytest_fsstack.report.wording import RATIOS, times
from pytest_fsstack.units import OverheadUnit, format_quantity

#: The chains of one test, each on another device.
Family = Sequence[ChainResults]
#: The maximum number of points of curves in one picture. More would make the page slow.
_POINTS = 2000
#: A metric that is a percentile of latencies: the operation, and the percentile (``999`` and ``99_9`` are 99.9 %).
_PERCENTILE = re.compile(r"(.*)latency_p(\d\d)_?(\d*)")
#: Pixels: the width of the picture over all steps, and of its names.
_WIDE, _NAMES = 420, 132


@dataclass(frozen=True, eq=False)
class Row:
    """A stack in a picture. `facet` is its kernel and device if there are several, and that its CPU was emulated."""

    facet: str
    name: str
    view: View
    stack: str
    colour: int

    @property
    def chain(self) -> ChainResults:
        return self.view.chain


@dataclass(frozen=True)
class Card:
    """A part of the page: a title, a summary, and pictures as SVG with captions.

    `key` has the colours of stacks that its pictures do not name, as classes.
    """

    title: str
    summary: str = ""
    pictures: list[tuple[str, str]] = field(default_factory=list)
    key: dict[str, str] = field(default_factory=dict)


def families(chains: Iterable[ChainResults]) -> list[list[ChainResults]]:
    """Return the chains of each test, which differ in their devices."""
    by_test: dict[str, list[ChainResults]] = {}
    for chain in chains:
        by_test.setdefault(title_of(chain), []).append(chain)
    return list(by_test.values())


def stack_colours(results: Results) -> dict[str, int]:
    """Return the colour of each stack by number. It is the same on all kernels and devices."""
    names = dict.fromkeys(stack.name for chain in results.chains for stack in chain.stacks.values())
    return {name: number for number, name in enumerate(names)}


def rows(results: Results, family: Family) -> list[Row]:
    """Return all stacks of a test. Each kernel and device is a facet, in which a stack has the same name."""
    colours, rows_of_chains = stack_colours(results), []
    devices = len({chain.device for chain in family}) > 1
    for chain in family:
        view, kernels = View(chain, results), len({stack.kernel for stack in chain.stacks.values()}) > 1
        for stack in chain.stacks.values():
            device = chain.device if devices else ""
            emulated = "emulated" if stack.emulated else ""
            facet = ", ".join(filter(None, [stack.kernel if kernels else "", device, emulated]))
            rows_of_chains.append(Row(facet, stack.name if kernels else stack.id, view, stack.id, colours[stack.name]))
    return rows_of_chains


# -- over all steps ----------------------------------------------------------------------------------------------------


def overview(results: Results, chain: ChainResults) -> str:
    """Draw the cost of each stack over all steps, the cheapest of each group first. Empty if nothing compares."""
    intervals, colours = [], stack_colours(results)
    for group in groups(results, chain):
        facet = " on ".join(filter(None, [group.name, group.kernel]))
        for cost in group.costs:
            name = chain.stacks[cost.stack].name
            text = RATIOS.signed(cost.overall.overhead)
            tip = f"{name}: {text} {RATIOS.interval(cost.overall.low, cost.overall.high)}"
            intervals.append(Interval(name, colours[name], facet, cost.overall, text, tip))
        for stack, reason in group.missing.items():
            name, begun = chain.stacks[stack].name, any(chain.measures(step, stack) for step in chain.steps)
            text = "incomplete" if begun else "not measured"
            intervals.append(Interval(name, colours[name], facet, text=text, tip=f"{name}: {reason}"))
    if not any(row.estimate for row in intervals):
        return ""
    return draw.intervals(f"Cost over all steps, over {reference(chain)}", intervals, _WIDE, _NAMES)


# -- a card for each step ----------------------------------------------------------------------------------------------


def cards(results: Results, family: Family) -> Iterator[Card]:
    """Yield a card for each step and metric with costs and rounds, then latency, space and curves."""
    if all(chain.only_counts for chain in family):
        return
    metrics = _metrics(family)
    for step in _steps(family):
        summary = next((chain.summaries[step] for chain in family if step in chain.summaries), "")
        for metric in metrics:
            if pictures := [*_costs(results, family, step, metric), *_rounds(results, family, step, metric)]:
                title = step if metric == "seconds" else f"{step}: {metric_title(metric, step)}"
                yield Card(title, f"{summary}." if summary else "", pictures)
    for chain in family:
        where = f" on {chain.device}" if len(family) > 1 else ""
        for card in (
            *_sweeps(results, chain),
            *_percentiles(results, chain),
            *_space(results, chain),
            *_curves(results, chain),
        ):
            yield replace(card, title=f"{card.title}{where}")


def _metrics(family: Family) -> list[str]:
    """Return the metrics with their own pictures. Percentiles without a budget share one."""
    judged = {
        judgement.budget.metric for chain in family for _, _, judged in chain.all_judgements() for judgement in judged
    }
    every = dict.fromkeys(metric for chain in family for metric in View(chain).metrics())
    return [name for name in every if name in judged or not (_PERCENTILE.fullmatch(name) or name == "longest_stall")]


def _costs(results: Results, family: Family, step: str, metric: str) -> Iterator[tuple[str, str]]:
    intervals = list(interval_rows(results, family, step, metric))
    if any(row.estimate for row in intervals):
        words = (
            f"{'time' if metric == 'seconds' else metric_title(metric)} over {reference(family[0])}, lower is better"
        )
        yield words, draw.intervals(f"{step}: {words}", intervals)


def interval_rows(results: Results, family: Family, step: str, metric: str = "seconds") -> Iterator[Interval]:
    """Yield the row of each stack in a step: the cost over its reference, or that it was not measured."""
    for row in rows(results, family):
        figure = row.view.figure(step, row.stack, metric)
        if figure.estimate:
            limits = list(_limits(figure))
            tip = "; ".join(filter(None, [_tip(row.name, figure), *(mark.text for mark in limits), figure.note]))
            text = RATIOS.signed(figure.estimate.overhead)
            yield Interval(row.name, row.colour, row.facet, figure.estimate, text, tip, limits)
        elif row.stack != row.chain.reference(row.stack) and figure.reading is None and metric == "seconds":
            yield Interval(row.name, row.colour, row.facet, text="not measured", tip=f"{row.name}: {figure.note}")


def _tip(name: str, figure: Figure) -> str:
    unit = OverheadUnit.fitting([figure.estimate.overhead] if figure.estimate else [])
    return f"{name}: {figure.quantities[0]}, {figure.overhead(unit)} {figure.interval(unit)}"


def _limits(figure: Figure) -> Iterator[Mark]:
    """Yield the limits of the user on an overhead. Sanity limits would be too far away."""
    for judgement in (verdict.judgement for verdict in figure.verdicts):
        budget = judgement.budget
        if budget.overhead is not None and not budget.sanity:
            text = f"at most {RATIOS.limit(budget.overhead)}: {judgement.outcome}"
            yield Mark(1 + budget.overhead, text, judgement.outcome)


def _rounds(results: Results, family: Family, step: str, metric: str) -> Iterator[tuple[str, str]]:
    """Yield a picture of all samples by round, for each facet."""
    every = rows(results, family)
    for facet in dict.fromkeys(row.facet for row in every):
        lines, unit = [], ""
        for row in every:
            samples = row.chain.of(step, row.stack).items()
            points = [
                (float(key.number + 1), sample.values[metric]) for key, sample in samples if metric in sample.values
            ]
            measured = row.chain.metric(step, row.stack, metric)
            if row.facet == facet and points and measured:
                unit = measured.unit
                tips = [f"round {at:g}: {format_quantity(value, unit)}" for at, value in points]
                lines.append(Line(row.name, row.colour, points, tips))
        if any(len(line.points) > 1 for line in lines):
            caption = ", ".join(filter(None, [f"{metric_title(metric)} by round", facet]))
            yield caption, _lines(f"{step}: {caption}", lines, unit, x_axis="round")


def _lines(title: str, lines: list[Line], unit: str, **options: Any) -> str:
    return draw.lines(title, lines, lambda value: format_quantity(value, unit), **options)


# -- latency, space, curves --------------------------------------------------------------------------------------------


def _sweeps(results: Results, chain: ChainResults) -> Iterator[Card]:
    """Yield cards of figures over a swept option, which steps keep as ``sweeps``."""
    for step in chain.steps:
        kept = [sample.kept.get("sweeps", ()) for stack in chain.stacks for sample in chain.of(step, stack).values()]
        for sweep in next((value for value in kept if _are_sweeps(value)), ()):
            metrics = {(step, metric): text for text, metric in sweep["points"]}
            better = next(iter(chain.metrics(step).get(metric) for _, metric in metrics))
            best = f", {'higher' if better and better.better == 'higher' else 'lower'} is better"
            title = f"{step}: {sweep['title']} by {sweep['parameter']}"
            yield from _medians(results, chain, title, metrics, f"{sweep['title']} by {sweep['parameter']}{best}")


def _percentiles(results: Results, chain: ChainResults) -> Iterator[Card]:
    """Yield a card of latency percentiles for each kind of operation."""
    for step in chain.steps:
        kinds: dict[str, dict[str, str]] = {}
        measured = chain.metrics(step)
        for name in measured:
            if match := _PERCENTILE.fullmatch(name):
                share = f"{match[2]}.{match[3]}" if match[3] else match[2]
                kinds.setdefault(match[1], {})[name] = f"{share} %"
        if "" in kinds and "longest_stall" in measured:
            kinds[""]["longest_stall"] = "longest"
        for kind, names in kinds.items():
            title = f"{step}: {metric_title(kind)}latency"
            shares = {(step, name): share for name, share in names.items()}
            caption = "share of the operations that are at least as fast, lower is better"
            yield from _medians(results, chain, title, shares, caption, positive=True)


def _space(results: Results, chain: ChainResults) -> Iterator[Card]:
    """Yield a card of the used space of the lowest filesystem after each step, if it is known."""
    steps = {(step, "used_bytes"): step for step in chain.steps if "used_bytes" in chain.metrics(step)}
    if steps:
        caption = "in use on the filesystem that stores the data, lower is better"
        yield from _medians(results, chain, "Space used after each step", steps, caption)


def _medians(
    results: Results,
    chain: ChainResults,
    title: str,
    metrics: dict[tuple[str, str], str],
    caption: str,
    *,
    positive: bool = False,
) -> Iterator[Card]:
    """Yield a line for each stack through its medians of the named steps and metrics."""
    lines, unit = [], METRICS["used_bytes"].unit
    for row in rows(results, [chain]):
        points, tips = [], []
        for number, ((step, metric), name) in enumerate(metrics.items()):
            median, measured = chain.median(step, row.stack, metric), chain.metric(step, row.stack, metric)
            if median is None or measured is None or (positive and median <= 0):
                continue
            unit = measured.unit
            points.append((float(number), median))
            tips.append(f"{name}: {format_quantity(median, unit)}")
        if points:
            lines.append(Line(", ".join(filter(None, [row.name, row.facet])), row.colour, points, tips))
    if lines:
        names = list(metrics.values())
        picture = _lines(title, lines, unit, names=names, logarithmic=True if positive else None)
        yield Card(title, "", [(caption, picture)], _key(lines))


def _key(lines: Iterable[Line]) -> dict[str, str]:
    return {line.name: draw.colour_class(line.colour) for line in lines}


def _is_curve(value: Any) -> bool:
    """Whether a kept value is a curve: a list of two or more pairs of numbers."""
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(
            isinstance(point, (list, tuple))
            and len(point) == 2
            # A large session has millions of points.
            and isinstance(point[0], (int, float))
            and isinstance(point[1], (int, float))
            for point in value
        )
    )


def _are_sweeps(value: Any) -> bool:
    """Whether a kept value is the sweeps of fio jobs. A test may keep something else by that name."""
    return isinstance(value, list) and all(isinstance(sweep, dict) and "points" in sweep for sweep in value)


def is_drawn(name: str, value: Any) -> bool:
    """Whether a kept value is drawn, so it is not shown as text."""
    return _is_curve(value) or (name == "sweeps" and _are_sweeps(value))


def _curves(results: Results, chain: ChainResults) -> Iterator[Card]:
    """Yield cards of the curves that workloads kept, on all stacks. If there are many rounds, only of some."""
    curves: dict[tuple[str, str], dict[int, list[Line]]] = {}
    for step in chain.steps:
        for row in rows(results, [chain]):
            for key, sample in chain.of(step, row.stack).items():
                for name, value in sample.kept.items():
                    if _is_curve(value):
                        line = _curve(row, key.number + 1, value)
                        curves.setdefault((step, name), {}).setdefault(key.number + 1, []).append(line)
    for (step, name), rounds in curves.items():
        points = max(sum(len(line.points) for line in lines) for lines in rounds.values())
        numbers = _spread(list(rounds), _POINTS // points)
        selection = f", {len(numbers)} of {len(rounds)} rounds" if len(numbers) < len(rounds) else ""
        title, lines = f"{step}: {metric_title(name)}", [line for number in numbers for line in rounds[number]]
        caption = f"{metric_title(name)} over seconds since the step began{selection}"
        picture = draw.lines(title, lines, "{:g}".format, x_axis="seconds", logarithmic=False)
        yield Card(title, "", [(caption, picture)], _key(lines))


def _curve(row: Row, number: int, value: Any) -> Line:
    points = [(float(at), float(figure)) for at, figure in value]
    return Line(row.name, row.colour, points, [f"round {number}, {at:.3g} s: {figure:,.6g}" for at, figure in points])


def _spread(numbers: list[int], limit: int) -> list[int]:
    """Return at most `limit` items, but at least one, evenly spread from the first to the last."""
    if len(numbers) <= limit:
        return numbers
    if limit < 2:
        return numbers[:1]
    return [numbers[round(index * (len(numbers) - 1) / (limit - 1))] for index in range(limit)]


def metric_title(metric: str, step: str = "") -> str:
    """Return the metric in words, without the name of its step."""
    return metric.removeprefix(f"{step}_").replace("_", " ")


# -- the heat map ------------------------------------------------------------------------------------------------------


class Heat:
    """The darkness of a cost: the same for a factor and its reciprocal, on a logarithmic scale for all costs."""

    def __init__(self, overheads: Iterable[float]) -> None:
        self.largest = max((abs(_doublings(overhead)) for overhead in overheads), default=0.0)

    @classmethod
    def of(cls, figures: Iterable[Figure]) -> Heat:
        return cls(figure.estimate.overhead for figure in figures if figure.estimate)

    def share(self, overhead: float) -> float:
        """Return the darkness of an overhead: from 0 (no difference) to 1 (the largest factor)."""
        return abs(_doublings(overhead)) / self.largest if self.largest else 0.0

    @staticmethod
    def kind(figure: Figure) -> str:
        """Return the class of its colour."""
        if figure.estimate:
            return "cheaper" if figure.estimate.overhead < 0 else "dearer"
        return "base" if figure.reading else "skipped"

    @property
    def ends(self) -> str:
        """Return the factors at both ends of the scale."""
        return f"x1/{times(2**self.largest - 1)} to x{times(2**self.largest - 1)}"


def _doublings(overhead: float) -> float:
    return log(max(1 + overhead, 1e-9), 2)


# -- as files ----------------------------------------------------------------------------------------------------------


def heat_maps(results: Results) -> str:
    """Return an SVG document: the cost of each stack in each step, for each test. Raises `ReportError`."""
    maps = [picture for family in families(settle(results).chains) for picture in _heat_map(results, family)]
    return _document("heatmap", results, maps)


def forests(results: Results) -> str:
    """Return an SVG document: each step's overheads with intervals and budgets. Raises `ReportError`."""
    pictures = [
        (f"{step}: {words}", picture)
        for family in families(settle(results).chains)
        for step in _steps(family)
        for words, picture in _costs(results, family, step, "seconds")
    ]
    return _document("forest", results, pictures)


def _document(name: str, results: Results, pictures: list[tuple[str, str]]) -> str:
    if not pictures:
        raise ReportError(f"{name}: not written: no stack was compared with another")
    (title, first), *others = pictures
    return draw.document([(f"{emulation(results)} {title}".lstrip(), first), *others])


def _steps(family: Family) -> list[str]:
    return list(dict.fromkeys(step for chain in family for step in chain.steps))


def _heat_map(results: Results, family: Family) -> Iterator[tuple[str, str]]:
    """Yield the title and the picture, unless nothing is compared."""
    every, steps = rows(results, family), _steps(family)
    figures = {(row, step): row.view.figure(step, row.stack) for row in every for step in steps}
    if not any(figure.estimate for figure in figures.values()):
        return
    heat = Heat.of(figures.values())
    cells = [
        (
            " ".join(filter(None, [row.name, row.facet])),
            [_square(heat, figures[row, step]) for step in steps],
        )
        for row in every
        if row.stack != row.chain.reference(row.stack)
    ]
    title = f"What each stack costs over {reference(family[0])}: x1 is white, the darkest is {heat.ends}"
    title += "".join(f". {text}" for chain in family if (text := by_chance(chain)))
    if any(square.text.endswith("*") for _, squares in cells for square in squares):
        title += "; *: incomplete, as other reports explain"
    yield title, draw.squares(title, steps, cells)


def _square(heat: Heat, figure: Figure) -> draw.Square:
    """Return a square. It has a star if the stack lacks rounds or did not do all of its work."""
    if figure.estimate is None:
        return draw.Square("-", "", 0.0)
    text = f"{RATIOS.signed(figure.estimate.overhead)}{' *' if figure.note else ''}"
    return draw.Square(text, heat.kind(figure), heat.share(figure.estimate.overhead))
