"""How to get the stacks that the running kernel cannot build: the command for this machine, in a line."""

from __future__ import annotations

import platform
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_fsstack.kernels import vm
from pytest_fsstack.machine import needs

_BOOT = Path("/boot")
_PACKAGES = {
    "apt": "linux-image-amd64",
    "dnf": "kernel-core",
    "zypper": "kernel-default",
    "pacman": "linux",
}


def another_kernel(stacks: Iterable[str], arguments: Sequence[str]) -> str:
    """What to type to run these stacks on a kernel of this machine that is not the running one.

    `arguments` are those of this session. Nothing is tried: whether KVM works is told only if a guest showed it before.
    """
    command = shlex.join(["pytest", *arguments])
    names = ", ".join(stacks)
    if kernel := _newest():
        how = f"{command} --fsstack-kernel={kernel}"
    else:
        install = needs.install_command([_PACKAGES[needs.package_manager()]])
        how = f"{install}, which puts a kernel into /boot, then {command} --fsstack-kernel=/boot/vmlinuz-VERSION"
    return f"{names}: this kernel cannot, and a VM of another one can ({_kvm()}): {how}"


def _newest() -> Path | None:
    """The newest kernel in /boot that is not the running one."""
    found = [path for path in _BOOT.glob("vmlinuz-*") if path.name != f"vmlinuz-{platform.release()}"]
    return max(found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)], default=None)


def _kvm() -> str:
    known = vm.known_to_accelerate()
    if known is None:
        return "whether KVM works here shows when one is booted"
    return "KVM works here" if known else "without KVM here: emulated, so its figures show function only"
