"""Drawn projects break no rule on loop devices. `python -m tests.combinations --loops N` draws others."""

from __future__ import annotations

import math

import pytest

from tests.combinations import __main__ as combinations

pytestmark = pytest.mark.root

#: The projects of one seed.
PROJECTS = 8


# hypothesis calls a time limit inside of its search inconsistent, so no load must reach it.
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(3))
def test_drawn_projects_break_no_rule_on_loop_devices(seed: int) -> None:
    tally = combinations.draw(f"loops {seed}", math.inf, PROJECTS, device="loop")
    print(*tally.complaints, tally.counts, sep="\n")
    assert tally.complaints == []
    assert tally.counts["projects"] >= PROJECTS
