"""Four months of a gate, simulated: which nights are red, and how much slower the stack is by then?

    python -m benchmarks nights [series] [seed]

Each night is one figure, the log ratio of a stack to its reference, with a standard deviation of 2 % from run to run.
It is judged by the plugin's own `judging.spread` against the nights that were accepted before, with a limit of 5 %,
from the eleventh night on. A red night is not accepted. *Strict* nights are red if they are undecided, too. The rule
before took the standard deviation of all accepted nights as their spread, and their average as the level.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import log1p, sqrt
from statistics import fmean, median, stdev
from typing import NamedTuple

from tabulate import tabulate

from pytest_fsstack.judging.quantiles import student_quantile
from pytest_fsstack.judging.spread import judge
from pytest_fsstack.judging.verdict import Outcome

NIGHTS, ACCEPTED_BLINDLY = 120, 10
LIMIT, ALPHA = 0.05, 0.05
DEVIATION = 0.02
#: The nights in which the stack gets 10 % faster, and in which it gets 15.5 % slower after that.
FASTER, SLOWER = 40, 60

#: How much a stack costs in a night, as a logarithm.
Truth = Callable[[int], float]
#: What one run differs by, as a logarithm.
Noise = Callable[[random.Random], float]
Rule = Callable[[float, Sequence[float]], Outcome]


class Case(NamedTuple):
    """What happens in four months."""

    name: str
    truth: Truth
    noise: Noise


def normal(rng: random.Random) -> float:
    return rng.gauss(0, DEVIATION)


def skewed(rng: random.Random) -> float:
    return DEVIATION * (rng.expovariate(1) - 1)


def quiet(rng: random.Random) -> float:
    return rng.gauss(0, DEVIATION / 2)


def _constant(_night: int) -> float:
    return 0.0


def _creep(night: int) -> float:
    return night * log1p(0.005)


def _lost_again(night: int) -> float:
    return (night >= SLOWER) * log1p(0.155) - (night >= FASTER) * log1p(0.10)


CASES = (
    Case("nothing changes", _constant, normal),
    Case("nothing changes, 1 % from run to run", _constant, quiet),
    Case("nothing changes, skewed runs", _constant, skewed),
    Case("0.5 % slower each night", _creep, normal),
    Case(f"10 % faster from night {FASTER}, 15.5 % slower from {SLOWER}", _lost_again, normal),
)


def new_rule(now: float, accepted: Sequence[float]) -> Outcome:
    judged = judge([now], accepted, LIMIT, ALPHA)
    assert judged is not None
    assert judged.verdict is not None
    return judged.verdict.outcome


def old_rule(now: float, accepted: Sequence[float]) -> Outcome:
    error = stdev(accepted) * sqrt(1 + 1 / len(accepted)) * student_quantile(1 - ALPHA, len(accepted) - 1)
    excess = now - fmean(accepted) - log1p(LIMIT)
    return "fail" if excess > error else "pass" if excess <= -error else "inconclusive"


RULES: dict[str, Rule] = {"before": old_rule, "now": new_rule}


def red_nights(case: Case, rule: Rule, strict: bool, rng: random.Random) -> list[int]:
    """Return the red nights of one series, from 1."""
    accepted: list[float] = []
    red = []
    for night in range(1, NIGHTS + 1):
        now = case.truth(night) + case.noise(rng)
        outcome = rule(now, accepted) if night > ACCEPTED_BLINDLY else "pass"
        if outcome == "fail" or (strict and outcome == "inconclusive"):
            red.append(night)
        else:
            accepted.append(now)
    return red


def row(case: Case, name: str, strict: bool, series: int, seed: int) -> list[str]:
    """Return how many nights are red, in how many series one is, the first, and what the stack costs then."""
    rng = random.Random(f"{seed} {case.name}")
    nights = [red_nights(case, RULES[name], strict, rng) for _ in range(series)]
    first = [red[0] for red in nights if red]
    share = len(first) / series
    error = sqrt(share * (1 - share) / series)
    return [
        case.name,
        f"{name}{', strict' if strict else ''}",
        f"{fmean(map(len, nights)):.1f}",
        f"{100 * share:.0f} ± {100 * error:.0f} %",
        f"{median(first):.0f}" if first else "-",
        _growth(case, round(median(first))) if first else "-",
    ]


def _growth(case: Case, night: int) -> str:
    """Return how much more a stack costs than at its best before."""
    best = min(case.truth(earlier) for earlier in range(1, night + 1))
    return f"{100 * (2.718281828 ** (case.truth(night) - best) - 1):+.1f} %"


HEADERS = ["four months", "rule", "red nights of 120", "series with one", "first (median)", "true growth then"]


def main(arguments: list[str]) -> None:
    """Print the table as Markdown, for so many series a row and from a seed."""
    series, seed = (*map(int, arguments), *(400, 1)[len(arguments) :])
    rows = [row(case, name, strict, series, seed) for case in CASES for name in RULES for strict in (False, True)]
    print(tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True))
