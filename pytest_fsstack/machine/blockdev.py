"""Facts about block devices: numbers, sizes, serial numbers, sysfs, and the files behind loop devices."""

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

#: The name of a guest's first disk inside the guest.
GUEST_DISK = "/dev/vda"
#: The serial of the disk on which a guest hands back results. It belongs to no stack.
RESULTS_DISK = "fsstack-results"

#: From linux/fcntl.h and linux/stat.h; of struct statx, its mode and the device that a special file stands for.
_AT_FDCWD, _AT_STATX_DONT_SYNC, _STATX_TYPE = -100, 0x4000, 1
_STATX = struct.Struct("=28xH98xII120x")

#: EXT4_FEATURE_INCOMPAT_JOURNAL_DEV
_JOURNAL_DEVICE = 0x8
_EXT_MAGIC = 0xEF53

_BLKFLSBUF = 0x1261  # linux/fs.h
_LOOP_GET_STATUS64, _LOOP_CTL_GET_FREE = 0x4C05, 0x4C82  # linux/loop.h
_LOOP_MAJOR = 7
LOOP_CONTROL = "/dev/loop-control"
#: struct loop_info64: device, inode, rdevice, offset, sizelimit, number, encryption type and key size, flags, names.
LOOP_INFO = struct.Struct("=QQQQQIIII64s64s32sQQ")


def guest_disks() -> list[str]:
    """Return the disks for stacks of the guest that this process runs in."""
    disks = sorted((SYS / "block").glob("vd[a-z]"))
    return [f"/dev/{disk.name}" for disk in disks if serial(disk.name) != RESULTS_DISK]


def serial(disk: str) -> str:
    """Return the serial of a virtio disk such as vda, or an empty text."""
    try:
        return (SYS / "block" / disk / "serial").read_text().strip()
    except OSError:
        return ""


# -- device nodes ------------------------------------------------------------------------------------------------------


def make_node(path: str | os.PathLike[str], kind: int, device: int) -> None:
    """Make the missing node of a device, if this process may. Containers have few nodes, and no udev.

    Only root can use it, as with the nodes of the host.
    """
    with contextlib.suppress(OSError):
        os.mknod(path, kind | 0o600, device)


def free_loop() -> Path:
    """Return the node of a free loop device, which may be used by another program meanwhile. Raises OSError."""
    with descriptors.opened(LOOP_CONTROL, os.O_RDWR) as control:
        number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
    path = Path(f"/dev/loop{number}")
    if not path.exists():
        make_node(path, stat.S_IFBLK, os.makedev(_LOOP_MAJOR, number))
    return path


# -- numbers and sysfs -------------------------------------------------------------------------------------------------


def major_minor(device: int) -> str:
    """Format a device number such as st_rdev as ``major:minor``, as in /sys/dev/block."""
    return f"{os.major(device)}:{os.minor(device)}"


def number(path: str | os.PathLike[str] | int) -> str | None:
    """Return ``major:minor`` of a block device, by path or descriptor, or None for other files. Raises OSError.

    This does not query the filesystem of the path. Behind a descriptor of another process may be a filesystem whose
    server hangs, and a plain stat would then block forever.
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
    """Return statx(2), which Python has only since 3.15, or None for a C library without it."""
    return getattr(libc(), "statx", None)


def number_of_name(text: str) -> str | None:
    """Return the number of a device by its kernel name, which may not exist in this mount namespace."""
    if not text.startswith("/"):
        return None
    try:
        return number(text)
    except OSError:
        name = text.removesuffix(" (deleted)")
        path = SYS / "class/block" / name.rpartition("/")[2] / "dev"
        return read_if_there(path) if name.startswith("/dev/") else None


def read(path: Path) -> str:
    # File names and names of commands may be any bytes.
    return os.fsdecode(path.read_bytes()).strip()


def read_if_there(path: Path) -> str | None:
    """Return the contents of a file of a device, or None if one of them is missing. Raises OSError.

    Asking first whether the file exists is no help: the device may disappear before the file is read.
    """
    try:
        return read(path)
    except OSError as error:
        if error.errno in _MISSING:
            return None
        raise


#: What the kernel says about a file that is missing, that cannot exist, and of a device that disappears meanwhile.
_MISSING = errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ENODEV


def sysfs(device: str) -> Path:
    """Return the sysfs directory of a device, by ``major:minor``. Raises OSError."""
    return (SYS / "dev/block" / device).resolve(strict=True)


def whole(directory: Path) -> Path:
    """Return the sysfs directory of a partition's disk, or of the disk itself."""
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
    # The kernel replaces the slash in names such as cciss/c0d0 by an exclamation mark.
    return f"/dev/{directory.name.replace('!', '/')}"


