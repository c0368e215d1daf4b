"""One big file: copied from memory, written over, and read back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import verify_file

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


@workload(Tool("cp", "coreutils"))
def copy_file(timed: Timed, fsstack: Built, source: Path, *, into: str = "copy.bin") -> None:
    """Copy the file `source` with ``cp`` to the new file `into` of the stack.

    It is read into the page cache before the clock starts. Afterwards, from the device: its size, and a sample of
    blocks. Raises `FileExistsError` where `into` is there already.
    """
    target = fsstack.path / into
    if target.exists():
        raise FileExistsError(f"copy_file: {target} is there already; overwrite_file writes over it")
    size = source.stat().st_size
    with timed(bytes=size, preload=[source]):
        timed.run("cp", source, target)
    fsstack.remount()
    verify_file(target, source, size, "copy_file: read back")


@workload(Tool("cp", "coreutils"), Tool("dd", "coreutils"))
def overwrite_file(
    timed: Timed, fsstack: Built, source: Path, *, into: str = "copy.bin", truncate: bool = True
) -> None:
    """Write the file `source` over `into`, which an earlier step has left.

    With ``cp``, which truncates it first, so that its space is free before it is written anew; without `truncate`, in
    place with ``dd conv=notrunc bs=1M``. Checked as in `copy_file`: take another source of the same size to be sure
    that what is there is not what was there before. Raises `ValueError` where it is to be written in place and has
    another size.
    """
    target, size = _existing(fsstack, into, "overwrite_file"), source.stat().st_size
    if not truncate and (existing := target.stat().st_size) != size:
        raise ValueError(f"overwrite_file: in place, {existing:,} bytes cannot become {size:,}")
    with timed(bytes=size, preload=[source]):
        if truncate:
            timed.run("cp", source, target)
        else:
            timed.run("dd", f"if={source}", f"of={target}", "bs=1M", "conv=notrunc", "status=none")
    fsstack.remount()
    verify_file(target, source, size, "overwrite_file: read back")


@workload(Tool("dd", "coreutils"))
def read_back(timed: Timed, fsstack: Built, *, file: str = "copy.bin", source: Path | None = None) -> None:
    """Read the file that an earlier step has left from one end to the other, from cold caches, 128 KiB at a time.

    Afterwards dd's own count is compared with the file's size; and where `source` says what the file is a copy of, its
    size and a sample of blocks with that.
    """
    target = _existing(fsstack, file, "read_back")
    size = target.stat().st_size
    with timed(bytes=size, direction="read"):
        # To be counted, and not through a pipe: cat would leave no count, and write its output somewhere.
        result = timed.run("dd", f"if={target}", "of=/dev/null", "bs=128K")
    match = re.search(r"^(\d+) bytes? ", result.stderr, re.MULTILINE)
    if not match or int(match[1]) != size:
        raise AssertionError(f"read_back: dd read {match[1] if match else 'no'} of {size} bytes of {file}")
    if source:
        verify_file(target, source, source.stat().st_size, "read_back: read back")


def _existing(fsstack: Built, name: str, step: str) -> Path:
    target = fsstack.path / name
    if not target.is_file():
        raise AssertionError(f"{step}: there is no file {name} on the stack; has the step that makes it run?")
    return target
