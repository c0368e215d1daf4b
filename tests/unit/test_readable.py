"""Results and pages that a new user once could not find or read."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from types import ModuleType

import pytest

from pytest_fsstack import units
from pytest_fsstack.judging import verdict
from pytest_fsstack.records.results import Results
from pytest_fsstack.report import layouts, markdown, terminal
from pytest_fsstack.report.layouts import BUILT_IN
from pytest_fsstack.report.wording import COLOURS
from tests.chains import Series, a_chain, wobbling

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", [units, layouts, verdict])
def test_examples_in_docstrings_are_true(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def results(rounds: int = 6, table: str = "", throughput: float | None = None) -> Results:
    """Return a step on ext4 and on a stack with a name of its own, which takes three times as long."""
    rate = {} if throughput is None else {"throughput": throughput}
    costs: dict[str, Series] = {
        "ext4": wobbling(1.0),
        "zipped": lambda number: {"seconds": 3.0 + number % 3 / 10, **rate},
    }
    chain = a_chain({"read": costs}, rounds, tables=[(table, {})] if table else [])
    results = chain.with_stack("zipped", "luks | btrfs(compress='zstd')", named=True).results()
    results.table_layouts = BUILT_IN
    return results


def shown(session: Results) -> str:
    return "\n".join(terminal.lines(session, session.chains[0], width=160))


def test_a_throughput_of_nothing_is_not_shown() -> None:
    assert "B/s" in shown(results(throughput=5e6))
    assert "B/s" not in shown(results(throughput=0.0))


def test_a_table_has_no_column_for_sizes_that_no_step_has() -> None:
    header = next(line for line in shown(results(table="change")).splitlines() if line.startswith("test"))
    assert "size" not in header.split()


def test_the_mark_of_what_is_worse_is_explained_where_it_stands() -> None:
    page = markdown.report(results(table="change"))
    assert "▲" in page.replace(COLOURS, "")
    assert COLOURS in page


def test_a_name_that_a_user_gave_is_resolved() -> None:
    assert "zipped = luks | btrfs(compress='zstd')" in shown(results())


@pytest.mark.parametrize(("rounds", "text"), [(1, r"\b1 round\b"), (2, r"\b2 rounds\b")])
def test_one_round_is_not_called_rounds(rounds: int, text: str) -> None:
    assert re.search(text, shown(results(rounds)))


def test_the_readmes_first_commands_overwrite_no_disk() -> None:
    before, _, after = (ROOT / "README.md").read_text().partition("\n## Before you use a real disk")
    commands = "".join(re.findall(r"^```sh\n(.*?)^```", before, re.MULTILINE | re.DOTALL))
    assert "fsstack run " in commands
    assert "/dev/" not in commands
    assert "**The device is overwritten.**" in after


def test_every_test_that_the_promises_name_is_there() -> None:
    page = (ROOT / "docs/safety.md").read_text()
    names = set(re.findall(r"`((?:unit|plugin|real|kernel)/[\w/]+\.py)`", page))
    assert len(names) > 30
    assert [name for name in sorted(names) if not (ROOT / "tests" / name).exists()] == []
