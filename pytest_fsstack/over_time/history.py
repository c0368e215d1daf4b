"""Every run of a machine in a file of JSON Lines, to which ``--fsstack-history`` adds one.

A line is the results of one session, as `judging.saved` writes them. Several sessions may add at the same time, and a
line that a power cut left half written costs no other line.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_fsstack.judging import saved
from pytest_fsstack.judging.results import Results
from pytest_fsstack.machine.directories import HeldDirectory

#: How many bytes are read at once while the beginning of the last line is looked for.
_BLOCK = 1 << 16


class History(NamedTuple):
    """The runs of a file in the order in which they were added, and a sentence for each line that is none."""

    runs: list[Results]
    problems: list[str]


def file_of(directory: Path, machine: str | None) -> Path:
    """Return the file with the runs of a machine. Machines without an id share one."""
    return directory / f"{machine or 'unknown-machine'}.jsonl"


def aside_of(path: Path) -> Path:
    """Return the file for lines that a power cut left incomplete."""
    return path.with_suffix(".torn")


def append(path: Path, line: str) -> int:
    """Add a line, which is on the disk when this returns. Raises `OSError`, and then nothing was added.

    If the last line is not whole, its bytes are moved to the file of `aside_of`; returns how many these were. A link,
    and a file that holds something else than runs, is refused: another user may have put it there.
    """
    with (
        HeldDirectory.open(path.parent) as directory,
        _locked(directory, path.name, os.O_RDWR | os.O_APPEND | os.O_CREAT, fcntl.LOCK_EX) as descriptor,
    ):
        _refuse_other_files(descriptor, path)
        size = os.fstat(descriptor).st_size
        start = _start_of_last_line(descriptor, size)
        last = os.pread(descriptor, size - start, start)
        torn = last if last and not _is_whole(last) else b""
        if torn:
            _set_aside(directory, aside_of(path).name, torn, stat.S_IMODE(os.fstat(descriptor).st_mode))
            os.ftruncate(descriptor, start)
            size = start
        # Only the end of the line may be what is missing.
        lead = b"\n" if last and not torn and not last.endswith(b"\n") else b""
        content = lead + line.encode() + b"\n"
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, size)
            raise
        if size == 0:
            os.fsync(directory.fileno())
    return len(torn)


def read(path: Path) -> History:
    """The runs in a file; what is no run is told and left out. Raises `OSError`."""
    with open(path, "rb") as file:
        # A writer that has cut the last line off puts it aside before it goes on.
        fcntl.flock(file, fcntl.LOCK_SH)
        *lines, last = file.read().split(b"\n")
    content = History([], [])
    for number, line in enumerate([*lines, last] if last else lines, start=1):
        try:
            content.runs.append(saved.loads(line.decode("utf-8")))
        except ValueError as error:
            cut = last and number > len(lines)
            what = "was cut off" if cut else f"is no run: {error}"
            content.problems.append(f"{path.name}: line {number} is left out: it {what}")
    return content


class Pruned(NamedTuple):
    """The numbers of kept and removed runs, and of bytes of other lines that were set aside."""

    kept: int
    removed: int
    torn: int


def prune(path: Path, before: str) -> Pruned:
    """Remove the runs that began before a time in UTC by ISO 8601, and lines that are none.

    Raises `OSError`, and then the old file stays as it was.
    The other lines stay as they are, those of a newer version too, and runs of which no time is known. Another file
    takes the place of the old one once it is whole; who waits to add a line adds it there.
    """
    with (
        HeldDirectory.open(path.parent) as directory,
        _locked(directory, path.name, os.O_RDONLY, fcntl.LOCK_EX) as descriptor,
    ):
        _refuse_other_files(descriptor, path)
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            lines = [line for line in file.read().split(b"\n") if line]
        whole = [line for line in lines if _is_whole(line)]
        torn = b"\n".join(line for line in lines if not _is_whole(line))
        remaining = [line for line in whole if (_start(line) or before) >= before]
        if len(remaining) < len(lines):
            if torn:
                _set_aside(directory, aside_of(path).name, torn, stat.S_IMODE(os.fstat(descriptor).st_mode))
            directory.replace(path.name, b"".join(line + b"\n" for line in remaining))
            os.fsync(directory.fileno())
    return Pruned(len(remaining), len(whole) - len(remaining), len(torn))


def _start(line: bytes) -> str | None:
    start = json.loads(line).get("start")
    return start if isinstance(start, str) else None


@contextlib.contextmanager
def _locked(directory: HeldDirectory, name: str, flags: int, lock: int) -> Iterator[int]:
    """A descriptor of the file that has that name while it is locked; another may have taken its place meanwhile."""
    while True:
        descriptor = directory.open_file(name, flags, 0o666)
        try:
            fcntl.flock(descriptor, lock)
            if _is_still(directory, name, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_still(directory: HeldDirectory, name: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(directory.status_of(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _refuse_other_files(descriptor: int, path: Path) -> None:
    """Raise OSError for a file with lines, none of which is a run."""
    with open(os.dup(descriptor), "rb") as file:
        file.seek(0)
        lines = []
        for line in file:
            if _is_run(line):
                return
            lines += [line] if line.strip(b"\0\n") else []
    # After a power cut, the only line may be the beginning of a run.
    if lines and (len(lines) > 1 or lines[0].endswith(b"\n") or not lines[0].startswith(_BEGINNING[: len(lines[0])])):
        raise OSError(errno.EINVAL, f"{path} holds no run of pytest-fsstack, so nothing was written to it")


#: How every line begins.
_BEGINNING = b'{"'


def _is_run(line: bytes) -> bool:
    try:
        content = json.loads(line)
    except ValueError:
        return False
    return isinstance(content, dict) and isinstance(content.get("format"), int)


def _start_of_last_line(descriptor: int, size: int) -> int:
    """Return the beginning of the last line, complete or not. 0 if there is only one or none."""
    # The end of the last line is not the end of the one before it.
    end = size - 1
    while end > 0:
        start = max(0, end - _BLOCK)
        position = os.pread(descriptor, end - start, start).rfind(b"\n")
        if position >= 0:
            return start + position + 1
        end = start
    return 0


def _is_whole(line: bytes) -> bool:
    """Whether it is a JSON object; no beginning of one is one, nor are blocks of zeros that a power cut may leave."""
    try:
        return isinstance(json.loads(line.decode("utf-8")), dict)
    except ValueError:
        return False


def _set_aside(directory: HeldDirectory, name: str, torn: bytes, mode: int) -> None:
    """Add bytes to a file beside the history, which nobody may read who may not read the history."""
    descriptor = directory.open_file(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        if os.fstat(descriptor).st_nlink != 1:
            raise OSError(errno.EMLINK, f"{directory.path / name} has several names, so nothing was written to it")
        os.fchmod(descriptor, mode)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(torn if torn.endswith(b"\n") else torn + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.fsync(directory.fileno())
