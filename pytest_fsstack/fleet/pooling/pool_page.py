"""The HTML page of pooled hosts: main results, remarks, forest plots of hosts, and tables of kernels."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fsstack.fleet.pooling import pool_text
from pytest_fsstack.fleet.pooling.pool import HostFigure, Pool, Pooled
from pytest_fsstack.records.verdicts import Estimate
from pytest_fsstack.report import draw, html
from pytest_fsstack.report.draw import Interval, Mark
from pytest_fsstack.report.model import Cell, Grid
from pytest_fsstack.units import OverheadUnit

#: The maximum numbers of pictures, of hosts in a picture, and of hosts in a table.
_MAX_PICTURES, _MAX_HOSTS, _MAX_COLUMNS = 60, 40, 40
#: The colours, by number: of a host, of the differing host, of all hosts together, of the next host.
_HOST, _OTHER, _TOGETHER, _NEXT = 0, 1, 2, 6


def report(pool: Pool) -> str:
    """Return the page."""
    series = sorted(pool.series, key=_rank)
    text, sentences = pool_text.section(pool), pool_text.answer(pool)
    return html.render(
        "pool.html.jinja",
        title=sentences[0],
        answer=sentences,
        facts=[f"{name}: {fact}" for name, fact in text.facts],
        remarks=text.remarks,
        overview=text.grids[0],
        legend=pool_text.LEGEND,
        confidence=f"{1 - 2 * pool.alpha:.0%}",
        cards=[_card(entry) for entry in series[:_MAX_PICTURES]],
        left_out=f"The other {len(series) - _MAX_PICTURES} series are in the table."
        if len(series) > _MAX_PICTURES
        else "",
        grids=pool_text.grids_of_hosts(pool, _MAX_COLUMNS),
        machines=_machines(pool),
    )


def _rank(entry: Pooled) -> int:
    """Return the sort key of a card: first broken budgets, then undecided ones, differing hosts, and all others."""
    order = ("fail", "inconclusive")
    return order.index(entry.outcome) if entry.outcome in order else 2 if entry.differs else 3


def _card(entry: Pooled) -> tuple[str, str, str]:
    hosts = sorted(entry.hosts, key=lambda figure: figure.estimate.overhead)
    shown = hosts if len(hosts) <= _MAX_HOSTS else [*hosts[: _MAX_HOSTS // 2], *hosts[-_MAX_HOSTS // 2 :]]
    rows = [_row(entry, figure) for figure in shown]
    rows += _summaries(entry)
    between = f", the {_MAX_HOSTS // 2} lowest and highest of {len(hosts)} hosts" if len(shown) < len(hosts) else ""
    caption = f"over {entry.reference}{between}{'; budget: ' + pool_text.verdict_text(entry) if entry.outcome else ''}"
    return entry.label, caption, draw.intervals(f"{entry.label}: each host", rows)


def _row(entry: Pooled, figure: HostFigure) -> Interval:
    colour = _OTHER if figure.host == entry.differs else _HOST
    cell, estimate = pool_text.host_cell(figure), figure.estimate
    words = [cell.text, pool_text.interval_text(estimate), cell.beside, f"{estimate.rounds} rounds"]
    tip = f"{figure.host}: {' '.join(filter(None, words))}"
    return Interval(figure.host, colour, "", estimate, cell.text, tip)


def _summaries(entry: Pooled) -> list[Interval]:
    """Return the rows below those of hosts: all hosts together, and the next host."""
    unit = OverheadUnit.fitting([entry.estimate.overhead])
    limits = [Mark(1 + entry.budget, unit.limit(entry.budget), entry.outcome or "")] if entry.budget is not None else []
    rows = [_summary("over hosts", _TOGETHER, entry.estimate, limits)]
    return [*rows, _summary("next host", _NEXT, entry.prediction, [])] if entry.prediction else rows


def _summary(name: str, colour: int, estimate: Estimate, limits: list[Mark]) -> Interval:
    text = OverheadUnit.fitting([estimate.overhead]).signed(estimate.overhead)
    tip = f"{name}: {' '.join(filter(None, [text, pool_text.interval_text(estimate)]))}"
    return Interval(name, colour, "", estimate, text, tip, limits)


def _machines(pool: Pool) -> Grid:
    rows = [
        [
            Cell(host.name),
            *(Cell(_lines(part)) for part in (host.kernels, host.devices, host.files)),
            Cell(_lines(host.problems), good=False if host.problems else None),
        ]
        for host in pool.hosts
    ]
    return Grid("machines", ["host", "kernel", "devices", "files", "problems"], rows).without_empty_columns()


def _lines(texts: Sequence[str]) -> str:
    return "\n".join(texts)
