"""The geometric mean over steps: known answers, weights, and how often its interval is right."""

from __future__ import annotations

import random
from math import inf, log
from statistics import fmean

import pytest

from pytest_fsstack.judging.overall import MIN_ROUNDS, geometric_mean


def constant(ratios: dict[str, float], rounds: int = 8) -> dict[str, dict[int, float]]:
    return {step: dict.fromkeys(range(rounds), log(ratio)) for step, ratio in ratios.items()}


def overheads(ratios: dict[str, float]) -> dict[str, float]:
    return {step: ratio - 1 for step, ratio in ratios.items()}


@pytest.mark.parametrize(
    ("ratios", "weights", "expected"),
    [
        ({"write": 2.0, "delete": 8.0}, {}, 4.0),
        ({"write": 2.0, "delete": 0.5}, {}, 1.0),
        ({"write": 2.0, "delete": 16.0}, {"write": 3}, 2 ** (3 / 4) * 16 ** (1 / 4)),
        ({"write": 2.0, "delete": 16.0}, {"delete": 0}, 2.0),
        ({"write[4k]": 2.0, "delete": 8.0}, {"write": 0}, 8.0),
        ({"write": 2.0, "delete": 8.0}, {"write": 0, "delete": 0}, 4.0),
    ],
)
def test_steps_that_never_vary_give_the_geometric_mean_without_an_interval(
    ratios: dict[str, float], weights: dict[str, float], expected: float
) -> None:
    overall = geometric_mean(constant(ratios), overheads(ratios), weights)
    assert 1 + overall.overhead == pytest.approx(expected)
    assert [1 + overall.low, 1 + overall.high] == pytest.approx([expected, expected])
    assert overall.rounds == 8


def test_the_interval_of_two_values_per_round_is_known() -> None:
    # Half of the rounds say x1, half x4: a draw's median is one of these, or x2 between them.
    rounds = {number: log(4.0) * (number % 2) for number in range(20)}
    overall = geometric_mean({"write": rounds}, {"write": 1.0})
    assert (1 + overall.overhead, 1 + overall.low, 1 + overall.high) == pytest.approx((2.0, 1.0, 4.0))


def test_few_rounds_have_no_interval_and_only_rounds_with_all_steps_count() -> None:
    steps = constant({"write": 2.0, "delete": 2.0}, MIN_ROUNDS)
    del steps["delete"][0]
    overall = geometric_mean(steps, {"write": 1.0, "delete": 1.0})
    assert (overall.low, overall.high, overall.rounds) == (-1.0, inf, MIN_ROUNDS - 1)


def test_the_same_samples_give_the_same_interval() -> None:
    generator = random.Random(1)
    steps = {step: {number: generator.gauss(0, 0.1) for number in range(8)} for step in "ab"}
    assert geometric_mean(steps, {"a": 0.0, "b": 0.0}) == geometric_mean(steps, {"a": 0.0, "b": 0.0})


def noise(kind: str, generator: random.Random) -> float:
    """Return the deviation of one log-ratio."""
    if kind == "heavy":
        outlier = generator.random() < 0.1
        return generator.gauss(0, 0.05) + outlier * generator.choice((1, -1)) * generator.expovariate(2)
    return generator.gauss(0, 0.05)


@pytest.mark.parametrize("rounds", [5, 8, 24])
@pytest.mark.parametrize("kind", ["normal", "heavy"])
def test_the_interval_holds_the_true_mean_as_often_as_it_says(
    rounds: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fsstack.judging.overall.DRAWS", 300)
    generator, covered, sessions = random.Random(7), [], 150
    for _ in range(sessions):
        disturbances = [generator.gauss(0, 0.02) for _ in range(rounds)]
        steps = {
            step: {number: shared + noise(kind, generator) for number, shared in enumerate(disturbances)}
            for step in ("write", "read", "delete")
        }
        centers = {step: sorted(ratios.values())[rounds // 2] for step, ratios in steps.items()}
        overall = geometric_mean(steps, centers)
        covered.append(overall.low <= 0 <= overall.high)
    # Nominal 90 %; four standard errors of 150 sessions are 10 %.
    assert fmean(covered) >= 0.84
