"""A stack, a clock and a user, without root."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.toolkit import NotedStack, NotedTimed


@pytest.fixture
def stack(tmp_path: Path) -> NotedStack:
    path = tmp_path / "stack"
    path.mkdir()
    return NotedStack(path)


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let this process seem to be of another user, by its number."""
    return lambda user: monkeypatch.setattr(os, "geteuid", lambda: user)


@pytest.fixture
def clock(stack: NotedStack) -> NotedTimed:
    return NotedTimed(stack)
