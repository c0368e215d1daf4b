"""A timed block begins with nothing of its stack in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine import commands
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.places import BuildContext, Directory
from tests.real.conftest import built

pytestmark = pytest.mark.root

SIZE = 512 << 20
FILES, CONTENT = 40, os.urandom(20_000)


def write(stack: Built) -> None:
    """Write files, and read them back. They are still in memory at the end, and not yet on the device."""
    for number in range(FILES):
        directory = stack.path / f"directory{number % 4}"
        directory.mkdir(exist_ok=True)
        file = directory / f"file{number}"
        file.write_bytes(CONTENT)
        assert file.read_bytes() == CONTENT


def files(top: Path) -> Iterator[Path]:
    yield from (Path(parent, name) for parent, _, names in os.walk(top) for name in names)


def pages_in_memory(path: Path) -> int:
    """Count the pages of a file in the page cache (mincore(2)). Nothing of it is read."""
    size = path.stat().st_size
    if not size:
        return 0
    with path.open("rb") as file:
        window = mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    resident = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    first = ctypes.c_char.from_buffer(window)
    answer = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), resident)
    del first
    window.close()
    assert answer == 0
    return sum(byte & 1 for byte in resident)


@pytest.mark.parametrize(
    "text",
    [
        "ext4",
        "xfs",
        "btrfs",
        "ext4 | fscrypt",
        "ext4 | gocryptfs",
        "ext4 | encfs",
        "ext4 | overlay",
        "ext4 | loop(size='100M', direct_io=False) | ext2",
        "luks | ext4",
    ],
)
def test_a_block_begins_with_no_contents_of_its_stack_in_memory(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        write(stack)
        # From the bottom up, because opening a file reads from those that store it.
        directories = [place.path for place in stack._places if isinstance(place, Directory)]
        names = [file for directory in directories for file in files(directory)]
        assert sum(map(pages_in_memory, names)) >= FILES
        clock = Timed(stack)
        with clock():
            in_memory = {str(file): pages for file in names if (pages := pages_in_memory(file))}
            contents = {file.read_bytes() for file in files(stack.path)}
        assert not in_memory
        assert contents == {CONTENT}
        assert clock.sample is not None
        assert clock.sample.values["read_bytes"] >= FILES * len(CONTENT)


@pytest.mark.parametrize(
    "text",
    [
        *("ext2", "ext3", "ext4", "ext4(mkfs='-O ^has_journal')", "xfs", "btrfs"),
        *("ext4 | fscrypt", "ext4 | gocryptfs", "ext4 | loop(size='100M') | ext4"),
    ],
)
def test_looking_at_files_that_were_just_written_reads_from_the_device(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        write(stack)
        names = list(files(stack.path))
        clock = Timed(stack)
        with clock():
            assert [name.lstat().st_size for name in names] == [len(CONTENT)] * FILES
        assert clock.sample is not None
        assert clock.sample.values["read_bytes"] > 0


@pytest.mark.parametrize("cold", [True, False])
def test_loop_files_of_earlier_stacks_are_freed_before_a_block(
    cold: bool, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(path: Path) -> None:
        synced.append(path)
        commands.syncfs(path)

    monkeypatch.setattr(RealMachine, "sync", staticmethod(sync))
    with built("ext4", LoopDevice(SIZE), context) as stack:
        with Timed(stack)(cold=cold):
            assert synced.count(context.directory) == 1
            synced.clear()
    # The next block does it, for all of them.
    assert context.directory not in synced
