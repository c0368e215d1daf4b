"""Layers on several devices, inside the guest on its four disks.

`tests/kernel/test_layers_in_guest.py` starts it, with the plugin and the disks as one `--fsstack-device`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.volumes import caches, md
from pytest_fsstack.machine import guard, journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.layer import Spread
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, BuildContext, Pool
from tests import guarding
from tests.kernel.guest.common import ended, forked, write

DISKS = [Path(f"/dev/vd{letter}") for letter in "abcd"]
#: Of each stack, what the kernel shows of it.
STACKS = {
    "md(level=0, chunk_size=65536) | ext4": "active raid0 .* 64k chunks",
    "md(bitmap=True) | xfs": r"active (\(auto-read-only\) )?raid1 .*\[UU\].* bitmap: ",
    "md(level=5, initial='sync') | ext4": r"active raid5 .*\[UUU\]",
    "md(level=6, chunk_size=65536) | ext4": r"active raid6 .* 64k chunk, .*\[UUUU\]",
    "md(level=10) | ext4": r"active raid10 .* 2 near-copies \[4/4\]",
}
#: The same of the stacks that cost less to test: each command takes seconds here.
OTHERS = {
    "lvm(devices=3, kind='striped') | ext4": r"lvm-lv: 0 \d+ striped 3 128 ",
    "lvm(devices=2, kind='raid1') | ext4": r"lvm-lv: 0 \d+ raid raid1 2 AA (\d+)/\1 idle ",
    "lvm(devices=2, kind='cache', mode='writeback') | ext4": r"lvm-lv: 0 \d+ cache .* writeback ",
    "bcache | xfs": r"bcache0: \[writethrough\] writeback .* 4\.0M",
    "bcache(cache='ram:64M', mode='writeback', sequential_cutoff='0') | ext4": r"bcache0: .*\[writeback\] .* 0\.0k",
    "writecache | ext4": r"1-writecache: 0 \d+ writecache s ",
}
#: Stacks that can lose a device.
REDUNDANT = ("md(bitmap=True) | ext4", "md(level=5, initial='sync') | ext4")


def shown() -> str:
    """All that the kernel shows of arrays, mappings and caches, in one line."""
    tables = "".join(
        subprocess.run(["dmsetup", what], capture_output=True, text=True, check=True).stdout
        for what in ("table", "status")
    )
    files = [Path(directory, name) for directory in bcaches() for name in ("cache_mode", "sequential_cutoff")]
    caches = [f"{file.parent.parent.name}: {file.read_text()}" for file in files]
    return " ".join([Path("/proc/mdstat").read_text(), tables, *caches]).replace("\n", " ")


def bcaches() -> list[Path]:
    return list(Path("/sys/block").glob("bcache*/bcache"))


def left() -> list[str]:
    """Arrays, mappings and caches, also devices that wait for their cache."""
    forms = "md*", "dm-*", "bcache*", "*/bcache"
    return [str(path) for form in forms for path in Path("/sys/block").glob(form)]


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


@pytest.mark.fsstack(*OTHERS)
def test_what_is_in_a_cache_or_a_copy_is_there_after_all_was_closed(fsstack: Built) -> None:
    data = os.urandom(1 << 20)
    file = write(fsstack, data)
    assert re.search(OTHERS[fsstack.spec], shown()), shown()
    with fsstack.taken_down():
        assert left() == []
        # Udev starts a cache of what it finds, here of the slow device alone.
        touch(DISKS[:1])
    assert file.read_bytes() == data
    assert all(checked.clean for checked in fsstack.fsck().values())


@pytest.mark.fsstack(*REDUNDANT)
def test_an_array_lives_without_a_device_and_is_whole_again(fsstack: Built) -> None:
    contents = {"before": os.urandom(1 << 20)}
    (fsstack.path / "before").write_bytes(contents["before"])
    whole = re.findall(r"\[U+\]", shown())
    # Level 5 has to compute what it is without, which takes long here.
    for number in (1, 0) if "bitmap" in fsstack.spec else (1,):
        fsstack.take_away(number)
        assert re.findall(r"\[[U_]+\]", shown()) != whole
        name = f"without {number}"
        contents[name] = os.urandom(1 << 20)
        (fsstack.path / name).write_bytes(contents[name])
        fsstack.give_back()
        fsstack.wait_until_rebuilt()
        assert re.findall(r"\[[U_]+\]", shown()) == whole
        fsstack.remount()
        assert {name: (fsstack.path / name).read_bytes() for name in contents} == contents
    assert all(checked.clean for checked in [*fsstack.scrub().values(), *fsstack.fsck().values()])


def test_what_a_killed_session_left_is_stopped(tmp_path: Path) -> None:
    for text, kind in ("bcache", caches.CACHE_SET), ("md", md.ARRAY):
        (directory := tmp_path / text).mkdir()
        killed(text, directory)
        assert left()
        try:
            known = {text: kind}.copy
            (line,) = journal.cleanup(directory / "journals", RealMachine(), known).undone
            assert line.startswith("stopped the ")
            assert left() == []
        finally:
            for disk in DISKS[2:]:
                guarding.write_label(disk)


def killed(text: str, directory: Path) -> None:
    """Let a session open a layer on the last two disks, and kill it."""

    def code() -> int:
        machine = RealMachine()
        context = BuildContext(directory, journal.Journal(directory / "journals", machine), depth=1)
        pool = Pool.of([Block(disk, lambda: None, machine) for disk in DISKS[2:]])
        (layer,) = Stack.parse(text, BUILT_IN).layers
        assert isinstance(layer, Spread)
        with layer.bottom(pool, context) as bottom:
            layer.create(bottom, context)
            with layer.opened(bottom, context):
                os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert ended(forked(code, directory / "output")) == -signal.SIGKILL, (directory / "output").read_text()
