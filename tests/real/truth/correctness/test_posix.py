"""The scenario of pjdfstest at its smallest scale, on loop devices, with its control."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine.needs import missing
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.truth.correctness.posix import PJDFSTEST, letting_go
from tests.real.conftest import built, stop_process
from tests.real.test_scenarios import smoke

pytestmark = pytest.mark.root


def test_a_control_is_found_out_and_the_others_are_counted(tmp_path: Path) -> None:
    if reasons := missing([PJDFSTEST]):
        pytest.skip(reasons[0])
    stacks = ["ext4", "bind = ext4 | bind", "control-root-only = ext4 | gocryptfs"]
    chains, output = smoke("test_posix", tmp_path, *(f"--fsstack-stacks={stack}" for stack in stacks))
    (chain,) = chains
    (step,) = chain.steps
    counts = {
        stack: [chain.median(step, stack, f"posix_{name}") or 0 for name in ("run", "passed")]
        for stack in chain.samples[step]
    }
    every, passed = counts["ext4"]
    assert every == passed > 50
    assert counts["bind"] == [every, every]
    assert f"{every:.0f} of {every:.0f}" in output
    if "control-root-only" in counts:
        # Of what failed there, some may have failed below too, where times of a busy machine come into it.
        differences = chain.median(step, "control-root-only", "posix_differences")
        assert differences is not None
        assert 0 < differences <= every - counts["control-root-only"][1]


@pytest.mark.parametrize("above", ["", " | directory", " | overlay"])
def test_a_fuse_server_that_hangs_is_let_go_and_the_stack_goes_on(above: str, context: BuildContext) -> None:
    with built(f"ext4 | gocryptfs{above}", LoopDevice(64 << 20), context) as stack:
        (stack.path / "file").write_text("kept")
        (server,) = stack.machine.daemons
        stop_process(server)
        with letting_go(stack, stack.path, 1.0) as let_go:
            assert subprocess.run(["ls", stack.path / "other"], capture_output=True).returncode
        assert let_go.is_set()
        with stack.taken_down():
            pass
        assert (stack.path / "file").read_text() == "kept"


def test_one_that_answers_is_left_alone(context: BuildContext) -> None:
    with (
        built("ext4 | gocryptfs", LoopDevice(64 << 20), context) as stack,
        letting_go(stack, stack.path, 600.0) as let_go,
    ):
        (stack.path / "file").write_text("kept")
    assert not let_go.is_set()
