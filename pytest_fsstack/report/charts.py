"""The pictures of a report as Vega-Lite specifications: which figures, by which marks. Vega draws them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, log2
from typing import Any, NamedTuple

from pytest_fsstack.judging.results import ChainResults
from pytest_fsstack.judging.sample import METRICS, Metric
from pytest_fsstack.judging.verdict import Estimate
from pytest_fsstack.report.model import SIGNS, View, counted, reference
from pytest_fsstack.units import OverheadUnit, format_quantity

Spec = dict[str, Any]
#: The chains of one test, each on a device of its own.
Family = Sequence[ChainResults]

#: Colours that the colour-blind can tell apart (Okabe and Ito, their black in gray for dark pages; then of Tol's muted
#: ones), one a stack.
COLOURS = [
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#f0e442"),
    *("#aa4499", "#44aa99", "#999933", "#cc6677"),
]
#: From cheaper to dearer, by ColorBrewer's RdBu; what costs four times as much, or a quarter, is as dark as it gets.
_CHEAPER, _EQUAL, _DEARER = "#4393c3", "#f7f7f7", "#d6604d"
_DARKEST = 2.0
#: Pixels, so that two pictures stand side by side on most screens.
_WIDTH = 370
#: Names longer than that many pixels are cut; they are whole in the tables.
_LABEL = 220
#: Points of the curves in one picture: more of them make a page slow and large, and cover each other.
_POINTS = 2000
#: A metric that is a percentile of latencies: whose they are, and which one (``999`` and ``99_9`` are 99.9 %).
_PERCENTILE = re.compile(r"(.*)latency_p(\d\d)_?(\d*)")


class Chart(NamedTuple):
    """A picture and what it shows, in words."""

    title: str
    spec: Spec
    #: Whether nothing stands beside it.
    wide: bool = False


@dataclass(frozen=True, eq=False)
class Row:
    """A stack in a picture: the facet it stands in (its kernel, its device; empty if there is one only), its name."""

    facet: str
    name: str
    chain: ChainResults
    stack: str


def families(chains: Iterable[ChainResults]) -> list[list[ChainResults]]:
    """The chains of each test, which are one a device."""
    found: dict[str, list[ChainResults]] = {}
    for chain in chains:
        found.setdefault(chain.id, []).append(chain)
    return list(found.values())


def rows(family: Family) -> list[Row]:
    """All stacks of a test. Those of several kernels or devices have a facet for each, and one name in all of them."""
    found = []
    devices = len({chain.device for chain in family}) > 1
    for chain in family:
        kernels = len({stack.kernel for stack in chain.stacks.values()}) > 1
        for stack in chain.stacks.values():
            facet = [stack.kernel if kernels else "", chain.device if devices else ""]
            found.append(Row(", ".join(filter(None, facet)), stack.name if kernels else stack.id, chain, stack.id))
    return found


def charts(chain: ChainResults, *, compared: bool = True) -> Iterator[Chart]:
    """All pictures of a chain: the heat map, then step by step overheads and samples, then latency, space and curves.

    Without those that are `compared`, if they stand elsewhere beside those of other devices; none of a chain that only
    counts, whose table says it all.
    """
    if counted(chain):
        return
    if compared and (found := heat_map([chain])):
        yield found
    for metric in _metrics([chain]):
        for step in chain.steps:
            for chart in overheads([chain], step, metric) if compared else None, samples(chain, step, metric):
                if chart:
                    yield chart
    yield from _percentiles(chain)
    if found := space(chain):
        yield found
    yield from _curves(chain)


def comparisons(family: Family) -> Iterator[Chart]:
    """What is `compared` of a test on several devices, a facet each; nothing of one that only counts."""
    if all(map(counted, family)):
        return
    if found := heat_map(family):
        yield found
    steps = dict.fromkeys(step for chain in family for step in chain.steps)
    yield from filter(None, (overheads(family, step, metric) for metric in _metrics(family) for step in steps))


def _metrics(family: Family) -> list[str]:
    """The metrics worth pictures of their own; percentiles without a budget have one in common."""
    judged = {each.budget.metric for chain in family for judgements in chain.judgements.values() for each in judgements}
    every = dict.fromkeys(metric for chain in family for metric in View(chain).metrics())
    return [name for name in every if name in judged or not (_PERCENTILE.fullmatch(name) or name == "longest_stall")]


def _estimates(family: Family, steps: Iterable[str], metric: str = "seconds") -> dict[tuple[str, Row], Estimate]:
    return {
        (step, row): estimate
        for step in steps
        for row in rows(family)
        if (estimate := row.chain.estimate(step, row.stack, metric)) is not None
    }


def heat_map(family: Family) -> Chart | None:
    """Stack by step, what the time of each costs over its baseline, with the verdicts; None if nothing compares."""
    steps = dict.fromkeys(step for chain in family for step in chain.steps)
    found = _estimates(family, steps)
    if not found:
        return None
    unit = OverheadUnit.fitting(estimate.overhead for estimate in found.values())
    values = []
    for (step, row), estimate in found.items():
        limits = row.chain.limits(step, row.stack, "seconds")
        overhead = unit.signed(estimate.overhead, limits)
        values.append(
            {
                "facet": row.facet,
                "step": step,
                "stack": row.name,
                "doublings": round(log2(1 + estimate.overhead), 4),
                "text": " ".join(filter(None, [overhead, _sign(row.chain, step, row.stack)])),
                "interval": unit.interval(estimate.low, estimate.high, limits),
                "broken": row.chain.worst(step, row.stack) == "fail",
            }
        )
    title = f"What each stack costs over {reference(family[0])}"
    shown = (("stack", "stack"), ("step", "step"), ("text", "cost"), ("interval", "interval"))
    # The background shows between the cells.
    gap, bare, facets = {"paddingInner": 0.04, "paddingOuter": 0}, {"domain": False, "ticks": False}, _faceted(family)
    spec = _spec(
        title,
        values,
        facets,
        width={"step": 104},
        height={"step": 30},
        encoding={
            "x": {
                "field": "step",
                "sort": [step for step in steps if any(step == other for other, _ in found)],
                "title": None,
                # Above, where a table has its headings, but not between a facet and its name.
                "axis": {"orient": "bottom" if facets else "top", "labelAngle": 0, "labelLimit": 100, **bare},
                "scale": gap,
            },
            "y": {"field": "stack", "sort": _names(family), "title": None, "axis": bare, "scale": gap},
            "tooltip": [{"field": name, "title": said} for name, said in shown],
        },
        layer=[
            {
                "mark": {"type": "rect"},
                "encoding": {
                    "color": {
                        "field": "doublings",
                        "type": "quantitative",
                        "legend": None,
                        "scale": {
                            "domain": [-_DARKEST, 0, _DARKEST],
                            "range": [_CHEAPER, _EQUAL, _DEARER],
                            "clamp": True,
                        },
                    },
                },
            },
            {
                "mark": {"type": "text", "color": "black", "fontWeight": {"expr": "datum.broken ? 'bold' : 'normal'"}},
                "encoding": {"text": {"field": "text"}},
            },
        ],
    )
    return Chart(title, spec, wide=True)


def overheads(family: Family, step: str, metric: str = "seconds") -> Chart | None:
    """Each stack's overhead with its interval, and its budgets as lines (a forest plot); None if nothing compares."""
    found = {row: estimate for (_, row), estimate in _estimates(family, [step], metric).items()}
    if not found:
        return None
    unit = OverheadUnit.fitting(estimate.overhead for estimate in found.values())
    values: list[Spec] = []
    for row, estimate in found.items():
        place = {"facet": row.facet, "stack": row.name}
        ends = {"low": estimate.low, "high": estimate.high} if isfinite(estimate.high) else {}
        limits = row.chain.limits(step, row.stack, metric)
        said = f"{unit.signed(estimate.overhead, limits)} {unit.interval(estimate.low, estimate.high, limits)}"
        values.append({**place, "overhead": estimate.overhead, **ends, "said": said})
        values += [
            {
                **place,
                "budget": each.budget.overhead,
                "said": f"max {unit.limit(each.budget.overhead)}",
                "verdict": _in_words(each.outcome),
            }
            for each in row.chain.judgements.get((step, row.stack), [])
            if each.budget.metric == metric and each.budget.overhead is not None
        ]
    limited = any("budget" in each for each in values)
    title = f"{step}: {_called(metric)} over {reference(family[0])}"
    words = f"overhead, with its interval{'; the orange mark is the budget' if limited else ''}"
    x: Spec = {"type": "quantitative", "axis": {"format": "+~p"}, "title": words}
    x["scale"] = {"nice": False, "padding": 12}
    # What is far apart, budgets included, is read best if twice as much is as far to the right as half is to the left.
    ratios = OverheadUnit.fitting(
        each[name] for each in values for name in ("overhead", "budget") if name in each
    ).ratios
    if ratios:
        x["scale"] |= {"type": "log"}
        every = [1 + each[name] for each in values for name in ("low", "overhead", "high", "budget") if name in each]
        x["axis"] = {"labelExpr": "'x' + format(datum.value, '~r')", "values": _round_ratios(every)}
    shown = [{"field": "stack"}, {"field": "said", "title": "overhead"}]

    def at(name: str) -> Spec:
        """Where something stands: a ratio for the axis that has ratios, and otherwise the fraction."""
        return {"calculate": f"datum.{name} + {int(ratios)}", "as": f"at {name}"}

    def having(*names: str) -> list[Spec]:
        return [{"filter": " && ".join(f"isValid(datum.{name})" for name in names)}, *map(at, names)]

    y = {"field": "stack", "type": "nominal", "sort": _names(family), "title": None}
    layers: list[Spec] = [
        {
            "data": {"values": [{}]},
            "mark": {"type": "rule", "color": "#888888", "aria": False},
            "encoding": {"x": {"datum": int(ratios), **x}},
        },
        {
            "transform": having("low", "high"),
            "mark": {"type": "rule", "strokeWidth": 3, "color": COLOURS[0]},
            "encoding": {"x": {"field": "at low", **x}, "x2": {"field": "at high"}, "y": y, "tooltip": shown},
        },
        {
            "transform": having("overhead"),
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "color": COLOURS[0]},
            "encoding": {"x": {"field": "at overhead", **x}, "y": y, "tooltip": shown},
        },
    ]
    if limited:
        layers.append(
            {
                "transform": having("budget"),
                "mark": {"type": "tick", "thickness": 3, "size": 22, "opacity": 1, "color": COLOURS[1]},
                "encoding": {
                    "x": {"field": "at budget", **x},
                    "y": y,
                    "tooltip": [{"field": "stack"}, {"field": "said", "title": "budget"}, {"field": "verdict"}],
                },
            }
        )
    return Chart(title, _spec(title, values, _faceted(family), width=_WIDTH, height={"step": 28}, layer=layers))


