"""Notices about noise: changes of the overhead, outliers, two modes, and what can be seen at all."""

from __future__ import annotations

import random
from math import exp

import pytest
from msgspec import structs

from pytest_fsstack.judging.describe import notice_in_words
from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.judging.notices import bimodal, changes, notices, outliers, spread, visible
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.notices import Noise, OddTimes, OverheadChanged
from pytest_fsstack.records.verdicts import Looks
from pytest_fsstack.units import percent
from tests.chains import a_chain


def normal(rounds: int, seed: int, sigma: float = 0.1) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0, sigma) for _ in range(rounds)]


@pytest.mark.parametrize("rounds", [8, 16, 40, 80])
def test_independent_rounds_are_rarely_said_to_change(rounds: int) -> None:
    assert sum(changes(normal(rounds, seed)) for seed in range(1000)) <= 35


def test_a_trend_and_a_step_of_the_overhead_are_seen() -> None:
    drifting = [[value + number / 200 for number, value in enumerate(normal(80, seed))] for seed in range(100)]
    stepping = [[value + 0.2 * (number > 40) for number, value in enumerate(normal(80, seed))] for seed in range(100)]
    assert sum(map(changes, drifting)) > 95
    assert sum(map(changes, stepping)) > 95


def test_rounds_that_follow_each_other_are_seen() -> None:
    found = 0
    for seed in range(100):
        last, d = 0.0, []
        for value in normal(80, seed):
            last = 0.5 * last + value
            d.append(last)
        found += changes(d)
    assert found > 90


def test_outliers_and_two_modes_are_told_from_ordinary_noise() -> None:
    plain = [exp(value) for value in normal(40, 1)]
    assert (outliers(plain), bimodal(plain)) == (0, False)
    assert outliers([*plain, 3.0, 0.2]) == 2
    assert bimodal(
        [value * (2 if number % 3 else 1) for number, value in enumerate(exp(v / 10) for v in normal(40, 2))]
    )
    assert not bimodal([1.0, 2.0] * 3)


def test_the_noise_is_that_of_a_typical_round() -> None:
    series = [exp(value) for value in normal(400, 3)]
    assert spread(series) == pytest.approx(0.105, abs=0.015)
    assert spread([*series, 50.0]) == pytest.approx(spread(series), abs=0.005)
    assert 0.05 < visible(0.10, 80) < 0.06
    assert visible(0.10, 20) > visible(0.10, 80)


def test_a_chain_says_at_most_three_lines_and_none_about_times_that_do_not_matter() -> None:
    base = [exp(value) * (4 if number == 20 else 1) for number, value in enumerate(normal(40, 5, 0.05))]
    other = [exp(value + number / 100) for number, value in enumerate(normal(40, 6, 0.05))]
    chain = a_chain({"s": {"a": base, "b": other}}, looks=Looks()).built
    assert len(notices(Readings(chain))) == 2
    counting = structs.replace(chain, tables=[("counts", {})], judgements={})
    assert notices(Readings(counting)) == []
    # As in a session whose tests have no budget.
    judge_all(counting, "s", "b")
    assert len(notices(Readings(structs.replace(counting, tables=[])))) == 2
    judge_all(counting, "s", "b", Budget(limit=5.0))
    assert len(notices(Readings(counting))) == 2
    judge_all(counting, "s", "b", Budget(overhead=0.1))
    assert len(notices(Readings(counting))) == 3
    judge_all(chain, "s", "b", Budget(overhead=0.1))
    variation = spread(chain.series("s", "a", "seconds"))
    rounds = Looks().max_rounds
    assert notices(Readings(chain)) == [
        OverheadChanged({"s": ["b"]}),
        OddTimes({"s": ["a"]}),
        Noise(variation, rounds, visible(variation, rounds)),
    ]
    changed, odd, noise = map(notice_in_words, notices(Readings(chain)))
    assert "(s on b)" in changed
    assert "(s on a)" in odd
    assert percent(variation) in noise
