"""Names that somebody else chose, in reports that people and CI read."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from pytest_fsstack.records.notices import ControlNotCompared, GaveUp, OverheadChanged
from pytest_fsstack.records.results import Results
from pytest_fsstack.report import BUILT_IN, html
from tests.unit.report.results import made

BIDI = "\u202e"
NAME = f"x\n::error::y {BIDI}[a](http://z) <b>`<i>"


def hostile() -> Results:
    """Results whose chain, device, stack's text and labels are hostile."""
    results = made()
    for chain in results.chains:
        chain.id, chain.devices, chain.remarks = NAME, [NAME], [NAME]
        chain.notices = [ControlNotCompared(NAME, NAME, NAME), OverheadChanged({NAME: [NAME]}), GaveUp([NAME])]
        chain.stacks = {name: replace(stack, spec=NAME) for name, stack in chain.stacks.items()}
    results.labels = {"": "x", NAME: NAME}
    return results


@pytest.mark.parametrize("name", ["markdown", "csv", "tables", "otava", "openmetrics", "ktap", "lava"])
def test_no_line_is_a_workflow_command_and_no_text_changes_its_direction(name: str) -> None:
    text = BUILT_IN[name](hostile())
    assert BIDI not in text
    assert not re.search("^::", text, re.MULTILINE)


def test_stack_text_stays_text_in_markdown() -> None:
    tokens = MarkdownIt().enable("table").parse(BUILT_IN["markdown"](hostile()))
    kinds = {inner.type for token in tokens for inner in token.children or ()}
    assert not kinds & {"html_inline", "link_open"}
    assert not any(token.type == "html_block" for token in tokens)


def test_the_page_shows_characters_that_turn_text_around() -> None:
    page = html.report(hostile())
    assert BIDI not in page
    assert 'class="figure"' in page


@pytest.mark.parametrize("first", "=+-@\uff1d\uff0b\uff0d\uff20")
def test_no_spreadsheet_finds_a_formula(first: str) -> None:
    results = made(3, [f"{first}1+1"])
    results.chains[0].id = f"{first}SUM(A1)"
    for name in "csv", "tables":
        cells = re.split(r"[,\n]", BUILT_IN[name](results))
        assert f"'{first}SUM(A1)" in cells
        assert not any(cell.startswith((f"{first}1+1", f"{first}SUM")) for cell in cells)


def test_an_empty_label_has_a_name_in_openmetrics() -> None:
    (info,) = [line for line in BUILT_IN["openmetrics"](hostile()).splitlines() if line.startswith("fsstack_run_info{")]
    assert re.match(r'fsstack_run_info\{_="x"', info)