def _round_ratios(ratios: Iterable[float]) -> list[float]:
    """1, and what else of 0.5, 2, 5, 10 and so on is between the least and the largest."""
    found = sorted([1.0, *ratios])
    every = (digit * 10.0**power for power in range(-3, 6) for digit in (1, 2, 5))
    return [ratio for ratio in every if found[0] <= ratio <= found[-1]]


def samples(chain: ChainResults, step: str, metric: str = "seconds") -> Chart | None:
    """Every sample by its round, so that drift and outliers are seen; None if nothing was measured."""
    found = chain.metrics(step).get(metric)
    values = []
    for row in rows([chain]):
        measured = [
            (number + 1, sample.values[metric])
            for number, sample in sorted(chain.of(step, row.stack).items())
            if metric in sample.values
        ]
        if measured:
            rounds, figures = zip(*measured)
            said = [_quantity(figure, found) for figure in figures]
            values.append({"facet": row.facet, "stack": row.name, "round": rounds, "value": figures, "said": said})
    if not values:
        return None
    title = f"{step}: {_called(metric)} by round"
    spec = _spec(
        title,
        values,
        _faceted([chain]),
        # A line of the page for each stack, and not one for each sample.
        transform=[{"flatten": ["round", "value", "said"]}],
        width=_WIDTH,
        height=200,
        mark={"type": "line", "point": {"size": 26}, "strokeWidth": 1, "opacity": 0.85},
        encoding={
            "x": {"field": "round", "type": "quantitative", "axis": {"tickMinStep": 1, "format": "d"}},
            "y": {"field": "value", "type": "quantitative", "title": f"{_called(metric)}{_unit(found)}"},
            "color": _by_stack(chain),
            "tooltip": [{"field": "stack"}, {"field": "round"}, {"field": "said", "title": _called(metric)}],
        },
    )
    return Chart(title, spec)


