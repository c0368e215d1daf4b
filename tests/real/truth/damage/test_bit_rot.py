"""The scenario about bit rot at its smallest scale: without checksums, with copies, and encrypted by a daemon."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_fsstack.records.results import ChainResults
from tests.real.test_scenarios import smoke

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, float]]]:
    """By step and stack, what was counted."""
    chosen = "[ext4] or [btrfs-raid1] or [gocryptfs]"
    words = "--fsstack-size=320M", "--fsstack-seed=1", "-k", chosen
    ((chain,), _) = smoke("test_bit_rot", tmp_path_factory.mktemp("rot"), *words)
    return {step: {stack: figures(chain, step, stack) for stack in chain.stacks} for step in chain.steps}


def figures(chain: ChainResults, step: str, stack: str) -> dict[str, float]:
    return {name: sum(chain.series(step, stack, name)) for name in chain.metrics(step)}


def test_flips_in_contents_are_wrong_reported_or_corrected(counted: dict[str, Any]) -> None:
    counts = counted["contents"]
    assert counts["ext4"]["wrong"] == counts["ext4"]["flips"] == 2
    assert counts["gocryptfs"]["reported"] == counts["gocryptfs"]["checked"] == 2
    assert counts["btrfs-raid1"]["unnoticed"] == counts["btrfs-raid1"]["corrected"] == 2


def test_each_flip_has_one_outcome(counted: dict[str, Any]) -> None:
    for step in counted.values():
        for sample in step.values():
            assert sample["flips"] == sample["reported"] + sample["wrong"] + sample["missing"] + sample["unnoticed"]
