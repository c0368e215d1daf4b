"""A stack, a clock and a user, without root."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.layers import stacked
from pytest_fsstack.machine import needs
from tests.toolkit import NotedStack, NotedTimed


@pytest.fixture(autouse=True)
def no_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget volumes that a test on devices has made in this process. Later ones would be copied from them."""
    monkeypatch.setattr(stacked, "_volumes", {})


@pytest.fixture
def stack(tmp_path: Path) -> NotedStack:
    path = tmp_path / "stack"
    path.mkdir()
    return NotedStack(path)


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let this process seem to be of another user, by its number, with the capabilities of that user."""

    def become(user: int) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: user)
        monkeypatch.setattr(needs, "_has", lambda capability, field: user == 0)

    return become


@pytest.fixture
def clock(stack: NotedStack) -> NotedTimed:
    return NotedTimed(stack)
