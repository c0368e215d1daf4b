"""Loop devices that detach themselves.

With the autoclear flag, the kernel detaches a loop device when its last user closes it or is killed. ``losetup`` of
util-linux 2.38 cannot set that flag, so this uses the ioctl (include/uapi/linux/loop.h).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from pytest_fsstack.machine import blockdev, mounts
from pytest_fsstack.machine.port import Loop, Machine

_LOOP_CONFIGURE = 0x4C0A
_AUTOCLEAR, _DIRECT_IO = 4, 16


@contextlib.contextmanager
def attached(machine: Machine, image: int, direct_io: bool, sector: int) -> Iterator[Loop]:
    """Attach an open file to a free loop device, and detach it afterwards. See `Machine.attached`."""
    file = os.fstat(image)
    loop, path = _configure(image, _AUTOCLEAR | (_DIRECT_IO if direct_io else 0), sector)

    def check() -> None:
        now = blockdev.backing(loop)
        if (now.device, now.inode) != (file.st_dev, file.st_ino) or blockdev.number(path) != blockdev.number(loop):
            raise OSError(errno.EBUSY, f"{path} is not this session's loop device any more; nothing was written to it")

    def verify() -> None:
        check()
        # As for a disk: cached reads from the time of a mount are stale.
        blockdev.forget_cache(loop)

    ours = _backing_file(path)
    mounts.note_new(path)
    try:
        yield Loop(path, file.st_blocks == 0, check, verify)
    finally:
        # The last close detaches it. So other users must be found here, and not by the next stack.
        os.close(loop)
        # Another program may get the number immediately.
        if not machine.wait_until(lambda: _backing_file(path) != ours, mounts.patience(path, 10.0)):
            raise OSError(errno.EBUSY, f"{path} is still {mounts.in_use(machine, path)}")


def _backing_file(path: Path) -> str | None:
    """Return the name of the file behind a loop device. For an unlinked file, it contains the inode number."""
    try:
        return Path("/sys/block", path.name, "loop/backing_file").read_text()
    except FileNotFoundError:
        return None


def _configure(image: int, flags: int, sector: int) -> tuple[int, Path]:
    name = os.readlink(f"/proc/self/fd/{image}").encode()[:63]
    info = blockdev.LOOP_INFO.pack(0, 0, 0, 0, 0, 0, 0, 0, flags, name, b"", b"", 0, 0)
    config = struct.pack("=II", image, sector) + info + bytes(64)
    while True:
        path = blockdev.free_loop()
        try:
            loop = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError) as error:
            remedy = f"start the container with --device={path} or --privileged"
            raise OSError(error.errno, f"{path}: {error.strerror}; {remedy}") from None
        try:
            fcntl.ioctl(loop, _LOOP_CONFIGURE, config)
        except OSError as error:
            os.close(loop)
            if error.errno == errno.EBUSY:  # another program was faster
                continue
            if error.errno == errno.EINVAL and flags & _DIRECT_IO:
                return _configure(image, flags & ~_DIRECT_IO, sector)
            raise
        return loop, path
