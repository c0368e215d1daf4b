"""The history of a machine: a file of JSON Lines, to which ``--fsstack-history`` adds each run.

A line has the results of one session, in the format of `records.saved`. Several sessions may add lines at the same
time. A line that a power cut left incomplete does not damage others.
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

from pytest_fsstack.machine import commands, reading
from pytest_fsstack.machine.directories import HeldDirectory
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import Results
from pytest_fsstack.units import format_size

#: Bytes that are read at once in the search for the beginning of the last line.
_BLOCK = 1 << 16


class History(NamedTuple):
    """The runs of a file in the order in which they were added, and a sentence for each invalid line."""

    runs: list[Results]
    problems: list[str]


def file_of(directory: Path, machine: str | None) -> Path:
    """Return the file with the runs of a machine. Machines without an id share one."""
    return directory / f"{machine or 'unknown-machine'}.jsonl"


def aside_of(path: Path) -> Path:
    """Return the file for lines that a power cut left incomplete."""
    return path.with_suffix(".torn")


def append(path: Path, line: str) -> int:
    """Add a line and write it to the disk. Raises `OSError` if nothing was added.

    An incomplete last line is moved to the file of `aside_of`. Returns the number of moved bytes. Links and files with
    other contents are refused, because another user may have created them.
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
        # A complete last line may only lack its line break.
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
    """Return the runs in a file, with a message for each line that is no run. Raises `OSError`."""
    with reading.opened(path, limit=reading.HISTORY) as file:
        # A writer moves an incomplete last line before it releases its lock.
        _lock(file.fileno(), fcntl.LOCK_SH)
        *lines, last = file.read(reading.HISTORY).split(b"\n")
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
    """The numbers of kept and removed runs, and of moved bytes of incomplete lines."""

    kept: int
    removed: int
    torn: int


def prune(path: Path, before: str) -> Pruned:
    """Remove the runs that began before a time (UTC, ISO 8601), and move incomplete lines to the file of `aside_of`.

    Other lines stay as they are, including those of newer versions and runs without a known time. A new file replaces
    the old one once it is complete, and waiting writers continue with the new one. Raises `OSError` if the old file
    stays unchanged.
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
    """Yield a descriptor of the locked file. If another file replaces it before the lock is held, try again."""
    while True:
        descriptor = directory.open_file(name, flags, 0o666)
        try:
            if os.fstat(descriptor).st_size > reading.HISTORY:
                raise OSError(errno.EFBIG, f"is larger than {format_size(reading.HISTORY)}; prune it")
            _lock(descriptor, lock)
            if _is_still(directory, name, descriptor):
                yield descriptor
                return
        finally:
            os.close(descriptor)


#: Seconds to wait for another process that has locked a history.
_PATIENCE = 60.0


def _lock(descriptor: int, how: int) -> None:
    """Lock a file. Raises OSError if another process, which may be another user's, does not release it."""

    def locked() -> bool:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    if not commands.wait_until(locked, _PATIENCE):
        raise OSError(errno.EBUSY, f"another process has locked it for {_PATIENCE:g} s")


def _is_still(directory: HeldDirectory, name: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(directory.status_of(name), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _refuse_other_files(descriptor: int, path: Path) -> None:
    """Raise OSError for a file that has lines, but no run."""
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


#: The first bytes of each line.
_BEGINNING = b'{"'


def _is_run(line: bytes) -> bool:
    try:
        content = json.loads(line)
    except ValueError:
        return False
    return isinstance(content, dict) and isinstance(content.get("format"), int)


def _start_of_last_line(descriptor: int, size: int) -> int:
    """Return the beginning of the last line, complete or not. 0 if there is only one or none."""
    # Skip the line break at the end of the last line.
    end = size - 1
    while end > 0:
        start = max(0, end - _BLOCK)
        position = os.pread(descriptor, end - start, start).rfind(b"\n")
        if position >= 0:
            return start + position + 1
        end = start
    return 0


def _is_whole(line: bytes) -> bool:
    """Whether a line is a JSON object. The beginning of one is not, nor are zeros that a power cut may leave."""
    try:
        return isinstance(json.loads(line.decode("utf-8")), dict)
    except ValueError:
        return False


def _set_aside(directory: HeldDirectory, name: str, torn: bytes, mode: int) -> None:
    """Add bytes to a file beside the history, with the mode of the history."""
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
