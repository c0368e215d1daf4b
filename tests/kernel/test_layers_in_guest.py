"""Layers and sessions on kernels that have what they need, whatever the host's has.

A guest for each class runs a file in `guest/`; each of its tests is a test here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.kernel import boot
from tests.kernel.conftest import Guest, names_in
from tests.kernel.guest import (
    inside_block_layers,
    inside_filesystems,
    inside_mapper,
    inside_network,
    inside_sessions,
    inside_several_devices,
    inside_stacked,
)
from tests.kernel.guest.common import DISK

pytestmark = [pytest.mark.root, pytest.mark.kernel]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", metafunc.cls.names())


@pytest.fixture(scope="class")
def guest(request: pytest.FixtureRequest, run_in_guest: Callable[..., Guest]) -> Guest:
    family: type[Family] = request.cls
    vmlinuz = boot.kernel_or_skip(family.package)
    return run_in_guest(Path(str(family.inside.__file__)), *family.options, vmlinuz=vmlinuz, disks=family.disks)


class Family:
    inside: ModuleType
    options: tuple[str, ...] = (f"--fsstack-device={DISK}",)
    package = boot.KERNEL_PACKAGE
    disks = 1

    @classmethod
    def names(cls) -> list[str]:
        return names_in(cls.inside)

    def test_in_guest(self, guest: Guest, name: str) -> None:
        guest.check(name)

    def test_nothing_else_ran_in_the_guest(self, guest: Guest) -> None:
        assert set(guest.outcomes) == set(self.names())


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


class TestFilesystems(Family):
    inside, options = inside_filesystems, (*Family.options, "-k", "not ntfs and not bcachefs")

    @classmethod
    def names(cls) -> list[str]:
        return [name for name in names_in(cls.inside) if "ntfs" not in name and "bcachefs" not in name]


class TestNewerFilesystems(Family):
    inside, options = inside_filesystems, (*Family.options, "-k", "ntfs or bcachefs")
    package = boot.NEWER

    @classmethod
    def names(cls) -> list[str]:
        return [name for name in names_in(cls.inside) if name not in TestFilesystems.names()]


class TestSeveralDevices(Family):
    inside, disks = inside_several_devices, len(inside_several_devices.DISKS)
    options = (f"--fsstack-device={'+'.join(map(str, inside_several_devices.DISKS))}",)
