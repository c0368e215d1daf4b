"""What the step of power cuts says where it cannot do its work, and what the scenario makes of its counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack import BuildError
from pytest_fsstack.truth.power import Damage, cutting, power_cuts
from pytest_fsstack.truth.power.plan import Operation
from pytest_fsstack.truth.power.promises import Found, History, Unreadable
from pytest_fsstack.truth.power.worker import content
from scenarios.test_power_cut import MUST_LOSE, MUST_SURVIVE, wrong
from tests.toolkit import NotedStack, NotedTimed


def test_without_a_log_there_is_nothing_to_cut(tmp_path: Path) -> None:
    stack = NotedStack(tmp_path)
    timed = NotedTimed(stack)
    with pytest.raises(BuildError, match="no power can be cut: `directory` has no layer recorded with others on it"):
        power_cuts(timed, stack, seed=1, operations=10, cuts=1)
    assert timed.blocks == []


HISTORY = History(3, [Operation("write", "a", "", 0, 8), Operation("sync", "a"), Operation("sync directory")])
WHOLE = {"a": content(3, 0, 8)}


def counted(found: Found, wrong: str = "", mounted: bool = True, checked: bool = True) -> set[str]:
    """What holds after one cut."""
    damage = Damage()
    left = cutting._Left([wrong] if wrong else [], mounted, found, checked)
    said = damage.count(left, HISTORY, 3)
    figures = {name: value for name, value in vars(damage).items() if name != "said"}
    assert set(figures.values()) <= {0, 1}
    assert bool(said) is not figures["survived"]
    return {name for name, value in figures.items() if value}


def test_each_thing_that_is_wrong_counts_where_it_belongs() -> None:
    every = {"cuts", "mounted", "checked", "clean", "synced_there", "nothing_invented", "all_readable", "survived"}
    assert counted(WHOLE) == every
    assert counted(WHOLE, checked=False) == every - {"checked", "clean"}
    assert counted(WHOLE, "not clean") == every - {"clean", "survived"}
    assert counted({}, "refused", mounted=False, checked=False) == {"cuts"}
    assert counted({}) == every - {"synced_there", "survived"}
    assert counted({**WHOLE, "b": b""}) == every - {"nothing_invented", "survived"}
    assert counted({"a": Unreadable("EIO")}) == every - {"synced_there", "all_readable", "survived"}


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
