"""Direct I/O, which bypasses the page cache, for workloads on block devices."""

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
    """A requirement: direct I/O (O_DIRECT) in a directory or on a block device."""

    path: Path

    def missing(self) -> MissingRequirement | None:
        # Some filesystems refuse the flag on opening a file, others on the first transfer.
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
    """Return the indexes of a sample of blocks, including the first and the last. The same arguments give the same
    sample.
    """
    blocks = -(-size // block)
    sample = random.Random(size).sample(range(blocks), min(blocks, _CHECKED_BLOCKS))
    return sorted({0, blocks - 1, *sample}) if blocks else []


def differing(target: Path, source: Path, size: int, block: int) -> int | None:
    """Return the offset of the first sampled block of `target` that differs from `source`, or None.

    A device is read with direct I/O, because its page cache may be stale. Raises OSError.
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
    """Change the first bytes of the blocks that will be compared.

    Otherwise a device that already has the same contents would pass without any write. Raises OSError.
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
