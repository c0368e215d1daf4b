"""A tree of files on a stack, which takes the same calls as its model."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_fsstack.correctness.model import Facts, data, failure
from pytest_fsstack.machine import directories
from pytest_fsstack.machine.descriptors import opened, write_all
from pytest_fsstack.machine.libc import libc

_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2


def _fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    # Not os.posix_fallocate, which writes zeros where a filesystem cannot.
    if libc().fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        raise failure(ctypes.get_errno())


class Tree:
    """The same on a stack: a directory of its own, whose paths are relative to it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[int, int] = {}
        root.mkdir()

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path)

    def _open(self, path: str, flags: int = os.O_RDWR) -> contextlib.AbstractContextManager[int]:
        return opened(self._path(path), flags, 0o644)

    def create(self, path: str) -> None:
        with self._open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL) as fd:
            # Whatever the umask is.
            os.fchmod(fd, 0o644)

    def mkdir(self, path: str) -> None:
        os.mkdir(self._path(path))

    def rmdir(self, path: str) -> None:
        os.rmdir(self._path(path))

    def write(self, path: str, offset: int, length: int, fill: int) -> None:
        with self._open(path, os.O_RDWR | os.O_CREAT) as fd:
            write_all(fd, data(length, fill), offset)

    def append(self, path: str, length: int, fill: int) -> None:
        with self._open(path, os.O_WRONLY | os.O_APPEND) as fd:
            write_all(fd, data(length, fill))

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self._path(path), size)

    def read(self, path: str, offset: int, length: int) -> bytes:
        # For writing, so that it is the same for a directory.
        with self._open(path) as fd:
            return _read(fd, offset, length)

    def rename(self, old: str, new: str) -> None:
        os.rename(self._path(old), self._path(new))

    def link(self, old: str, new: str) -> None:
        os.link(self._path(old), self._path(new), follow_symlinks=False)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self._path(path))

    def unlink(self, path: str) -> None:
        os.unlink(self._path(path))

    def chmod(self, path: str, mode: int) -> None:
        with self._open(path) as fd:
            os.fchmod(fd, mode)

    def set_attribute(self, path: str, name: str, value: bytes) -> None:
        with self._open(path) as fd:
            os.setxattr(fd, f"user.{name}", value)

    def remove_attribute(self, path: str, name: str) -> None:
        with self._open(path) as fd:
            os.removexattr(fd, f"user.{name}")

    def write_mapped(self, path: str, offset: int, length: int, fill: int) -> int:
        with self._open(path) as fd:
            size = os.fstat(fd).st_size
            content = data(length, fill)[: max(0, size - offset)]
            if content:
                with mmap.mmap(fd, size, mmap.MAP_SHARED) as mapped:
                    mapped[offset : offset + len(content)] = content
                    mapped.flush()
            return len(content)

    def allocate(self, path: str, offset: int, length: int) -> None:
        with self._open(path) as fd:
            _fallocate(fd, 0, offset, length)

    def punch(self, path: str, offset: int, length: int) -> None:
        with self._open(path) as fd:
            _fallocate(fd, _FALLOC_KEEP_SIZE | _FALLOC_PUNCH_HOLE, offset, length)

    def fsync(self, path: str) -> None:
        with self._open(path) as fd:
            os.fsync(fd)

    def hold(self, slot: int, path: str) -> None:
        if slot in self._held:
            os.close(self._held.pop(slot))
        self._held[slot] = os.open(self._path(path), os.O_RDWR | os.O_CLOEXEC)

    def write_held(self, slot: int, offset: int, length: int, fill: int) -> bool:
        if slot in self._held:
            write_all(self._held[slot], data(length, fill), offset)
        return slot in self._held

    def truncate_held(self, slot: int, size: int) -> bool:
        if slot in self._held:
            os.ftruncate(self._held[slot], size)
        return slot in self._held

    def read_held(self, slot: int) -> tuple[int, bytes] | None:
        if slot not in self._held:
            return None
        status = os.fstat(self._held[slot])
        return status.st_nlink, _read(self._held[slot], 0, status.st_size + 1)

    def let_go(self) -> None:
        while self._held:
            os.close(self._held.popitem()[1])

    def everything(self) -> dict[str, Any]:
        numbers: dict[int, int] = {}
        return {path: self._facts(path, status, numbers) for path, status in sorted(self._walk(""))}

    def _walk(self, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        for name in os.listdir(self._path(prefix)):
            path = prefix + name
            status = os.lstat(self._path(path))
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                yield from self._walk(f"{path}/")

    def _facts(self, path: str, status: os.stat_result, numbers: dict[int, int]) -> Any:
        if stat.S_ISDIR(status.st_mode):
            return "directory"
        if stat.S_ISLNK(status.st_mode):
            return f"link to {os.readlink(self._path(path))}"
        number = numbers.setdefault(status.st_ino, len(numbers))
        with self._open(path, os.O_RDONLY) as fd:
            content = _read(fd, 0, status.st_size + 1)
            if len(content) != status.st_size:
                raise OSError(errno.EIO, f"{path} has {len(content):,} bytes, and its size is {status.st_size:,}")
            attributes = {}
            # A filesystem that has none says so.
            try:
                names = os.listxattr(fd)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
                names = []
            for name in names:
                if name.startswith("user."):
                    attributes[name.removeprefix("user.")] = os.getxattr(fd, name)
        return Facts(number, content, status.st_nlink, stat.S_IMODE(status.st_mode), attributes)

    def content(self, place: str | int) -> bytes | None:
        """Return the content of a file, by its path or by the slot that holds it. None if there is none."""
        if isinstance(place, int):
            file = self.read_held(place)
            return file[1] if file else None
        try:
            with self._open(place, os.O_RDONLY) as fd:
                return _read(fd, 0, os.fstat(fd).st_size + 1)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return None

    def remove(self) -> None:
        """Remove it, as far as that goes."""
        with contextlib.suppress(OSError):
            directories.remove(self._root)


def _read(fd: int, offset: int, length: int) -> bytes:
    parts = []
    while length and (part := os.pread(fd, length, offset)):
        parts.append(part)
        offset, length = offset + len(part), length - len(part)
    return b"".join(parts)
