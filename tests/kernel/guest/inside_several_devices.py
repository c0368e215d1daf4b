"""What runs inside the guest, on its four disks: the layers that stand on several devices, for real.

`tests/kernel/test_several_devices_in_guest.py` starts it, with the plugin and the disks as one `--fsstack-device`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack import guard
from pytest_fsstack.stack.build import Built
from tests.kernel.guest.common import write

DISKS = [Path(f"/dev/vd{letter}") for letter in "abcd"]
#: Of each stack, what the kernel shows of it.
STACKS = {
    "md(level=0, chunk_size=65536) | ext4": "active raid0 .* 64k chunks",
    "md(bitmap=True) | xfs": r"active (\(auto-read-only\) )?raid1 .*\[UU\].* bitmap: ",
    "md(level=5, initial='sync') | ext4": r"active raid5 .*\[UUU\]",
    "md(level=6, chunk_size=65536) | ext4": r"active raid6 .* 64k chunk, .*\[UUUU\]",
    "md(level=10) | ext4": r"active raid10 .* 2 near-copies \[4/4\]",
}


def shown() -> str:
    """All that the kernel shows of arrays, in one line."""
    return " ".join(Path("/proc/mdstat").read_text().split())


def left() -> list[str]:
    return [path.name for path in Path("/sys/block").glob("md*")]


def touch(disks: list[Path]) -> None:
    """Open disks for writing, as many tools do: udev then takes each for a new one."""
    for disk in disks:
        os.close(os.open(disk, os.O_WRONLY))
    subprocess.run(["udevadm", "settle"], check=True)


@pytest.fixture(autouse=True, scope="class")
def nothing_stays_behind() -> Iterator[None]:
    """Around the stack of each test: it is torn down when this goes on."""
    yield
    touch(DISKS)
    assert left() == []
    assert all(guard.labelled(disk) for disk in DISKS[:2])


@pytest.mark.fsstack(*STACKS)
def test_what_was_written_is_there_after_all_was_closed(fsstack: Built) -> None:
    data = os.urandom(1 << 20)
    file = write(fsstack, data)
    assert re.search(STACKS[fsstack.spec], shown()), shown()
    fsstack.remount()
    assert file.read_bytes() == data
    with fsstack.taken_down():
        assert left() == []
        # Udev assembles what it finds, here of a part of the disks.
        touch(DISKS[:1])
    assert file.read_bytes() == data
    assert re.search(STACKS[fsstack.spec], shown()), shown()
    with fsstack.taken_down():
        touch(DISKS)
    assert file.read_bytes() == data
    assert all(checked.clean for checked in fsstack.fsck().values())
