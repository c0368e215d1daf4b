"""Report files: checked before the first round, and replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_fsstack.machine.descriptors import closing, write_all
from pytest_fsstack.machine.directories import HeldDirectory
from pytest_fsstack.machine.owners import MAX_LINKS
from pytest_fsstack.report import ReportError


class _Target(NamedTuple):
    """A name in an open directory, so that no other user can redirect it."""

    directory: HeldDirectory
    name: str

    @property
    def path(self) -> Path:
        return self.directory.path / self.name

    @property
    def of_kernel(self) -> bool:
        """Whether it is a stream name or link of the kernel, below /dev or /proc. Files in /dev/shm are none."""
        tops = "/dev", "/proc"
        device = os.fstat(self.directory.fileno()).st_dev
        return any(map(self.path.is_relative_to, tops)) and device in [os.stat(top).st_dev for top in tops]

    def is_stream(self) -> bool:
        """Whether it is a pipe or a terminal, like /dev/stdout. Raises `OSError` if it must not be replaced."""
        try:
            mode = os.stat(self.name, dir_fd=self.directory.fileno(), follow_symlinks=self.of_kernel).st_mode
        except FileNotFoundError:
            return False
        _refuse(mode)
        if stat.S_ISREG(mode) and not os.access(self.path, os.W_OK):
            raise PermissionError(0, "no permission to write")
        return not stat.S_ISREG(mode) or self.of_kernel

    def append(self, content: bytes) -> None:
        """Append to a stream."""
        # Without O_TRUNC: /dev/stdout may be a file that holds earlier output. A pipe without a reader is an error.
        flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | (0 if self.of_kernel else os.O_NOFOLLOW)
        try:
            opening = os.open(self.name, flags | os.O_CLOEXEC, dir_fd=self.directory.fileno())
        except OSError as error:
            raise OSError(errno.ENXIO, "nobody reads this pipe") if error.errno == errno.ENXIO else error from None
        with closing(opening) as descriptor:
            mode = os.fstat(descriptor).st_mode
            _refuse(mode)
            os.set_blocking(descriptor, True)
            if stat.S_ISREG(mode) and not self.of_kernel:
                raise OSError(errno.ESTALE, "was exchanged while it was opened")
            write_all(descriptor, content)
            # /dev/stdout may be a file, into which this process goes on to write at its own offset.
            for stream in (1, 2) if stat.S_ISREG(mode) else ():
                with contextlib.suppress(OSError):  # it is closed
                    if os.path.sameopenfile(descriptor, stream):
                        os.lseek(stream, 0, os.SEEK_END)


def _refuse(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(0, "is a directory")
    if stat.S_ISBLK(mode):
        raise OSError(0, "is a block device")


@dataclass(frozen=True)
class ReportFile:
    """The file of a report. It is written to a temporary file, which then replaces it."""

    report: str
    path: Path

    @property
    def shown(self) -> str:
        """Return the path for messages: relative if it is in the current directory, with non-UTF-8 bytes escaped."""
        path = os.path.relpath(self.path) if self.path.is_relative_to(Path.cwd()) else self.path
        return os.fsencode(path).decode(errors="backslashreplace")

    def check(self) -> None:
        """Check that the file is writable, without touching it. Raises `ReportError`."""
        try:
            with self._target() as target:
                if not target.is_stream():
                    target.directory.check_replace(target.name)
                elif not os.access(self.path, os.W_OK):
                    raise PermissionError(0, "no permission to write")
        except (OSError, ValueError) as error:
            raise ReportError(f"{self.report}={self.shown}: {_reason(error)}") from None

    def write(self, text: str) -> None:
        """Write the whole report, or keep the old file. Raises `ReportError`.

        Lone surrogates (of file names that are not UTF-8) are written as ``\\udcff``, which is valid in JSON.
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
        """Replace the file by an empty one, and return its descriptor. Raises OSError, also for a stream."""
        with self._target() as target:
            if target.is_stream():
                raise OSError(errno.EINVAL, "is no regular file")
            return target.directory.begin(target.name)

    def is_stream(self) -> bool:
        """Whether it is a pipe or a terminal, like /dev/stdout. Raises `OSError` if it must not be replaced."""
        with self._target() as target:
            return target.is_stream()

    @contextlib.contextmanager
    def _target(self) -> Iterator[_Target]:
        """Open the target's directory, following only links of root or this user. Raises `OSError`."""
        path = self.path.absolute()
        for _ in range(MAX_LINKS):
            with HeldDirectory.open(path.parent) as directory:
                target = _Target(directory, path.name)
                # Replace the target of a symbolic link, not the link.
                link = None if target.of_kernel else directory.link(path.name)
                if link is None:
                    yield target
                    return
            path = path.parent / link
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def check_all(files: Iterable[ReportFile]) -> None:
    """Check all report files before anything is measured. Raises `ReportError`."""
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
