"""What a test leaves on its stack that no process shows: it is named, and nothing stays behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice as LoopFile
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.model import BuildContext
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
