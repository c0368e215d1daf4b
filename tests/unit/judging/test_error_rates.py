"""The benchmark of the verdict runs the judge itself, and finds the error rate that is promised."""

from __future__ import annotations

import random

import pytest

from benchmarks import over_time, rules
from benchmarks.machines import BUDGET, MACHINES, above, session
from benchmarks.verdict import sequential
from pytest_fsstack.records.verdicts import Looks

SESSIONS = 60
#: Three standard errors above 5 %.
MOST = 0.05 + 3 * (0.05 * 0.95 / SESSIONS) ** 0.5


@pytest.mark.parametrize("machine", MACHINES)
def test_whatever_the_machine_does_a_kept_budget_rarely_fails_and_a_broken_one_rarely_passes(machine: str) -> None:
    rng = random.Random(f"rates {machine}")
    found = [session(rng, MACHINES[machine], 0.10, BUDGET, Looks()).outcome for _ in range(SESSIONS)]
    assert found.count("fail") / SESSIONS <= MOST
    assert found.count("pass") / SESSIONS <= MOST


def test_a_clear_excess_is_found_and_a_clear_margin_passes() -> None:
    rng = random.Random("power")
    slow = [session(rng, MACHINES["outliers x3, 5 %"], 0.10, above(0.10), Looks()).outcome for _ in range(100)]
    fast = [session(rng, MACHINES["outliers x3, 5 %"], 0.10, above(-0.10), Looks()).outcome for _ in range(100)]
    assert slow.count("fail") >= 94
    assert fast.count("pass") >= 94


def test_comparing_means_of_one_after_the_other_is_wrong_half_of_the_time() -> None:
    rng = random.Random("naive")
    assert (
        sum(
            sequential(rng, MACHINES["step of 20 %"], 0.05, BUDGET, rules.by_tool())["compare-fail mean"]
            for _ in range(200)
        )
        > 60
    )


@pytest.mark.parametrize("name", [name for name in rules.by_tool() if name != rules.OTAVA])
def test_the_rules_of_others_see_a_large_difference_and_no_small_one(name: str) -> None:
    rule, figures = rules.by_tool()[name], [10.0 + place / 100 for place in range(8)]
    assert rule(figures, [figure * 2 for figure in figures], BUDGET)
    assert not rule(figures, [figure * 1.01 for figure in figures], BUDGET)
    assert not rule(figures, [figure / 2 for figure in figures], BUDGET)


@pytest.mark.parametrize(("now", "then"), [(1, 5), (3, 3)])
def test_runs_that_are_at_the_limit_rarely_fail_against_earlier_ones(
    now: int, then: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What differs between runs is what matters; more rounds only take longer.
    monkeypatch.setattr(over_time, "_ROUNDS", 6)
    rng = random.Random(f"over time {now} {then}")
    at = [over_time.runs_fail(rng, now, then, BUDGET) for _ in range(SESSIONS)]
    assert sum(at) / SESSIONS <= MOST
    assert sum(over_time.runs_fail(rng, now, then, 1.0) for _ in range(20)) >= 18


def test_the_rounds_of_two_runs_are_no_evidence_about_runs() -> None:
    rng = random.Random("rounds of two runs")
    assert sum(over_time.rounds_fail(rng, 30, BUDGET) for _ in range(SESSIONS)) / SESSIONS > MOST
