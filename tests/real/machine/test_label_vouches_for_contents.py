"""Data that is written to a scratch device after its label is not overwritten without a flag."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from pytest_fsstack.machine import commands, guard
from tests import guarding
from tests.real.conftest import Loop, LoopDevice, run

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("locks")]

MIB = 1 << 20


def _ext4(loop: Loop) -> None:
    run("mkfs.ext4", "-q", "-F", "-E", f"offset={MIB}", loop.path, "300M")


def _xfs(loop: Loop) -> None:
    if commands.which("mkfs.xfs") is None:
        pytest.skip("not installed: mkfs.xfs; python -m tests.install")
    above = run("losetup", "-f", "--show", "--offset", str(2 * MIB), loop.path)
    try:
        run("mkfs.xfs", "-q", "-f", above)
    finally:
        run("losetup", "-d", above)


def _raw(loop: Loop) -> None:
    loop.write(os.urandom(64 * MIB), MIB)


@pytest.fixture
def scratch(loop_device: LoopDevice) -> Loop:
    """As a session leaves it, with what a test wrote still in the middle."""
    loop = loop_device(size=512 * MIB)
    with guarding.claimed(loop.path, overwrite=False) as device:
        run("mkfs.ext4", "-q", "-F", device.path)
        loop.write(os.urandom(4 * MIB), 200 * MIB)
    assert guard.labelled(loop.path)
    return loop


@pytest.mark.parametrize("write", [_ext4, _xfs, _raw])
def test_what_is_written_beside_the_label_later_is_refused(scratch: Loop, write: Callable[[Loop], None]) -> None:
    write(scratch)
    assert b"pytest-fsstack scratch device" in scratch.path.read_bytes()[:4096]
    with scratch.untouched():
        why = rf"\blabel\b.*`--fsstack-overwrite={scratch.path}`"
        with pytest.raises(guard.Refused, match=why):
            guarding.check_contents(scratch.path)
        with pytest.raises(guard.Refused, match=why), guarding.claimed(scratch.path, overwrite=False):
            pytest.fail("the device was claimed")
        assert not guard.labelled(scratch.path)


def test_a_label_with_another_digest_is_refused(scratch: Loop) -> None:
    text = scratch.path.read_bytes()[:4096]
    at = text.index(b"digest ") + 7
    scratch.write(b"0" if text[at : at + 1] != b"0" else b"1", at)
    with pytest.raises(guard.Refused, match=rf"\blabel\b.*`--fsstack-overwrite={scratch.path}`"):
        guarding.check_contents(scratch.path)
