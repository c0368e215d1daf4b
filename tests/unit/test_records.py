"""The page that says what a report and a table can read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pytest_fsstack
from pytest_fsstack.records.results import Judgement, StackInfo
from pytest_fsstack.records.sample import Sample

PAGE = (Path(__file__).parents[2] / "docs/results-types.md").read_text()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("results", pytest_fsstack.Results),
        ("chain", pytest_fsstack.ChainResults),
        ("stack", StackInfo),
        ("judgement", Judgement),
        ("sample", Sample),
    ],
)
def test_the_page_has_every_attribute_and_method(name: str, kind: type) -> None:
    rows = set(re.findall(rf"^\| `{name}\.(\w+)", PAGE, re.MULTILINE))
    public = {attribute for attribute in vars(kind) if not attribute.startswith("_")}
    assert rows == public | set(kind.__annotations__)
