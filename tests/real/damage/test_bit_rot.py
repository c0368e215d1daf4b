"""The scenario about bit rot at its smallest scale: without checksums, with copies, and encrypted by a daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.judging.results import ChainResults
from tests.toolkit import chains_of

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, float]]]:
    """By step and stack, what was counted."""
    found = tmp_path_factory.mktemp("rot") / "found.json"
    alone = (
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--fsstack-scale=smoke",
        "--fsstack-rounds=1",
        "--fsstack-size=320M",
        "--fsstack-seed=1",
    )
    chosen = "[ext4] or [btrfs-raid1] or [gocryptfs]"
    words = [sys.executable, "-m", "pytest", *alone, f"--fsstack-json={found}", "-k", chosen, "-v"]
    done = subprocess.run([*words, "scenarios/test_bit_rot.py"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    (chain,) = chains_of(found)
    return {step: {stack: figures(chain, step, stack) for stack in chain.stacks} for step in chain.steps}


def figures(chain: ChainResults, step: str, stack: str) -> dict[str, float]:
    return {name: sum(chain.series(step, stack, name)) for name in chain.metrics(step)}


def test_flips_in_contents_are_wrong_reported_or_corrected(counted: dict[str, Any]) -> None:
    found = counted["contents"]
    assert found["ext4"]["wrong"] == found["ext4"]["flips"] == 2
    assert found["gocryptfs"]["reported"] == found["gocryptfs"]["checked"] == 2
    assert found["btrfs-raid1"]["unnoticed"] == found["btrfs-raid1"]["corrected"] == 2


def test_each_flip_has_one_outcome(counted: dict[str, Any]) -> None:
    for step in counted.values():
        for each in step.values():
            assert each["flips"] == each["reported"] + each["wrong"] + each["missing"] + each["unnoticed"]
