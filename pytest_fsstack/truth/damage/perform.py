"""A program that performs operations on the stack, and marks the beginning of each in the log of the device.

``python perform.py DIRECTORY RECORDED SEED < OPERATIONS``. RECORDED is the file of the recorded device. OPERATIONS is
JSON. This is a process of its own because the control preloads a library (libeatmydata).
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import mmap
import os
import sys

MARK = "user.mark"


def content(seed: int, index: int, length: int) -> bytes:
    """Return the bytes that the operation of this number writes. They are unique."""
    return hashlib.shake_128(f"{seed}/{index}".encode()).digest(length)


_BY_NAME = {"unlink": os.unlink, "make directory": os.mkdir, "remove directory": os.rmdir}
_FLAGS = {
    **{"write": os.O_RDWR | os.O_CREAT, "sync directory": os.O_DIRECTORY, "sync all": os.O_DIRECTORY},
    **{"O_SYNC": os.O_SYNC, "O_DSYNC": os.O_DSYNC},
}


def act(kind: str, path: str, to: str, offset: int, data: bytes, how: str = "") -> None:
    """Perform one operation. Raises OSError."""
    if kind == "rename":
        os.rename(path, to)
        return
    if kind in _BY_NAME:
        _BY_NAME[kind](path)
        return
    descriptor = os.open(path, _FLAGS.get(kind, os.O_RDWR) | _FLAGS.get(how, 0) | os.O_CLOEXEC, 0o644)
    try:
        if how == "msync":
            with mmap.mmap(descriptor, 0) as mapping:
                mapping[offset : offset + len(data)] = data
                mapping.flush()
        elif kind == "write":
            count = os.pwrite(descriptor, data, offset)
            if count != len(data):
                raise OSError(errno.EIO, f"a short write, {count} of {len(data)} bytes", path)
        elif kind == "write back":
            # The kernel begins to write dirty pages of the file, and does not wait for them.
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            _SYNCS[how](descriptor)
    finally:
        os.close(descriptor)


def _syncfs(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(descriptor):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _sync(descriptor: int) -> None:
    os.sync()


_SYNCS = {"": os.fsync, "fsync": os.fsync, "fdatasync": os.fdatasync, "syncfs": _syncfs, "sync": _sync}


def main(directory: str, recorded: str, seed: int) -> None:
    """Perform the operations of stdin. Raises OSError."""
    operations = json.load(sys.stdin)
    for index, (kind, name, to, offset, length, how) in enumerate(operations):
        os.setxattr(recorded, MARK, str(index).encode())
        data = content(seed, index, length)
        act(kind, os.path.join(directory, name), os.path.join(directory, to), offset, data, how)
    os.setxattr(recorded, MARK, str(len(operations)).encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
