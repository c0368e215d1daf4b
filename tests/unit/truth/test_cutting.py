"""What the step of power cuts says where it cannot do its work, and what the scenario makes of its counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack import BuildError
from pytest_fsstack.truth.power import Damage, power_cuts
from scenarios.test_power_cut import MUST_LOSE, MUST_SURVIVE, wrong
from tests.toolkit import NotedStack, NotedTimed


def test_without_a_log_there_is_nothing_to_cut(tmp_path: Path) -> None:
    stack = NotedStack(tmp_path)
    timed = NotedTimed(stack)
    with pytest.raises(BuildError, match="no power can be cut: `directory` has no layer recorded with others on it"):
        power_cuts(timed, stack, seed=1, operations=10, cuts=1)
    assert timed.blocks == []


def test_a_loss_is_wrong_where_a_filesystem_must_survive_and_none_where_a_control_must_lose() -> None:
    whole = Damage(cuts=4, survived=4)
    damaged = Damage(cuts=4, survived=3, said=["what is gone", "what else"])
    for name in MUST_SURVIVE:
        assert wrong(name, whole) == ""
        assert wrong(name, damaged) == "1 of 4 power cuts were not survived; the first: what is gone"
    for name in MUST_LOSE:
        assert wrong(name, whole) == "it is a control, and has survived all 4 power cuts"
        assert wrong(name, damaged) == ""
    for name in ("gocryptfs", ""):
        assert wrong(name, whole) == wrong(name, damaged) == ""
