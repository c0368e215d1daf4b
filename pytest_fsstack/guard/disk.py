"""The block device of a path, and the refusal to write to it."""

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
    """A device must not be written to; in one line: which device, what was found, where, and what to do."""

    def __init__(self, device: Path, reason: str) -> None:
        self.device, self.reason = device, reason
        super().__init__(f"{device} will not be overwritten: {reason}")


class InUse(Refused):
    """A refusal that ends with another session: `holders` names its processes."""

    def __init__(self, device: Path, reason: str, holders: str) -> None:
        self.holders = holders
        super().__init__(device, reason)


@dataclass(frozen=True)
class Disk:
    """A block device as it was when it was looked at: a whole disk or a partition."""

    #: As the user named it, and what that resolves to.
    named: Path
    path: Path
    identity: blockdev.Identity

    @property
    def number(self) -> str:
        """``major:minor``, as /sys/dev/block names it."""
        return self.identity.number

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.identity.size

    def facts(self) -> dict[str, str | int | None]:
        """The identity of this device, for the journal."""
        return {"path": str(self.path), **vars(self.identity)}

    @property
    def sysfs(self) -> Path:
        return blockdev.sysfs(self.number)


def identify(path: Path) -> Disk:
    """The block device at `path`, symbolic links followed. Raises `Refused` if there is none."""
    with or_refused(path):
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
def or_refused(path: Path) -> Iterator[None]:
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
