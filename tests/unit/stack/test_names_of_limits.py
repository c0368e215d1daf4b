"""Names of limits in the docs, where authors of layers look them up."""

from __future__ import annotations

import pytest

from pytest_fsstack import Limit
from tests.pages import ROOT


@pytest.mark.parametrize("limit", list(Limit), ids=lambda limit: limit.name)
def test_each_limit_is_documented_by_its_name(limit: Limit) -> None:
    assert f"`Limit.{limit.name}`" in (ROOT / "docs/layers.md").read_text()
