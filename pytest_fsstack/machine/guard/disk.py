"""Block devices found by path, and the refusal to write to one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine import blockdev, commands
from pytest_fsstack.units import reason_of

KIB, MIB = 1 << 10, 1 << 20


class Refused(Exception):  # noqa: N818 - what happened is not an error of anything
    """The refusal to write to a device. One line has the device, the reason, the place, and what to do."""

    def __init__(self, device: Path, reason: str) -> None:
        self.device, self.reason = device, reason
        super().__init__(f"{device} will not be overwritten: {reason}")


class InUse(Refused):
    """A refusal that lasts until another session ends. `holders` are its processes."""

    def __init__(self, device: Path, reason: str, holders: str) -> None:
        self.holders = holders
        super().__init__(device, reason)


@dataclass(frozen=True)
class Disk:
    """A block device as found: a whole disk or a partition."""

    #: The path that the user gave, and the resolved one.
    user_path: Path
    path: Path
    identity: blockdev.Identity

    @property
    def number(self) -> str:
        """Return ``major:minor``, as in /sys/dev/block."""
        return self.identity.number

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return self.identity.size

    def facts(self) -> dict[str, str | int | None]:
        """Return the identity of this device for the journal."""
        return {"path": str(self.path), **vars(self.identity)}

    @property
    def sysfs(self) -> Path:
        return blockdev.sysfs(self.number)


def identify(path: Path) -> Disk:
    """Return the block device at `path`, following symbolic links. Raises `Refused` if there is none."""
    with refusing_errors(path):
        if not path.exists():
            raise Refused(path, "there is no such device")
        resolved = path.resolve(strict=True)
        identity = blockdev.identify(resolved)
        if identity is None:
            raise Refused(path, "it is not a block device")
        if not identity.size:
            raise Refused(path, "it has no medium")
        return Disk(path, resolved, identity)


@contextlib.contextmanager
def refusing_errors(path: Path) -> Iterator[None]:
    """Turn a failed check into a refusal."""
    try:
        yield
    except (OSError, commands.CommandError) as error:
        if isinstance(error, PermissionError) and os.geteuid() != 0:
            raise Refused(path, f"that needs root ({reason_of(error)}); run pytest with sudo") from error
        raise Refused(path, f"it cannot be checked: {reason_of(error)}") from error


def shown_size(size: int) -> str:
    if size < MIB:
        return f"{size} bytes"
    unit, name = (1 << 30, "GiB") if size >= 1 << 30 else (MIB, "MiB")
    return f"{size / unit:.1f} {name} ({size} bytes)"
