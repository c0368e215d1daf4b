"""One big file: copied from memory, overwritten, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.block import seconds_of_dd
from pytest_fsstack.workloads.checks import verify_file

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


#: Without it, a source on the filesystem of the stack would share its extents with the copy.
_COPY = ("cp", "--reflink=never")


@workload(Tool("cp", "coreutils"))
def copy_file(timed: Timed, fsstack: Built, source: Path, *, into: str = "copy.bin") -> None:
    """Copy the file `source` with ``cp`` to the new file `into` of the stack.

    The source is read into the page cache before the clock starts. Checked afterwards, from the device: the size, and a
    sample of blocks. Raises `FileExistsError` if `into` exists.
    """
    target = fsstack.path / into
    if target.exists():
        raise FileExistsError(f"copy_file: {target} exists already. To write over it, use overwrite_file")
    size = source.stat().st_size
    with timed(bytes=size, preload=[source]):
        timed.run(*_COPY, source, target)
    fsstack.remount()
    verify_file(target, source, size, "copy_file: read back")


@workload(Tool("cp", "coreutils"), Tool("dd", "coreutils"))
def overwrite_file(
    timed: Timed, fsstack: Built, source: Path, *, into: str = "copy.bin", truncate: bool = True
) -> None:
    """Write the file `source` over `into`, which an earlier step has left.

    By default with ``cp``, which first truncates it and so frees its space. Without `truncate`, in place with ``dd
    conv=notrunc bs=1M``. Checked like `copy_file`. Use another source of the same size, so that the check can
    distinguish new from old contents. Raises `ValueError` if it should be written in place and has another size.
    """
    target, size = _existing(fsstack, into, "overwrite_file"), source.stat().st_size
    if not truncate and (existing := target.stat().st_size) != size:
        raise ValueError(
            f"overwrite_file: a file of {existing:,} bytes cannot be overwritten in place with {size:,} bytes"
        )
    with timed(bytes=size, preload=[source]):
        if truncate:
            timed.run(*_COPY, source, target)
        else:
            timed.run("dd", f"if={source}", f"of={target}", "bs=1M", "conv=notrunc", "status=none")
    fsstack.remount()
    verify_file(target, source, size, "overwrite_file: read back")


@workload(Tool("dd", "coreutils"))
def read_back(timed: Timed, fsstack: Built, *, file: str = "copy.bin", source: Path | None = None) -> None:
    """Read the file of an earlier step sequentially from cold caches, 128 KiB at a time.

    Afterwards, dd's own count is compared with the file's size. With `source`, the original of the file, the size and a
    sample of blocks are compared too.
    """
    target = _existing(fsstack, file, "read_back")
    size = target.stat().st_size
    with timed(bytes=size, direction="read"):
        # cat would leave no count, and need a pipe for one.
        result = timed.run("dd", f"if={target}", "of=/dev/null", "bs=128K", env=commands.ENGLISH)
    seconds_of_dd(result.stderr, size, "read_back")
    if source:
        verify_file(target, source, source.stat().st_size, "read_back: read back")


def _existing(fsstack: Built, name: str, step: str) -> Path:
    target = fsstack.path / name
    if not target.is_file():
        raise AssertionError(f"{step}: there is no file {name} on the stack. Has the step that writes it run?")
    return target
