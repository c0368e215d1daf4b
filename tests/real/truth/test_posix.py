"""The scenario of pjdfstest at its smallest scale, on loop devices, with its control."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.machine.needs import missing
from pytest_fsstack.truth.posix import PJDFSTEST
from tests.real.test_scenarios import smoke

pytestmark = pytest.mark.root


def test_a_control_is_found_out_and_the_others_are_counted(tmp_path: Path) -> None:
    if reasons := missing([PJDFSTEST]):
        pytest.skip(reasons[0])
    stacks = ["ext4", "bind = ext4 | bind", "control-root-only = ext4 | gocryptfs"]
    chains, said = smoke("test_posix", tmp_path, *(f"--fsstack-stacks={stack}" for stack in stacks))
    (chain,) = chains
    (step,) = chain["steps"]
    figures = {stack: facts["metrics"] for stack, facts in step["stacks"].items()}
    counts = {stack: [of[f"posix_{name}"]["median"] for name in ("run", "passed")] for stack, of in figures.items()}
    run, passed = counts["ext4"]
    assert run == passed > 50
    assert counts["bind"] == [run, run]
    assert f"{run:.0f} of {run:.0f}" in said
    if "control-root-only" in counts:
        # Of what failed there, some may have failed below too, where times of a busy machine come into it.
        assert 0 < figures["control-root-only"]["posix_differences"]["median"] <= run - counts["control-root-only"][1]
