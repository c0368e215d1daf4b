"""Direct I/O: reading blocks past the page cache, for workloads on block devices."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine.descriptors import ALIGNMENT, opened, read_direct
from pytest_fsstack.machine.needs import Missing, MissingRequirement

_CHECKED_BLOCKS = 64
_SPOILT = 512
_PROBE = ".fsstack-direct"


@dataclass(frozen=True)
class DirectIO:
    """Reads and writes that bypass the page cache (O_DIRECT), in a directory or on a block device."""

    path: Path

    def missing(self) -> MissingRequirement | None:
        # Some filesystems refuse the flag when a file is opened, others only the first transfer.
        try:
            if self.path.is_block_device():
                read_direct(self.path, 0, ALIGNMENT)
            else:
                with _probed(self.path / _PROBE) as probe:
                    read_direct(probe, 0, ALIGNMENT)
        except OSError as error:
            what = f"this stack cannot do direct I/O ({error.strerror})"
            return MissingRequirement(Missing.OTHER, what, "measure it with direct=False")
        return None


def sampled(size: int, block: int) -> list[int]:
    """The indexes of some blocks to look at, the first and the last among them; the same for the same arguments."""
    blocks = -(-size // block)
    sample = random.Random(size).sample(range(blocks), min(blocks, _CHECKED_BLOCKS))
    return sorted({0, blocks - 1, *sample}) if blocks else []


def differing(target: Path, source: Path, size: int, block: int) -> int | None:
    """The offset of the first sampled block of `target` that is not as in `meant`, or None.

    A device is read past the page cache, which otherwise would answer for it. Raises OSError.
    """
    device = target.is_block_device()
    with target.open("rb") as copy, source.open("rb") as expected:
        for index in sampled(size, block):
            offset, length = index * block, min(block, size - index * block)
            copy.seek(offset)
            expected.seek(offset)
            content = read_direct(target, offset, length) if device else copy.read(length)
            if content != expected.read(length):
                return offset
    return None


def spoil(device: Path, source: Path, size: int, block: int) -> None:
    """Make the blocks that will be looked at differ from those of `meant`, in their first bytes.

    Otherwise a device that is blank, or was written before, would pass without a write. Raises OSError.
    """
    with source.open("rb") as expected, device.open("r+b", buffering=0) as target:
        for index in sampled(size, block):
            expected.seek(index * block)
            target.seek(index * block)
            target.write(bytes(byte ^ 0xFF for byte in expected.read(min(block, _SPOILT))))
        os.fsync(target.fileno())


@contextlib.contextmanager
def _probed(path: Path) -> Iterator[Path]:
    try:
        with opened(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600) as fd, mmap.mmap(-1, ALIGNMENT) as buffer:
            os.pwritev(fd, [buffer], 0)
        yield path
    finally:
        path.unlink(missing_ok=True)
