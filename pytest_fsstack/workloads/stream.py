"""One big file, from one end to the other."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.needs import Tool
from pytest_fsstack.workloads.base import workload

if TYPE_CHECKING:
    from pytest_fsstack.measure import Timed
    from pytest_fsstack.stack import Built

_CHECKED_BLOCKS = 64


@workload(Tool("dd", "coreutils"))
def stream_write(
    timed: Timed,
    fsstack: Built,
    *,
    payload: Path | None = None,
    size: int = 100 << 20,
    block: int = 4096,
    cold: bool = True,
) -> None:
    """Write `size` bytes with ``dd``, `block` bytes at a time: zeros, or the start of the file `payload`.

    Zeros flatter a stack that compresses them away; take an incompressible payload beside them. It is read into the
    page cache before the clock starts. Afterwards the size and a sample of blocks are read back from the device and
    compared, and the file is removed. Raises `ValueError` where `size` is no multiple of `block` or more than the
    payload has.
    """
    if size <= 0 or size % block:
        raise ValueError(f"stream_write: {size} bytes are no multiple of blocks of {block} bytes")
    if payload is not None and payload.stat().st_size < size:
        raise ValueError(f"stream_write: {payload} has only {payload.stat().st_size} of {size} bytes")
    target = fsstack.path / "stream.bin"
    # Overwriting what a step before has left would be another workload.
    target.unlink(missing_ok=True)
    source = payload or Path("/dev/zero")
    with timed(bytes=size, cold=cold, preload=[payload] if payload else []):
        timed.run("dd", f"if={source}", f"of={target}", f"bs={block}", f"count={size // block}", "status=none")
    fsstack.remount()
    _verify(target, source, size, block)
    target.unlink()


def _verify(target: Path, source: Path, size: int, block: int) -> None:
    found = target.stat().st_size if target.exists() else None
    if found != size:
        raise AssertionError(
            f"stream_write: after a remount {target.name} "
            + ("is not there" if found is None else f"has {found:,} bytes instead of {size:,}")
        )
    blocks = size // block
    sample = random.Random(size).sample(range(blocks), min(blocks, _CHECKED_BLOCKS))
    with target.open("rb") as written, source.open("rb") as meant:
        for index in sorted({0, blocks - 1, *sample}):
            written.seek(index * block)
            meant.seek(index * block)
            if written.read(block) != meant.read(block):
                raise AssertionError(
                    f"stream_write: after a remount, the {block} bytes at {index * block:,} of {target.name} "
                    "are not the ones that were written"
                )
