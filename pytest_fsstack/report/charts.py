"""The pictures of a report as Vega-Lite specifications: which figures, by which marks. Vega draws them."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, log2
from typing import Any, NamedTuple

from pytest_fsstack.judging.results import ChainResults
from pytest_fsstack.report.model import SIGNS, View
from pytest_fsstack.units import OverheadUnit, format_quantity

Spec = dict[str, Any]

#: Colours that the colour-blind can tell apart (Okabe and Ito, their black in gray for dark pages), one a stack.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#f0e442"]
#: From cheaper to dearer, by ColorBrewer's RdBu; what costs four times as much, or a quarter, is as dark as it gets.
_CHEAPER, _EQUAL, _DEARER = "#4393c3", "#f7f7f7", "#d6604d"
_DARKEST = 2.0
#: Pixels, so that two pictures stand side by side on most screens.
_WIDTH = 370
#: Names longer than that many pixels are cut; they are whole in the tables.
_LABEL = 220


class Chart(NamedTuple):
    """A picture and what it shows, in words."""

    title: str
    spec: Spec


def charts(chain: ChainResults) -> Iterator[Chart]:
    """All pictures of a chain: the heat map, then step by step overheads and samples, then curves over time."""
    view = View(chain)
    if found := heat_map(chain):
        yield found
    for metric in view.metrics():
        for step in chain.steps:
            for chart in overheads(chain, step, metric), samples(chain, step, metric):
                if chart:
                    yield chart
    yield from _curves(chain)


def heat_map(chain: ChainResults) -> Chart | None:
    """Stack by step, what the time of each costs over its baseline, with the verdicts; None if nothing compares."""
    found = {
        (step, stack): estimate
        for step in chain.steps
        for stack in chain.stacks
        if (estimate := chain.estimate(step, stack)) is not None
    }
    if not found:
        return None
    unit = OverheadUnit.fitting(estimate.overhead for estimate in found.values())
    values = [
        {
            "step": step,
            "stack": stack,
            "doublings": round(log2(1 + estimate.overhead), 4),
            "text": " ".join(filter(None, [unit.signed(estimate.overhead), _sign(chain, step, stack)])),
            "interval": unit.interval(estimate.low, estimate.high),
            "broken": chain.worst(step, stack) == "fail",
        }
        for (step, stack), estimate in found.items()
    ]
    stacks = [stack for stack in chain.stacks if any(stack == other for _, other in found)]
    steps = [step for step in chain.steps if any(step == other for other, _ in found)]
    title = f"What each stack costs over {chain.baseline}"
    spec = _spec(
        title,
        values,
        width={"step": 104},
        height={"step": 30},
        encoding={
            "x": {"field": "step", "sort": steps, "title": None, "axis": {"orient": "top", "labelAngle": 0}},
            "y": {"field": "stack", "sort": stacks, "title": None},
        },
        layer=[
            {
                "mark": {"type": "rect", "stroke": "white", "tooltip": True},
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
                    "tooltip": [
                        {"field": name, "title": said}
                        for name, said in (
                            ("stack", "stack"),
                            ("step", "step"),
                            ("text", "cost"),
                            ("interval", "interval"),
                        )
                    ],
                },
            },
            {
                "mark": {"type": "text", "color": "black", "fontWeight": {"expr": "datum.broken ? 'bold' : 'normal'"}},
                "encoding": {
                    "text": {"field": "text"},
                },
            },
        ],
    )
    return Chart(title, spec)


def overheads(chain: ChainResults, step: str, metric: str = "seconds") -> Chart | None:
    """Each stack's overhead with its interval, and its budgets as lines (a forest plot); None if nothing compares."""
    values, limits = [], []
    for stack in chain.stacks:
        estimate = chain.estimate(step, stack, metric)
        if estimate is None:
            continue
        ends = {"low": estimate.low, "high": estimate.high} if isfinite(estimate.high) else {}
        unit = OverheadUnit.fitting([estimate.overhead])
        said = f"{unit.signed(estimate.overhead)} {unit.interval(estimate.low, estimate.high)}"
        values.append({"stack": stack, "overhead": estimate.overhead, **ends, "said": said})
        limits += [
            {"stack": stack, "budget": each.budget.overhead, "verdict": _in_words(each.outcome)}
            for each in chain.judgements.get((step, stack), [])
            if each.budget.metric == metric and each.budget.overhead is not None
        ]
    if not values:
        return None
    title = f"{step}: {_called(metric)} over {chain.baseline}"
    x = {
        "type": "quantitative",
        "axis": {"format": "+.0%"},
        "title": "overhead, with its interval; the orange mark is the budget",
    }
    y = {"field": "stack", "type": "nominal", "sort": list(chain.stacks), "title": None}
    shown = [{"field": "stack"}, {"field": "said", "title": "overhead"}]
    layers: list[Spec] = [
        {"data": {"values": [{}]}, "mark": {"type": "rule", "color": "#888888"}, "encoding": {"x": {"datum": 0}}},
        {
            "mark": {"type": "rule", "strokeWidth": 3, "color": COLOURS[0]},
            "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}, "y": y, "tooltip": shown},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 70, "color": COLOURS[0]},
            "encoding": {"x": {"field": "overhead", **x}, "y": y, "tooltip": shown},
        },
    ]
    if limits:
        layers.append(
            {
                "data": {"values": limits},
                "mark": {"type": "tick", "thickness": 3, "size": 22, "color": COLOURS[1]},
                "encoding": {
                    "x": {"field": "budget", **x},
                    "y": y,
                    "tooltip": [{"field": "stack"}, {"field": "budget", "format": ".1%"}, {"field": "verdict"}],
                },
            }
        )
    return Chart(title, _spec(title, values, width=_WIDTH, height={"step": 28}, layer=layers))


