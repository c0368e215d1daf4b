"""Requirements of layers, devices and workloads: probed, with the reason and the way to get them."""

from __future__ import annotations

import enum
import functools
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pytest_fsstack.machine import commands, resident

#: How each package manager installs, in the order in which they are looked for.
INSTALL = {
    "apt": ("apt-get", "install", "-y", "--no-install-recommends"),
    "dnf": ("dnf", "install", "-y"),
    "zypper": ("zypper", "--non-interactive", "install"),
    "pacman": ("pacman", "-S", "--noconfirm"),
}


class Missing(enum.Enum):
    """The place of a missing requirement, which decides who can help."""

    #: A command or file that a package of the system has.
    PACKAGE = "package"
    #: A feature of the running kernel: another kernel may have it.
    KERNEL = "kernel"
    #: Administrator rights.
    PERMISSION = "permission"
    #: Something that cannot be installed from here: the machine, a download, what a stack itself can do.
    OTHER = "other"


@dataclass(frozen=True)
class MissingRequirement:
    """Something that is missing: what, how to get it, and what kind of thing it is. As text it is one line."""

    kind: Missing
    what: str
    remedy: str
    #: The package that has it, as this machine's package manager calls it.
    package: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


class Need(Protocol):
    """One thing that must be there."""

    def missing(self) -> MissingRequirement | None:
        """None if it is there, else what is missing and how to get it."""


@functools.cache
def package_manager() -> str:
    """The machine's package manager, one of `INSTALL`; apt where none is found."""
    return next((name for name, words in INSTALL.items() if commands.which(words[0])), "apt")


def install_command(packages: Iterable[str]) -> str:
    """Return the command that installs packages here."""
    words = "pacman -S" if package_manager() == "pacman" else f"{package_manager()} install"
    return " ".join([words, *sorted(set(packages))])


def not_installed(what: str, package: str) -> MissingRequirement:
    """Return the missing requirement of a package that is not installed."""
    return MissingRequirement(Missing.PACKAGE, what, install_command([package]), package)


def not_in_kernel(feature: str) -> MissingRequirement:
    """Return the missing requirement of the running kernel."""
    return MissingRequirement(
        Missing.KERNEL, f"this kernel ({platform.release()}) has no {feature}", "boot a kernel that has it"
    )


@dataclass(frozen=True)
class Tool:
    """A command, and its Debian package (`elsewhere`: by package manager, another name); none if you build it."""

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
    """An executable that a stack names, by its path or as a name in PATH, in place of the tool that a package has."""

    def _how_to_get(self) -> MissingRequirement:
        if not self.command.startswith("/"):
            what = "which is not in PATH"
        elif not os.path.exists(self.command):
            what = "which does not exist"
        else:
            what = "which is a directory" if os.path.isdir(self.command) else "which is not executable"
        # No package would put it there.
        return MissingRequirement(
            Missing.OTHER, f"needs {self.command}, {what}", "put it there, or correct `binary` in the stack"
        )


@dataclass(frozen=True)
class AnyTool:
    """A command that a user names, of any package; `known` are tools whose package is known."""

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
        """Return the package that has it; empty if it is not known."""
        if tool := next((tool for tool in self.known if tool.command == self.command), None):
            return tool.package_here
        if os.sep in self.command or package_manager() not in ("apt", "dnf"):
            return ""
        if package_manager() == "dnf":
            return f"/usr/bin/{self.command}"  # dnf looks up which package has the file
        try:
            commands.run("apt-cache", "show", "--", self.command)
        except commands.CommandError:
            return ""
        return self.command


@dataclass(frozen=True)
class PythonTool(Tool):
    """A command that pip installs beside this very Python, and the package on PyPI that holds it."""

    def _how_to_get(self) -> MissingRequirement:
        install = shlex.join([sys.executable, "-m", "pip", "install", self.package])
        return MissingRequirement(Missing.OTHER, f"needs {self.command}", install)


@dataclass(frozen=True)
class Crate:
    """A command that no package of the system has, and cargo builds from a crate of that name."""

    name: str

    @property
    def path(self) -> str | None:
        """The executable: in PATH, or where cargo puts it, which is in the PATH of few; None where it is not there."""
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
    """A filesystem that the running kernel can mount, as /proc/filesystems names it."""

    name: str
    module: str = ""
    #: What became of it, where today's kernels have it no more.
    gone: str = ""

    def missing(self) -> MissingRequirement | None:
        if self.name in filesystems() or (load_module(self.module or self.name) and self.name in filesystems()):
            return None
        return not_in_kernel(f"{self.name}{f' ({self.gone})' if self.gone else ''}")


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
        return not_in_kernel(f"dm-{self.target}")


@dataclass(frozen=True)
class KernelCipher:
    """A cipher of the running kernel as its crypto interface names it, such as adiantum(xchacha12,aes)."""

    name: str
    #: The kernel's option for it, which tells where the interface itself is missing.
    config: str

    def missing(self) -> MissingRequirement | None:
        if _cipher_known(self.name):
            return None
        # Any kernel that encrypts has AES; one that does not name it lacks the interface to ask.
        if not _cipher_known("cbc(aes)") and _configured(self.config) is not False:
            return None
        return not_in_kernel(f"{self.name} (CONFIG_{self.config})")


@dataclass(frozen=True)
class DeviceNode:
    """A device that a kernel feature shows itself by, such as /dev/fuse."""

    path: str
    feature: str
    module: str

    def missing(self) -> MissingRequirement | None:
        if Path(self.path).exists() or (load_module(self.module) and Path(self.path).exists()):
            return None
        return not_in_kernel(f"{self.feature} ({self.path})")


LOOP_DEVICES = DeviceNode("/dev/loop-control", "loop devices", "loop")
FUSE = DeviceNode("/dev/fuse", "FUSE", "fuse")


@dataclass(frozen=True)
class Root:
    """Administrator rights."""

    what: str

    def missing(self) -> MissingRequirement | None:
        if os.geteuid() == 0:
            return None
        return MissingRequirement(Missing.PERMISSION, f"{self.what} needs root", "run pytest with sudo")


def lacking(needs: Iterable[Need]) -> list[MissingRequirement]:
    """All that is not there, each once."""
    return list(dict.fromkeys(lack for need in needs if (lack := need.missing())))


def missing(needs: Iterable[Need]) -> list[str]:
    """The same as text, a line each."""
    return [str(lack) for lack in lacking(needs)]


def require(*needs: Need) -> None:
    """Skip the running test where something is missing (for workloads). Tools among them stay in memory from here."""
    if reasons := missing(needs):
        import pytest

        pytest.skip("; ".join(reasons))
    load(needs)


def load(needs: Iterable[Need]) -> None:
    """Have the tools among them in memory, also after a cold start."""
    for need in needs:
        if isinstance(need, Tool):
            resident.keep(need.command)


def load_module(name: str) -> bool:
    """Ask for a kernel module; whether it is loaded now."""
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
    # Not by /dev/mapper/control: even `dmsetup --version` makes that node, whether or not the kernel has the driver.
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
    """Whether the running kernel was configured with an option; None where it does not tell."""
    release = platform.release()
    for file in "/proc/config.gz", f"/boot/config-{release}", f"/lib/modules/{release}/config":
        if Path(file).exists():
            content = Path(file).read_bytes()
            if file.endswith(".gz"):
                import gzip

                content = gzip.decompress(content)
            return any(line.startswith(f"CONFIG_{option}=".encode()) for line in content.splitlines())
    return None
