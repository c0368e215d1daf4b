"""Filesystems with encryption of their own: bcachefs on a newer kernel of Debian, OpenZFS on one with its module.

Debian has no packages of the tools of bcachefs, and none of OpenZFS's module for a kernel that is not installed, so
these tests need what docs/scenarios.md builds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from tests.kernel import boot
from tests.kernel.conftest import Guest, names_in
from tests.kernel.guest import inside_native_encryption
from tests.kernel.guest.common import DISK

pytestmark = [pytest.mark.root, pytest.mark.kernel]

#: Commands that print something if the tools are those that encrypt. zfs-fuse has tools of the same names.
TOOLS = {"bcachefs": ("mkfs.bcachefs", "--help"), "zfs": ("zpool", "--version")}
NAMES = {kind: [name for name in names_in(inside_native_encryption) if f"[{kind}" in name] for kind in TOOLS}


def kernel_with(module: str) -> Path:
    """Find a kernel in the cache that has a module."""
    cache = boot.kernels()
    for vmlinuz in sorted(cache.glob("*/boot/vmlinuz-*"), reverse=True):
        if any((vmlinuz.parents[1] / "lib/modules").glob(f"*/**/{module}.ko*")):
            return vmlinuz
    pytest.skip(f"no kernel in {cache} has {module}.ko; see docs/scenarios.md, Native encryption")


def has_tools(kind: str) -> bool:
    tool, option = TOOLS[kind]
    path = commands.which(tool)
    return bool(path and subprocess.run([path, option], capture_output=True).stdout)


@pytest.fixture(scope="session", params=TOOLS)
def guest(request: pytest.FixtureRequest, run_in_guest: Callable[..., Guest]) -> tuple[str, Guest]:
    kind: str = request.param
    if not has_tools(kind):
        pytest.skip(f"no tools of a {kind} that encrypts; see docs/scenarios.md, Native encryption")
    arguments = (f"--fsstack-device={DISK}", "-k", kind)
    return kind, run_in_guest(Path(inside_native_encryption.__file__), *arguments, vmlinuz=kernel_with(kind))


def test_only_what_is_encrypted_is_hidden(guest: tuple[str, Guest]) -> None:
    kind, session = guest
    assert set(session.outcomes) == set(NAMES[kind])
    for name in NAMES[kind]:
        session.check(name)
