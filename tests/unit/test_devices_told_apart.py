"""Devices of a session have ids of their own, by which chains are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.devices import DirectoryDevice, DiskDevice, LoopDevice, with_unique_ids
from pytest_fsstack.stack.model import Device


@pytest.mark.parametrize(
    ("paths", "ids"),
    [
        (["/dev/sdb", "/dev/sdc"], ["sdb", "sdc"]),
        (["/a/stick", "/b/stick"], ["a.stick", "b.stick"]),
        (["/a/x/stick", "/b/x/stick", "/dev/sdb"], ["a.x.stick", "b.x.stick", "sdb"]),
        (["/stick", "/a/stick"], ["stick", "a.stick"]),
    ],
)
def test_disks(paths: list[str], ids: list[str]) -> None:
    assert [device.id for device in with_unique_ids(DiskDevice(Path(path), False) for path in paths)] == ids


def test_directories_and_a_loop() -> None:
    devices: list[Device] = [LoopDevice(1), DirectoryDevice(Path("/a/tests")), DirectoryDevice(Path("/b/tests"))]
    assert [device.id for device in with_unique_ids(devices)] == ["loop", "dir-a.tests", "dir-b.tests"]


def test_names_that_differ_in_characters_that_ids_cannot_hold() -> None:
    devices = with_unique_ids(DiskDevice(Path(f"/x/ä{letter}"), False) for letter in "éü")
    assert len({device.id for device in devices}) == 2


def test_the_same_device_given_twice_is_one() -> None:
    assert len(with_unique_ids([DirectoryDevice(Path("/a")), DirectoryDevice(Path("/a/"))])) == 1
