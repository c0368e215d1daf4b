"""GitHub Markdown, for an issue, a README or a job's summary."""

from __future__ import annotations

import re

from pytest_fsstack.report.published import Entry, Grid, grids
from pytest_fsstack.report.table import DETAILS, LEGEND, Cell, Table, View, heading
from pytest_fsstack.results import Chain, Results


def report(results: Results) -> str:
    """A section for each chain: what the figures depend on, the stacks, the tables, the notes."""
    return "\n".join(_chain(results, chain) for chain in results.chains)


def _chain(results: Results, chain: Chain) -> str:
    view = View(chain)
    tables = [view.table(metric) for metric in view.metrics(DETAILS)]
    lines = [f"## {_plain(chain.id)} on {_plain(chain.device)}", ""]
    lines += [f"- {name}: {_plain(text)}" for name, text in heading(results, chain).items()]
    lines += [f"- stack {_plain(arm.id)}: `{arm.spec}`" for arm in chain.arms.values()]
    for grid in grids(view, results.shapes):
        lines += ["", f"### {_plain(grid.title)}", "", _grid(grid)]
    for table in tables:
        lines += ["", f"### {_plain(table.metric)}", "", _table(table)]
    if any(table.judged for table in tables):
        lines += ["", LEGEND]
    notes = [f"- [{number}] {_plain(note)}" for number, note in enumerate(view.notes, 1)]
    notes += [f"- ? {_plain(text)}" for text in view.undecided] + [f"- {_plain(text)}" for text in chain.remarks]
    return "\n".join([*lines, *([""] if notes else []), *notes, ""])


def _table(table: Table) -> str:
    from tabulate import tabulate

    rows = [[_plain(arm), *map(_cell, cells)] for arm, cells in table.rows.items()]
    headers = ["stack", *map(_plain, table.steps)]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)


def _grid(grid: Grid) -> str:
    from tabulate import tabulate

    rows = [[_entry(entry) for entry in row] for row in grid.rows]
    return tabulate(rows, [_plain(header) for header in grid.headers], tablefmt="github", disable_numparse=True)


def _entry(entry: Entry) -> str:
    """Good is bold, bad is marked, because Markdown has no colours."""
    text = _plain(entry.text).replace("\n", " / ")
    return {True: f"**{text}**", False: f"{text} ▲"}.get(entry.good, text)  # type: ignore[arg-type]


def _cell(cell: Cell) -> str:
    if not cell.figure:
        return f"- {cell.mark}".rstrip()
    figure = f"{cell.figure} ({cell.rate})" if cell.rate else cell.figure
    overhead = f"{cell.overhead} ({cell.interval})" if cell.interval else cell.overhead
    sign = f"**{cell.sign}**" if cell.outcome == "fail" else cell.sign
    words = " ".join(word for word in (overhead, sign, cell.mark) if word)
    return f"{figure}, {words}" if words else figure


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    return re.sub(r"[\\`*<>|]|\](?=[(\[])|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
