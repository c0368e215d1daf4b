"""Files of reports: checked before the first round, and never half written."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_fsstack.machine.descriptors import opened, write_all
from pytest_fsstack.machine.directories import MOST_LINKS, HeldDirectory
from pytest_fsstack.report import ReportError


class _Target(NamedTuple):
    """A name in a directory that is held, so that no other user can lead it elsewhere."""

    directory: HeldDirectory
    name: str

    @property
    def path(self) -> Path:
        return self.directory.path / self.name

    @property
    def of_kernel(self) -> bool:
        """Whether it is one of the names that the kernel and the machine have for streams, links among them."""
        return self.path.is_relative_to("/dev") or self.path.is_relative_to("/proc")

    def is_stream(self) -> bool:
        """Whether it is a pipe or a terminal, as /dev/stdout may be. Raises `OSError` if no report may replace it."""
        try:
            mode = os.stat(self.name, dir_fd=self.directory.fileno(), follow_symlinks=self.of_kernel).st_mode
        except FileNotFoundError:
            return False
        _refuse(mode)
        if stat.S_ISREG(mode) and not os.access(self.path, os.W_OK):
            raise PermissionError(0, "no permission to write")
        return not stat.S_ISREG(mode) or self.of_kernel

    def append(self, content: bytes) -> None:
        """Write to a stream."""
        # Not truncated: behind /dev/stdout there may be a file with all that was printed so far.
        flags = os.O_WRONLY | os.O_APPEND | (0 if self.of_kernel else os.O_NOFOLLOW)
        with opened(self.name, flags, dir_fd=self.directory.fileno()) as descriptor:
            mode = os.fstat(descriptor).st_mode
            _refuse(mode)
            if stat.S_ISREG(mode) and not self.of_kernel:
                raise OSError(errno.ESTALE, "was exchanged while it was opened")
            write_all(descriptor, content)


def _refuse(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(0, "is a directory")
    if stat.S_ISBLK(mode):
        raise OSError(0, "is a block device")


@dataclass(frozen=True)
class ReportFile:
    """The file of one report: a temporary one beside it takes its place once it is whole."""

    report: str
    path: Path

    @property
    def shown(self) -> str:
        """The path for people, relative to the current directory; bytes that are no UTF-8 are escaped."""
        return os.fsencode(os.path.relpath(self.path)).decode(errors="backslashreplace")

    def check(self) -> None:
        """Try whether the file can be written, without touching it. Raises `ReportError`."""
        try:
            with self._target() as target:
                if not target.is_stream():
                    target.directory.check_replace(target.name)
                elif not os.access(self.path, os.W_OK):
                    raise PermissionError(0, "no permission to write")
        except (OSError, ValueError) as error:
            raise ReportError(f"{self.report}={self.shown}: {_reason(error)}") from None

    def write(self, text: str) -> None:
        """Write the whole report, or leave what was there before. Raises `ReportError`.

        What UTF-8 cannot hold (a lone surrogate, of a name that is no text) is written as ``\\udcff``, which in JSON is
        how such a character is written anyway.
        """
        content = text.encode("utf-8", errors="backslashreplace")
        try:
            with self._target() as target:
                if target.is_stream():
                    target.append(content)
                else:
                    target.directory.replace(target.name, content)
        except (OSError, ValueError) as error:
            raise ReportError(f"{self.report}={self.shown}: not written: {_reason(error)}") from None

    def begin(self) -> int:
        """Put an empty file in place of what was there; its descriptor. Raises OSError, also for a stream."""
        with self._target() as target:
            if target.is_stream():
                raise OSError(errno.EINVAL, "is no regular file")
            return target.directory.begin(target.name)

    def is_stream(self) -> bool:
        """Whether it is a pipe or a terminal, as /dev/stdout may be. Raises `OSError` if no report may replace it."""
        with self._target() as target:
            return target.is_stream()

    @contextlib.contextmanager
    def _target(self) -> Iterator[_Target]:
        """Hold what the path leads to, following only links that root or this user made. Raises `OSError`."""
        path = self.path.absolute()
        for _ in range(MOST_LINKS):
            with HeldDirectory.open(path.parent) as directory:
                target = _Target(directory, path.name)
                # What a symbolic link leads to is replaced, not the link.
                link = None if target.of_kernel else directory.link(path.name)
                if link is None:
                    yield target
                    return
            path = path.parent / link
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def check_all(files: Iterable[ReportFile]) -> None:
    """Check the files of all reports, before anything is measured. Raises `ReportError`."""
    reports: dict[str, str] = {}
    for file in files:
        file.check()
        if file.is_stream():
            continue
        target = os.path.realpath(file.path)
        if other := reports.get(target):
            raise ReportError(f"{file.report}={file.shown}: the report {other} is written to the same file")
        reports[target] = file.report


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
