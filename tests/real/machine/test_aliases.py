"""Devices whose bytes somebody uses by another way: a second loop device on the same file, or what is below one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, guard
from pytest_fsstack.machine.descriptors import opened
from tests import guarding
from tests.real.conftest import Loop, LoopDevice, run, small_session, swapped_on
from tests.real.machine.test_guard import QUIET, needs, refused_idle

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("locks", "impatient")]

MIB = 1 << 20


@pytest.fixture
def pair(loop_device: LoopDevice) -> tuple[Loop, Loop]:
    """Two loop devices on one file."""
    one = loop_device()
    return one, loop_device(on=one.image)


def test_mounted_through_another_loop_device_on_the_same_file(
    pair: tuple[Loop, Loop], mount: Callable[[Path], Path]
) -> None:
    one, two = pair
    run("mkfs.ext4", *QUIET, two.path)
    target = mount(two.path)
    reason = refused_idle(one.path, one)
    assert str(two.path) in reason
    assert str(target) in reason


def test_a_session_refuses_it_with_the_flag_and_exit_code_4(
    pair: tuple[Loop, Loop], mount: Callable[[Path], Path], tmp_path: Path
) -> None:
    one, two = pair
    run("mkfs.ext4", "-q", two.path)
    (mount(two.path) / "photo").write_text("not to be lost")
    os.sync()
    result = small_session(tmp_path, f"--fsstack-device={one.path}", f"--fsstack-overwrite={one.path}")
    assert result.returncode == 4, result.stdout + result.stderr
    assert str(two.path) in result.stdout + result.stderr
    assert b"ext4" in subprocess.run(["blkid", "-p", two.path], capture_output=True).stdout


@needs("sfdisk")
def test_a_mounted_partition_of_another_loop_device_on_the_same_file(
    loop_device: LoopDevice, mount: Callable[[Path], Path]
) -> None:
    one = loop_device()
    (part,) = one.partition("gpt", "size=24MiB")
    subprocess.run(["partx", "-d", one.path], capture_output=True)
    two = loop_device(on=one.image)
    run("partx", "-a", two.path)
    part = Path(f"{two.path}p1")
    run("mkfs.ext4", *QUIET, part)
    mount(part)
    assert str(part) in refused_idle(one.path, one)


def test_swap_through_another_loop_device(pair: tuple[Loop, Loop]) -> None:
    one, two = pair
    with swapped_on(two.path):
        assert f"swapoff {two.path}" in refused_idle(one.path)


def test_a_file_that_is_swap_space_itself(loop_device: LoopDevice) -> None:
    loop = loop_device()
    loop.image.write_bytes(bytes(64 * MIB))
    loop.image.chmod(0o600)
    with swapped_on(loop.image):
        assert f"swapoff {loop.image}" in refused_idle(loop.path)


@pytest.mark.parametrize("flags", [os.O_RDONLY | os.O_EXCL, os.O_RDWR], ids=["exclusively", "for-writing"])
def test_another_loop_device_is_open(pair: tuple[Loop, Loop], flags: int) -> None:
    one, two = pair
    with opened(two.path, flags):
        assert str(two.path) in refused_idle(one.path, one)


@needs("sfdisk")
def test_a_loop_device_on_a_disk_that_is_mounted(loop_device: LoopDevice, mount: Callable[[Path], Path]) -> None:
    disk = loop_device()
    (first, second) = disk.partition("gpt", "size=24MiB", "size=24MiB")
    above = loop_device(on=first)
    run("mkfs.ext4", *QUIET, second)
    mount(second)
    # The other partition of that disk shares no byte with it.
    guarding.check_idle(above.path)
    run("mkfs.ext4", *QUIET, first)
    target = mount(first)
    reason = refused_idle(above.path, disk)
    assert str(first) in reason
    assert str(target) in reason


def test_parts_of_a_file_that_do_not_overlap_are_not_the_same(
    loop_device: LoopDevice, mount: Callable[[Path], Path]
) -> None:
    whole = loop_device(size=96 * MIB)
    lower = loop_device("--sizelimit", str(48 * MIB), on=whole.image)
    upper = loop_device("--offset", str(48 * MIB), on=whole.image)
    run("mkfs.ext4", *QUIET, upper.path)
    mount(upper.path)
    guarding.check_idle(lower.path)
    assert str(upper.path) in refused_idle(whole.path)


def test_the_file_of_a_loop_device_on_a_filesystem_that_only_it_keeps(
    loop_device: LoopDevice, mount: Callable[[Path], Path]
) -> None:
    outer = loop_device(size=96 * MIB)
    run("mkfs.ext4", *QUIET, outer.path)
    target = mount(outer.path)
    with (target / "image").open("wb") as file:
        file.truncate(32 * MIB)
    inner = loop_device(on=target / "image")
    run("umount", "-l", target)
    try:
        assert f"losetup -d {inner.path}" in refused_idle(outer.path)
    finally:
        run("losetup", "-d", inner.path)
        assert commands.wait_until(lambda: not Path("/sys/block", inner.path.name, "loop/backing_file").exists(), 300)
        run("mount", outer.path, target)


def test_two_sessions_cannot_have_two_ways_to_the_same_data(pair: tuple[Loop, Loop]) -> None:
    one, two = pair
    with guarding.claimed(one.path, overwrite=False), pytest.raises(guard.Refused, match="session"):
        with guarding.claimed(two.path, overwrite=False):
            pytest.fail("both were claimed")
