"""Verdicts on a metric that some rounds lack."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import exp, log1p

from benchmarks.machines import BUDGET, STEP, Table, above, course_of, run_steps, share_of, sigma_of
from pytest_fsstack.judging.cells import StepRun, Task
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.sample import Metric, Sample

_LATENCY = Metric("latency", "s")
#: The limit of the slowest fifth of normally distributed runs, in standard deviations.
_SLOW = 0.8416
#: Returns whether a run on a stack lacks the metric, by its noise in standard deviations.
Lacks = Callable[[random.Random, str, float], bool]
_LACKS: dict[str, Lacks] = {
    "none": lambda rng, stack, noise: False,
    "the slowest fifth of the stack's": lambda rng, stack, noise: stack == "stack" and noise > _SLOW,
    "the slowest fifth of the baseline's": lambda rng, stack, noise: stack == "base" and noise > _SLOW,
    "the slowest fifth of both sides'": lambda rng, stack, noise: noise > _SLOW,
    "one in 50 of the stack's": lambda rng, stack, noise: stack == "stack" and rng.random() < 0.02,
}


def outcome(rng: random.Random, lacks: Lacks, cv: float, truth: float, *, without_sample: bool = False) -> str:
    """Return the outcome of a session. `without_sample`: such a run has no timed block at all."""

    def step_of(task: Task) -> StepRun:
        stack = task.cell.stack
        noise = rng.gauss(0, 1)
        seconds = exp(sigma_of(cv) * noise + (log1p(truth) if stack == "stack" else 0.0))
        if not lacks(rng, stack, noise):
            return StepRun(STEP, (Sample({"seconds": seconds, "latency": seconds}, {"latency": _LATENCY}),))
        return StepRun(STEP, () if without_sample else (Sample({"seconds": seconds}),))

    course = course_of(rng, {"base": [], "stack": [Budget("latency", BUDGET)]})
    run_steps(course, step_of)
    course.conclude()
    return course.chain.judgements_of(STEP, "stack")[0].outcome


def table(sessions: int, seed: int) -> Table:
    """Judge a metric that is missing in some rounds, at the budget, below it and above it."""
    sessions, rows = max(1, sessions // 4), []
    for name, lacks in _LACKS.items():
        rng = random.Random(f"{seed} missing {name}")
        at_budget, below, broken = (
            [outcome(rng, lacks, 0.10, truth) for _ in range(sessions)] for truth in (BUDGET, -0.10, above(0.10))
        )
        shares = (("fail", at_budget), ("pass", at_budget), ("pass", below), ("fail", broken))
        rows.append([name, *(share_of(*pair) for pair in shares)])
    title = f"Missing figures: {sessions} sessions a cell, CV 10 %, budget 5 %."
    return Table(title, ["rounds that lack it", "false fails", "false passes", "passes at -10 %", "finds 10 %"], rows)
