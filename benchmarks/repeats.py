"""What repetitions in a round are worth: simulated sessions, by the plugin's own choice of the number, plan and judge.

A step's time differs from build to build of the stack, and from repetition to repetition, each log-normal with a CV of
its own; 5 % of the repetitions take three times as long. A build costs four times as much as a repetition.
"""

from __future__ import annotations

import random
import statistics
from math import exp, log, log1p, sqrt

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


def rows(sessions: int, seed: int, budget: float) -> list[list[str]]:
    """A line for each noise and wish; costs in those of a repetition, of one stack."""
    found = []
    for build_cv, noise_cv in CVS:
        build, noise = (sqrt(log1p(cv**2)) for cv in (build_cv, noise_cv))
        for wish in WISHES:
            rng = random.Random(f"{seed} {build_cv} {noise_cv} {wish}")
            kept = [session(rng, build, noise, budget, budget, wish) for _ in range(sessions)]
            broken = [session(rng, build, noise, (1 + budget) * 1.1 - 1, budget, wish) for _ in range(sessions)]
            fails = [sum(verdict.outcome == "fail" for verdict, _, _ in each) / sessions for each in (kept, broken)]
            counts, costs = [count for _, count, _ in broken], [cost for _, _, cost in broken]
            rounds = statistics.fmean(verdict.looks.rounds[verdict.look - 1] for verdict, _, _ in broken)
            figures = [f"{statistics.fmean(counts):.1f}", f"{rounds:.1f}", f"{statistics.fmean(costs):.0f}"]
            shares = [f"{share * 100:.1f} %" for share in fails]
            found.append([f"{build_cv * 100:g}%", f"{noise_cv * 100:g}%", str(wish), *shares, *figures])
    return found
