"""Reports as CSV: all samples for data frames, and the tables for a spreadsheet or a paper."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator

from pytest_fsstack.judging.describe import remarks
from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.results import Results
from pytest_fsstack.report.layouts import grids
from pytest_fsstack.report.model import Grid, View, title_of
from pytest_fsstack.units import one_line

#: Characters that begin a formula in a spreadsheet, and their full-width forms.
_FORMULA = ("=", "+", "-", "@", "\t", "\uff1d", "\uff0b", "\uff0d", "\uff20")

COLUMNS = ("chain", "device", "step", "stack", "baseline", "metric", "unit", "boot", "round", "value", "emulated")


def samples(results: Results) -> str:
    """Return a line for each chain, step, stack, metric, boot and round. Boots and rounds count from 1.

    The last column is ``yes`` if the CPU was emulated, which shows function, not speed.
    """
    return text_of([COLUMNS, *_samples(results)])


def _samples(results: Results) -> Iterator[list[object]]:
    for chain in settle(results).chains:
        # In a fixed order, so that saved results give the same file.
        for step, stack in itertools.product(chain.steps, chain.stacks):
            metrics = chain.metrics(step)
            for key, sample in chain.of(step, stack).items():
                for name, value in sample.values.items():
                    unit = metrics[name].unit
                    # repr is the shortest text that parses to the same number.
                    words = map(
                        escaped, (title_of(chain), chain.device, step, stack, chain.reference(stack), name, unit)
                    )
                    numbers = (key.boot + 1, key.number + 1)
                    yield [*words, *numbers, repr(value), "yes" if chain.stacks[stack].emulated else "no"]


def tables(results: Results) -> str:
    """Return each table: a line with its title, a line with its headers, and its rows. Empty lines separate tables.

    They are the tables of the scenario, or else those of the terminal. A cell with several numbers has a column for
    each, in seconds and bytes. Overheads are fractions. The notes follow as lines.
    """
    return text_of(_tables(results))


def _tables(results: Results) -> Iterator[Iterable[object]]:
    for chain in results.chains:
        view = View(chain)
        for grid in grids(view, results.table_layouts) or [view.grid(metric) for metric in view.metrics()]:
            yield map(escaped, (title_of(chain), chain.device, grid.title))
            yield from zip(*(column for index in range(len(grid.headers)) for column in _columns(grid, index)))
            yield []
        yield from ([f"[{number}]", escaped(note)] for number, note in enumerate(view.notes, 1))
        yield from (["*", escaped(text)] for text in remarks(chain))


def _columns(grid: Grid, index: int) -> list[list[object]]:
    """Return a column of a grid as a column of text, or as a column for each kind of number. The header comes first."""
    header, cells = grid.headers[index], [row[index] for row in grid.rows]
    kinds = dict.fromkeys(kind for cell in cells for kind in cell.numbers)
    if not kinds:
        return [[escaped(header), *(escaped(" / ".join(cell.text.split("\n"))) for cell in cells)]]
    return [[escaped(f"{header} {kind}".rstrip()), *(cell.numbers.get(kind, "") for cell in cells)] for kind in kinds]


def text_of(rows: Iterable[Iterable[object]]) -> str:
    """Return rows of cells as CSV."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def escaped(text: str) -> str:
    """Return text that no spreadsheet takes for a formula. Users choose the names of tests and units."""
    line = one_line(text)
    return f"'{line}" if line.startswith(_FORMULA) else line
