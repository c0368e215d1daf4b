"""This machine, with its commands, mounts and devices."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pytest_fsstack.machine import blockdev, commands, loops, mounts, processes, signals
from pytest_fsstack.machine.needs import KernelFilesystem
from pytest_fsstack.machine.port import Loop, Mount, Word


class RealMachine:
    """The machine on which this process runs; see `Machine` for what its methods do."""

    sysfs = Path("/sys")

    def __init__(self) -> None:
        self._daemons: set[int] = set()

    @property
    def limit(self) -> float:
        return commands.limit

    @property
    def daemons(self) -> frozenset[int]:
        return frozenset(self._daemons)

    # -- commands ------------------------------------------------------------------------------------------------------

    def run(
        self,
        *argv: Word,
        stdin: int | None = None,
        fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float | None = None,
    ) -> str:
        return commands.run(*argv, stdin=stdin, fds=fds, env=env, cwd=cwd, timeout=timeout)

    def ended(self, *argv: Word, fds: Sequence[int] = (), env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        return commands.ended(*argv, fds=fds, env=env)

    def start(
        self,
        *argv: Word,
        stdin: int | None = None,
        fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> processes.Daemon:
        return processes.start(self._daemons, *argv, stdin=stdin, fds=fds, env=env)

    def outlive(self, pid: int) -> processes.Daemon:
        # It keeps the mount namespace alive.
        return processes.start(self._daemons, "tail", f"--pid={pid}", "-f", "/dev/null", outlives=True)

    def which(self, tool: str) -> str | None:
        return commands.which(tool)

    def mapper_environment(self) -> dict[str, str]:
        return commands.mapper_environment()

    def wait_until(self, condition: Callable[[], object], seconds: float) -> bool:
        return commands.wait_until(condition, seconds)

    def limited(self, layer: str, step: str) -> AbstractContextManager[None]:
        return signals.limited(f"{step} it", self.limit)

    # -- files and mounts ----------------------------------------------------------------------------------------------

    def mkdir(self, path: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
        path.mkdir(parents=parents, exist_ok=exist_ok)

    def free(self, path: Path) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def sync(self, path: Path) -> None:
        commands.syncfs(path)

    def ioctl(self, path: Path, request: int, argument: bytes | bytearray) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, request, argument)
        finally:
            os.close(descriptor)

    def setting(self, path: Path) -> str | None:
        try:
            return path.read_text().strip()
        except OSError:
            return None

    def set(self, path: Path, text: str) -> None:
        path.write_text(text)

    def knows_filesystem(self, name: str) -> bool:
        return KernelFilesystem(name).missing() is None

    def mount_at(self, path: Path) -> Mount | None:
        return mounts.at(path)

    def has_private_mounts(self) -> bool:
        return mounts.private_namespace()

    # -- block devices -------------------------------------------------------------------------------------------------

    def number(self, device: Path) -> str:
        return blockdev.major_minor(os.stat(device).st_rdev)

    def sectors(self, device: Path) -> int:
        return int(blockdev.read(blockdev.SYS / "dev/block" / self.number(device) / "size"))

    def write(self, device: Path, extents: Iterable[tuple[int, bytes]]) -> None:
        descriptor = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for offset, content in extents:
                remaining = memoryview(content)
                while remaining:
                    count = os.pwrite(descriptor, remaining, offset)
                    offset, remaining = offset + count, remaining[count:]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def forget_cache(self, device: Path) -> None:
        with blockdev.opened(device, self.number(device)) as descriptor:
            blockdev.forget_cache(descriptor)

    def attached(self, image: int, *, direct_io: bool = True, sector: int = 0) -> AbstractContextManager[Loop]:
        return loops.attached(self, image, direct_io, sector)

    def mappings(self, ours: Callable[[str], bool]) -> dict[str, Path]:
        devices = [Path("/dev", directory.name) for directory in (blockdev.SYS / "block").glob("dm-*")]
        return {name: device for device in devices if (name := self.mapping_name(device)) and ours(name)}

    def mapping_name(self, device: Path) -> str | None:
        try:
            return blockdev.read(blockdev.SYS / "block" / device.name / "dm/name")
        except OSError as error:
            # drivers/md/dm-sysfs.c: what is below is still in use then. The file goes after that.
            return "" if error.errno == errno.EINVAL else None

    def held_open(self, device: Path) -> AbstractContextManager[int]:
        return blockdev.opened(device, self.number(device))
