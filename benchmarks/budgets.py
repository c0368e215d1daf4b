"""Error rate and power of sessions with many budgets."""

from __future__ import annotations

import random
import statistics
from itertools import chain, count
from math import log1p

from benchmarks.machines import BUDGET, MACHINES, STEP, Table, above, course_of, run, share, sigma_of
from pytest_fsstack.judging.cells import Policy
from pytest_fsstack.records.budget import Budget

_TROUBLE = MACHINES["outliers x3, 5 %"]
_HEADERS = [
    "budgets",
    "--fsstack-error-rate-per",
    "sessions that fail falsely",
    "finds one 10 % above",
    "runs of a stack",
]


def outcomes_of(rng: random.Random, cv: float, truths: list[float], *, confirms: bool) -> tuple[list[str], int]:
    """Return the outcomes of many stacks with a budget each, and the number of runs."""
    costs = {"baseline": 0.0, **{str(number): log1p(truth) for number, truth in enumerate(truths)}}
    budgets = {name: [Budget(overhead=BUDGET)] if name != "baseline" else [] for name in costs}
    course = course_of(rng, budgets, Policy(sharing=len(truths) if confirms else 0))
    noise = chain.from_iterable(_TROUBLE(rng, sigma_of(cv), len(costs)) for _ in count())
    run(course, lambda cell: costs[cell.stack] + next(noise))
    outcomes = [str(course.chain.worst(STEP, name)) for name in costs if name != "baseline"]
    return outcomes, sum(map(len, course.chain.orders))


def _row(sessions: int, seed: int, budgets: int, *, confirms: bool) -> list[str]:
    rng = random.Random(f"{seed} many {budgets} {confirms}")
    at_budget = [outcomes_of(rng, 0.10, [BUDGET] * budgets, confirms=confirms) for _ in range(sessions)]
    broken = [above(0.10), *[BUDGET] * (budgets - 1)]
    slower = [outcomes_of(rng, 0.10, broken, confirms=confirms)[0] for _ in range(sessions)]
    return [
        str(budgets),
        "session" if confirms else "budget",
        share(["fail" in outcomes for outcomes, _ in at_budget]),
        share([outcomes[0] == "fail" for outcomes in slower]),
        f"{statistics.fmean(runs for _, runs in at_budget) / (budgets + 1):.1f}",
    ]


def table(sessions: int, seed: int) -> Table:
    """Simulate sessions with several numbers of budgets, with and without confirmation."""
    sessions = max(1, sessions // 4)
    rows = [
        _row(sessions, seed, budgets, confirms=confirms)
        for budgets in (1, 2, 5, 10, 19, 30)
        for confirms in (False, True)
    ]
    return Table(f"Many budgets: {sessions} sessions a cell, CV 10 %, outliers.", _HEADERS, rows)
