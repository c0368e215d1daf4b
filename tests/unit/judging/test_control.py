"""What the baseline, run a second time as a control, says against the verdicts of its chain."""

from __future__ import annotations

import random
import re
from math import exp

import pytest

from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.control import doubts
from pytest_fsstack.judging.results import ChainResults, Results, StackInfo
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.saved import dumps, loads
from pytest_fsstack.judging.verdict import Looks


def chain(rounds: int, seed: int, control: float = 0.0, budgets: bool = True) -> ChainResults:
    rng = random.Random(seed)
    found = ChainResults("t.py::T", "loop", "base", Looks(), 1, steps=["du"], controls=["control"])
    found.stacks = {name: StackInfo(name, "ext4") for name in ("base", "crypt", "control")}
    for _ in range(rounds):
        found.orders.append(list(found.stacks))
        machine = rng.gauss(0, 0.3)
        for stack, overhead in (("base", 0.0), ("crypt", 0.5), ("control", control)):
            found.add("du", stack, Sample({"seconds": exp(overhead + machine + rng.gauss(0, 0.05))}))
    if budgets:
        found.judge_all("du", "crypt", Budget(overhead=0.5))
    return found


@pytest.mark.parametrize("rounds", [8, 16, 80])
def test_a_control_like_its_baseline_is_rarely_said_to_differ(rounds: int) -> None:
    # At a confidence of 90 %: of 200, more than 34 would be seen once in a thousand times.
    assert sum(bool(doubts(chain(rounds, seed))) for seed in range(200)) <= 34


@pytest.mark.parametrize("rounds", [8, 40])
def test_one_that_differs_is_named_with_its_figures(rounds: int) -> None:
    (said,) = doubts(chain(rounds, 1, control=0.3))
    assert re.fullmatch(r".*\bbase\b.*\bcontrol: du \+[^;]*; .*\b10 % .*", said)
    assert doubts(chain(rounds, 1, control=-0.3))


def test_a_difference_is_not_rounded_away() -> None:
    compared = ChainResults("t.py::T", "loop", "base", Looks(), 1, steps=["du"], controls=["control"])
    compared.stacks = {name: StackInfo(name, "ext4") for name in ("base", "control")}
    for _ in range(8):
        compared.orders.append(list(compared.stacks))
        compared.add("du", "base", Sample({"seconds": 1.0}))
        compared.add("du", "control", Sample({"seconds": 1.0001}))
    (text,) = doubts(compared)
    assert "du +0.1 % (0.1 to 0.1 %)" in text


def test_without_budgets_its_block_is_judged_as_that_of_the_others() -> None:
    found = chain(8, 1, budgets=False)
    # With budgets it may have run on, and its interval is one that holds whenever rounds stop.
    narrow, wide = found.estimate("du", "control"), chain(8, 1).estimate("du", "control")
    assert narrow
    assert wide
    assert wide.low <= narrow.low < narrow.high <= wide.high


def test_one_that_could_not_run_is_said() -> None:
    found = chain(8, 1)
    del found.samples["du"]["control"]
    found.notes.setdefault("du", {})["control"] = "failed in round 1"
    (said,) = doubts(found)
    assert re.fullmatch(r".*\bcontrol\b.*\bbase: failed in round 1", said)


def test_a_chain_without_a_control_has_nothing_to_say() -> None:
    found = chain(8, 1, control=0.5)
    found.controls = []
    assert doubts(found) == []


def test_it_is_no_comparison_and_is_saved() -> None:
    results = Results(chains=[chain(8, 1)])
    assert results.comparisons == 1
    assert loads(dumps(results)).chains[0].controls == ["control"]
