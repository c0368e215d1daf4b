"""Where stacks start: a sparse loop file, memory, a real block device, an existing directory."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack import guard, host, loopback, settings
from pytest_fsstack.needs import LOOP_DEVICES, KernelFilesystem, Need, Root, Tool
from pytest_fsstack.stack import Block, Device, Directory, PlaceType, Site


@contextlib.contextmanager
def _sparse_file(directory: Path, size: int) -> Iterator[Block]:
    """A loop device over a file that has no name, so that nothing of it can stay behind."""
    with tempfile.TemporaryFile(dir=directory) as image:
        image.truncate(size)
        with loopback.attached(image.fileno()) as block:
            yield block
    # The filesystem now frees the file's blocks: that work must not fall into the next stack's measurement.
    host.syncfs(directory)


@dataclass(frozen=True)
class LoopDevice:
    """A sparse file of `size` bytes in the session's directory."""

    size: int
    spec: ClassVar[str] = "loop"
    id: ClassVar[str] = "loop"
    gives: ClassVar[PlaceType] = Block

    def needs(self) -> list[Need]:
        return [Root("attaching a loop device"), LOOP_DEVICES]

    def room(self, directory: Path) -> int:
        return min(self.size, shutil.disk_usage(directory).free)

    def advice(self, space: int) -> str:
        if space > self.size:
            return f"give --fsstack-size={_gigabytes(space)} or a disk as --fsstack-device"
        return "its file lies where too little is free; name another place with --fsstack-dir"

    @contextlib.contextmanager
    def opened(self, site: Site) -> Iterator[Block]:
        with _sparse_file(site.directory, self.size) as block:
            yield block


@dataclass(frozen=True)
class RamDevice:
    """A loop device of `size` bytes over a file on a tmpfs of its own."""

    size: int
    spec: ClassVar[str] = "ram"
    id: ClassVar[str] = "ram"
    gives: ClassVar[PlaceType] = Block

    def needs(self) -> list[Need]:
        return [Root("mounting a tmpfs"), KernelFilesystem("tmpfs"), LOOP_DEVICES]

    def room(self, directory: Path) -> int:
        memory = next(
            line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")
        )
        return min(self.size, int(memory.split()[1]) * 1024)

    def advice(self, space: int) -> str:
        if space > self.size:
            return f"give --fsstack-size={_gigabytes(space)}, if there is that much memory"
        return "this machine has no more memory available"

    @contextlib.contextmanager
    def opened(self, site: Site) -> Iterator[Block]:
        target = site.mountpoint("ram", 0)
        with (
            site.journal.entry("mount", target=str(target)),
            host.mounted("tmpfs", target, "tmpfs", f"size={self.size + 2**20}"),
            _sparse_file(target, self.size) as block,
        ):
            yield block


@dataclass(frozen=True)
class DiskDevice:
    """A real block device, which is overwritten, once the guard agrees."""

    path: Path
    overwrite: bool
    #: Whether all of it is discarded before each stack is built.
    discard: bool = False
    gives: ClassVar[PlaceType] = Block

    @property
    def spec(self) -> str:
        return str(self.path)

    @property
    def id(self) -> str:
        return self.path.name

    def needs(self) -> list[Need]:
        blkdiscard = [Tool("blkdiscard", "util-linux")] if self.discard else []
        return [Root(f"formatting {self.path}"), *blkdiscard]

    def room(self, directory: Path) -> int:
        return guard.identify(self.path).size

    def advice(self, space: int) -> str:
        return "give a larger --fsstack-device"

    @contextlib.contextmanager
    def opened(self, site: Site) -> Iterator[Block]:
        notes = []

        @contextlib.contextmanager
        def record(disk: guard.Disk) -> Iterator[None]:
            with site.journal.entry("disk", **disk.facts()) as note:
                notes.append(note)
                yield

        with guard.claimed(self.path, overwrite=self.overwrite, record=record) as disk:
            if self.discard:
                disk.check()
                host.run("blkdiscard", self.path)
                # Without its label, what a killed session left would need to be given over again.
                guard.write_label(self.path)
            # What proves to a later clean-up that nobody has formatted the device since.
            yield Block(self.path, disk.check, lambda: notes[0].note(signature=guard.signature(self.path)))


@dataclass(frozen=True)
class DirectoryDevice:
    """An existing directory, in which each stack gets a fresh subdirectory; nothing is formatted."""

    path: Path
    gives: ClassVar[PlaceType] = Directory

    @property
    def spec(self) -> str:
        return f"dir:{self.path}"

    @property
    def id(self) -> str:
        return "dir-" + re.sub(r"[^A-Za-z0-9_.:-]+", ".", self.path.name or "root")

    def needs(self) -> list[Need]:
        return []

    def room(self, directory: Path) -> int:
        return shutil.disk_usage(self.path).free

    def advice(self, space: int) -> str:
        return "free some, or name a directory on a larger filesystem"

    @contextlib.contextmanager
    def opened(self, site: Site) -> Iterator[Directory]:
        path = Path(tempfile.mkdtemp(prefix="fsstack-", dir=self.path))
        with site.journal.entry("directory", path=str(path)):
            try:
                yield Directory(path)
            finally:
                shutil.rmtree(path)


def _gigabytes(size: int) -> str:
    """As --fsstack-size takes it, rounded up."""
    return f"{-(-size // 2**30)}G"


def _discards(device: Path) -> bool:
    try:
        return int((settings.queue(device) / "discard_max_bytes").read_text()) > 0
    except OSError:
        return False


def parse_device(text: str, *, size: int, overwrite: frozenset[str], discard: bool = False) -> Device:
    """The device that a word on the command line names. Raises ValueError for one that cannot be."""
    if text == "loop":
        return LoopDevice(size)
    if text == "ram":
        return RamDevice(size)
    if text.startswith("dir:"):
        path = Path(text.removeprefix("dir:")).absolute()
        if not path.is_dir():
            raise ValueError(f"{text}: there is no directory {path}")
        return DirectoryDevice(path)
    if text.startswith("/"):
        path = Path(text)
        if not path.exists():
            raise ValueError(f"{text} does not exist; `lsblk` lists the block devices")
        if path.is_dir():
            raise ValueError(f"{text} is a directory; to use it as it is, write dir:{text}")
        if not path.is_block_device():
            raise ValueError(f"{text} is not a block device; `lsblk` lists them")
        if discard and not _discards(path):
            raise ValueError(f"{text} cannot discard (its discard_max_bytes is 0); leave --fsstack-discard out")
        return DiskDevice(path, os.path.realpath(path) in {os.path.realpath(word) for word in overwrite}, discard)
    raise ValueError(
        f"{text!r} is not a device; write loop, ram, a block device such as /dev/sdb1, or dir:/a/directory"
    )
