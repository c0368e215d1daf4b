"""Facts of a block device: its number, size and serial, its place in sysfs, and the file below a loop device."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pytest_fsstack.machine import descriptors
from pytest_fsstack.machine.libc import libc

SYS = Path("/sys")

#: What a guest's own disk is called in it, the first of several.
GUEST_DISK = "/dev/vda"

#: From linux/fcntl.h and linux/stat.h; of struct statx, its mode and the device that a special file stands for.
_AT_FDCWD, _AT_STATX_DONT_SYNC, _STATX_TYPE = -100, 0x4000, 1
_STATX = struct.Struct("=28xH98xII120x")

#: EXT4_FEATURE_INCOMPAT_JOURNAL_DEV
_JOURNAL_DEVICE = 0x8
_EXT_MAGIC = 0xEF53

_BLKFLSBUF = 0x1261  # linux/fs.h
_LOOP_GET_STATUS64 = 0x4C05  # linux/loop.h
#: struct loop_info64: device, inode, rdevice, offset, sizelimit, number, encryption type and key size, flags, names.
LOOP_INFO = struct.Struct("=QQQQQIIII64s64s32sQQ")


def guest_disks() -> list[str]:
    """Return the disks of the guest that this process runs in."""
    return [f"/dev/{path.name}" for path in sorted((SYS / "block").glob("vd[a-z]"))]


# -- numbers and sysfs -------------------------------------------------------------------------------------------------


def major_minor(device: int) -> str:
    """``major:minor`` of a device number such as st_rdev, as /sys/dev/block names it."""
    return f"{os.major(device)}:{os.minor(device)}"


def number(path: str | os.PathLike[str] | int) -> str | None:
    """``major:minor`` of a block device, by its path or a descriptor; None for anything else. Raises OSError.

    The filesystem that a path ends in is not asked: what a file is never changes, and behind another process's
    descriptor may be one whose server hangs, for which a plain stat waits for ever.
    """
    if isinstance(path, int) or (statx := _statx()) is None:
        status = os.stat(path)
        return major_minor(status.st_rdev) if stat.S_ISBLK(status.st_mode) else None
    import ctypes

    buffer = ctypes.create_string_buffer(_STATX.size)
    if statx(_AT_FDCWD, os.fsencode(path), _AT_STATX_DONT_SYNC, _STATX_TYPE, buffer):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), os.fspath(path))
    mode, major, minor = _STATX.unpack(buffer)
    return f"{major}:{minor}" if stat.S_ISBLK(mode) else None


@functools.cache
def _statx() -> Callable[..., int] | None:
    """statx(2), which Python has only from 3.15 on; None for a C library without it."""
    return getattr(libc(), "statx", None)


def number_of_name(text: str) -> str | None:
    """The device that the kernel shows as a path, which may lead nowhere in our own mount namespace."""
    if not text.startswith("/"):
        return None
    try:
        return number(text)
    except OSError:
        name = text.removesuffix(" (deleted)")
        path = SYS / "class/block" / name.rpartition("/")[2] / "dev"
        # Path.exists raises for names that are too long.
        return read(path) if name.startswith("/dev/") and os.path.exists(path) else None


def read(path: Path) -> str:
    # A command's name, or a file's behind a loop device, is any bytes.
    return os.fsdecode(path.read_bytes()).strip()


def sysfs(device: str) -> Path:
    """The directory of a device, by ``major:minor``. Raises OSError."""
    return (SYS / "dev/block" / device).resolve(strict=True)


def whole(directory: Path) -> Path:
    """The directory of the disk that a partition is on; of a whole disk, its own."""
    return directory.parent if (directory / "partition").exists() else directory


def transferred(device: str) -> tuple[int, int]:
    """Return the bytes read and written so far at a device, by ``major:minor``. Raises OSError.

    The kernel counts in sectors of 512 bytes, also for devices with larger ones (Documentation/block/stat.rst).
    """
    counts = (SYS / "dev/block" / device / "stat").read_text().split()
    return int(counts[2]) * 512, int(counts[6]) * 512


def partitions(disk: Path) -> list[Path]:
    return sorted(child.parent for child in disk.glob("*/partition"))


def node(directory: Path) -> str:
    # The kernel writes the slash in names such as cciss/c0d0 as an exclamation mark.
    return f"/dev/{directory.name.replace('!', '/')}"


# -- identity ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """The identity of a device, which changes if it is plugged in again."""

    #: ``major:minor``
    number: str
    #: In bytes.
    size: int
    #: Grows with each medium that the kernel sees, so that no two disks share it before the next boot; None before
    #: Linux 5.15.
    diskseq: int | None
    #: The sector at which a partition begins; 0 for a whole disk.
    start: int = 0
    #: The serial number or the like of the disk, or the UUID of a mapping; None if it has none.
    serial: str | None = None
    #: What a loop device stands on: device, inode, offset and limit in bytes.
    backing: str | None = None


def identify(path: Path) -> Identity | None:
    """Return the identity of the block device at `path`; None if it is something else. Raises OSError.

    The device is open meanwhile, so the kernel gives its number to no other one.
    """
    device = number(path)
    if device is None:
        return None
    with contextlib.ExitStack() as undo:
        try:
            # Without O_NONBLOCK, a drive without a medium could not be opened.
            fd = undo.enter_context(opened(path, device, os.O_RDONLY | os.O_NONBLOCK))
        except PermissionError:
            fd = None  # then nothing can be written to it either
        directory = sysfs(device)
        disk = whole(directory)
        size = int(read(directory / "size")) * 512
        start, diskseq = directory / "start", disk / "diskseq"
        return Identity(
            number=device,
            size=size,
            diskseq=int(read(diskseq)) if diskseq.exists() else None,
            start=int(read(start)) if disk != directory else 0,
            serial=" ".join(serials(disk, _SERIALS)) or None,
            backing=_loop_file(path, fd) if size and (directory / "loop").exists() else None,
        )


#: The names of virtio, NVMe, SCSI, MMC and the device-mapper for what tells a disk from others of its kind.
_SERIALS = "serial", "wwid", "device/serial", "device/wwid", "device/cid", "dm/uuid"


def serials(disk: Path, names: Iterable[str]) -> list[str]:
    """Return what these files in the directory of a disk say."""
    texts = []
    for name in names:
        with contextlib.suppress(OSError):  # some drivers show the file and have nothing to say
            texts.append(read(disk / name))
    return [text for text in texts if text]


def _loop_file(path: Path, loop: int | None) -> str:
    if loop is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    backing_file = backing(loop)
    return f"{major_minor(backing_file.device)} {backing_file.inode} {backing_file.offset} {backing_file.limit}"


@contextlib.contextmanager
def opened(path: Path, device: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """A descriptor of the device of this number, even if its path leads elsewhere by now. Raises OSError."""
    with descriptors.opened(path, flags) as fd:
        if (actual := number(fd)) != device:
            raise OSError(errno.ENODEV, f"{path} is the device {actual} now, and not {device}")
        yield fd


def forget_cache(fd: int) -> None:
    """Write out and drop what the kernel caches of a device, so that what is read next is what is on the medium."""
    os.fsync(fd)
    fcntl.ioctl(fd, _BLKFLSBUF)


# -- loop devices ------------------------------------------------------------------------------------------------------


def last_mount(path: Path) -> str | None:
    """Return the time of the last mount for writing and the number of mounts of an ext2, 3 or 4, else None.

    It is what is on the medium: a mapping of the device has a cache of its own. Raises OSError.
    """
    # struct ext4_super_block of fs/ext4/ext4.h, at 1024: s_mtime, s_wtime, s_mnt_count, s_max_mnt_count, s_magic, and
    # from 96 on s_feature_incompat.
    superblock = descriptors.read_direct(path, 0, 4096)[1024:2048]
    seconds, count, magic, features = struct.unpack_from("<I4xH2xH38xI", superblock, 44)
    # The journal of another device looks like a filesystem, and its times and numbers never change.
    return f"{count} times, at {seconds}" if magic == _EXT_MAGIC and not features & _JOURNAL_DEVICE else None


class Backing(NamedTuple):
    """The file behind a loop device: where it is, and the device that it is if it is one. Offset and limit in bytes."""

    device: int
    inode: int
    rdevice: int
    offset: int
    limit: int


def backing(loop: int) -> Backing:
    """Return the file below the loop device of a descriptor. Raises OSError (ENXIO if it is detached)."""
    info = LOOP_INFO.unpack(fcntl.ioctl(loop, _LOOP_GET_STATUS64, bytes(LOOP_INFO.size)))
    return Backing(*info[:5])
