"""What tests of workloads share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.fakes import FakeStack, FakeTimed


@pytest.fixture
def clock() -> Any:
    return FakeTimed()


@pytest.fixture
def stack(tmp_path: Path) -> Any:
    path = tmp_path / "stack"
    path.mkdir()
    return FakeStack(path)