def _percentiles(chain: ChainResults) -> Iterator[Chart]:
    """How long single operations take, from the usual ones to the slowest, a picture for each kind of operation."""
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
            title = f"{step}: {_called(kind)}latency"
            yield _medians(
                chain,
                title,
                {(step, name): share for name, share in names.items()},
                "share of the operations that are at least as fast",
                {"type": "log"},
            )


def space(chain: ChainResults) -> Chart | None:
    """What is in use on the lowest filesystem after each step; None if that is not known."""
    steps = [step for step in chain.steps if "used_bytes" in chain.metrics(step)]
    if not steps:
        return None
    return _medians(chain, "Space used after each step", {(step, "used_bytes"): step for step in steps}, None, {})


def _medians(
    chain: ChainResults, title: str, chosen: dict[tuple[str, str], str], axis: str | None, scale: Spec
) -> Chart:
    """A line for each stack through its medians of the chosen steps and metrics, which stand by name along the axis."""
    values, unit = [], METRICS["used_bytes"].unit
    for row in rows([chain]):
        for (step, metric), name in chosen.items():
            median, found = chain.median(step, row.stack, metric), chain.metric(step, row.stack, metric)
            if median is None or found is None:
                continue
            unit = found.unit
            shown = {"facet": row.facet, "stack": row.name, "at": name}
            values.append({**shown, "value": median, "said": _quantity(median, found)})
    spec = _spec(
        title,
        values,
        _faceted([chain]),
        width=_WIDTH,
        height=200,
        # Of zero there is no logarithm, and it is none of the longest.
        **({"transform": [{"filter": "datum.value > 0"}]} if scale else {}),
        mark={"type": "line", "point": {"size": 40}, "strokeWidth": 1.5, "opacity": 0.85},
        encoding={
            "x": {
                "field": "at",
                "type": "ordinal",
                "sort": list(chosen.values()),
                "title": axis,
                # Names of steps are long.
                "axis": {"labelAngle": 0 if axis else -30},
            },
            "y": {
                "field": "value",
                "type": "quantitative",
                "title": f"median ({unit})",
                "scale": scale,
                "axis": {"format": "~s", "tickCount": 5},
            },
            "color": _by_stack(chain),
            "tooltip": [{"field": "stack"}, {"field": "at", "title": "at"}, {"field": "said", "title": "median"}],
        },
    )
    return Chart(title, spec)


