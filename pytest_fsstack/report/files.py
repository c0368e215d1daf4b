"""Where reports are written: checked before anything is measured, and never a file that is only half there."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class ReportError(Exception):
    """A report cannot be written; the message says where and why, in one line."""


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
            if self.is_stream():
                if not os.access(self.path, os.W_OK):
                    raise PermissionError(0, "no permission to write")
                return
            with contextlib.ExitStack() as undo:
                descriptor, name = self._temporary()
                undo.callback(os.unlink, name)
                os.close(descriptor)
        except (OSError, ValueError) as error:
            raise ReportError(f"{self.report}={self.shown}: {_reason(error)}") from None

    def write(self, text: str) -> None:
        """Write the whole report, or leave what was there before. Raises `ReportError`.

        What UTF-8 cannot hold (a lone surrogate, of a name that is no text) is written as ``\\udcff``, which in JSON is
        how such a character is written anyway.
        """
        content = text.encode("utf-8", errors="backslashreplace")
        try:
            if self.is_stream():
                # Not truncated: behind /dev/stdout there may be a file with all that was printed so far.
                descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
                try:
                    _write_all(descriptor, content)
                finally:
                    os.close(descriptor)
                return
            self._replace(content)
        except (OSError, ValueError) as error:
            raise ReportError(f"{self.report}={self.shown}: not written: {_reason(error)}") from None

    def _replace(self, content: bytes) -> None:
        with contextlib.ExitStack() as undo:
            descriptor, name = self._temporary()
            undo.callback(os.unlink, name)
            try:
                _write_all(descriptor, content)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(name, os.path.realpath(self.path))
            undo.pop_all()

    def is_stream(self) -> bool:
        """Whether it is a pipe or a terminal, as /dev/stdout may be. Raises `OSError` if no report may replace it."""
        try:
            mode = os.stat(self.path).st_mode
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(0, "is a directory")
        if stat.S_ISBLK(mode):
            raise OSError(0, "is a block device")
        if stat.S_ISREG(mode) and not os.access(self.path, os.W_OK):
            raise PermissionError(0, "no permission to write")
        return not stat.S_ISREG(mode) or self.path.is_relative_to("/dev") or self.path.is_relative_to("/proc")

    def _temporary(self) -> tuple[int, str]:
        """An empty file beside the one that it will replace, with the mode and the owner that that one has."""
        # What a symbolic link leads to is replaced, not the link.
        target = os.path.realpath(self.path)
        # Not named after the report, whose name may be as long as a name can be.
        descriptor, name = tempfile.mkstemp(prefix=".fsstack-", dir=os.path.dirname(target))
        try:
            known = os.stat(target)
        except FileNotFoundError:
            os.fchmod(descriptor, 0o666 & ~_umask())
        else:
            os.fchmod(descriptor, stat.S_IMODE(known.st_mode))
            # Who may write into a file of somebody else's may not always give one away.
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, known.st_uid, known.st_gid)
        return descriptor, name


def check_all(files: Iterable[ReportFile]) -> None:
    """Check the files of all reports, before anything is measured. Raises `ReportError`."""
    taken: dict[str, str] = {}
    for file in files:
        file.check()
        if file.is_stream():
            continue
        target = os.path.realpath(file.path)
        if other := taken.get(target):
            raise ReportError(f"{file.report}={file.shown}: the report {other} is written to the same file")
        taken[target] = file.report


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
