"""The report in GitHub Markdown, for an issue, a README or the summary of a job."""

from __future__ import annotations

import re

from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.report.answer import answer, notes_on_answer, problems
from pytest_fsstack.report.layouts import grids
from pytest_fsstack.report.model import Cell, Grid, View, described, heading, title_of
from pytest_fsstack.report.wording import LEGEND
from pytest_fsstack.units import one_line, visible


def report(results: Results) -> str:
    """Return the answer and the problems, then the tables, notes and conditions of each chain."""
    results = settle(results)
    # Results may come from another user, so control characters are escaped.
    parts = [*_answer(results), *_earlier_runs(results), *(_chain(results, chain) for chain in results.chains)]
    return visible("\n".join(parts))


def _earlier_runs(results: Results) -> list[str]:
    """Return the comparison with earlier runs, if there was one."""
    if (section := results.comparison) is None:
        return []
    facts = [f"- {name}: {plain(text)}" for name, text in section.facts]
    remarks = [f"- {plain(text)}" for text in section.remarks]
    rows = ["", table(section.grid)] if section.grid.rows else []
    return [f"## {section.title.capitalize()}", "", *facts, *rows, "", *remarks, *([""] if remarks else [])]


def _answer(results: Results) -> list[str]:
    sentences = [(f"**{plain(line.headline)}**", plain(line.details)) for line in answer(results)]
    lines = [": ".join(filter(None, parts)) for parts in sentences] + [plain(note) for note in notes_on_answer(results)]
    lines = [text for line in lines for text in (line, "")]
    items = [f"- **{problem.kind}**: {plain(str(problem))}" for problem in problems(results)]
    return [*lines, *(["## What needs attention", "", *items, ""] if items else [])]


def _chain(results: Results, chain: ChainResults) -> str:
    view = View(chain, results)
    tables = [*grids(view, results.table_layouts), *view.tables(details=True)]
    lines = [f"## {plain(title_of(chain))} on {plain(chain.device)}", ""]
    lines += [f"- {name}: {plain(text)}" for name, text in heading(results, chain).items()]
    lines += [f"- stack {plain(stack.label)}: {_code(described(stack))}" for stack in chain.stacks.values()]
    for grid in tables:
        lines += ["", f"### {plain(grid.title)}", "", table(grid)]
    if any(grid.judged for grid in tables):
        lines += ["", LEGEND]
    for colours in dict.fromkeys(grid.colours for grid in tables if grid.coloured):
        lines += ["", colours]
    notes = [f"- {plain(str(remark))}" for remark in view.remarks]
    return "\n".join([*lines, *([""] if notes else []), *notes, ""])


def table(grid: Grid) -> str:
    """Return a grid as a table of GitHub."""
    from tabulate import tabulate

    rows = [[_cell(cell) for cell in row] for row in grid.rows]
    # The title is above the table. The first header is that of the labels.
    first = "stack" if grid.headers[0] == grid.title else grid.headers[0]
    headers = [plain(header) for header in (first, *grid.headers[1:])]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)


def _cell(cell: Cell) -> str:
    """Return a cell. Markdown has no colours, so good cells and broken budgets are bold, and bad cells have a mark."""
    text, beside = (plain(part.replace("\n", joint)) for part, joint in ((cell.text, " / "), (cell.beside, " ")))
    if cell.outcome == "fail":
        beside = f"**{beside}**"
    elif cell.good is not None:
        text = f"**{text}**" if cell.good else f"{text} ▲"
    return f"{text}, {beside}" if beside and cell.text != "-" else f"{text} {beside}".rstrip()


def _code(text: str) -> str:
    """Return a code span that no character in the text can end."""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{one_line(text)}{pad}{fence}"


def plain(text: str) -> str:
    """Return one line of Markdown that shows the text unchanged, also in a table."""
    text = " ".join(text.split("\n"))
    return re.sub(r"[\\`*<>|]|\](?=[(\[])|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)
