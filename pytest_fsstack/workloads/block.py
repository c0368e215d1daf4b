"""Sequential I/O with ``dd`` on a device or a file, with a chosen block size."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_fsstack.machine import commands, needs
from pytest_fsstack.machine.descriptors import size_of_device
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import verify_file
from pytest_fsstack.workloads.direct import DirectIO, differing, spoil

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

#: When ``dd`` itself syncs: at its end (fsync, fdatasync) or after each block (sync, dsync). fdatasync and dsync skip
#: metadata that is not needed for reading.
Sync = Literal["", "fsync", "fdatasync", "dsync", "sync"]

_ZEROS = Path("/dev/zero")
_FILE = "dd.bin"
_SUMMARY = re.compile(r"^(\d+) bytes? .*copied, ([\d.e+-]+) s", re.MULTILINE)


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
    source = _source(size, block, payload, "stream_write")
    target = fsstack.path / "stream.bin"
    # Overwriting what a step before has left would be another workload.
    target.unlink(missing_ok=True)
    with timed(bytes=size, cold=cold, preload=[payload] if payload else []):
        timed.run(*_words(source, target, size, block), "status=none")
    timed.reread()
    verify_file(target, source, size, "stream_write: read back", block)
    target.unlink()


@workload(Tool("dd", "coreutils"))
def dd_write(
    timed: Timed,
    fsstack: Built,
    *,
    payload: Path | None = None,
    size: int = 100 << 20,
    block: int = 64 << 10,
    direct: bool = True,
    sync: Sync = "",
    cold: bool = True,
) -> None:
    """Write `size` bytes with ``dd``, `block` bytes at a time: zeros, or the start of the file `payload`.

    If the stack ends in a block device, they go to its start. Otherwise they go to the new file dd.bin, which stays for
    `dd_read`. `direct` bypasses the page cache. The test is skipped if the stack does not support that. `sync` is how
    ``dd`` waits for the device. The timed block waits in any case. The metric ``dd_rate`` is the rate by ``dd``'s own
    clock. Afterwards, a sample of blocks is read from the device and compared. Raises `ValueError` if `size` is no
    multiple of `block`, or exceeds the payload or the device, or if `sync` is unknown.
    """
    source = _source(size, block, payload, "dd_write", fsstack.path)
    if direct:
        needs.require(DirectIO(fsstack.path))
    if fsstack.path.is_block_device():
        fsstack.check()
        spoil(fsstack.path, source, size, block)
    else:
        # Overwriting an older file would be another workload.
        _target(fsstack).unlink(missing_ok=True)
    with timed(bytes=size, cold=cold, preload=[payload] if payload else []):
        result = timed.run(*_words(source, _target(fsstack), size, block), *_output(direct, sync), env=commands.ENGLISH)
    timed.record("dd_rate", size / seconds_of_dd(result.stderr, size, "dd_write"), unit="B/s", better="higher")
    fsstack.remount()
    verify_file(_target(fsstack), source, size, "dd_write: after a remount", block)


@workload(Tool("dd", "coreutils"))
def dd_read(
    timed: Timed,
    fsstack: Built,
    *,
    payload: Path | None = None,
    size: int = 100 << 20,
    block: int = 64 << 10,
    direct: bool = True,
    prepare: bool = True,
    cold: bool = True,
) -> None:
    """Read `size` bytes with ``dd`` to /dev/null, `block` bytes at a time, as `dd_write` has written them.

    With `prepare`, zeros or the start of `payload` are written first, untimed. Otherwise, an earlier step must have
    written the same. `direct` and the metric ``dd_rate`` are as for `dd_write`. Afterwards, ``dd`` must have read
    `size` bytes, and a sample of blocks is compared. Raises `ValueError` like `dd_write`.
    """
    source = _source(size, block, payload, "dd_read", fsstack.path)
    if direct:
        needs.require(DirectIO(fsstack.path))
    if prepare:
        _prepare(fsstack, source, size, block)
    elif _lacks(_target(fsstack), size):
        raise AssertionError(f"dd_read: there are no {size:,} bytes in {_FILE}. Has the step that writes them run?")
    flags = ["iflag=direct"] if direct else []
    with timed(bytes=size, direction="read", cold=cold):
        result = timed.run(*_words(_target(fsstack), Path("/dev/null"), size, block), *flags, env=commands.ENGLISH)
    timed.record("dd_rate", size / seconds_of_dd(result.stderr, size, "dd_read"), unit="B/s", better="higher")
    verify_file(_target(fsstack), source, size, "dd_read", block)


def _source(size: int, block: int, payload: Path | None, step: str, device: Path | None = None) -> Path:
    """Return the data to write, after a check of the sizes."""
    if block <= 0 or size <= 0 or size % block:
        raise ValueError(f"{step}: {size} bytes are not a multiple of the block size of {block} bytes")
    if payload is not None and payload.stat().st_size < size:
        raise ValueError(f"{step}: {payload} has only {payload.stat().st_size} of {size} bytes")
    if device and device.is_block_device() and (room := size_of_device(device)) < size:
        raise ValueError(f"{step}: {device} has only {room} of {size} bytes")
    return payload or _ZEROS


def _target(fsstack: Built) -> Path:
    """Return the device or the file. Call it each time, because a remount may change the device's name."""
    return fsstack.path if fsstack.path.is_block_device() else fsstack.path / _FILE


def _lacks(target: Path, size: int) -> bool:
    return not target.is_block_device() and (not target.is_file() or target.stat().st_size != size)


def _words(source: Path, target: Path, size: int, block: int) -> list[str]:
    return ["dd", f"if={source}", f"of={target}", f"bs={block}", f"count={size // block}"]


def _output(direct: bool, sync: Sync) -> list[str]:
    """Return the output flags as one argument, because ``dd`` only uses the last one."""
    flags = [*(["direct"] if direct else []), *([sync] if sync in ("dsync", "sync") else [])]
    conversion = [f"conv={sync}"] if sync in ("fsync", "fdatasync") else []
    return [*([f"oflag={','.join(flags)}"] if flags else []), *conversion]


def _prepare(fsstack: Built, source: Path, size: int, block: int) -> None:
    target = _target(fsstack)
    if target.is_block_device():
        fsstack.check()
    elif not _lacks(target, size) and differing(target, source, size, block) is None:
        return
    commands.run(
        *("dd", f"if={source}", f"of={target}", "bs=1M", f"count={size}", "iflag=count_bytes,fullblock", "conv=fsync"),
        timeout=commands.DAY,
    )


def seconds_of_dd(output: str, size: int, step: str) -> float:
    """Return the seconds in the summary of ``dd``. Raises `AssertionError` if it did not copy `size` bytes."""
    match = _SUMMARY.search(output)
    if not match:
        raise AssertionError(f"{step}: cannot read dd's summary {output!r}")
    if int(match[1]) != size:
        raise AssertionError(f"{step}: dd copied {int(match[1]):,} bytes instead of {size:,}")
    # It prints six digits, so 0 means less than a microsecond.
    return max(float(match[2]), 1e-6)
