"""The reader of files that others may have made: results, settings, job files, kernels.

A user names such a file, but another user may have put something else in its place: a pipe that nobody writes to, a
device, an endless file, or a link. Everything outside of /proc, /sys and the session's own directories is read here
(`tests/unit/test_static.py` has the exceptions).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pytest_fsstack.machine import owners
from pytest_fsstack.machine.descriptors import closing
from pytest_fsstack.units import format_size

#: The largest settings, job file or manifest, in bytes.
SETTINGS = 16 << 20
#: The largest file with the results of one session, in bytes. A session of a day has less than a tenth of it.
RESULTS = 512 << 20
#: The largest history, in bytes: a thousand sessions of 2 MiB.
HISTORY = 2 << 30


def opened_regular(path: Path, *, trusted: bool = False) -> int:
    """Return a descriptor of a regular file, without waiting for anything. Raises OSError.

    Links of other users are not followed. With `trusted`, files that another user may change are refused.
    """
    try:
        place = owners.located(path, trusted=trusted)
    except FileNotFoundError:
        # A link of the kernel to a pipe, such as /dev/stdin, has a target without a path.
        if os.path.exists(path):
            raise _irregular(path) from None
        raise
    with closing(place):
        if not stat.S_ISREG(os.fstat(place).st_mode):
            raise _irregular(path)
        try:
            # Without O_NONBLOCK, another user's lease on the file would make this wait.
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def _irregular(path: Path) -> OSError:
    if path.is_dir():
        return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    return OSError(errno.EINVAL, "is not a regular file", os.fspath(path))


@contextmanager
def opened(path: Path, *, limit: int | None = None, trusted: bool = False) -> Iterator[BinaryIO]:
    """Open a regular file for reading in bytes. Raises OSError, also if it has more bytes than the limit."""
    with open(opened_regular(path, trusted=trusted), "rb") as file:
        if limit is not None and os.fstat(file.fileno()).st_size > limit:
            raise _too_large(path, limit)
        yield file


def read_bytes(path: Path, limit: int = SETTINGS) -> bytes:
    """Return the contents of a regular file of at most `limit` bytes. Raises OSError."""
    with opened(path, limit=limit) as file:
        # Reading into a buffer of the limit's size would take thrice the time.
        content = file.read(min(os.fstat(file.fileno()).st_size, limit) + 1)
        # The size that a file reports may be wrong, or grow meanwhile.
        content += file.read(limit + 1 - len(content))
    if len(content) > limit:
        raise _too_large(path, limit)
    return content


def read_text(path: Path, limit: int = SETTINGS, *, errors: str = "strict") -> str:
    """Return the text of a regular UTF-8 file of at most `limit` bytes. Raises OSError, UnicodeDecodeError."""
    return read_bytes(path, limit).decode("utf-8", errors)


def _too_large(path: Path, limit: int) -> OSError:
    return OSError(errno.EFBIG, f"is larger than {format_size(limit)}, so it is not read", os.fspath(path))
