"""Uses of a stack that no process shows: each is named, and nothing is left behind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice as LoopFile
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.places import BuildContext
from tests.real.conftest import LoopDevice, built, image_of, run, swapped_on

pytestmark = pytest.mark.root


@pytest.mark.parametrize("stack", ["ext4", "xfs", "ext4 | bind"])
def test_a_swap_file_is_named_and_turned_off(context: BuildContext, stack: str) -> None:
    with ExitStack() as undo:
        made = undo.enter_context(built(stack, LoopFile(400 << 20), context))
        swap, loop = made.path / "swap", made.bottom.path
        image = image_of(loop)
        swap.write_bytes(bytes(16 << 20))
        swap.chmod(0o600)
        run("mkswap", swap)
        run("swapon", swap)
        with pytest.raises(BuildError, match=rf"swapoff {swap}"):
            undo.close()
    assert str(swap) not in Path("/proc/swaps").read_text()
    assert image_of(loop) != image


@pytest.mark.parametrize("stack", ["ext4", "xfs"])
def test_a_frozen_filesystem_is_named_and_thawed(context: BuildContext, stack: str) -> None:
    with ExitStack() as undo:
        made = undo.enter_context(built(stack, LoopFile(400 << 20), context))
        loop = made.bottom.path
        image = image_of(loop)
        run("fsfreeze", "-f", made.path)
        with pytest.raises(BuildError, match="fsfreeze -u"):
            undo.close()
    assert image_of(loop) != image


def test_a_frozen_filesystem_that_was_unmounted_is_named(loop_device: LoopDevice, tmp_path: Path) -> None:
    loop = loop_device()
    run("mkfs.ext4", "-q", loop.path)
    target = tmp_path / "target"
    target.mkdir()
    run("mount", loop.path, target)
    run("fsfreeze", "-f", target)
    run("umount", target)
    try:
        assert "fsfreeze" in mounts.in_use(RealMachine(), loop.path)
    finally:
        run("mount", loop.path, target)
        run("fsfreeze", "-u", target)
        run("umount", target)
    assert commands.wait_until(lambda: "fsfreeze" not in mounts.in_use(RealMachine(), loop.path), 60)


def test_the_filesystem_below_a_bind_mount_is_not_thawed(
    loop_device: LoopDevice, mount: Callable[[Path], Path], tmp_path: Path
) -> None:
    loop = loop_device()
    run("mkfs.ext4", "-q", loop.path)
    target = mount(loop.path)
    (tmp_path / "bind").mkdir()
    with mounts.mounted(RealMachine(), target, tmp_path / "bind", options="bind"):
        run("fsfreeze", "-f", target)
    # It would fail if it were not frozen any more.
    run("fsfreeze", "-u", target)


def test_swap_space_is_named(loop_device: LoopDevice) -> None:
    loop = loop_device()
    with swapped_on(loop.path):
        assert "swapoff" in mounts.in_use(RealMachine(), loop.path)
    assert "swapoff" not in mounts.in_use(RealMachine(), loop.path)


def time_of_taking_down(undo: ExitStack, *named: str) -> float:
    """Take a stack down on which something was left that the error must name. Return the seconds that it took."""
    started = time.monotonic()
    with pytest.raises(BuildError) as caught:
        undo.close()
    seconds = time.monotonic() - started
    assert [name for name in named if name not in str(caught.value)] == []
    assert "fsfreeze" not in str(caught.value)
    return seconds


#: The fewest seconds that a stack in use was waited for: 10 for the mount, and 10 for the device below.
WAITED = 20.0


@pytest.mark.parametrize("stack", ["ext4", "xfs", "ext4 | bind", "ext4 | loop(size='310M') | xfs"])
def test_a_loop_device_of_a_test_is_named_and_detached(context: BuildContext, stack: str) -> None:
    with ExitStack() as undo:
        made = undo.enter_context(built(stack, LoopFile(400 << 20), context))
        below = made.bottom.path
        image, file = image_of(below), made.path / "file"
        file.write_bytes(bytes(1 << 20))
        loop = Path(run("losetup", "--find", "--show", file))
        assert time_of_taking_down(undo, f"losetup -d {loop}") < WAITED
    assert image_of(loop) != str(file)
    assert image_of(below) != image


@pytest.mark.parametrize("depth", [1, 2])
def test_mounts_of_a_test_are_named_and_unmounted(context: BuildContext, depth: int) -> None:
    with ExitStack() as undo:
        made = undo.enter_context(built("ext4", LoopFile(400 << 20), context))
        below = made.bottom.path
        top = made.path
        image, nested = image_of(below), [top]
        for _ in range(depth):
            nested.append(nested[-1] / "nested")
            nested[-1].mkdir()
            run("mount", "-t", "tmpfs", "tmpfs", nested[-1])
        assert time_of_taking_down(undo, *(f"umount {place}" for place in nested[1:])) < WAITED
    assert mounts.below(top) == []
    assert image_of(below) != image


@pytest.mark.parametrize("stack", ["ext4", "btrfs", "ext4 | bind", "ext4 | overlay", "ext4 | gocryptfs"])
def test_a_mount_of_the_stack_at_another_place_is_named_and_unmounted(
    context: BuildContext, stack: str, tmp_path: Path
) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    with ExitStack() as undo:
        made = undo.enter_context(built(stack, LoopFile(400 << 20), context))
        below = made.bottom.path
        image = image_of(below)
        (made.path / "directory").mkdir()
        run("mount", "--bind", made.path / "directory", place)
        assert time_of_taking_down(undo, f"umount {place}") < WAITED
    assert mounts.at(place) is None
    assert image_of(below) != image


def test_a_process_with_mounts_of_its_own_is_named(context: BuildContext) -> None:
    with ExitStack() as undo:
        made = undo.enter_context(built("ext4", LoopFile(64 << 20), context))
        below = made.bottom.path
        image = image_of(below)
        words = ["unshare", "--mount", "sh", "-c", "echo; exec sleep 600"]
        with subprocess.Popen(words, cwd="/", stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(OSError, match=rf"{process.pid} \((sleep|sh)\), .*{made.path}") as caught:
                undo.close()
            process.kill()
    assert "fsfreeze" not in str(caught.value)
    assert commands.wait_until(lambda: image_of(below) != image, 60)


def test_a_filesystem_in_a_file_of_the_stack_is_unmounted_and_detached(context: BuildContext) -> None:
    with ExitStack() as undo:
        made = undo.enter_context(built("ext4", LoopFile(400 << 20), context))
        image, nested = made.path / "image", made.path / "nested"
        image.write_bytes(bytes(16 << 20))
        run("mkfs.ext4", "-q", image)
        nested.mkdir()
        loop = Path(run("losetup", "--find", "--show", image))
        run("mount", loop, nested)
        assert time_of_taking_down(undo, f"umount {nested}", f"losetup -d {loop}") < WAITED
    assert image_of(loop) != str(image)


def test_a_loop_device_that_is_in_use_elsewhere_is_named_and_not_waited_for(
    context: BuildContext, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with ExitStack() as undo:
        made = undo.enter_context(built("ext4", LoopFile(400 << 20), context))
        below, image = made.bottom.path, made.path / "image"
        image.write_bytes(bytes(16 << 20))
        run("mkfs.ext4", "-q", image)
        loop = Path(run("losetup", "--find", "--show", image))
        run("mount", loop, elsewhere)
        behind = image_of(below)
        try:
            assert time_of_taking_down(undo, str(loop), str(elsewhere)) < WAITED
        finally:
            run("umount", elsewhere)
    assert commands.wait_until(lambda: image_of(below) != behind, 60)
