"""System calls in a directory, each a method of `Side`.

This file imports nothing of the package, because counterexamples are scripts with parts of its source.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import pickle
import stat
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.opendir.restype = LIBC.readdir64.restype = ctypes.c_void_p
LIBC.telldir.restype = ctypes.c_long
MODES = {"KEEP_SIZE": 1, "PUNCH_HOLE": 3, "COLLAPSE_RANGE": 8, "ZERO_RANGE": 16, "INSERT_RANGE": 32}
#: The range, in seconds, of times that come from the clock. Times outside of it were set by utimens.
CLOCK = (1_600_000_000, 1 << 31)
#: The size above which only parts of a file are compared, and the size of a part, in bytes.
WHOLE, PART = 1 << 20, 1 << 16
LONG = "-".ljust(60, "x")


def data(length: int, fill: int) -> bytes:
    """Return bytes that differ for each `fill` below 251 and from block to block. A `fill` of 251 means zeros."""
    if fill == 251:
        return bytes(length)
    period = bytes(range(251))
    start = fill % 251
    return (period * (length // 251 + 2))[start : start + length]


def check(result: int) -> int:
    """Raise the error of a function of the C library."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


class Side:
    """A directory with open files, in numbered slots. Each call returns its answer or raises OSError.

    `device` is the name of the block device that stores the directory, if it is known.
    """

    def __init__(self, root: str, device: str = "") -> None:
        self.root, self.device = root, device
        self.slots: dict[int, int] = {}
        self.mappings: dict[int, mmap.mmap] = {}
        #: The last known ctime of each path, in nanoseconds.
        self.changes: dict[str, int] = {}

    def at(self, path: str) -> str:
        return f"{self.root}/{path or '.'}"

    def fd(self, slot: int) -> int:
        if slot not in self.slots:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self.slots[slot]

    def fd_of_file(self, slot: int) -> int:
        """Return a descriptor. Refuse that of a directory, because filesystems choose the sizes of directories."""
        if stat.S_ISDIR(os.fstat(self.fd(slot)).st_mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        return self.slots[slot]

    @contextlib.contextmanager
    def opened(self, path: str, flags: int) -> Iterator[int]:
        """Open a file, and close it. Closing may fail without space."""
        fd = os.open(self.at(path), flags, 0o644)
        try:
            yield fd
        finally:
            with contextlib.suppress(OSError):
                os.close(fd)

    def let_go(self) -> None:
        """Close all mappings and files, also after one that cannot be closed. Raises its OSError."""
        while self.mappings:
            self.mappings.popitem()[1].close()
        with contextlib.ExitStack() as stack:
            for slot in self.slots:
                stack.callback(self.close, slot)

    # -- open files ----------------------------------------------------------------------------------------------------

    def open(self, slot: int, path: str, flags: str, mode: int) -> None:
        """Open a file in a slot, and close the file that it had. `flags` are names such as "RDWR CREAT"."""
        if slot in self.slots:
            self.close(slot)
        number = sum(getattr(os, f"O_{flag}") for flag in flags.split())
        self.slots[slot] = os.open(self.at(path), number, mode)

    def close(self, slot: int) -> None:
        fd = self.fd(slot)
        del self.slots[slot]
        os.close(fd)

    def pread(self, slot: int, offset: int, length: int) -> bytes:
        return os.pread(self.fd(slot), length, offset)

    def pwrite(self, slot: int, offset: int, length: int, fill: int) -> int:
        return os.pwrite(self.fd(slot), data(length, fill), offset)

    def read(self, slot: int, length: int) -> bytes:
        return os.read(self.fd(slot), length)

    def write(self, slot: int, length: int, fill: int) -> int:
        return os.write(self.fd(slot), data(length, fill))

    def preadv(self, slot: int, offset: int, length: int) -> bytes:
        parts = [bytearray(length), bytearray(length)]
        count = os.preadv(self.fd(slot), parts, offset)
        return bytes(parts[0] + parts[1])[:count]

    def pwritev(self, slot: int, how: str, offset: int, length: int, fill: int) -> int:
        """Write two buffers. `how` is APPEND, DSYNC, SYNC or empty."""
        flag = getattr(os, f"RWF_{how}") if how else 0
        return os.pwritev(self.fd(slot), [data(length, fill), data(length, fill + 1)], offset, flag)

    def lseek(self, slot: int, whence: str, offset: int) -> int:
        return os.lseek(self.fd_of_file(slot), offset, getattr(os, f"SEEK_{whence}"))

    def seek_data(self, slot: int, offset: int) -> str:
        """Seek data and a hole from an offset on. Return "right" if the hole before the data has only zeros."""
        fd = self.fd_of_file(slot)
        size = os.fstat(fd).st_size
        try:
            start = os.lseek(fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO or offset >= size:
                raise
            start = size
        end = os.lseek(fd, offset, os.SEEK_HOLE)
        os.lseek(fd, 0, os.SEEK_SET)
        parts = {offset, max(offset, start - PART)}
        if not offset <= start <= size or not offset <= end <= size:
            return "outside of the file"
        if any(os.pread(fd, min(PART, start - part), part).strip(b"\0") for part in parts):
            return "data in a hole"
        return "right"

    def truncate(self, path: str, size: int) -> None:
        os.truncate(self.at(path), size)

    def ftruncate(self, slot: int, size: int) -> None:
        os.ftruncate(self.fd(slot), size)

    def fallocate(self, slot: int, how: str, offset: int, length: int) -> None:
        mode = 0
        for name in how.split():
            mode |= MODES[name]
        check(LIBC.fallocate(self.fd(slot), mode, ctypes.c_long(offset), ctypes.c_long(length)))

    def copy_file_range(self, source: int, offset: int, slot: int, to: int, length: int) -> int:
        copied = 0
        while copied < length:
            count = os.copy_file_range(self.fd(source), self.fd(slot), length - copied, offset + copied, to + copied)
            if not count:
                break
            copied += count
        return copied

    def other(self, slot: int, source: int) -> None:
        """Refuse two slots of one file, in which the kernel may read bytes that it has just written."""
        if os.path.samestat(os.fstat(self.fd(slot)), os.fstat(self.fd(source))):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def sendfile(self, source: int, offset: int, slot: int, length: int) -> int:
        self.other(slot, source)
        return os.sendfile(self.fd(slot), self.fd(source), offset, length)

    def splice(self, source: int, offset: int, slot: int, to: int, length: int) -> int:
        """Move at most 64 KiB to another file through a pipe."""
        self.other(slot, source)
        reading, writing = os.pipe()
        try:
            count = os.splice(self.fd(source), writing, min(length, PART), offset_src=offset)
            return os.splice(reading, self.fd(slot), count, offset_dst=to) if count else 0
        finally:
            os.close(reading)
            os.close(writing)

    def mmap_write(self, slot: int, offset: int, length: int, fill: int) -> int:
        """Write through a shared mapping, up to the end of the file, and msync it."""
        fd = self.fd_of_file(slot)
        content = data(length, fill)[: max(0, os.fstat(fd).st_size - offset)]
        start = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        if content:
            with mmap.mmap(fd, offset - start + len(content), offset=start) as mapping:
                mapping[offset - start :] = content
                mapping.flush()
        return len(content)

    def mmap_read(self, slot: int, offset: int, length: int) -> bytes:
        fd = self.fd_of_file(slot)
        length = min(length, os.fstat(fd).st_size - offset)
        start = offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        if length <= 0:
            return b""
        with mmap.mmap(fd, offset - start + length, prot=mmap.PROT_READ, offset=start) as mapping:
            return mapping[offset - start :]

    def map(self, slot: int) -> None:
        """Map the whole file, and keep the mapping."""
        if not os.fstat(self.fd_of_file(slot)).st_size:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.mappings[slot] = mmap.mmap(self.fd(slot), 0)

    def map_write(self, slot: int, offset: int, length: int, fill: int) -> int:
        """Write to the mapping of `map`, without msync."""
        content = data(length, fill)[: max(0, len(self.mappings.get(slot, b"")) - offset)]
        if content:
            self.mappings[slot][offset : offset + len(content)] = content
        return len(content)

    def map_read(self, slot: int, offset: int, length: int) -> bytes:
        return self.mappings[slot][offset : offset + length] if slot in self.mappings else b""

    # -- names ---------------------------------------------------------------------------------------------------------

    def rename(self, old: str, new: str) -> None:
        os.rename(self.at(old), self.at(new))

    def renameat2(self, old: str, new: str, how: str) -> None:
        """Rename with RENAME_NOREPLACE or RENAME_EXCHANGE."""
        flag = {"NOREPLACE": 1, "EXCHANGE": 2}[how]
        check(LIBC.renameat2(-100, os.fsencode(self.at(old)), -100, os.fsencode(self.at(new)), flag))

    def link(self, old: str, new: str) -> None:
        os.link(self.at(old), self.at(new), follow_symlinks=False)

    def link_fd(self, slot: int, new: str) -> None:
        """Give an open file a name."""
        fd = self.fd(slot)
        os.link(f"/proc/self/fd/{fd}", self.at(new), src_dir_fd=fd, follow_symlinks=True)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, self.at(path))

    def readlink(self, path: str) -> str:
        return os.readlink(self.at(path))

    def unlink(self, path: str) -> None:
        os.unlink(self.at(path))

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self.at(path), mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self.at(path))

    def make_names(self, path: str, count: int) -> None:
        """Create empty files in a directory."""
        for number in range(count):
            os.close(os.open(self.at(f"{path}/{number:04}{LONG}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))

    def entries(self, directory: int, limit: int = 5000) -> Iterator[str]:
        """Yield names and types, such as "a DIR", from an open directory. A listing may have no end."""
        while limit and (entry := LIBC.readdir64(ctypes.c_void_p(directory))):
            kind = ctypes.c_ubyte.from_address(entry + 18).value
            name = os.fsdecode(ctypes.string_at(entry + 19))
            # libfuse renames unlinked files that are still open in this way.
            if name not in (".", "..") and not name.startswith(".fuse_hidden"):
                limit -= 1
                if kind == 0:  # a filesystem need not say it (readdir(3))
                    with contextlib.suppress(FileNotFoundError):
                        kind = os.lstat(name, dir_fd=LIBC.dirfd(ctypes.c_void_p(directory))).st_mode >> 12
                yield f"{name} {'DIR' if kind == 4 else 'LNK' if kind == 10 else 'REG'}"

    @contextlib.contextmanager
    def opendir(self, path: str) -> Iterator[int]:
        directory = LIBC.opendir(os.fsencode(self.at(path)))
        if not directory:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            yield directory
        finally:
            LIBC.closedir(ctypes.c_void_p(directory))

    def readdir(self, path: str) -> list[str]:
        with self.opendir(path) as directory:
            return sorted(self.entries(directory))

    def readdir_twice(self, path: str, count: int) -> list[str]:
        """List `count` names, then the others. Seek back with telldir and seekdir, and list the others again."""
        with self.opendir(path) as directory:
            begin = list(self.entries(directory, count))
            place = LIBC.telldir(ctypes.c_void_p(directory))
            end = list(self.entries(directory))
            LIBC.seekdir(ctypes.c_void_p(directory), ctypes.c_long(place))
            repeated = list(self.entries(directory))
            return [*sorted(begin + end), "as before" if end == repeated else f"{len(repeated)} of {len(end)} again"]

    def readdir_removing(self, path: str, count: int) -> list[str]:
        """List `count` names, remove every second file of `make_names`, list on. Return the names not removed."""
        with self.opendir(path) as directory:
            names = list(self.entries(directory, count))
            for number in range(1, 1000, 2):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.at(f"{path}/{number:04}{LONG}"))
            names += self.entries(directory)
            return sorted(name for name in names if not name[:4].isdigit() or int(name[:4]) % 2 == 0)

    # -- attributes ----------------------------------------------------------------------------------------------------

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.at(path), mode)

    def fchmod(self, slot: int, mode: int) -> None:
        os.fchmod(self.fd(slot), mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        os.lchown(self.at(path), uid, gid)

    def umask(self, mask: int) -> None:
        os.umask(mask)

    def access(self, path: str, how: str) -> bool:
        return os.access(self.at(path), sum(getattr(os, f"{letter}_OK") for letter in how))

    def utimens(self, path: str, atime: int, mtime: int) -> str:
        """Set times, in nanoseconds, and return them as the filesystem stores them."""
        os.utime(self.at(path), ns=(atime, mtime), follow_symlinks=False)
        status = os.lstat(self.at(path))
        return f"{status.st_atime_ns} {status.st_mtime_ns}"

    def utime_one(self, path: str, which: str, how: str) -> str:
        """Set both times, then one alone, to a time (SET) or to the present (NOW). Return the times in seconds."""
        times = [10**9, 10**9 + 1000]
        os.utime(self.at(path), (times[0], times[1]), follow_symlinks=False)
        omitted, chosen = (0, (1 << 30) - 2), (10**9 + 2000, 0) if how == "SET" else (0, (1 << 30) - 1)
        both = (chosen, omitted) if which == "atime" else (omitted, chosen)
        check(LIBC.utimensat(-100, os.fsencode(self.at(path)), struct.pack("4q", *both[0], *both[1]), 0x100))
        status = os.lstat(self.at(path))
        actual = [int(status.st_atime), int(status.st_mtime)]
        return " ".join("now" if CLOCK[0] < seconds < CLOCK[1] else str(seconds) for seconds in actual)

    def access_time(self, path: str, how: str) -> str:
        """Set a time of access in the future, act on a file, and return if that time is "kept".

        Reading may set the current time. A mount decides whether it does.
        """
        set_ns = 2 * 10**18
        os.utime(self.at(path), ns=(set_ns, set_ns))
        if how == "chmod":
            os.chmod(self.at(path), 0o640)
        else:
            with self.opened(path, os.O_RDONLY if how == "read" else os.O_WRONLY) as fd:
                {"read": os.read, "write": lambda fd, _: os.write(fd, b"1"), "truncate": os.ftruncate}[how](fd, 10)
        actual = os.stat(self.at(path)).st_atime_ns
        recent = how == "read" and abs(actual - time.time_ns()) < 10**12
        return "kept" if actual == set_ns or recent else f"{actual} after {how}"

    def status(self, path: str, what: str) -> int:
        """Return the size, mode or nlink of a path."""
        return int(getattr(os.lstat(self.at(path)), f"st_{what}"))

    def mtime(self, path: str) -> str:
        """Return the time of modification if it was set, otherwise "now"."""
        status = os.lstat(self.at(path))
        return "now" if CLOCK[0] < status.st_mtime < CLOCK[1] else str(status.st_mtime_ns)

    def ctime(self, path: str) -> str:
        """Return "changed" if the ctime of a path differs from that of the last call, otherwise "as before"."""
        before, now = self.changes.get(path), os.lstat(self.at(path)).st_ctime_ns
        self.changes[path] = now
        return "as before" if before == now else "changed"

    def setxattr(self, path: str, name: str, length: int, fill: int, how: str) -> None:
        """Set an attribute. `how` is CREATE, REPLACE or empty."""
        os.setxattr(self.at(path), name, data(length, fill), getattr(os, f"XATTR_{how}") if how else 0)

    def getxattr(self, path: str, name: str) -> bytes:
        return os.getxattr(self.at(path), name)

    def listxattr(self, path: str) -> list[str]:
        return sorted(name for name in os.listxattr(self.at(path)) if name.endswith(".x") or name.endswith(".y"))

    def removexattr(self, path: str, name: str) -> None:
        os.removexattr(self.at(path), name)

    def setacl(self, path: str, kind: str, digits: str) -> None:
        """Set an access or default ACL. `digits` are the permissions of owner, user 1000, group, mask and others."""
        tags = ((1, -1), (2, 1000), (4, -1), (16, -1), (32, -1))
        entries = [struct.pack("<HHI", tag, int(digit), who & 0xFFFFFFFF) for (tag, who), digit in zip(tags, digits)]
        os.setxattr(self.at(path), f"system.posix_acl_{kind}", struct.pack("<I", 2) + b"".join(entries))

    # -- locks ---------------------------------------------------------------------------------------------------------

    def flock(self, slot: int, how: str) -> None:
        fcntl.flock(self.fd(slot), getattr(fcntl, f"LOCK_{how}") | fcntl.LOCK_NB)

    def lock(self, slot: int, owner: str, how: str, offset: int, length: int) -> None:
        """Lock or unlock bytes for a process (POSIX) or an open file (OFD). `how` is RDLCK, WRLCK or UNLCK."""
        command = {"POSIX": fcntl.F_SETLK, "OFD": 37}[owner]
        kind = getattr(fcntl, f"F_{how}")
        fcntl.fcntl(self.fd(slot), command, struct.pack("hhqqi4x", kind, os.SEEK_SET, offset, length, 0))

    # -- the filesystem ------------------------------------------------------------------------------------------------

    def fsync(self, slot: int) -> None:
        os.fsync(self.fd(slot))

    def fdatasync(self, slot: int) -> None:
        os.fdatasync(self.fd(slot))

    def syncfs(self, slot: int) -> None:
        check(LIBC.syncfs(self.fd(slot)))

    def sectors(self) -> int:
        """Return the number of sectors that were written to the device."""
        with open(f"/sys/class/block/{self.device}/stat") as file:
            return int(file.read().split()[6])

    def synced(self, path: str, how: str, fill: int) -> str:
        """Write and sync a new file, or create one and sync its directory. Return if sectors reached the device."""
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | {"O_SYNC": os.O_SYNC, "O_DSYNC": os.O_DSYNC}.get(how, 0)
        before = self.sectors() if self.device else -1
        with self.opened(path, flags) as fd:
            if how == "directory":
                with self.opened(os.path.dirname(path), os.O_RDONLY) as directory:
                    os.fsync(directory)
            else:
                os.write(fd, data(8192, fill))
                {"fsync": os.fsync, "fdatasync": os.fdatasync}.get(how, int)(fd)
            reached = not self.device or self.sectors() > before
        return "written" if reached else "nothing reached the device"

    def used(self, path: str) -> str:
        """Write 2 MiB to a file and sync it. Return if statfs then shows less free space."""
        before = os.statvfs(self.root)
        with self.opened(path, os.O_CREAT | os.O_WRONLY) as fd:
            for _ in range(32):
                os.write(fd, os.urandom(PART))
            os.fsync(fd)
            check(LIBC.syncfs(fd))
        after = os.statvfs(self.root)
        os.truncate(self.at(path), 0)
        less = before.f_bfree * before.f_frsize - after.f_bfree * after.f_frsize
        return "less is free" if less >= 16 * PART else "as much is free as before"

    def name_max(self, path: str) -> str:
        """Create a file, and compare the length of its name with the limit of statfs."""
        os.close(os.open(self.at(path), os.O_CREAT | os.O_WRONLY, 0o644))
        limit = os.statvfs(self.root).f_namemax
        return "right" if limit >= len(path) else f"a name of {len(path)} bytes, but f_namemax is {limit}"

    def fill(self, leave: int) -> None:
        """Write to the file "filler" until no space is left, and then truncate it to leave some bytes free."""
        with self.opened("filler", os.O_CREAT | os.O_WRONLY | os.O_APPEND) as fd:
            for length in (1 << 20, PART, 4096, 512, 1):
                with contextlib.suppress(OSError):
                    while os.write(fd, bytes(length)) == length and os.fstat(fd).st_size <= 1 << 30:
                        pass
            size = os.fstat(fd).st_size
            os.ftruncate(fd, max(0, size - leave) if size <= 1 << 30 else 0)
            if size > 1 << 30:
                raise OSError(errno.EFBIG, "too large to be filled")


# -- states ------------------------------------------------------------------------------------------------------------


def content_of(fd: int, size: int) -> bytes:
    """Return the content of a file, or parts of a large one: its begin and end, and around 2 and 4 GiB."""
    if size <= WHOLE:
        return os.pread(fd, size + 1, 0)
    starts = sorted({0, (2 << 30) - PART // 2, (4 << 30) - PART // 2, size - PART})
    return b"".join(os.pread(fd, PART, start) for start in starts)


def state(side: Side, path: str) -> dict[str, Any]:
    """Return the state of a file, link or directory, as far as it can be read."""
    status = os.lstat(side.at(path))
    result: dict[str, Any] = {"mode": f"{stat.S_IMODE(status.st_mode):o}", "owner": f"{status.st_uid}:{status.st_gid}"}
    if stat.S_ISLNK(status.st_mode):
        return {"kind": "link", "owner": result["owner"], "target": os.readlink(side.at(path))}
    result["kind"] = "directory"
    if stat.S_ISREG(status.st_mode):
        result |= {"kind": "file", "links": status.st_nlink, "size": status.st_size}
        with contextlib.suppress(PermissionError):
            fd = os.open(side.at(path), os.O_RDONLY)
            try:
                result["content"] = content_of(fd, status.st_size)
            finally:
                os.close(fd)
    with contextlib.suppress(OSError):
        for name in side.listxattr(path):
            result[name] = os.getxattr(side.at(path), name)
    for kind in ("access", "default"):
        with contextlib.suppress(OSError):
            result[f"acl {kind}"] = os.getxattr(side.at(path), f"system.posix_acl_{kind}")
    return result


def states(side: Side, times: bool = False) -> dict[str, dict[str, Any]]:
    """Return the states of all paths and open files. Names of one file have one `inode`. `times` adds times."""
    result, numbers = {"": state(side, "")}, dict[int, int]()
    pending = [""]
    while pending:
        parent = pending.pop()
        # Only root can read every directory.
        if not os.access(side.at(parent), os.R_OK | os.X_OK):
            continue
        names = [name for name in side.readdir(parent) if name != "filler REG"]
        result[parent]["names"] = names
        if len(names) > 100:
            continue
        for name in (name[:-4] for name in names):
            path = f"{parent}/{name}".lstrip("/")
            result[path] = state(side, path)
            if result[path]["kind"] == "directory":
                pending.append(path)
            if result[path]["kind"] == "file":
                result[path]["inode"] = numbers.setdefault(os.lstat(side.at(path)).st_ino, len(numbers))
    for path in result if times else ():
        result[path] |= {"mtime": side.mtime(path), "ctime": side.ctime(path)}
    for slot, fd in sorted(side.slots.items()):
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            result[f"slot {slot}"] = {"links": status.st_nlink, "size": status.st_size}
            if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY:
                result[f"slot {slot}"]["content"] = content_of(fd, status.st_size)
    return result


def shown(value: Any) -> str:
    """Return an answer, or a part of a state, as text. Counterexamples print it."""
    if isinstance(value, OSError):
        return errno.errorcode.get(value.errno or 0, "?").replace("ENOTSUP", "EOPNOTSUPP")
    if isinstance(value, bytes):
        return f"{len(value)} bytes, crc32 {zlib.crc32(value):08x}"
    if isinstance(value, list):
        return f"{len(value)} names, crc32 {zlib.crc32(os.fsencode(''.join(f'{name}/' for name in value))):08x}"
    return "done" if value is None else str(value)


def summary(states: dict[str, dict[str, Any]]) -> str:
    """Return a checksum of states."""
    text = repr([(path, part, shown(value)) for path, facts in states.items() for part, value in sorted(facts.items())])
    return f"crc32 {zlib.crc32(text.encode()):08x}"


def answer(side: Side, name: str, arguments: tuple[Any, ...], user: int = 0) -> Any:
    """Make a call as a user. Return its answer, or the OSError."""
    try:
        if user:
            LIBC.setfsgid(user)
            LIBC.setfsuid(user)
        return getattr(side, name)(*arguments)
    except OSError as error:
        return error
    finally:
        if user:
            LIBC.setfsuid(0)
            LIBC.setfsgid(0)


# -- other processes ---------------------------------------------------------------------------------------------------


class Other:
    """Another process, which makes calls in a directory."""

    def __init__(self) -> None:
        words = [sys.executable, "-I", "-S", __file__, "serve"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def enter(self, root: str) -> None:
        """Close all files, and open another directory, none if the path is empty."""
        self._ask(root)
        self.answers()

    def start(self, calls: list[tuple[Any, ...]], at: int = 0) -> None:
        """Begin calls (name, arguments, user) at a time of the monotonic clock, in nanoseconds. Return at once."""
        self._ask((at, calls))

    def answers(self) -> list[tuple[Any, int, int]]:
        """Return the answer to each call, and when it began and ended. Raises OSError if the process has ended."""
        assert self._process.stdout
        try:
            return pickle.load(self._process.stdout)  # type: ignore[no-any-return]
        except EOFError:
            raise OSError(errno.ESRCH, f"the process ended with {self._process.wait(10)}") from None

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            # A call may hang in the kernel until the FUSE daemon answers.
            self._process.kill()
        self._process.stdout.close()

    def _ask(self, request: Any) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(request, self._process.stdin)
            self._process.stdin.flush()


def serve() -> None:
    """Make the calls that `Other` writes to stdin, until stdin ends."""
    side, root = Side(""), -1
    os.umask(0o022)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answers = []
        if isinstance(request, str):
            side.let_go()
            if root >= 0:
                os.close(root)
            root = os.open(request, os.O_PATH) if request else -1
            side.root = f"/proc/self/fd/{root}"
        else:
            at, calls = request
            while time.monotonic_ns() < at:
                pass
            for name, arguments, user in calls:
                begin = time.monotonic_ns()
                result = answer(side, name, arguments, user)
                answers.append((result, begin, time.monotonic_ns()))
        pickle.dump(answers, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve()