# -- identity ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """The identity of a device, which changes when it is plugged in again."""

    #: ``major:minor``
    number: str
    #: In bytes.
    size: int
    #: The kernel increases it for each new medium, so it is unique until the next boot. None before Linux 5.15.
    diskseq: int | None
    #: The first sector of a partition, or 0 for a whole disk.
    start: int = 0
    #: A serial number or similar id of the disk, or the UUID of a mapping. None if there is none.
    serial: str | None = None
    #: The file behind a loop device: device, inode, offset and limit in bytes.
    backing: str | None = None


def identify(path: Path) -> Identity | None:
    """Return the identity of the block device at `path`, or None for other files. Raises OSError.

    The device stays open meanwhile, so the kernel cannot reuse its number.
    """
    device = number(path)
    if device is None:
        return None
    with contextlib.ExitStack() as undo:
        try:
            # O_NONBLOCK also opens drives without a medium.
            fd = undo.enter_context(opened(path, device, os.O_RDONLY | os.O_NONBLOCK))
        except PermissionError:
            fd = None  # then nobody can write to it either
        directory = sysfs(device)
        disk = whole(directory)
        size = int(read(directory / "size")) * 512
        diskseq = read_if_there(disk / "diskseq")
        return Identity(
            number=device,
            size=size,
            diskseq=None if diskseq is None else int(diskseq),
            start=int(read(directory / "start")) if disk != directory else 0,
            serial=" ".join(serials(disk, _SERIALS)) or None,
            backing=_loop_file(path, fd) if size and (directory / "loop").exists() else None,
        )


#: Names of serial numbers and ids in sysfs, for virtio, NVMe, SCSI, MMC and the device-mapper.
_SERIALS = "serial", "wwid", "device/serial", "device/wwid", "device/cid", "dm/uuid"


def serials(disk: Path, names: Iterable[str]) -> list[str]:
    """Return the contents of these files in the directory of a disk."""
    texts = []
    for name in names:
        with contextlib.suppress(OSError):  # some drivers have the file, but no contents
            texts.append(read(disk / name))
    return [text for text in texts if text]


def _loop_file(path: Path, loop: int | None) -> str:
    if loop is None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    backing_file = backing(loop)
    return f"{major_minor(backing_file.device)} {backing_file.inode} {backing_file.offset} {backing_file.limit}"


@contextlib.contextmanager
def opened(path: Path, device: str, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open the device with this number, even if its path now leads elsewhere. Raises OSError."""
    with descriptors.opened(path, flags) as fd:
        if (actual := number(fd)) != device:
            raise OSError(errno.ENODEV, f"{path} is the device {actual} now, and not {device}")
        yield fd


def forget_cache(fd: int) -> None:
    """Write out and drop the kernel's cache of a device, so that the next reads come from the medium."""
    os.fsync(fd)
    fcntl.ioctl(fd, _BLKFLSBUF)


# -- contents ----------------------------------------------------------------------------------------------------------


def last_mount(path: Path) -> str | None:
    """Return the last mount time and the mount count of an ext2, ext3 or ext4, or None.

    They are read from the medium, because mappings of the device have caches of their own. Raises OSError.
    """
    # struct ext4_super_block of fs/ext4/ext4.h, at 1024: s_mtime, s_wtime, s_mnt_count, s_max_mnt_count, s_magic, and
    # from 96 on s_feature_incompat.
    superblock = descriptors.read_direct(path, 0, 4096)[1024:2048]
    seconds, count, magic, features = struct.unpack_from("<I4xH2xH38xI", superblock, 44)
    # The journal of another device looks like a filesystem, and its times and numbers never change.
    return f"{count} times, at {seconds}" if magic == _EXT_MAGIC and not features & _JOURNAL_DEVICE else None


# -- loop devices ------------------------------------------------------------------------------------------------------


class Backing(NamedTuple):
    """The file behind a loop device: its path, its device number if it is a device, and offset and limit in bytes."""

    device: int
    inode: int
    rdevice: int
    offset: int
    limit: int


def backing(loop: int) -> Backing:
    """Return the file behind an open loop device. Raises OSError (ENXIO if it is detached)."""
    info = LOOP_INFO.unpack(fcntl.ioctl(loop, _LOOP_GET_STATUS64, bytes(LOOP_INFO.size)))
    return Backing(*info[:5])
