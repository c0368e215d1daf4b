"""Two identical kernels on a drifting machine: order, plan and verdict of the plugin."""

from __future__ import annotations

import random

from benchmarks import machines, turns

LIMIT, CV, SESSIONS = 0.05, 0.05, 150


def test_in_turns_they_are_seldom_called_different_and_one_after_the_other_often() -> None:
    rng = random.Random("turns")
    drift = machines.MACHINES["outliers, drift 20 % per 60 runs"]
    in_turns = [turns.in_turns(rng, drift, CV, LIMIT, LIMIT)[0] for _ in range(SESSIONS)]
    sequential = [turns.one_after_the_other(rng, drift, CV, LIMIT, LIMIT) for _ in range(SESSIONS)]
    # Of 150 sessions that fail with a probability of 5 %, more than 14 fail in one of 100 trials.
    assert in_turns.count("fail") <= 14
    assert sequential.count("fail") >= 50


def test_a_kernel_that_is_slower_is_found_and_runs_no_further() -> None:
    rng = random.Random("slower")
    outcome, rounds = turns.in_turns(rng, machines.MACHINES["normal"], CV, 0.5, LIMIT)
    assert (outcome, rounds) == ("fail", 6)
