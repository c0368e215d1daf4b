"""How often is a verdict wrong, and what does it find? Print it, beside what comparing two means says.

    python -m benchmarks verdict [sessions] [seed]

Simulated sessions of a baseline and a stack whose true overhead is known, judged by the plugin's own `judge` with its
default plan of looks: a session ends where its verdict says so. Run times are log-normal with the given coefficient
of variation (CV); each machine adds one kind of trouble. The rules of others (`benchmarks.rules`) see the baseline run
eight times, and then the stack eight times. "Finds 10 %" is a true overhead of 1.05 x 1.10 - 1 = 15.5 %.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable
from math import exp, log, log1p

from tabulate import tabulate

from benchmarks import repeats, rules, turns
from pytest_fsstack.judging.plan import Planner, confirmation_level
from pytest_fsstack.judging.verdict import Looks, Verdict, judge

BUDGET = 0.05
CVS = (0.05, 0.10, 0.20)

#: Log of the machine's factor for the run at this place of a session, given the log-noise of one run.
Trouble = Callable[[random.Random, float, int], list[float]]


def _normal(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [rng.gauss(0, sigma) for _ in range(runs)]


def _t3(rng: random.Random, sigma: float, runs: int) -> list[float]:
    # A t with three degrees of freedom has the variance 3.
    return [
        sigma * rng.gauss(0, 1) / (sum(rng.gauss(0, 1) ** 2 for _ in range(3)) / 3) ** 0.5 / 3**0.5 for _ in range(runs)
    ]


def _outliers(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [value + (log(3) if rng.random() < 0.05 else 0) for value in _normal(rng, sigma, runs)]


def _drift(rng: random.Random, sigma: float, runs: int) -> list[float]:
    way = rng.choice((-1, 1)) * log1p(0.20) / 60
    return [value + way * place for place, value in enumerate(_outliers(rng, sigma, runs))]


def _step(rng: random.Random, sigma: float, runs: int) -> list[float]:
    at, way = rng.randrange(runs), rng.choice((-1, 1)) * log1p(0.20)
    return [value + way * (place >= at) for place, value in enumerate(_normal(rng, sigma, runs))]


def _bimodal(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [value + (log(1.3) if rng.random() < 0.3 else 0) for value in _normal(rng, sigma, runs)]


def _bimodal_within(rng: random.Random, sigma: float, runs: int) -> list[float]:
    # The modes have four fifths of the variance, so that the CV is that of all noise.
    gap, rest = sigma * (0.8 / (0.3 * 0.7)) ** 0.5, sigma * 0.2**0.5
    return [rng.gauss(0, rest) + (gap if rng.random() < 0.3 else 0) for _ in range(runs)]


def _ar1(rng: random.Random, sigma: float, runs: int) -> list[float]:
    found, last = [], rng.gauss(0, sigma)
    for _ in range(runs):
        found.append(last)
        last = 0.9 * last + rng.gauss(0, sigma * (1 - 0.9**2) ** 0.5)
    return found


MACHINES: dict[str, Trouble] = {
    "normal": _normal,
    "t3": _t3,
    "outliers x3, 5 %": _outliers,
    "outliers, drift 20 % per 60 runs": _drift,
    "step of 20 %": _step,
    "bimodal": _bimodal,
    "bimodal, the CV in all": _bimodal_within,
    "AR(1) 0.9": _ar1,
}


def session(rng: random.Random, trouble: Trouble, cv: float, truth: float, looks: Looks) -> Verdict:
    """The verdict of one session: rounds of both in random order, judged look by look."""
    noise = trouble(rng, log1p(cv**2) ** 0.5, 2 * looks.most)
    ratios = {}
    for number in range(looks.most):
        first, second = noise[2 * number : 2 * number + 2]
        ratios[number] = log1p(truth) + (first - second if rng.random() < 0.5 else second - first)
    return judge(ratios, BUDGET, looks)


def sequential(
    rng: random.Random, trouble: Trouble, cv: float, truth: float, known: dict[str, rules.Rule]
) -> dict[str, bool]:
    """Whether each of other people's rules calls the stack slower than its budget allows."""
    noise = [exp(value) for value in trouble(rng, log1p(cv**2) ** 0.5, 16)]
    base, stack = noise[:8], [value * (1 + truth) for value in noise[8:]]
    return {name: rule(base, stack, BUDGET) for name, rule in known.items()}


def above(share: float) -> float:
    """The true overhead that exceeds the budget by that share of the time it allows."""
    return (1 + BUDGET) * (1 + share) - 1


def rows(sessions: int, seed: int) -> list[list[str]]:
    looks, found = Looks(), []
    for name, trouble in MACHINES.items():
        for cv in CVS:
            rng = random.Random(f"{seed} {name} {cv}")
            at = [session(rng, trouble, cv, BUDGET, looks) for _ in range(sessions)]
            row = [name, f"{cv:.0%}", _share([each.outcome == "fail" for each in at])]
            row.append(_share([each.outcome == "pass" for each in at]))
            for share in (0.05, 0.10, 0.20):
                slower = [session(rng, trouble, cv, above(share), looks) for _ in range(sessions)]
                row.append(_share([each.outcome == "fail" for each in slower]))
                if share == 0.10:
                    rounds = f"{statistics.fmean(each.estimate.rounds for each in slower):.1f}"
            found.append([*row, rounds, f"{statistics.fmean(each.estimate.rounds for each in at):.1f}"])
    return found


