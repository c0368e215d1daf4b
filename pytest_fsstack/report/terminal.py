"""The table at the end of a session."""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import pytest

from pytest_fsstack.report.published import Entry, Grid, grids
from pytest_fsstack.report.table import DETAILS, LEGEND, Cell, Table, View, heading
from pytest_fsstack.results import Chain, Results
from pytest_fsstack.verdict import Outcome

_COLOURS: dict[Outcome, str] = {"pass": "\x1b[32m", "fail": "\x1b[31m", "inconclusive": "\x1b[33m"}
_RESET = "\x1b[0m"


def write(reporter: pytest.TerminalReporter, results: Results, verbosity: int = 0) -> None:
    """Write a section for each chain; nothing under ``-qq``, the metrics that everybody measures too under ``-v``."""
    if verbosity < -1:
        return
    width = shutil.get_terminal_size().columns
    for chain in results.chains:
        reporter.section(f"{chain.id} on {chain.device}")
        for line in lines(results, chain, width=width, coloured=reporter.hasmarkup, verbosity=verbosity):
            reporter.write_line(line)


def lines(results: Results, chain: Chain, *, width: int = 160, coloured: bool = False, verbosity: int = 0) -> list[str]:
    """The chain's section: what the figures depend on, the tables, the notes.

    `width` is in columns: where the stacks do not fit beside all steps, each step gets a table of its own.
    """
    view = View(chain)
    tables = [view.table(metric) for metric in view.metrics(DETAILS if verbosity > 0 else ())]
    found = [f"{name:<9} {text}" for name, text in heading(results, chain).items()]
    for grid in grids(view, results.shapes):
        found += ["", *_grid(grid, width, coloured)]
    for table in tables:
        wide = _wide(table, coloured)
        found += ["", *(wide if _fits(wide, width) else _narrow(table, coloured))]
    if any(table.judged for table in tables):
        found += ["", LEGEND]
    notes = [f"[{number}] {note}" for number, note in enumerate(view.notes, 1)]
    notes += [f"? {text}" for text in view.undecided] + [f"* {text}" for text in chain.remarks]
    return [*found, *([""] if notes else []), *notes]


def _wide(table: Table, coloured: bool) -> list[str]:
    """A row a stack, a column a step; two lines a cell where there is that much to say."""
    columns = [_column([cells[index] for cells in table.rows.values()], coloured) for index in range(len(table.steps))]
    rows = [[arm, *(column[index] for column in columns)] for index, arm in enumerate(table.rows)]
    return _tabulated(rows, [table.metric, *table.steps])


def _narrow(table: Table, coloured: bool) -> list[str]:
    """For each step a table with a row a stack."""
    found: list[str] = []
    for index, step in enumerate(table.steps):
        rows = []
        for arm, cells in table.rows.items():
            cell = cells[index]
            said = (cell.overhead, cell.interval, f"{cell.sign} {cell.mark}".strip())
            outcome = cell.outcome if coloured else None
            rows.append([arm, cell.figure or "-", cell.rate, *(_coloured(text, outcome) for text in said)])
        filled = [column for column in range(6) if any(row[column] for row in rows)]
        headers = [f"{step}: {table.metric}", "median", "rate", "overhead", "interval", "verdict"]
        found += [*([""] if found else []), *_tabulated(_chosen(rows, filled), [headers[column] for column in filled])]
    return found


def _grid(grid: Grid, width: int, coloured: bool) -> list[str]:
    """A table as it is published; in parts below each other, with its labels repeated, where it is too wide."""
    rows = [[_shown(entry, coloured) for entry in row] for row in grid.rows]
    found: list[str] = []
    labels, start = range(grid.labels), grid.labels
    while start < len(grid.headers):
        end = len(grid.headers)
        while True:
            columns = [*labels, *range(start, end)]
            part = _tabulated(_chosen(rows, columns), [grid.headers[column] for column in columns])
            if _fits(part, width) or end == start + 1:
                break
            end -= 1
        found += [*([""] if found else [f"{grid.title}:"]), *part]
        start = end
    return found


def _shown(entry: Entry, coloured: bool) -> str:
    if entry.good is None or not coloured:
        return entry.text
    outcome: Outcome = "pass" if entry.good else "fail"
    return "\n".join(_coloured(line, outcome) for line in entry.text.split("\n"))


def _column(cells: list[Cell], coloured: bool) -> list[str]:
    """Texts of one step's cells, whose two halves line up."""
    left = max((len(text) for cell in cells for text in (cell.figure, cell.rate)), default=0)
    texts = []
    for cell in cells:
        right = " ".join(word for word in (cell.overhead, cell.sign, cell.mark) if word)
        pairs = [(cell.figure or "-", right), (cell.rate, cell.interval)]
        outcome = cell.outcome if coloured else None
        texts.append(
            "\n".join(f"{first:<{left}}  {_coloured(second, outcome)}" for first, second in pairs if first or second)
        )
    return texts


def _coloured(text: str, outcome: Outcome | None) -> str:
    return f"{_COLOURS[outcome]}{text}{_RESET}" if outcome and text else text


def _chosen(rows: Iterable[list[str]], columns: list[int]) -> list[list[str]]:
    return [[row[column] for column in columns] for row in rows]


def _tabulated(rows: list[list[str]], headers: list[str]) -> list[str]:
    from tabulate import tabulate

    text = tabulate(rows, headers, tablefmt="simple", disable_numparse=True)
    return [line.rstrip() for line in text.splitlines()]


def _fits(table: list[str], width: int) -> bool:
    # The rule below the headers is as wide as the table, and never coloured.
    return len(table[1]) <= width
