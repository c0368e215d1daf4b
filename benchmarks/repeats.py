"""Simulated sessions with repetitions in a round, by the plugin's own choice of their number, plan and judge.

Times differ between builds of the stack and between repetitions. Both are log-normal, each with its own CV. 5 % of the
repetitions take three times as long. A build takes as long as four repetitions.
"""

from __future__ import annotations

import random
import statistics
from math import exp, log, log1p

from benchmarks.machines import BUDGET, STEP, Table, above, course_of, share_of, sigma_of
from pytest_fsstack.judging.cells import CellRun, StepRun
from pytest_fsstack.judging.repetition import RepeatCount
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Verdict

BUILD, REPETITION = 4.0, 1.0
#: The CVs of builds and of repetitions.
CVS = ((0.02, 0.10), (0.05, 0.10), (0.10, 0.10), (0.10, 0.02))
WISHES: tuple[RepeatCount, ...] = (1, 3, "auto")
HEADERS = [
    *("CV of builds", "of repetitions", "repeated", "false fails", "finds 10 %"),
    *("repetitions at 10 %", "rounds at 10 %", "cost at 10 %"),
]


def session(
    rng: random.Random, build: float, noise: float, truth: float, budget: float, repeat: RepeatCount
) -> tuple[Verdict, int, float]:
    """Return the verdict on a stack, the number of repetitions at the end, and the cost of its runs."""
    course = course_of(rng, {"base": [], "stack": [Budget(overhead=budget)]}, repeats={STEP: repeat})
    cost = 0.0
    while tasks := course.next_tasks():
        count = tasks[0].repetitions[STEP]
        for task in tasks:
            cost += (BUILD + REPETITION * count) / 2
            level = (log1p(truth) if task.cell.stack == "stack" else 0.0) + rng.gauss(0, build)
            runs = [level + rng.gauss(0, noise) + log(3) * (rng.random() < 0.05) for _ in range(count)]
            samples = tuple(Sample({"seconds": exp(run)}) for run in runs)
            course.add(task, CellRun((StepRun(STEP, samples, REPETITION * count),), BUILD + REPETITION * count))
        course.end_tasks({})
    verdict = course.chain.judgements_of(STEP, "stack")[0].verdict
    assert verdict is not None
    return verdict, count, cost


def table(sessions: int, seed: int) -> Table:
    """Simulate sessions for each noise and number of repetitions. Costs are those of one stack, in repetitions."""
    sessions = max(1, sessions // 4)
    rows = [_row(sessions, seed, cvs, repeat) for cvs in CVS for repeat in WISHES]
    return Table(f"Repetitions in a round: {sessions} sessions a cell.", HEADERS, rows)


def _row(sessions: int, seed: int, cvs: tuple[float, float], repeat: RepeatCount) -> list[str]:
    build, noise = map(sigma_of, cvs)
    rng = random.Random(f"{seed} {cvs} {repeat}")
    at_budget, above_budget = (
        [session(rng, build, noise, truth, BUDGET, repeat) for _ in range(sessions)] for truth in (BUDGET, above(0.10))
    )
    fails = [share_of("fail", [verdict.outcome for verdict, _, _ in ran]) for ran in (at_budget, above_budget)]
    rounds = statistics.fmean(verdict.looks.rounds[verdict.look - 1] for verdict, _, _ in above_budget)
    count, cost = (statistics.fmean(column) for column in list(zip(*above_budget))[1:])
    return [*(f"{cv:.0%}" for cv in cvs), str(repeat), *fails, f"{count:.1f}", f"{rounds:.1f}", f"{cost:.0f}"]
