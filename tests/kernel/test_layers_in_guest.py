"""Layers and sessions on a kernel that has the device-mapper, eCryptfs and all ciphers, whatever the host's has.

A guest for each class runs all of a file in `guest/`; each of its tests is a test here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.kernel.conftest import Guest, names_in
from tests.kernel.guest import inside_block_layers, inside_mapper, inside_network, inside_sessions, inside_stacked
from tests.kernel.guest.common import DISK

pytestmark = [pytest.mark.root, pytest.mark.kernel]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", names_in(metafunc.cls.inside))


@pytest.fixture(scope="class")
def guest(request: pytest.FixtureRequest, run_in_guest: Callable[..., Guest]) -> Guest:
    return run_in_guest(Path(request.cls.inside.__file__), *request.cls.options)


class Family:
    inside: ModuleType
    options: tuple[str, ...] = (f"--fsstack-device={DISK}",)

    def test_in_guest(self, guest: Guest, name: str) -> None:
        guest.check(name)

    def test_nothing_else_ran_in_the_guest(self, guest: Guest) -> None:
        assert set(guest.outcomes) == set(names_in(self.inside))


class TestBlockLayers(Family):
    inside = inside_block_layers


class TestMapper(Family):
    inside = inside_mapper


class TestSessions(Family):
    """Its sessions name the disk themselves."""

    inside, options = inside_sessions, ()


class TestStacked(Family):
    inside = inside_stacked


class TestNetwork(Family):
    inside = inside_network
