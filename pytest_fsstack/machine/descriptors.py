"""Helpers for file descriptors: close them at the end of a block, and write or read all bytes."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

#: A multiple of every logical block size for direct I/O.
ALIGNMENT = 4096


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block. Raises OSError."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def opened(
    path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666, *, dir_fd: int | None = None
) -> AbstractContextManager[int]:
    """Open a path until the end of the block. Commands do not inherit the descriptor. Raises OSError."""
    return closing(os.open(path, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd))


def write_all(descriptor: int, content: bytes, offset: int | None = None) -> None:
    """Write all of the content, with several calls if necessary, optionally at an offset. Raises OSError."""
    view = memoryview(content)
    while view:
        count = os.write(descriptor, view) if offset is None else os.pwrite(descriptor, view, offset)
        if not count:
            # Without this error, the loop would be endless.
            raise OSError(errno.EIO, "a write of at least one byte has written none, and reported no error")
        view, offset = view[count:], None if offset is None else offset + count


def size_of_device(path: Path) -> int:
    """Return the size of a block device in bytes. Raises OSError."""
    with opened(path) as descriptor:
        return os.lseek(descriptor, 0, os.SEEK_END)


def pieces_direct(path: Path, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield a device piece by piece, with offsets, as the device has it: opening it for each takes longer than reading.

    Raises OSError.
    """
    with opened(path, os.O_RDONLY | os.O_DIRECT) as descriptor, mmap.mmap(-1, size) as buffer:
        offset = 0
        while count := os.preadv(descriptor, [buffer], offset):
            yield offset, buffer[:count]
            offset += count


def read_direct(path: Path, offset: int, size: int) -> bytes:
    """Read bytes of a file or device with direct I/O. Fewer are returned at the end. Raises OSError."""
    start = offset // ALIGNMENT * ALIGNMENT
    span = -(-(offset + size - start) // ALIGNMENT) * ALIGNMENT
    # Direct I/O needs aligned memory, and mmap returns whole pages.
    with opened(path, os.O_RDONLY | os.O_DIRECT) as descriptor, mmap.mmap(-1, span) as buffer:
        count = os.preadv(descriptor, [buffer], start)
        return buffer[offset - start : min(offset - start + size, count)]
