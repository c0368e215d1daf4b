"""Requirements of layers, devices and workloads: checks, with the reason and the way to install what is missing."""

from __future__ import annotations

import enum
import functools
import os
import platform
import shlex
import shutil
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pytest_fsstack.machine import blockdev, commands, resident
from pytest_fsstack.units import reason_of

#: The install command of each package manager, in the order of the search.
INSTALL = {
    # At boot, unattended upgrades hold the lock for minutes.
    "apt": ("apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=600"),
    "dnf": ("dnf", "install", "-y"),
    "zypper": ("zypper", "--non-interactive", "install"),
    "pacman": ("pacman", "-S", "--noconfirm"),
}


class Missing(enum.Enum):
    """The kind of a missing requirement, which determines who can help."""

    #: A command or file of a system package.
    PACKAGE = "package"
    #: A feature of the running kernel. Another kernel may have it.
    KERNEL = "kernel"
    #: Administrator rights.
    PERMISSION = "permission"
    #: Something that cannot be installed: the machine, a download, a limit of the stack.
    OTHER = "other"


@dataclass(frozen=True)
class MissingRequirement:
    """A missing requirement: its name, how to get it, and its kind. As text, it is one line."""

    kind: Missing
    what: str
    remedy: str
    #: The package that contains it, by its name on this system.
    package: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


class Need(Protocol):
    """A requirement."""

    def missing(self) -> MissingRequirement | None:
        """Return None if it is met, else what is missing and how to get it."""


@functools.cache
def package_manager() -> str:
    """Return the machine's package manager, one of `INSTALL`; by default apt."""
    return next((name for name, words in INSTALL.items() if commands.which(words[0])), "apt")


def install_command(packages: Iterable[str]) -> str:
    """Return the command that installs packages on this system."""
    words = "pacman -S" if package_manager() == "pacman" else f"{package_manager()} install"
    return " ".join([words, *sorted(set(packages))])


def not_installed(what: str, package: str) -> MissingRequirement:
    """Return the missing requirement for a package."""
    return MissingRequirement(Missing.PACKAGE, what, install_command([package]), package)


_ANOTHER_KERNEL = "boot a kernel that has it, in a VM by --fsstack-kernel=VMLINUZ"


def not_in_kernel(feature: str) -> MissingRequirement:
    """Return the missing requirement for a kernel feature."""
    return MissingRequirement(Missing.KERNEL, f"this kernel ({platform.release()}) has no {feature}", _ANOTHER_KERNEL)


@dataclass(frozen=True)
class Tool:
    """A command and its Debian package. `elsewhere` has other names by package manager. Without package, build it."""

    command: str
    package: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def package_here(self) -> str:
        return self.elsewhere.get(package_manager(), self.package)

    def missing(self) -> MissingRequirement | None:
        return None if commands.which(self.command) else self._how_to_get()

    def _how_to_get(self) -> MissingRequirement:
        if not self.package_here:
            return MissingRequirement(
                Missing.OTHER, f"needs {self.command}", f"build {self.command}, and put it into a directory of PATH"
            )
        return not_installed(f"needs {self.command}", self.package_here)


@dataclass(frozen=True)
class Program(Tool):
    """An executable that a stack names, by its path or in PATH, instead of a package's tool."""

    def _how_to_get(self) -> MissingRequirement:
        if not self.command.startswith("/"):
            what = "which is not in PATH"
        elif not os.path.exists(self.command):
            what = "which does not exist"
        else:
            what = "which is a directory" if os.path.isdir(self.command) else "which is not executable"
        # No package would install this path.
        return MissingRequirement(
            Missing.OTHER, f"needs {self.command}, {what}", "put it there, or correct `binary` in the stack"
        )


@dataclass(frozen=True)
class AnyTool:
    """A command that a user names, of any package. `known` are tools whose packages are known."""

    command: str
    known: tuple[Tool, ...] = ()

    def missing(self) -> MissingRequirement | None:
        if commands.which(self.command):
            return None
        what = f"needs {self.command}"
        if package := self._package():
            return not_installed(what, package)
        return MissingRequirement(Missing.OTHER, f"{what}, which is not in PATH", "install the package that has it")

    def _package(self) -> str:
        """Return the package that contains it, or an empty text."""
        if tool := next((tool for tool in self.known if tool.command == self.command), None):
            return tool.package_here
        if os.sep in self.command or package_manager() not in ("apt", "dnf"):
            return ""
        if package_manager() == "dnf":
            return f"/usr/bin/{self.command}"  # dnf finds the package by the file
        try:
            commands.run("apt-cache", "show", "--", self.command)
        except commands.CommandError:
            return ""
        return self.command


