"""The machine as an object: all that stacks, devices and layers do to it.

`RealMachine` does it. `RecordingMachine` writes it down and does nothing, for `fsstack stacks explain` and for tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

Word = str | os.PathLike[str]


@dataclass(frozen=True)
class Mount:
    """A line of mountinfo (proc_pid_mountinfo(5))."""

    #: ``major:minor`` of the filesystem, which for many is an anonymous number (``0:N``).
    device: str
    #: What of the filesystem is mounted, as a path in it.
    root: str
    #: Where, as a path below the root directory of the process whose table it is.
    target: str
    #: Of this mount, such as ``rw,noatime``.
    options: str
    kind: str
    source: str
    #: Of the filesystem.
    super_options: str

    def __str__(self) -> str:
        """``type source options``, for people."""
        options = dict.fromkeys([*self.options.split(","), *self.super_options.split(",")])
        return f"{self.kind} {self.source} {','.join(options)}"


class Loop(NamedTuple):
    """A loop device that was attached."""

    path: Path
    #: Whether nothing was ever written to its file.
    blank: bool
    #: Raises OSError if the path leads to another device by now.
    check: Callable[[], None]
    #: Does the same, and drops what is cached of the device.
    verify: Callable[[], None]


class Daemon(Protocol):
    """A server process that stays in the foreground, and that the kernel kills when this process dies."""

    argv: tuple[str, ...]
    pid: int

    @property
    def alive(self) -> bool: ...

    def error(self, when: str = "at once") -> Exception:
        """Return why it has ended."""

    def stop(self, patience: float = 10.0) -> None:
        """Wait until it has ended by itself, and kill it after `patience` seconds. Raises `CommandError`."""

    def kill(self) -> None:
        """End it at once. Raises `CommandError`."""


class Machine(Protocol):
    """The interface between stacks and the machine: its actions and its facts."""

    @property
    def limit(self) -> float:
        """Seconds that a command or a step of a layer may take: --fsstack-timeout."""

    @property
    def daemons(self) -> frozenset[int]:
        """The process numbers of the daemons that run."""

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
        """Run a command to its end and return what it wrote to stdout.

        No secret may stand in `argv`: pass the descriptor of one as `stdin` or in `fds`. Raises `CommandError`.
        """

    def ended(self, *argv: Word, fds: Sequence[int] = (), env: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """Run a command, and return its exit code, stdout and stderr. Raises `CommandError` if it does not end."""

    def start(
        self,
        *argv: Word,
        stdin: int | None = None,
        fds: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
    ) -> Daemon:
        """Start a server in its foreground mode. Call it from the main thread. Raises `CommandError`."""

    def outlive(self, pid: int) -> Daemon:
        """Start a process that ends after that one has, and that nothing else ends."""

    def which(self, tool: str) -> str | None:
        """Return the path of an installed tool."""

    def mapper_environment(self) -> dict[str, str]:
        """Return what device-mapper's tools need in their environment."""

    def wait_until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Poll a condition for at most that long, and return whether it came true."""

    def limited(self, layer: str, step: str) -> AbstractContextManager[None]:
        """Raise TimeoutError in the block once a step of a layer takes longer than `limit`."""

    # -- files and mounts ----------------------------------------------------------------------------------------------

    def mkdir(self, path: Path, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory. Raises OSError."""

    def free(self, path: Path) -> int:
        """Return how many bytes may be written to the filesystem that holds `path`. Raises OSError."""

    def sync(self, path: Path) -> None:
        """Write out everything of the filesystem that holds `path` (syncfs(2)). Raises OSError."""

    def ioctl(self, path: Path, request: int, argument: bytes | bytearray) -> None:
        """Ask the kernel something about a file or directory. A bytearray takes the answer. Raises OSError."""

    @property
    def sysfs(self) -> Path:
        """The directory where the kernel shows its devices and settings."""

    @property
    def sysctls(self) -> Path:
        """The directory where the kernel shows its sysctl(8) settings."""

    def setting(self, path: Path) -> str | None:
        """Return the text of a file in sysfs or of a sysctl; None if it cannot be read."""

    def set(self, path: Path, text: str) -> None:
        """Write to a file in sysfs or to a sysctl. Raises OSError."""

    def knows_filesystem(self, name: str) -> bool:
        """Return whether the kernel can mount such a filesystem."""

    def mount_at(self, path: Path) -> Mount | None:
        """Return the mount at exactly `path`, of several the one on top."""

    def has_private_mounts(self) -> bool:
        """Give this process a mount namespace of its own, once. Return False if it may not have one."""

    # -- block devices -------------------------------------------------------------------------------------------------

    def number(self, device: Path) -> str:
        """Return the ``major:minor`` of a block device. Raises OSError."""

    def sectors(self, device: Path) -> int:
        """Return the size of a block device in units of 512 bytes. Raises OSError."""

    def write(self, device: Path, extents: Iterable[tuple[int, bytes]]) -> None:
        """Write each content at its offset, and to the medium. Raises OSError.

        Only `Block.write` calls it, between the checks of the device.
        """

    def forget_cache(self, device: Path) -> None:
        """Write out and drop what the kernel caches of a block device. Raises OSError."""

    def attached(self, image: int, *, direct_io: bool = True, sector: int = 0) -> AbstractContextManager[Loop]:
        """Attach the file behind the descriptor `image` to a free loop device, and detach it afterwards.

        `direct_io` is left off where the filesystem that holds the file cannot. `sector` is the device's logical block
        size in bytes, and 0 the kernel's choice. Raises OSError.
        """

    def mappings(self, ours: Callable[[str], bool]) -> dict[str, Path]:
        """Return the /dev/dm-N of each device-mapper mapping whose name is ours."""

    def mapping_name(self, device: Path) -> str | None:
        """Return the name of the mapping that is /dev/dm-N now: "" while the kernel removes one, None without one."""

    def held_open(self, device: Path) -> AbstractContextManager[object]:
        """Keep a block device open, and so in use, until the end of the block. Raises OSError."""
