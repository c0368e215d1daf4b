"""What repetitions in a round are worth: simulated sessions, by the plugin's own choice of the number, plan and judge.

A step's time differs from build to build of the stack, and from repetition to repetition, each log-normal with a CV of
its own; 5 % of the repetitions take three times as long. A build costs four times as much as a repetition.
"""

from __future__ import annotations

import random
import statistics
from math import exp, log, log1p

from benchmarks.machines import BUDGET, Table, above, share, sigma_of
from pytest_fsstack.judging.repetition import Repeated, Wish, combined
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.verdict import Looks, Verdict, judge

BUILD, REPETITION = 4.0, 1.0
#: The CVs of builds and of repetitions.
CVS = ((0.02, 0.10), (0.05, 0.10), (0.10, 0.10), (0.10, 0.02))
WISHES: tuple[Wish, ...] = (1, 3, "auto")
HEADERS = [
    *("CV of builds", "of repetitions", "repeated", "false fails", "finds 10 %"),
    *("repetitions at 10 %", "rounds at 10 %", "cost at 10 %"),
]


def session(
    rng: random.Random, build: float, noise: float, truth: float, budget: float, wish: Wish
) -> tuple[Verdict, int, float]:
    """The verdict on a stack, the number of repetitions at the end, and what its runs cost."""
    looks, ratios, cost = Looks(), dict[int, float](), 0.0
    repeated = Repeated(wish, looks)
    for number in range(looks.most):
        medians = {}
        for stack, overhead in (("base", 0.0), ("stack", log1p(truth))):
            level = overhead + rng.gauss(0, build)
            runs = [level + rng.gauss(0, noise) + log(3) * (rng.random() < 0.05) for _ in range(repeated.count)]
            samples = [Sample({"seconds": exp(run)}) for run in runs]
            repeated.add(stack, number, samples, REPETITION * len(samples))
            repeated.end(BUILD + REPETITION * len(samples))
            medians[stack] = combined(samples)["seconds"]
        cost += BUILD + REPETITION * repeated.count
        ratios[number] = log(medians["stack"] / medians["base"])
        if number + 1 in looks.rounds:
            if number + 1 == looks.rounds[0]:
                repeated.settle("base")
            verdict = judge(ratios, budget, looks)
            if verdict.settled:
                break
    return verdict, repeated.count, cost


def table(sessions: int, seed: int) -> Table:
    """Simulate a line for each noise and wish; costs are in those of a repetition, of one stack."""
    sessions = max(1, sessions // 4)
    rows = [_row(sessions, seed, cvs, wish) for cvs in CVS for wish in WISHES]
    return Table(f"Repetitions in a round: {sessions} sessions a cell.", HEADERS, rows)


def _row(sessions: int, seed: int, cvs: tuple[float, float], wish: Wish) -> list[str]:
    build, noise = map(sigma_of, cvs)
    rng = random.Random(f"{seed} {cvs} {wish}")
    kept, broken = (
        [session(rng, build, noise, truth, BUDGET, wish) for _ in range(sessions)] for truth in (BUDGET, above(0.10))
    )
    rates = [share([verdict.outcome == "fail" for verdict, _, _ in sessions_]) for sessions_ in (kept, broken)]
    rounds = statistics.fmean(verdict.looks.rounds[verdict.look - 1] for verdict, _, _ in broken)
    count, cost = (statistics.fmean(column) for column in list(zip(*broken))[1:])
    return [*(f"{cv:.0%}" for cv in cvs), str(wish), *rates, f"{count:.1f}", f"{rounds:.1f}", f"{cost:.0f}"]
