"""What a layer, a device or a workload needs from the machine: probed, with the reason and the way to get it."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pytest_fsstack import host

#: How each package manager installs, in the order in which they are looked for.
INSTALL = {
    "apt": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "zypper": ("zypper", "--non-interactive", "install"),
    "pacman": ("pacman", "-S", "--noconfirm"),
}


class Need(Protocol):
    """One thing that must be there."""

    def missing(self) -> str | None:
        """None where it is there, else what is missing and how to get it, in one line."""


@functools.cache
def package_manager() -> str:
    """The machine's package manager, one of `INSTALL`; apt where none is found."""
    return next((name for name, words in INSTALL.items() if host.which(words[0])), "apt")


def install_command(packages: Iterable[str]) -> str:
    """What a person types to install packages here."""
    words = "pacman -S" if package_manager() == "pacman" else f"{package_manager()} install"
    return " ".join([words, *sorted(set(packages))])


@dataclass(frozen=True)
class Tool:
    """A command, and the package that holds it (`elsewhere`: its name where it is not Debian's)."""

    command: str
    package: str
    elsewhere: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def package_here(self) -> str:
        return self.elsewhere.get(package_manager(), self.package)

    def missing(self) -> str | None:
        if host.which(self.command):
            return None
        return f"needs {self.command}: {install_command([self.package_here])}"


DMSETUP = Tool("dmsetup", "dmsetup", {"dnf": "device-mapper", "pacman": "device-mapper", "zypper": "device-mapper"})


@dataclass(frozen=True)
class KernelFilesystem:
    """A filesystem that the running kernel can mount, as /proc/filesystems names it."""

    name: str
    module: str = ""

    def missing(self) -> str | None:
        if _filesystem_known(self.name) or (load_module(self.module or self.name) and _filesystem_known(self.name)):
            return None
        return f"this kernel ({platform.release()}) has no {self.name}: boot a kernel that has it, or load its module"


@dataclass(frozen=True)
class DeviceMapper:
    """A device-mapper target of the running kernel, such as crypt."""

    target: str

    def missing(self) -> str | None:
        if not Path("/dev/mapper/control").exists():
            load_module("dm_mod")
        if not Path("/dev/mapper/control").exists():
            return f"this kernel ({platform.release()}) has no device-mapper (for dm-{self.target}): boot one that has"
        if reason := DMSETUP.missing():
            return reason
        if self.target in _targets() or (load_module(f"dm_{self.target}") and self.target in _targets()):
            return None
        return f"this kernel ({platform.release()}) has no dm-{self.target}: boot a kernel that has it"


@dataclass(frozen=True)
class DeviceNode:
    """A device that a kernel feature shows itself by, such as /dev/fuse."""

    path: str
    feature: str
    module: str

    def missing(self) -> str | None:
        if Path(self.path).exists() or (load_module(self.module) and Path(self.path).exists()):
            return None
        return f"this kernel ({platform.release()}) has no {self.feature} ({self.path}): boot one that has"


LOOP_DEVICES = DeviceNode("/dev/loop-control", "loop devices", "loop")
FUSE = DeviceNode("/dev/fuse", "FUSE", "fuse")


@dataclass(frozen=True)
class Root:
    """Administrator rights."""

    what: str

    def missing(self) -> str | None:
        return None if os.geteuid() == 0 else f"{self.what} needs root: run pytest with sudo"


def missing(needs: Iterable[Need]) -> list[str]:
    """The reasons of all that is not there, each once."""
    return list(dict.fromkeys(reason for need in needs if (reason := need.missing())))


def require(*needs: Need) -> None:
    """Skip the running test where something is missing (for workloads)."""
    if reasons := missing(needs):
        import pytest

        pytest.skip("; ".join(reasons))


def load_module(name: str) -> bool:
    """Ask for a kernel module; whether it is loaded now."""
    if os.geteuid() != 0 or host.which("modprobe") is None:
        return False
    try:
        host.run("modprobe", "-q", name)
    except host.CommandError:
        return False
    return True


def _filesystem_known(name: str) -> bool:
    return any(line.split()[-1] == name for line in Path("/proc/filesystems").read_text().splitlines() if line.strip())


def _targets() -> set[str]:
    return {line.split()[0] for line in host.run("dmsetup", "targets").splitlines() if line.strip()}
