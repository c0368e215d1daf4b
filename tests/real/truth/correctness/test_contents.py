"""The scenario of contents at its smallest scale, on loop devices, with its control."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine.needs import missing
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.truth.correctness.contents import Comparison
from pytest_fsstack.truth.correctness.drawing import REMOUNT, Call
from pytest_fsstack.truth.correctness.exploring import _fill
from pytest_fsstack.truth.correctness.fsxfile import FSX
from tests.real.conftest import built
from tests.real.test_scenarios import smoke

pytestmark = pytest.mark.root


def test_a_changed_byte_is_found_and_nothing_else_is(tmp_path: Path) -> None:
    # Others have bugs that some seeds show.
    stacks = ["ext4", "control = ext4 | bind"]
    chosen = [f"--fsstack-stacks={stack}" for stack in stacks]
    chains, _ = smoke("test_contents", tmp_path, "--fsstack-seed=1", *chosen)
    (chain,) = chains
    counts = {
        step: {stack: chain.median(step, stack, "contents_differences") for stack in by_stack}
        for step, by_stack in chain.samples.items()
    }
    if not missing([FSX]):
        assert counts["fsx"]["ext4"] == 0
        assert counts["fsx"]["control"] == 1
    for step in "calls", "nearly_full":
        assert counts[step]["ext4"] == 0
        assert counts[step]["control"]


def test_zeros_of_a_failed_ftruncate_that_do_not_outlive_a_remount_are_no_difference(
    context: BuildContext, tmp_path: Path
) -> None:
    calls = [
        Call("open", (0, "a", "RDWR CREAT", 0o644)),
        Call("pwrite", (0, 0, 100_000, 1)),
        Call("fill", (0,)),
        Call("copy_file_range", (0, 90_000, 0, 300_000, 100_000)),
        Call("ftruncate", (0, 90_001)),
        REMOUNT,
    ]
    with built("btrfs(quota='64M')", LoopDevice(384 << 20), context) as stack:
        _fill(stack.path, 300_000)
        remount, limits = stack.remount, stack.stack.limits
        comparison = Comparison(stack.path / "calls", tmp_path / "model", remount, limits, full=True)
        for call in calls:
            comparison.make(call)
        assert comparison.met["ftruncate", "no space"]
        comparison.dispose()
