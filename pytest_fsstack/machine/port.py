"""The interface to the machine for stacks, devices and layers.

`RealMachine` performs all actions. `RecordingMachine` only records them, for `fsstack stacks explain` and for tests.
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

    #: ``major:minor`` of the filesystem, often an anonymous number (``0:N``).
    device: str
    #: The mounted part of the filesystem, as a path in it.
    root: str
    #: The mount point, as a path below the process's root directory.
    target: str
    #: Options of this mount, such as ``rw,noatime``.
    options: str
    kind: str
    source: str
    #: Options of the filesystem.
    super_options: str

    def __str__(self) -> str:
        """Return ``type source options``."""
        options = dict.fromkeys([*self.options.split(","), *self.super_options.split(",")])
        return f"{self.kind} {self.source} {','.join(options)}"


class Loop(NamedTuple):
    """An attached loop device."""

    path: Path
    #: Whether nothing was ever written to its file.
    blank: bool
    #: Raises OSError if the path now leads to another device.
    check: Callable[[], None]
    #: Does the same, and drops the device's cache.
    verify: Callable[[], None]


class Daemon(Protocol):
    """A server process in the foreground. The kernel kills it when this process dies."""

    argv: tuple[str, ...]
    pid: int

    @property
    def alive(self) -> bool: ...

    def error(self, when: str = "at once") -> Exception:
        """Return the error for its unexpected end."""

    def stop(self, patience: float = 10.0) -> None:
        """Wait for its end, and kill it after `patience` seconds. Raises `CommandError`."""

    def kill(self) -> None:
        """Kill it. Raises `CommandError`."""


class Machine(Protocol):
    """The interface between stacks and the machine: actions and facts."""

    @property
    def limit(self) -> float:
        """Return the time limit of a command or a step of a layer in seconds: --fsstack-timeout."""

    @property
    def daemons(self) -> frozenset[int]:
        """Return the process numbers of the running daemons."""

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
        """Run a command to its end and return its stdout.

        Secrets must not be in `argv`. Pass a descriptor as `stdin` or in `fds`. Raises `CommandError`.
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
        """Start a process that ends only after another one has ended."""

    def which(self, tool: str) -> str | None:
        """Return the path of an installed tool."""

    def mapper_environment(self) -> dict[str, str]:
        """Return the environment variables for device-mapper's tools."""

    def wait_until(
        self, condition: Callable[[], object], seconds: float, pause: Callable[[float], object] | None = None
    ) -> bool:
        """Poll a condition, and return whether it became true in time. `pause` waits for an event, for some seconds."""

    def limited(self, layer: str, step: str) -> AbstractContextManager[None]:
        """Raise TimeoutError in the block if a step of a layer takes longer than `limit`."""

    # -- files and mounts ----------------------------------------------------------------------------------------------

    def mkdir(self, path: Path, *, parents: bool = False, exist_ok: bool = False, mode: int | None = None) -> None:
        """Make a directory, with exactly that mode if one is given. Raises OSError."""

    def make_file(self, path: Path, content: bytes = b"", *, size: int = 0) -> None:
        """Make a file that only this user can open: with a content, or with `size` zeros that take no space.

        Raises OSError, also if the file exists.
        """

    def link(self, path: Path, target: Path) -> None:
        """Make a symbolic link to a target. Raises OSError."""

    def set_attribute(self, path: Path, name: str, value: bytes) -> None:
        """Set an extended attribute of a file. Raises OSError."""

    def unnamed_file(self, directory: Path, size: int) -> AbstractContextManager[int]:
        """Yield a descriptor of a sparse file without a name, so that it cannot stay behind. Raises OSError."""

    def free(self, path: Path) -> int:
        """Return the free bytes of the filesystem that contains `path`. Raises OSError."""

    def sync(self, path: Path) -> None:
        """Write out the filesystem that contains `path` (syncfs(2)). Raises OSError."""

    def ioctl(self, path: Path, request: int, argument: bytes | bytearray) -> None:
        """Call ioctl on a file or directory. A bytearray receives the answer. Raises OSError."""

    @property
    def sysfs(self) -> Path:
        """Return the directory of sysfs."""

    @property
    def sysctls(self) -> Path:
        """Return the directory of sysctl(8) settings."""

    def setting(self, path: Path) -> str | None:
        """Return the text of a sysfs file or a sysctl, or None if it cannot be read."""

    def set(self, path: Path, text: str) -> None:
        """Write to a sysfs file or a sysctl. Raises OSError."""

    def knows_filesystem(self, name: str) -> bool:
        """Return whether the kernel can mount such a filesystem."""

    def mount_at(self, path: Path) -> Mount | None:
        """Return the topmost mount at exactly `path`, or None."""

    def has_private_mounts(self) -> bool:
        """Move this process to its own mount namespace, once. Return False without permission."""

    # -- block devices -------------------------------------------------------------------------------------------------

    def number(self, device: Path) -> str:
        """Return the ``major:minor`` of a block device. Raises OSError."""

    def sectors(self, device: Path) -> int:
        """Return the size of a block device in units of 512 bytes. Raises OSError."""

    def write(self, device: Path, extents: Iterable[tuple[int, bytes]]) -> None:
        """Write contents at offsets, and flush them to the medium. Raises OSError.

        Only `Block.write` calls it, between the checks of the device.
        """

    def flush(self, device: Path) -> None:
        """Write out the kernel's cache of a block device (fsync(2)). Raises OSError."""

    def forget_cache(self, device: Path) -> None:
        """Write out and drop the kernel's cache of a block device. Raises OSError."""

    def attached(self, image: int, *, direct_io: bool = True, sector: int = 0) -> AbstractContextManager[Loop]:
        """Attach the open file `image` to a free loop device, and detach it afterwards.

        `direct_io` is not used if the file's filesystem does not support it. `sector` is the logical block size in
        bytes, or 0 for the kernel's choice. Raises OSError.
        """

    def mappings(self, ours: Callable[[str], bool]) -> dict[str, Path]:
        """Return the /dev/dm-N of each device-mapper mapping that `ours` accepts, by name."""

    def mapping_name(self, device: Path) -> str | None:
        """Return the current name of the mapping /dev/dm-N: "" during its removal, None if there is none."""

    def held_open(self, device: Path) -> AbstractContextManager[object]:
        """Keep a block device open (and thus busy) until the end of the block. Raises OSError."""
