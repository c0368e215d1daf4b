"""Filling a filesystem."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import verify_size
from pytest_fsstack.workloads.direct import sampled

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

_Content = Callable[[int], bytes]

_BLOCK = 1 << 20
#: The allowed deviation after a remount, in percent of the filesystem's space.
_TOLERANCE = 1.0


@workload()
def fill(
    timed: Timed,
    fsstack: Built,
    *,
    percent: float = 93.0,
    bytes: int | None = None,
    payload: Path | None = None,
    into: str = "filler.bin",
    cold: bool = True,
) -> None:
    """Write a filler file in blocks of 1 MiB, and keep it. It contains zeros, or the file `payload` repeatedly.

    With `percent`, write until the filesystem is that full. That is used space divided by used plus available space, as
    in ``df``, after a sync within the timed block. With `bytes`, write exactly so many. On a compressing stack, zeros
    need almost no space and never fill it. Use an incompressible payload or `bytes` instead, like the published
    measurements. The amount written and the fill level are recorded as ``filler``.

    Checked afterwards, from the device: the size, a sample of blocks, and the fill level. Raises `ValueError` for a
    payload of less than 1 MiB, and `FileExistsError` if `into` exists.
    """
    if not 0 < percent < 100:
        raise ValueError(f"fill: percent must be between 0 and 100 (got {percent:g})")
    if bytes is not None and bytes <= 0:
        raise ValueError(f"fill: bytes must be above 0 (got {bytes})")
    if payload is not None and payload.stat().st_size < _BLOCK:
        raise ValueError(f"fill: {payload} has less than 1 MiB")
    target = fsstack.path / into
    with payload.open("rb", buffering=0) if payload else contextlib.nullcontext() as source:
        content = _contents(source)
        # Opened inside, because a stack with open files cannot be made cold.
        with (
            timed(bytes=bytes, cold=cold, preload=[payload] if payload else []),
            target.open("xb", buffering=0) as filler,
        ):
            if bytes is None:
                size = _write_until(fsstack, filler.fileno(), content, percent)
            else:
                size = _write(filler.fileno(), content, 0, bytes)
        fsstack.remount()
        full = _percent(fsstack.path)
        timed.keep("filler", {"bytes": size, "percent": full})
        _verify(target, content, size)
    if bytes is None and abs(full - percent) > _TOLERANCE:
        raise AssertionError(f"fill: after a remount, the filesystem is {full:.1f} percent full instead of {percent:g}")


def _contents(payload: FileIO | None) -> _Content:
    """Return a function that gives a block of the filler by its index."""
    if payload is None:
        zeros = bytes(_BLOCK)
        return lambda index: zeros
    blocks = os.fstat(payload.fileno()).st_size // _BLOCK
    return lambda index: os.pread(payload.fileno(), _BLOCK, index % blocks * _BLOCK)


def _write(filler: int, content: _Content, start: int, end: int) -> int:
    """Write the filler from byte `start` (its current end) to byte `end`. Return `end`."""
    while start < end:
        index, within = divmod(start, _BLOCK)
        piece = memoryview(content(index))[within : within + end - start]
        try:
            start += os.write(filler, piece)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise AssertionError(f"fill: there was no space left after {start:,} of {end:,} bytes") from error
    return end


def _write_until(fsstack: Built, filler: int, content: _Content, percent: float) -> int:
    """Write until the filesystem is full to `percent`. Return the number of bytes."""
    size = 0
    limit = 2 * sum(_space(fsstack.path))
    while (missing := _missing(fsstack.path, percent)) > 0:
        if size >= limit:
            raise AssertionError(
                f"fill: {size:,} bytes made it only {_percent(fsstack.path):.1f} percent full: the stack compresses "
                "them. Use an incompressible payload, or bytes="
            )
        size = _write(filler, content, size, size + -(-missing // _BLOCK) * _BLOCK)
        # Unallocated data is not counted yet.
        fsstack.sync()
    return size


def _space(path: Path) -> tuple[int, int]:
    """Return the used bytes, and the bytes available to all users."""
    status = os.statvfs(path)
    return (status.f_blocks - status.f_bfree) * status.f_frsize, status.f_bavail * status.f_frsize


def _missing(path: Path, percent: float) -> int:
    used, available = _space(path)
    return int((used + available) * percent / 100) - used


def _percent(path: Path) -> float:
    used, available = _space(path)
    return 100 * used / (used + available)


def _verify(target: Path, content: _Content, size: int) -> None:
    verify_size(target, size, "fill: after a remount")
    with target.open("rb", buffering=0) as file:
        for index in sampled(size, _BLOCK):
            start = index * _BLOCK
            if os.pread(file.fileno(), _BLOCK, start) != content(index)[: size - start]:
                raise AssertionError(
                    f"fill: after a remount, the 1 MiB at {start:,} of {target.name} is not what was written"
                )
