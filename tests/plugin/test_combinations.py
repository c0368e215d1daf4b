"""Drawn projects break no rule. `python -m tests.combinations` draws others for as long as you like."""

from __future__ import annotations

import math

import pytest

from tests.combinations import __main__ as combinations

#: The projects of one seed take half a minute on an idle processor.
PROJECTS = 20


# hypothesis calls a time limit inside of its search inconsistent, so no load must reach it.
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", range(2))
def test_drawn_projects_break_no_rule(seed: int) -> None:
    """Each seed draws the same projects each time, so that no change fails by chance."""
    tally = combinations.draw(f"gate {seed}", math.inf, PROJECTS)
    print(*tally.complaints, tally.counts, sep="\n")
    assert tally.complaints == []
    assert tally.counts["projects"] >= PROJECTS
