"""Sessions with many budgets: how many fail though all are kept, and how many find one that is broken."""

from __future__ import annotations

import random
import statistics
from math import log1p

from benchmarks.machines import BUDGET, MACHINES, Table, above, share, sigma_of
from pytest_fsstack.judging.plan import Planner, confirmation_level
from pytest_fsstack.judging.verdict import Looks, judge

_TROUBLE = MACHINES["outliers x3, 5 %"]
_HEADERS = ["budgets", "--fsstack-errors", "sessions that fail falsely", "finds one 10 % above", "runs of a stack"]


def outcomes_of(rng: random.Random, cv: float, truths: list[float], *, confirms: bool) -> tuple[list[str], int]:
    """Return the outcomes of many stacks with a budget each, by the plugin's own planner, and the number of runs."""
    names = [str(number) for number in range(len(truths))]
    outcomes, runs = _planned(rng, cv, dict(zip(names, truths, strict=True)), Looks())
    suspects = {name: truths[int(name)] for name in names if outcomes[name] == "fail"}
    if confirms and suspects and len(names) > 1:
        level, looks = confirmation_level(len(names)), Looks()
        looks = Looks(looks.rounds, min(looks.alpha, level), level)
        fresh, more = _planned(rng, cv, suspects, looks)
        outcomes, runs = {**outcomes, **fresh}, runs + more
    return list(outcomes.values()), runs


def _planned(rng: random.Random, cv: float, truths: dict[str, float], looks: Looks) -> tuple[dict[str, str], int]:
    planner = Planner(looks, {"baseline": "baseline", **dict.fromkeys(truths, "baseline")})
    planner.states["baseline"] = "measured"
    ratios: dict[str, dict[int, float]] = {name: {} for name in truths}
    number = runs = 0
    while stacks := planner.next_round():
        noise = dict(zip(stacks, _TROUBLE(rng, sigma_of(cv), len(stacks)), strict=True))
        runs += len(stacks)
        for name in stacks:
            if name in ratios:
                ratios[name][number] = log1p(truths[name]) + noise[name] - noise["baseline"]
        number += 1
        if planner.due(number):
            running = [name for name, state in planner.states.items() if state == "running"]
            planner.look(number, {name: [judge(ratios[name], BUDGET, looks, number)] for name in running})
    return {name: judge(of_stack, BUDGET, looks, number).outcome for name, of_stack in ratios.items()}, runs


def _row(sessions: int, seed: int, budgets: int, *, confirms: bool) -> list[str]:
    rng = random.Random(f"{seed} many {budgets} {confirms}")
    kept = [outcomes_of(rng, 0.10, [BUDGET] * budgets, confirms=confirms) for _ in range(sessions)]
    broken = [above(0.10), *[BUDGET] * (budgets - 1)]
    slower = [outcomes_of(rng, 0.10, broken, confirms=confirms)[0] for _ in range(sessions)]
    return [
        str(budgets),
        "session" if confirms else "budget",
        share(["fail" in outcomes for outcomes, _ in kept]),
        share([outcomes[0] == "fail" for outcomes in slower]),
        f"{statistics.fmean(runs for _, runs in kept) / (budgets + 1):.1f}",
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