def rows_of_others(sessions: int, seed: int, known: dict[str, rules.Rule]) -> list[list[str]]:
    """How often each rule is wrong at the budget, and how often it finds 10 % above it, at a CV of 10 %."""
    found = []
    for name, trouble in MACHINES.items():
        rng = random.Random(f"{seed} others {name}")
        kept = [sequential(rng, trouble, 0.10, BUDGET, known) for _ in range(sessions)]
        broken = [sequential(rng, trouble, 0.10, above(0.10), known) for _ in range(sessions)]
        shares = [
            f"{_share([each[rule] for each in kept])} / {_share([each[rule] for each in broken])}" for rule in known
        ]
        found.append([name, *shares])
    return found


def many(rng: random.Random, cv: float, truths: list[float], *, confirms: bool) -> tuple[list[str], int]:
    """The outcomes of a session of many stacks with a budget each, by the plugin's own planner; and all of its runs."""
    names = [str(number) for number in range(len(truths))]
    outcomes, runs = _planned(rng, cv, dict(zip(names, truths, strict=True)), Looks())
    suspects = {name: truths[int(name)] for name in names if outcomes[name] == "fail"}
    if confirms and suspects and len(names) > 1:
        level = confirmation_level(Looks().alpha, len(names))
        fresh, more = _planned(rng, cv, suspects, Looks(alpha=level))
        outcomes, runs = {**outcomes, **fresh}, runs + more
    return list(outcomes.values()), runs


def _planned(rng: random.Random, cv: float, truths: dict[str, float], looks: Looks) -> tuple[dict[str, str], int]:
    planner = Planner(looks, {"baseline": "baseline", **dict.fromkeys(truths, "baseline")})
    planner.states["baseline"] = "measured"
    ratios: dict[str, dict[int, float]] = {name: {} for name in truths}
    sigma, number, runs = log1p(cv**2) ** 0.5, 0, 0
    while stacks := planner.next_round():
        noise = dict(zip(stacks, _outliers(rng, sigma, len(stacks)), strict=True))
        runs += len(stacks)
        for name in stacks:
            if name in ratios:
                ratios[name][number] = log1p(truths[name]) + noise[name] - noise["baseline"]
        number += 1
        if planner.due(number):
            running = [name for name, state in planner.states.items() if state == "running"]
            planner.look(number, {name: [judge(ratios[name], BUDGET, looks, number)] for name in running})
    return {name: judge(found, BUDGET, looks, number).outcome for name, found in ratios.items()}, runs


def rows_of_many(sessions: int, seed: int) -> list[list[str]]:
    """Of sessions with 1, 5 and 30 budgets: how many fail though all are kept, and how many find one that is broken."""
    found = []
    for budgets in (1, 5, 30):
        for confirms in (False, True):
            rng = random.Random(f"{seed} many {budgets} {confirms}")
            kept = [many(rng, 0.10, [BUDGET] * budgets, confirms=confirms) for _ in range(sessions)]
            broken = [above(0.10), *[BUDGET] * (budgets - 1)]
            slower = [many(rng, 0.10, broken, confirms=confirms)[0] for _ in range(sessions)]
            found.append(
                [
                    str(budgets),
                    "session" if confirms else "budget",
                    _share(["fail" in outcomes for outcomes, _ in kept]),
                    _share([outcomes[0] == "fail" for outcomes in slower]),
                    f"{statistics.fmean(runs for _, runs in kept) / (budgets + 1):.1f}",
                ]
            )
    return found


MANY = ["budgets", "--fsstack-errors", "sessions that fail falsely", "finds one 10 % above", "runs of a stack"]

HEADERS = [
    *("machine", "CV", "false fails", "false passes", "finds 5 %", "finds 10 %", "finds 20 %"),
    *("rounds at 10 %", "rounds at budget"),
]


def _share(found: list[bool]) -> str:
    return f"{100 * sum(found) / len(found):.1f} %"


def main(arguments: list[str]) -> None:
    """Print the tables as Markdown, for so many sessions a cell and from a seed."""
    sessions, seed = (*map(int, arguments), *(700, 1)[len(arguments) :])
    print(
        tabulate(rows_of_many(max(1, sessions // 2), seed), MANY, tablefmt="github", disable_numparse=True), flush=True
    )
    print()
    print(tabulate(rows(sessions, seed), HEADERS, tablefmt="github", disable_numparse=True), flush=True)
    print()
    known = rules.known()
    others = rows_of_others(sessions, seed, known)
    print(tabulate(others, ["false / finds 10 %", *known], tablefmt="github", disable_numparse=True), flush=True)
    if rules.OTAVA not in known:
        print(f"\nWithout {rules.OTAVA}: pip install --no-deps apache-otava")
    print()
    kernels = turns.rows(max(1, sessions // 2), seed, _drift, BUDGET)
    print(tabulate(kernels, turns.HEADERS, tablefmt="github", disable_numparse=True))
    print()
    repeated = repeats.rows(sessions, seed, BUDGET)
    print(tabulate(repeated, repeats.HEADERS, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main(sys.argv[1:])
