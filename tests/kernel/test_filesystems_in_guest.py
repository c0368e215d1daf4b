"""Filesystems on kernels that have them, whatever the host's has.

One guest of Debian's kernel runs all of `guest/inside_filesystems.py`; each of its tests is a test here. What that
kernel lacks is run in a guest of a newer one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kernel import boot
from tests.kernel.conftest import Guest, names_in
from tests.kernel.guest import inside_filesystems
from tests.kernel.guest.common import DISK

pytestmark = [pytest.mark.root, pytest.mark.kernel]

ONLY_NEWER = [name for name in names_in(inside_filesystems) if "ntfs" in name or "bcachefs" in name]


@pytest.fixture(scope="session")
def guest(run_in_guest: Callable[..., Guest]) -> Guest:
    return run_in_guest(Path(inside_filesystems.__file__), f"--fsstack-device={DISK}")


@pytest.fixture(scope="session")
def newer_guest(run_in_guest: Callable[..., Guest]) -> Guest:
    vmlinuz = boot.kernel_or_skip(boot.NEWER, unless=boot.GuestError)
    arguments = (f"--fsstack-device={DISK}", "-k", "ntfs or bcachefs")
    return run_in_guest(Path(inside_filesystems.__file__), *arguments, vmlinuz=vmlinuz)


@pytest.mark.parametrize("name", [name for name in names_in(inside_filesystems) if name not in ONLY_NEWER])
def test_in_guest(guest: Guest, name: str) -> None:
    guest.check(name)


@pytest.mark.parametrize("name", ONLY_NEWER)
def test_in_newer_guest(newer_guest: Guest, name: str) -> None:
    newer_guest.check(name)


def test_nothing_else_ran_in_the_guest(guest: Guest) -> None:
    assert set(guest.outcomes) == set(names_in(inside_filesystems))
