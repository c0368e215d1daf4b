"""Whole sessions, also killed ones, on a kernel that has what leaves most behind.

One guest runs all of `guest/inside_sessions.py`; each of its tests is a test here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel.conftest import Guest, names_in
from tests.kernel.guest import inside_sessions

pytestmark = [pytest.mark.root, pytest.mark.kernel]


@pytest.fixture(scope="session")
def guest(run_in_guest: Callable[..., Guest]) -> Guest:
    return run_in_guest(Path(inside_sessions.__file__))


@pytest.mark.parametrize("name", names_in(inside_sessions))
def test_in_guest(guest: Guest, name: str) -> None:
    guest.check(name)


def test_nothing_else_ran_in_the_guest(guest: Guest) -> None:
    assert set(guest.outcomes) == set(names_in(inside_sessions))
