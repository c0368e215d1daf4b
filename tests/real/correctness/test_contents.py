"""The scenario of contents at its smallest scale, on loop devices, with its control."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fsstack.correctness.fsxfile import FSX
from pytest_fsstack.machine.needs import missing
from tests.real.test_scenarios import smoke

pytestmark = pytest.mark.root


def test_a_changed_byte_is_found_and_nothing_else_is(tmp_path: Path) -> None:
    # Others have bugs that some seeds show.
    stacks = ["ext4", "control = ext4 | bind"]
    chosen = [f"--fsstack-stacks={stack}" for stack in stacks]
    chains, said = smoke("test_contents", tmp_path, "--fsstack-seed=1", *chosen)
    (chain,) = chains
    found = {
        step: {stack: chain.median(step, stack, "contents_differences") for stack in by_stack}
        for step, by_stack in chain.samples.items()
    }
    if not missing([FSX]):
        assert found["fsx"]["ext4"] == 0
        assert found["fsx"]["control"] == 1
    for step in "calls", "nearly_full":
        assert found[step]["ext4"] == 0
        assert found[step]["control"]
    assert re.search(r"\bcalls: .*\bremount\(\)", said)
