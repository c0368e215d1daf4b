"""One HTML page that needs nothing else: tables, curves over time, what the tools said."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_fsstack.report.published import Entry, Grid, grids
from pytest_fsstack.report.table import DETAILS, LEGEND, Cell, Table, View, heading
from pytest_fsstack.results import Chain, Results
from pytest_fsstack.units import format_quantity

#: The plot's own units; the page scales it.
WIDTH, HEIGHT = 720.0, 240.0
#: Colours that the colour-blind can tell apart (Okabe and Ito), one a stack.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")


@dataclass(frozen=True)
class Line:
    """A curve of one round: its stack, its colour, the points as SVG takes them."""

    stack: str
    colour: str
    points: str


@dataclass
class Plot:
    """What a workload kept as a curve, in one step, on all stacks and in all rounds."""

    title: str
    right: str = ""
    top: str = ""
    lines: list[Line] = field(default_factory=list)

    @property
    def legend(self) -> dict[str, str]:
        return {line.stack: line.colour for line in self.lines}


@dataclass(frozen=True)
class Said:
    """What a tool printed in one round."""

    title: str
    text: str


def report(results: Results) -> str:
    """The page: for each chain what its figures depend on, tables, curves, notes, all metrics, and what was kept."""
    import jinja2

    template = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_fsstack.report", "."),
        autoescape=True,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    ).get_template("page.html.jinja")
    chains = [_section(results, chain) for chain in results.chains]
    return template.render(chains=chains, legend=LEGEND, width=WIDTH, height=HEIGHT)


def _section(results: Results, chain: Chain) -> dict[str, Any]:
    view = View(chain)
    return {
        "title": f"{chain.id} on {chain.device}",
        "heading": heading(results, chain),
        "stacks": {arm.id: arm.spec for arm in chain.arms.values()},
        "grids": grids(view, results.shapes) or [_grid(view.table("seconds"))],
        "details": [_grid(view.table(metric)) for metric in view.metrics(DETAILS)],
        "plots": list(_plots(chain)),
        "said": list(_said(chain)),
        "notes": view.notes,
        "undecided": view.undecided,
        "remarks": chain.remarks,
    }


def _grid(table: Table) -> Grid:
    rows = [[Entry(arm), *map(_entry, cells)] for arm, cells in table.rows.items()]
    return Grid(table.metric, ["stack", *table.steps], rows)


def _entry(cell: Cell) -> Entry:
    first = " ".join(word for word in (cell.figure or "-", cell.rate) if word)
    second = " ".join(word for word in (cell.overhead, cell.interval) if word)
    third = " ".join(word for word in (cell.sign, cell.mark) if word)
    good = {"pass": True, "fail": False}.get(cell.outcome or "")
    return Entry("\n".join(line for line in (first, second, third) if line), good)


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


def _kept(chain: Chain) -> Iterator[tuple[str, str, int, Mapping[str, Any]]]:
    for step in chain.steps:
        for arm in chain.arms:
            for index, sample in sorted(chain.of(step, arm).items()):
                yield step, arm, index, sample.kept


def _plots(chain: Chain) -> Iterator[Plot]:
    curves: dict[tuple[str, str], list[tuple[str, list[list[float]]]]] = {}
    for step, arm, _, kept in _kept(chain):
        for name, value in kept.items():
            if is_curve(value):
                curves.setdefault((step, name), []).append((arm, value))
    colours = {arm: COLOURS[index % len(COLOURS)] for index, arm in enumerate(chain.arms)}
    for (step, name), found in curves.items():
        right = max(x for _, points in found for x, _ in points) or 1.0
        top = max(y for _, points in found for _, y in points) or 1.0
        plot = Plot(f"{step}: {name.replace('_', ' ')}", format_quantity(right, "s"), format_quantity(top, ""))
        for arm, points in found:
            text = " ".join(f"{WIDTH * x / right:.1f},{HEIGHT * (1 - y / top):.1f}" for x, y in points)
            plot.lines.append(Line(arm, colours[arm], text))
        yield plot


def _said(chain: Chain) -> Iterator[Said]:
    for step, arm, index, kept in _kept(chain):
        for name, value in kept.items():
            if not is_curve(value):
                text = value if isinstance(value, str) else json.dumps(value, indent=1)
                yield Said(f"{step} on {arm}, round {index + 1}: {name}", text)
