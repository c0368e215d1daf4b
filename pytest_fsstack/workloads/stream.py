"""One big file, from one end to the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import hashes_of, verify_blocks

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


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
    # The cold start takes it from the caches as well.
    hashes = hashes_of(source, size, block)
    timed.reread()
    verify_blocks(target, hashes, size, "stream_write: read back", block)
    target.unlink()
