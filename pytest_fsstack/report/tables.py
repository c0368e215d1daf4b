"""The report of the tables as CSV, for a spreadsheet or a paper."""

from __future__ import annotations

import csv
import io

from pytest_fsstack.judging.results import Results
from pytest_fsstack.report.csvfile import escaped
from pytest_fsstack.report.layouts import grids
from pytest_fsstack.report.model import Grid, View


def report(results: Results) -> str:
    """Return each table: a line with its title, a line with its headers, and its rows. Empty lines separate tables.

    They are the tables of the scenario, or else those of the terminal. A cell with several numbers has a column for
    each, in seconds and bytes. Overheads are fractions. The notes follow as lines.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    for chain in results.chains:
        view = View(chain)
        for grid in grids(view, results.table_layouts) or [view.grid(metric) for metric in view.metrics()]:
            lines.writerow(map(escaped, (chain.id, chain.device, grid.title)))
            columns = [column for index in range(len(grid.headers)) for column in _columns(grid, index)]
            lines.writerows(zip(*columns))
            lines.writerow([])
        lines.writerows([f"[{number}]", escaped(note)] for number, note in enumerate(view.notes, 1))
        lines.writerows(["*", escaped(text)] for text in chain.remarks)
    return text.getvalue()


def _columns(grid: Grid, index: int) -> list[list[object]]:
    """Return a column of a grid as a column of text, or as a column for each kind of number. The header comes first."""
    header, cells = grid.headers[index], [row[index] for row in grid.rows]
    kinds = dict.fromkeys(kind for cell in cells for kind in cell.numbers)
    if not kinds:
        return [[escaped(header), *(escaped(" / ".join(cell.text.split("\n"))) for cell in cells)]]
    return [[escaped(f"{header} {kind}".rstrip()), *(cell.numbers.get(kind, "") for cell in cells)] for kind in kinds]
