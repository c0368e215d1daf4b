"""The tables as they are shown, as CSV, for a spreadsheet or a paper."""

from __future__ import annotations

import csv
import io

from pytest_fsstack.report.published import Entry, Grid, grids
from pytest_fsstack.report.table import Table, View
from pytest_fsstack.results import Results


def report(results: Results) -> str:
    """Each table as a line with its title, one with its headers, and its rows; an empty line between tables.

    They are those that a scenario is published as, or else those of the terminal. The notes follow as lines.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    for chain in results.chains:
        view = View(chain)
        for grid in grids(view, results.shapes) or [_grid(view.table(metric)) for metric in view.metrics()]:
            lines.writerow([chain.id, chain.device, grid.title])
            lines.writerow(grid.headers)
            lines.writerows([entry.text.replace("\n", " / ") for entry in row] for row in grid.rows)
            lines.writerow([])
        lines.writerows([f"[{number}]", note] for number, note in enumerate(view.notes, 1))
        lines.writerows(["*", text] for text in chain.remarks)
    return text.getvalue()


def _grid(table: Table) -> Grid:
    rows = [
        [
            Entry(arm),
            *(
                Entry(" ".join(filter(None, (cell.figure or "-", cell.overhead, cell.interval, cell.sign, cell.mark))))
                for cell in cells
            ),
        ]
        for arm, cells in table.rows.items()
    ]
    return Grid(table.metric, ["stack", *table.steps], rows)
