"""Advice for stacks that the running kernel cannot build."""

from __future__ import annotations

import importlib.util
import platform
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_fsstack.kernels import vm
from pytest_fsstack.machine import needs
from pytest_fsstack.units import first_names, shortened

_BOOT = Path("/boot")
_PACKAGES = {
    "apt": "linux-image-amd64",
    "dnf": "kernel-core",
    "zypper": "kernel-default",
    "pacman": "linux",
}


def another_kernel(stacks: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return lines on how to run these stacks on another kernel of this machine: a sentence, and commands to copy.

    `words` are pytest's arguments. The commands run the stacks at the smallest scale, because guests are slow. Nothing
    is tried. It only says that KVM works if an earlier guest has shown it.
    """
    kernel, commands = _newest(), list[str]()
    lacks = [lack for lack in needs.lacking(vm.NEEDS) if lack.kind is not needs.Missing.PERMISSION]
    packages = [lack.package for lack in lacks if lack.package]
    packages += [] if kernel else [_PACKAGES[needs.package_manager()]]
    if packages:
        commands.append(needs.install_command(packages))
    if any(not lack.package for lack in lacks) or importlib.util.find_spec("xdist") is None:
        # This is the extra `kernel` of the package.
        commands.append(shlex.join([sys.executable, "-m", "pip", "install", "pytest-xdist", "virtme-ng"]))
    chosen = " or ".join(stacks) if len(stacks) <= 3 else stacks[0]
    options = [f"--fsstack-kernel={kernel or _BOOT / 'vmlinuz-VERSION'}", "--fsstack-scale=smoke", "-k", chosen]
    commands.append(shlex.join([sys.executable, "-m", "pytest", *words, *options]))
    first = f"{shortened(first_names(stacks), 40)}: not with this kernel, but in a VM ({_kvm()}):"
    return [first, *(f"  {command}" for command in commands)]


def _newest() -> Path | None:
    """Return the newest kernel in /boot other than the running one, or None."""
    images = [path for path in _BOOT.glob("vmlinuz-*") if path.name != f"vmlinuz-{platform.release()}"]
    return max(images, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)], default=None)


def _kvm() -> str:
    works = vm.known_to_accelerate()
    if works is None:
        return "KVM not tried yet"
    return "KVM works here" if works else "no KVM: its figures mean nothing"