@dataclass(frozen=True)
class PythonTool(Tool):
    """A command that pip installs beside this Python, and its package on PyPI."""

    def _how_to_get(self) -> MissingRequirement:
        install = shlex.join([sys.executable, "-m", "pip", "install", self.package])
        return MissingRequirement(Missing.OTHER, f"needs {self.command}", install)


@dataclass(frozen=True)
class Crate:
    """A command that cargo builds from a crate, because no system package has it."""

    name: str

    @property
    def path(self) -> str | None:
        """Return the executable in PATH or in cargo's directory, which few have in PATH. None if it is missing."""
        if path := commands.which(self.name):
            return path
        home = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
        return shutil.which(self.name, path=os.path.join(home, "bin"))

    def missing(self) -> MissingRequirement | None:
        if self.path:
            return None
        return MissingRequirement(Missing.OTHER, f"needs {self.name}", f"cargo install {self.name}")


DMSETUP = Tool("dmsetup", "dmsetup", {"dnf": "device-mapper", "pacman": "device-mapper", "zypper": "device-mapper"})


@dataclass(frozen=True)
class KernelFilesystem:
    """A filesystem that the running kernel can mount, as in /proc/filesystems."""

    name: str
    module: str = ""
    #: Its history, if current kernels have dropped it.
    removal: str = ""

    def missing(self) -> MissingRequirement | None:
        if self.name in filesystems() or (load_module(self.module or self.name) and self.name in filesystems()):
            return None
        return not_in_kernel(f"{self.name}{f' ({self.removal})' if self.removal else ''}")


@dataclass(frozen=True)
class DeviceMapper:
    """A device-mapper target of the running kernel, such as crypt."""

    target: str

    def missing(self) -> MissingRequirement | None:
        if not _device_mapper() and not (load_module("dm_mod") and _device_mapper()):
            return not_in_kernel(f"device-mapper (for dm-{self.target})")
        if lack := DMSETUP.missing():
            return lack
        if self.target in _targets() or (load_module(f"dm_{self.target}") and self.target in _targets()):
            return None
        # dmsetup makes the node if it may.
        if not _targets() and (lack := _unusable("/dev/mapper/control")):
            return lack
        return not_in_kernel(f"dm-{self.target}")


@dataclass(frozen=True)
class KernelCipher:
    """A cipher of the running kernel, named as in its crypto interface: adiantum(xchacha12,aes)."""

    name: str
    #: The kernel's option for it, to check if the interface is missing.
    config: str

    def missing(self) -> MissingRequirement | None:
        if _cipher_known(self.name):
            return None
        # Any kernel that encrypts has AES. Without AES, the interface is missing.
        if not _cipher_known("cbc(aes)") and _configured(self.config) is not False:
            return None
        return not_in_kernel(f"{self.name} (CONFIG_{self.config})")


@dataclass(frozen=True)
class DeviceNode:
    """A device node that shows a kernel feature, such as /dev/fuse. A missing node of a present feature is made."""

    path: str
    feature: str
    module: str

    def missing(self) -> MissingRequirement | None:
        if not os.path.exists(self.path):
            # Containers often have a kernel's feature and not its node.
            device = _misc_device(os.path.basename(self.path))
            if device is None and not (load_module(self.module) and os.path.exists(self.path)):
                device = _misc_device(os.path.basename(self.path))
                if device is None:
                    return not_in_kernel(f"{self.feature} ({self.path})")
            if device is not None:
                blockdev.make_node(self.path, stat.S_IFCHR, device)
        return _unusable(self.path)


@dataclass(frozen=True)
class LoopDevices(DeviceNode):
    """The device nodes of loop devices: the one that controls them, and that of the next free one."""

    def missing(self) -> MissingRequirement | None:
        if lack := super().missing():
            return lack
        try:
            return _unusable(str(blockdev.free_loop()))
        except OSError as error:
            what = f"no loop device can be had: {reason_of(error)}"
            return MissingRequirement(Missing.PERMISSION, what, _container(self.path))


def _misc_device(name: str) -> int | None:
    """Return the device number of a driver in /proc/misc, or None if the kernel has not loaded it."""
    for line in Path("/proc/misc").read_text().splitlines():
        minor, _, driver = line.strip().partition(" ")
        if driver == name:
            return os.makedev(_MISC_MAJOR, int(minor))
    return None


#: Documentation/admin-guide/devices.txt
_MISC_MAJOR = 10


