"""A stack and a clock, without root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toolkit import NotedStack, NotedTimed


@pytest.fixture
def stack(tmp_path: Path) -> NotedStack:
    path = tmp_path / "stack"
    path.mkdir()
    return NotedStack(path)


@pytest.fixture
def clock(stack: NotedStack) -> NotedTimed:
    return NotedTimed(stack)
