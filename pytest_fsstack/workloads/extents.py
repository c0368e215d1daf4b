"""Extents of a file on its device, from FIEMAP (Documentation/filesystems/fiemap.rst)."""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine.descriptors import opened

_FS_IOC_FIEMAP = 0xC020660B
#: Sync the file first, so that all of it is allocated.
_FLAG_SYNC = 1
_EXTENT_LAST = 1
_HEADER = struct.Struct("=QQIIII")
_EXTENT = struct.Struct("=QQQQQIIII")
_AT_ONCE = 512


@dataclass(frozen=True)
class Extent:
    """An extent in bytes: its offset in the file, its offset on the device, and its length."""

    logical: int
    physical: int
    length: int


def extents(path: Path) -> list[Extent]:
    """Return the extents of a file in order. Raises OSError, with ``EOPNOTSUPP`` if the filesystem has no FIEMAP."""
    pieces: list[Extent] = []
    with opened(path) as descriptor:
        start, last = 0, False
        while not last:
            request = bytearray(_HEADER.size + _AT_ONCE * _EXTENT.size)
            _HEADER.pack_into(request, 0, start, (1 << 64) - 1 - start, _FLAG_SYNC, 0, _AT_ONCE, 0)
            fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, request)
            count = _HEADER.unpack_from(request)[3]
            last = not count
            for index in range(count):
                fields = _EXTENT.unpack_from(request, _HEADER.size + index * _EXTENT.size)
                pieces.append(Extent(*fields[:3]))
                start, last = fields[0] + fields[2], bool(fields[5] & _EXTENT_LAST)
    return pieces


def fragments(pieces: Iterable[Extent]) -> int:
    """Count the contiguous ranges on the device. Filesystems split long ones into several extents."""
    count, end = 0, -1
    for extent in pieces:
        count += extent.physical != end
        end = extent.physical + extent.length
    return count
