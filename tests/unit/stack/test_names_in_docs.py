"""Names of limits and of options in the docs, where authors of layers and administrators look them up."""

from __future__ import annotations

import pytest

from pytest_fsstack import Limit
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.stack.words import Directories
from tests.pages import ROOT


@pytest.mark.parametrize("limit", list(Limit), ids=lambda limit: limit.name)
def test_each_limit_is_documented_by_its_name(limit: Limit) -> None:
    assert f"`Limit.{limit.name}`" in (ROOT / "docs/layers.md").read_text()


def test_each_option_that_shows_directories_of_the_machine_is_on_the_page_of_safety() -> None:
    options = [
        f"`{layer.name}({name}=...)`"
        for layer in BUILT_IN.values()
        for name, grammar in layer.grammar.items()
        if isinstance(grammar, Directories)
    ]
    page = (ROOT / "docs/safety.md").read_text()
    assert len(options) >= 3
    assert [option for option in options if option not in page] == []
