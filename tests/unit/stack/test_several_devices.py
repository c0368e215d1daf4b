"""Stacks of several devices as text: what they need, and what they cannot stand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.devices import DeviceGroup, DirectoryDevice, DiskDevice, LoopDevice, parse_device
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.stack.model import Device, Stack
from pytest_fsstack.stack.spec import SpecError

MIRROR = "pool(2) | btrfs(data='raid1', metadata='raid1')"
SDB, SDC, SDD = (DiskDevice(Path(f"/dev/sd{letter}"), False) for letter in "bcd")


def parsed(text: str) -> Stack:
    return Stack.parse(text, BUILT_IN)


def test_a_number_without_a_name_is_that_of_the_devices() -> None:
    stack = parsed(MIRROR)
    assert stack == parsed("pool(devices=2) | btrfs(data='raid1', metadata='raid1')")
    assert (str(stack), stack.id) == (MIRROR, "pool-2+btrfs-raid1-raid1")
    assert stack.members == 2
    assert parsed("luks | ext4").members == 1


@pytest.mark.parametrize("device", [SDB, DeviceGroup((SDB,)), DirectoryDevice(Path("/"))])
def test_a_stack_that_needs_more_devices_than_there_are_is_refused(device: Device) -> None:
    with pytest.raises(SpecError):
        parsed(MIRROR).check_device(device, BUILT_IN)


@pytest.mark.parametrize("device", [LoopDevice(1 << 30), DeviceGroup((SDB, SDC)), DeviceGroup((SDB, SDC, SDD))])
def test_files_are_as_many_as_needed_and_a_group_may_have_more(device: Device) -> None:
    parsed(MIRROR).check_device(device, BUILT_IN)


def shown(text: str, device: Device) -> str:
    return "\n".join(explained(parsed(text), device).lines)


def test_each_device_is_shown_and_those_that_are_not_needed_are_left_alone() -> None:
    text = shown(MIRROR, DeviceGroup((SDB, SDC, SDD)))
    assert "mkfs.btrfs -q -f -K --data=raid1 --metadata=raid1 /dev/sdb /dev/sdc\n" in text
    assert "device=/dev/sdc" in text
    for device in "/dev/sdb", "/dev/sdc":
        assert 0 < text.index(f"\n# {device}: ") < text.index(f"\nwipefs -aq {device}\n")
    assert "/dev/sdd" not in text.partition("\n")[2]
    text = shown("ext4", DeviceGroup((SDB, SDC)))
    assert "/dev/sdc" not in text.partition("\n")[2]


def test_files_are_shown_as_the_loop_devices_over_them() -> None:
    assert "mkfs.btrfs -q -f -K --data=raid10 LOOP LOOP2 LOOP3 LOOP4\n" in shown(
        "pool(4) | btrfs(data='raid10')", LoopDevice(1 << 30)
    )


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("loop+loop", r"^loop\+loop: .*\bblock\b"),
        ("/dev/null+/dev/null", "^/dev/null .*`lsblk`"),
        ("/dev/none+/dev/null", "^/dev/none .*`lsblk`"),
    ],
)
def test_a_group_has_block_devices_only(text: str, facts: str) -> None:
    with pytest.raises(ValueError, match=facts):
        parse_device(text, size=1, overwrite=())


def test_a_directory_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^dir: "):
        parse_device("dir:", size=1, overwrite=())
