"""This machine, with its commands, mounts and devices."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from pytest_fsstack.machine import blockdev, commands, loops, mounts, processes, signals
from pytest_fsstack.machine.descriptors import opened, write_all
from pytest_fsstack.machine.needs import KernelFilesystem
from pytest_fsstack.machine.port import Loop


class RealMachine:
    """The machine on which this process runs. `Machine` documents the methods."""

    sysfs = Path("/sys")
    sysctls = Path("/proc/sys")

    def __init__(self) -> None:
        self._daemons: set[int] = set()
        self.start = functools.partial(processes.start, self._daemons)

    @property
    def limit(self) -> float:
        return commands.limit

    @property
    def daemons(self) -> frozenset[int]:
        return frozenset(self._daemons)

    # -- commands ------------------------------------------------------------------------------------------------------

    run = staticmethod(commands.run)
    ended = staticmethod(commands.ended)
    which = staticmethod(commands.which)
    mapper_environment = staticmethod(commands.mapper_environment)
    wait_until = staticmethod(commands.wait_until)

    def outlive(self, pid: int) -> processes.Daemon:
        # It keeps the mount namespace alive.
        return self.start("tail", f"--pid={pid}", "-f", "/dev/null", outlives=True)

    def limited(self, layer: str, step: str) -> AbstractContextManager[None]:
        return signals.limited(f"{step} it", self.limit)

    # -- files and mounts ----------------------------------------------------------------------------------------------

    mount_at = staticmethod(mounts.at)
    has_private_mounts = staticmethod(mounts.private_namespace)
    sync = staticmethod(commands.syncfs)

    def mkdir(self, path: Path, *, parents: bool = False, exist_ok: bool = False, mode: int | None = None) -> None:
        path.mkdir(parents=parents, exist_ok=exist_ok)
        if mode is not None:
            path.chmod(mode)

    def make_file(self, path: Path, content: bytes = b"", *, size: int = 0) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
            file.truncate(max(size, len(content)))

    def link(self, path: Path, target: Path) -> None:
        path.symlink_to(target)

    def set_attribute(self, path: Path, name: str, value: bytes) -> None:
        os.setxattr(path, name, value)

    @contextlib.contextmanager
    def unnamed_file(self, directory: Path, size: int) -> Iterator[int]:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.truncate(size)
            yield file.fileno()

    def free(self, path: Path) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def ioctl(self, path: Path, request: int, argument: bytes | bytearray) -> None:
        with opened(path) as descriptor:
            fcntl.ioctl(descriptor, request, argument)

    def setting(self, path: Path) -> str | None:
        try:
            return path.read_text().strip()
        except OSError:
            return None

    def set(self, path: Path, text: str) -> None:
        path.write_text(text)

    def knows_filesystem(self, name: str) -> bool:
        return KernelFilesystem(name).missing() is None

    # -- block devices -------------------------------------------------------------------------------------------------

    def number(self, device: Path) -> str:
        return blockdev.major_minor(os.stat(device).st_rdev)

    def sectors(self, device: Path) -> int:
        return int(blockdev.read(blockdev.SYS / "dev/block" / self.number(device) / "size"))

    def write(self, device: Path, extents: Iterable[tuple[int, bytes]]) -> None:
        with opened(device, os.O_WRONLY) as descriptor:
            for offset, content in extents:
                write_all(descriptor, content, offset)
            os.fsync(descriptor)

    def flush(self, device: Path) -> None:
        with opened(device) as descriptor:
            os.fsync(descriptor)

    def forget_cache(self, device: Path) -> None:
        with blockdev.opened(device, self.number(device)) as descriptor:
            blockdev.forget_cache(descriptor)

    def attached(self, image: int, *, direct_io: bool = True, sector: int = 0) -> AbstractContextManager[Loop]:
        return loops.attached(self, image, direct_io, sector)

    def mappings(self, ours: Callable[[str], bool]) -> dict[str, Path]:
        devices = [Path("/dev", directory.name) for directory in (blockdev.SYS / "block").glob("dm-*")]
        return {name: device for device in devices if (name := self.mapping_name(device)) and ours(name)}

    def mapping_name(self, device: Path) -> str | None:
        disk = blockdev.SYS / "block" / device.name
        try:
            return blockdev.read(disk / "dm/name")
        except OSError:
            # See __dm_destroy in drivers/md/dm.c: the name cannot be read any more, then its file disappears, then the
            # devices below are let go, then the disk disappears.
            return "" if disk.name.startswith("dm-") and disk.exists() else None

    def held_open(self, device: Path) -> AbstractContextManager[int]:
        return blockdev.opened(device, self.number(device))
