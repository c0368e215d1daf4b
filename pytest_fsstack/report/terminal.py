"""The report on the terminal at the end of a session."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_fsstack.judging.overall import main_metric
from pytest_fsstack.judging.readings import settle, settle_chain
from pytest_fsstack.judging.repetition import describe as describe_repetition
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.report.answer import Problem, answer, notes_on_answer, problems
from pytest_fsstack.report.layouts import counts, grids
from pytest_fsstack.report.model import Cell, Grid, View, heading, title_of
from pytest_fsstack.report.wording import LEGEND
from pytest_fsstack.units import visible

if TYPE_CHECKING:
    import pytest

_COLOURS = {"good": "\x1b[32m", "bad": "\x1b[31m", "open": "\x1b[33m"}
_RESET = "\x1b[0m"


def write(reporter: pytest.TerminalReporter, results: Results, verbosity: int = 0) -> None:
    """Write the answer, and a section for each chain. Write nothing under ``-qq``, and more metrics under ``-v``."""
    if verbosity < -1:
        return
    reporter.section("answer")
    for line in answer_lines(results):
        reporter.write_line(line)
    width = shutil.get_terminal_size().columns
    for chain in results.chains:
        reporter.section(f"{title_of(chain)} on {chain.device}")
        for line in lines(results, chain, width=width, coloured=reporter.hasmarkup, verbosity=verbosity):
            reporter.write_line(line)


def lines_so_far(chain: ChainResults, *, width: int, coloured: bool = False) -> list[str]:
    """Return the answer of a chain whose rounds still run, and its table of times, or its counts."""
    metrics = ["seconds", "throughput", *(main_metric(chain, step) for step in chain.steps)]
    results = settle(Results(chains=[chain]), None if chain.only_counts else metrics)
    (chain,) = results.chains
    view = View(chain, results, is_so_far=True)
    if chain.only_counts:
        tables = [grid for name, options in chain.tables if name == "counts" for grid in counts(view, **options)]
    else:
        tables = [view.grid("seconds")]
    sentences = [visible(str(sentence)) for sentence in answer(results)]
    return [*sentences, *(line for grid in tables for line in ("", *table(_begun(chain, grid), width, coloured)))]


def _begun(chain: ChainResults, grid: Grid) -> Grid:
    """Return a table without the stacks that the answer names as unmeasured."""
    begun = {info.label for info in chain.stacks.values() if any(chain.measures(step, info.id) for step in chain.steps)}
    return replace(grid, rows=[row for row in grid.rows if row[0].text in begun])


def answer_lines(results: Results) -> list[str]:
    """Return the answer of the session, then a line for each problem."""
    lines = [visible(str(line)) for line in (*answer(results), *notes_on_answer(results))]
    items = problem_lines(problems(results))
    return once(results, [*lines, *([""] if lines and items else []), *items])


def once(results: Results, lines: Iterable[str], *, shown: bool = False) -> list[str]:
    """Return the lines, each error of a failed test where it stands first. `shown`: pytest has shown them before."""
    errors = {visible(test.text.rstrip(".")) for test in results.tests.values() if test.outcome == "failed"} - {""}
    known, text = set(errors) if shown else set(), []
    for line in lines:
        for error in sorted(errors, key=len, reverse=True):
            if error in known:
                line = line.replace(f": {error}", "")
            elif error in line:
                known.add(error)
        text.append(line)
    return text


def problem_lines(problems: Iterable[Problem]) -> list[str]:
    return [visible(f"{problem.kind + ':':<13} {problem}") for problem in problems]


def lines(
    results: Results, chain: ChainResults, *, width: int = 160, coloured: bool = False, verbosity: int = 0
) -> list[str]:
    """Return the section of a chain: the conditions of its figures, its tables and its notes.

    `width` is in characters. A wider table is shown in parts.
    """
    chain = settle_chain(chain)
    section = [f"{name:<9} {text}" for name, text in heading(results, chain).items()]
    if verbosity > 0:
        section += [
            f"{'repeated':<9} {describe_repetition(repetition, step)}" for step, repetition in chain.repeated.items()
        ]
    return [*section, *table_lines(results, chain, width=width, coloured=coloured, verbosity=verbosity)]


def table_lines(
    results: Results, chain: ChainResults, *, width: int = 160, coloured: bool = False, verbosity: int = 0
) -> list[str]:
    """Return the tables of a chain and the notes below them."""
    view, section = View(chain, results), list[str]()
    tables = [*grids(view, results.table_layouts), *view.tables(details=verbosity > 0)]
    for grid in tables:
        section += ["", *table(grid, width, coloured)]
    if any(grid.judged for grid in tables):
        section += ["", LEGEND]
    notes = [f"{remark.sign or '*'} {remark.text}" for remark in view.remarks]
    return [*section, *([""] if notes else []), *notes]


def table(grid: Grid, width: int, coloured: bool = False) -> list[str]:
    """Return a table as lines. A table that is too wide is split into parts, which repeat the labels."""
    columns = [_column([row[index] for row in grid.rows], coloured) for index in range(len(grid.headers))]
    # A table of one metric has its title in the corner.
    text = [] if grid.headers[0] == grid.title else [f"{grid.title}:"]
    start = grid.labels
    while start < len(grid.headers):
        for end in range(len(grid.headers), start, -1):
            chosen = [*range(grid.labels), *range(start, end)]
            rows = zip(*(columns[index] for index in chosen))
            part = tabulated(rows, [grid.headers[index] for index in chosen])
            # The rule below the headers has the width of the table, and no escape sequences.
            if len(part[1]) <= width:
                break
        text += [*([""] if start > grid.labels else []), *part]
        start = end
    return text


def _column(cells: list[Cell], coloured: bool) -> list[str]:
    """Return the texts of a column's cells. Their `beside` texts are aligned."""
    padding = max((len(text) for cell in cells if cell.beside for text, _ in cell.lines), default=0)
    texts = []
    for cell in cells:
        tone = cell.tone if coloured else ""
        if cell.beside:
            lines = [f"{text:<{padding}}  {_coloured(beside, tone)}" for text, beside in cell.lines]
        else:
            lines = [_coloured(text, tone) for text, _ in cell.lines]
        texts.append("\n".join(lines))
    return texts


def _coloured(text: str, tone: str) -> str:
    return f"{_COLOURS[tone]}{text}{_RESET}" if tone and text else text


def tabulated(rows: Iterable[Sequence[str]], headers: Sequence[str]) -> list[str]:
    """Return the lines of a plain table."""
    from tabulate import tabulate

    text = tabulate(rows, headers, tablefmt="simple", disable_numparse=True)
    return [line.rstrip() for line in text.splitlines()]
