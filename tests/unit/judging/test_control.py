"""The control, a second run of the baseline, against the verdicts of its chain."""

from __future__ import annotations

import random
import re
from math import exp

import pytest

from pytest_fsstack.judging.control import doubts
from pytest_fsstack.judging.describe import notice_in_words
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.notices import ControlDiffers
from pytest_fsstack.records.results import ChainResults
from pytest_fsstack.records.verdicts import Looks
from tests.chains import a_chain


def chain(rounds: int, seed: int, control: float = 0.0, budgets: bool = True) -> ChainResults:
    rng = random.Random(seed)
    series: dict[str, list[float]] = {"base": [], "crypt": [], "control": []}
    for _ in range(rounds):
        machine = rng.gauss(0, 0.3)
        for stack, overhead in (("base", 0.0), ("crypt", 0.5), ("control", control)):
            series[stack].append(exp(overhead + machine + rng.gauss(0, 0.05)))
    unjudged = a_chain({"du": series}, looks=Looks(), controls=["control"])
    return (unjudged.with_budget("du", "crypt", overhead=0.5) if budgets else unjudged).built


@pytest.mark.parametrize("rounds", [8, 16, 80])
def test_a_control_like_its_baseline_is_rarely_said_to_differ(rounds: int) -> None:
    # At a confidence of 90 %: of 200, more than 34 would be seen once in a thousand times.
    assert sum(bool(doubts(Readings(chain(rounds, seed)))) for seed in range(200)) <= 34


@pytest.mark.parametrize("rounds", [8, 40])
def test_one_that_differs_is_named_with_its_figures(rounds: int) -> None:
    (notice,) = doubts(Readings(chain(rounds, 1, control=0.3)))
    assert isinstance(notice, ControlDiffers)
    assert (notice.baseline, notice.control, notice.comparisons) == ("base", "control", 1)
    assert [difference.step for difference in notice.differences] == ["du"]
    assert re.fullmatch(r".*\bbase\b.*\bcontrol: du \+[^;]*; .*\b10 % .*", notice_in_words(notice))
    assert doubts(Readings(chain(rounds, 1, control=-0.3)))


def test_a_difference_is_not_rounded_away() -> None:
    chain = a_chain({"du": {"base": 1.0, "control": 1.0001}}, controls=["control"]).built
    (notice,) = doubts(Readings(chain))
    assert "du +0.1 % (0.1 to 0.1 %)" in notice_in_words(notice)


def test_without_budgets_its_block_is_judged_as_that_of_the_others() -> None:
    found = chain(8, 1, budgets=False)
    # With budgets it may have run on, and its interval is one that holds whenever rounds stop.
    narrow, wide = Readings(found).estimate("du", "control"), Readings(chain(8, 1)).estimate("du", "control")
    assert narrow
    assert wide
    assert wide.low <= narrow.low < narrow.high <= wide.high