def is_curve(value: Any) -> bool:
    """Whether something kept is a curve: a list of two or more pairs of numbers."""
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(
            isinstance(point, (list, tuple))
            and len(point) == 2
            # Of a large session there are millions.
            and isinstance(point[0], (int, float))
            and isinstance(point[1], (int, float))
            for point in value
        )
    )


def _curves(chain: ChainResults) -> Iterator[Chart]:
    """What workloads kept as curves over the time of a step, on all stacks; of many rounds, some."""
    found: dict[tuple[str, str], dict[int, list[Spec]]] = {}
    for step in chain.steps:
        for row in rows([chain]):
            for index, sample in sorted(chain.of(step, row.stack).items()):
                for name, value in sample.kept.items():
                    if is_curve(value):
                        times, figures = zip(*value)
                        curve = {"facet": row.facet, "stack": row.name, "round": index + 1}
                        curve |= {"time": times, "value": figures}
                        found.setdefault((step, name), {}).setdefault(index + 1, []).append(curve)
    for (step, name), rounds in found.items():
        most = max(sum(len(curve["time"]) for curve in curves) for curves in rounds.values())
        chosen = _spread(list(rounds), _POINTS // most)
        title = f"{step}: {_called(name)}"
        if len(chosen) < len(rounds):
            title += f" ({len(chosen)} of {len(rounds)} rounds)"
        yield Chart(
            title,
            _spec(
                title,
                [curve for number in chosen for curve in rounds[number]],
                _faceted([chain]),
                transform=[{"flatten": ["time", "value"]}],
                width=_WIDTH,
                height=200,
                # What is pointed at is a point: a line has no value.
                mark={"type": "line", "point": {"opacity": 0, "size": 60}, "strokeWidth": 1.5, "opacity": 0.75},
                encoding={
                    "x": {"field": "time", "type": "quantitative", "title": "seconds since the step began"},
                    "y": {"field": "value", "type": "quantitative", "title": _called(name)},
                    "color": _by_stack(chain),
                    "detail": {"field": "round"},
                    "tooltip": [
                        {"field": "stack"},
                        {"field": "round"},
                        {"field": "time", "title": "seconds", "format": ".3~r"},
                        {"field": "value", "title": _called(name), "format": ",.6~r"},
                    ],
                },
            ),
        )


def _spread(numbers: list[int], most: int) -> list[int]:
    """At most so many of them, but one at least, evenly spread from the first to the last."""
    if len(numbers) <= most:
        return numbers
    if most < 2:
        return numbers[:1]
    return [numbers[round(index * (len(numbers) - 1) / (most - 1))] for index in range(most)]


#: What stands in a picture of its own, and in a facet if there are several.
_IN_A_FACET = ("width", "height", "mark", "layer", "encoding")


def _spec(title: str, values: list[Spec], facets: list[str], **rest: Any) -> Spec:
    if facets:
        rest["spec"] = {name: rest.pop(name) for name in _IN_A_FACET if name in rest}
        header = {"title": None, "labelOrient": "top", "labelAnchor": "start", "labelFontWeight": "bold"}
        rest["facet"] = {"row": {"field": "facet", "type": "nominal", "sort": facets, "header": header}}
    else:
        values = [{name: value for name, value in each.items() if name != "facet"} for each in values]
    # The colour of the text around it, be the page light or dark, or printed.
    text, lines = "currentColor", {"gridColor": "#88888855", "domainColor": "#888888", "tickColor": "#888888"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": {"text": title, "anchor": "start"},
        "description": title,
        "background": None,
        "data": {"values": values},
        "config": {
            "title": {"color": text},
            "header": {"labelColor": text},
            "axis": {"labelLimit": _LABEL, "labelColor": text, "titleColor": text, **lines},
            "legend": {"labelLimit": _LABEL, "labelColor": text, "orient": "bottom", "columns": 3},
            "view": {"stroke": None},
        },
        **rest,
    }


def _faceted(family: Family) -> list[str]:
    """The names of its facets; empty without."""
    return list(filter(None, dict.fromkeys(row.facet for row in rows(family))))


def _names(family: Family) -> list[str]:
    return list(dict.fromkeys(row.name for row in rows(family)))


def _by_stack(chain: ChainResults) -> Spec:
    names = [name for name in _names([chain]) if any(name == row.name and _ran(row) for row in rows([chain]))]
    colours = [COLOURS[_names([chain]).index(name) % len(COLOURS)] for name in names]
    return {"field": "stack", "type": "nominal", "title": None, "scale": {"domain": names, "range": colours}}


def _ran(row: Row) -> bool:
    return any(row.chain.of(step, row.stack) for step in row.chain.steps)


def _sign(chain: ChainResults, step: str, stack: str) -> str:
    return _in_words(chain.worst(step, stack)) if chain.worst(step, stack) != "pass" else ""


def _in_words(outcome: Any) -> str:
    return SIGNS.get(outcome, "")


def _called(metric: str) -> str:
    return metric.replace("_", " ")


def _unit(metric: Metric | None) -> str:
    return f" ({metric.unit})" if metric and metric.unit else ""


def _quantity(value: float, metric: Metric | None) -> str:
    return format_quantity(value, metric.unit if metric else "")