def _unusable(path: str) -> MissingRequirement | None:
    """Return why a device node cannot be opened, or None if it can."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except FileNotFoundError:
        what = f"{path} does not exist here, although the kernel has the device"
    except PermissionError:
        what = f"{path} may not be opened here"
    except OSError:
        return None  # the device is busy, or wants other flags
    else:
        return None
    if os.geteuid() != 0:
        return MissingRequirement(Missing.PERMISSION, what, "run pytest with sudo")
    return MissingRequirement(Missing.PERMISSION, what, _container(path))


def _container(path: str) -> str:
    return f"start the container with --device={path} or --privileged"


@dataclass(frozen=True)
class FuseDevice(DeviceNode):
    """The device node of FUSE, and the right to mount it, which fusermount gives to users who may have it."""

    def missing(self) -> MissingRequirement | None:
        if lack := super().missing():
            return lack
        if os.geteuid() == 0 or not _status("NoNewPrivs"):
            root = Root("mounting by FUSE")
            return None if _has(CAP_SYS_ADMIN, "CapBnd") else root.lack()
        what = "fusermount cannot mount here, because this process may gain no privileges"
        return MissingRequirement(Missing.PERMISSION, what, "start it without no_new_privs (no-new-privileges)")


#: Capabilities (linux/capability.h).
CAP_SETUID, CAP_SYS_ADMIN = 7, 21
_CAPABILITIES = {CAP_SETUID: "CAP_SETUID", CAP_SYS_ADMIN: "CAP_SYS_ADMIN"}


@dataclass(frozen=True)
class Root:
    """Administrator rights: user 0 with a capability, which root in a container may lack."""

    what: str
    capability: int = CAP_SYS_ADMIN

    def missing(self) -> MissingRequirement | None:
        if os.geteuid() != 0:
            return MissingRequirement(Missing.PERMISSION, f"{self.what} needs root", "run pytest with sudo")
        return None if _has(self.capability, "CapEff") else self.lack()

    def lack(self) -> MissingRequirement:
        """Return the missing requirement for the capability."""
        name = _CAPABILITIES[self.capability]
        return MissingRequirement(
            Missing.PERMISSION,
            f"{self.what} needs {name}, which this container lacks",
            f"start the container with --privileged or --cap-add={name.removeprefix('CAP_')}",
        )


def _has(capability: int, field: str) -> bool:
    """Whether a set of this process has a capability: CapEff for its own ones, CapBnd for those of its programs."""
    return bool(_status(field) >> capability & 1)


def _status(field: str) -> int:
    """Return a hexadecimal number of proc_pid_status(5)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith(f"{field}:")), 0)


LOOP_DEVICES = LoopDevices("/dev/loop-control", "loop devices", "loop")
FUSE = FuseDevice("/dev/fuse", "FUSE", "fuse")


def lacking(needs: Iterable[Need]) -> list[MissingRequirement]:
    """Return all missing requirements without duplicates."""
    return list(dict.fromkeys(lack for need in needs if (lack := need.missing())))


def missing(needs: Iterable[Need]) -> list[str]:
    """Return the missing requirements as lines of text, one for each remedy."""
    by_remedy: dict[str, list[str]] = {}
    for lack in lacking(needs):
        by_remedy.setdefault(lack.remedy, []).append(lack.what)
    return [f"{'; '.join(names)}: {remedy}" for remedy, names in by_remedy.items()]


def require(*needs: Need) -> None:
    """Skip the running test if a requirement is missing (for workloads). Its tools stay in memory from here on."""
    if reasons := missing(needs):
        import pytest

        skip = pytest.skip.Exception("; ".join(reasons))
        # Tells it from the skips that a test decides on.
        vars(skip)["lacking"] = True
        raise skip
    load(needs)


def load(needs: Iterable[Need]) -> None:
    """Keep the tools in memory, even after a cold start."""
    for need in needs:
        if isinstance(need, Tool):
            resident.keep(need.command)


def load_module(name: str) -> bool:
    """Load a kernel module, and return whether it is loaded."""
    if os.geteuid() != 0 or commands.which("modprobe") is None:
        return False
    try:
        commands.run("modprobe", "-q", name)
    except commands.CommandError:
        return False
    return True


def filesystems() -> set[str]:
    """Return the filesystems that the kernel can mount without loading another module."""
    return {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines() if line.strip()}


def _device_mapper() -> bool:
    # /dev/mapper/control proves nothing: `dmsetup --version` creates it even without the driver.
    return "device-mapper" in Path("/proc/misc").read_text().split()


def _targets() -> set[str]:
    try:
        return {line.split()[0] for line in commands.run("dmsetup", "targets").splitlines() if line.strip()}
    except commands.CommandError:
        return set()


def _cipher_known(name: str) -> bool:
    import socket

    try:
        with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as interface:
            interface.bind(("skcipher", name))
    except OSError:
        return False
    return True


@functools.cache
def _configured(option: str) -> bool | None:
    """Whether the running kernel was configured with an option. None if unknown."""
    release = platform.release()
    for file in "/proc/config.gz", f"/boot/config-{release}", f"/lib/modules/{release}/config":
        if Path(file).exists():
            content = Path(file).read_bytes()
            if file.endswith(".gz"):
                import gzip

                content = gzip.decompress(content)
            return any(line.startswith(f"CONFIG_{option}=".encode()) for line in content.splitlines())
    return None