def samples(chain: ChainResults, step: str, metric: str = "seconds") -> Chart | None:
    """Every sample by its round, so that drift and outliers are seen; None if nothing was measured."""
    found = chain.metrics(step).get(metric)
    values = [
        {
            "stack": stack,
            "round": index + 1,
            "value": sample.values[metric],
            "said": _quantity(sample.values[metric], found),
        }
        for stack in chain.stacks
        for index, sample in sorted(chain.of(step, stack).items())
        if metric in sample.values
    ]
    if not values:
        return None
    title = f"{step}: {_called(metric)} by round"
    unit = f" ({found.unit})" if found and found.unit else ""
    spec = _spec(
        title,
        values,
        width=_WIDTH,
        height=200,
        mark={"type": "line", "point": {"size": 26}, "strokeWidth": 1, "opacity": 0.85},
        encoding={
            "x": {"field": "round", "type": "quantitative", "axis": {"tickMinStep": 1, "format": "d"}},
            "y": {"field": "value", "type": "quantitative", "title": f"{_called(metric)}{unit}"},
            "color": _by_stack(chain),
            "tooltip": [{"field": "stack"}, {"field": "round"}, {"field": "said", "title": _called(metric)}],
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
            and all(isinstance(each, (int, float)) for each in point)
            for point in value
        )
    )


def _curves(chain: ChainResults) -> Iterator[Chart]:
    """What workloads kept as curves over the time of a step, on all stacks and in all rounds."""
    found: dict[tuple[str, str], list[Spec]] = {}
    for step in chain.steps:
        for stack in chain.stacks:
            for index, sample in sorted(chain.of(step, stack).items()):
                for name, value in sample.kept.items():
                    if is_curve(value):
                        found.setdefault((step, name), []).extend(
                            {"stack": stack, "round": index + 1, "time": time, "value": each} for time, each in value
                        )
    for (step, name), values in found.items():
        title = f"{step}: {_called(name)}"
        yield Chart(
            title,
            _spec(
                title,
                values,
                width=_WIDTH,
                height=200,
                mark={"type": "line", "strokeWidth": 1.5, "opacity": 0.75},
                encoding={
                    "x": {"field": "time", "type": "quantitative", "title": "seconds since the step began"},
                    "y": {"field": "value", "type": "quantitative", "title": _called(name)},
                    "color": _by_stack(chain),
                    "detail": {"field": "round"},
                },
            ),
        )


def _spec(title: str, values: list[Spec], **rest: Any) -> Spec:
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": {"text": title, "anchor": "start"},
        "description": title,
        "background": None,
        "data": {"values": values},
        "config": {
            "axis": {"labelLimit": _LABEL},
            "legend": {"labelLimit": _LABEL, "orient": "bottom", "columns": 3},
            "view": {"stroke": None},
        },
        **rest,
    }


def _by_stack(chain: ChainResults) -> Spec:
    stacks = list(chain.stacks)
    colours = [COLOURS[index % len(COLOURS)] for index in range(len(stacks))]
    return {"field": "stack", "type": "nominal", "title": None, "scale": {"domain": stacks, "range": colours}}


def _sign(chain: ChainResults, step: str, stack: str) -> str:
    return _in_words(chain.worst(step, stack)) if chain.worst(step, stack) != "pass" else ""


def _in_words(outcome: Any) -> str:
    return SIGNS.get(outcome, "")


def _called(metric: str) -> str:
    return metric.replace("_", " ")


def _quantity(value: float, metric: Any) -> str:
    return format_quantity(value, metric.unit if metric else "")
