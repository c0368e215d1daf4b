"""What tests of layers share."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.stack.model import Site
from tests.toolkit import NotedJournal


@pytest.fixture
def journal() -> NotedJournal:
    return NotedJournal()


@pytest.fixture
def site(tmp_path: Path, journal: NotedJournal) -> Site:
    return Site(tmp_path, journal)
