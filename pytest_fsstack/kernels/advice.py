"""Advice for stacks that the running kernel cannot build."""

from __future__ import annotations

import platform
import re
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


def another_kernel(stacks: Sequence[str]) -> list[str]:
    """Return two short lines on how to run these stacks on another kernel of this machine.

    Nothing is tried. It only says that KVM works if an earlier guest has shown it.
    """
    kernel, how = _newest(), ""
    if kernel is None:
        how = f"{needs.install_command([_PACKAGES[needs.package_manager()]])}, then "
    advice = f"run the same command with --fsstack-kernel={kernel or _BOOT / 'vmlinuz-VERSION'}"
    return [f"{shortened(first_names(stacks), 40)}: not with this kernel, but in a VM ({_kvm()})", f"  {how}{advice}"]


def _newest() -> Path | None:
    """Return the newest kernel in /boot other than the running one, or None."""
    images = [path for path in _BOOT.glob("vmlinuz-*") if path.name != f"vmlinuz-{platform.release()}"]
    return max(images, key=lambda path: [int(number) for number in re.findall(r"\d+", path.name)], default=None)


def _kvm() -> str:
    works = vm.known_to_accelerate()
    if works is None:
        return "KVM not tried yet"
    return "KVM works here" if works else "no KVM: its figures mean nothing"
