"""Four simulated months of a gate: how many nights are red, and how much slower is the stack by then?

    python -m benchmarks nights [series] [seed]

Each night is one figure: the log-ratio of a stack to its baseline, with a standard deviation of 2 % between runs. From
the eleventh night on, the plugin's own `over_time.spread` judges it against the accepted nights, with a limit of 5 %. A
red night is not accepted. *Strict* nights are also red if they are undecided. The former rule took the standard
deviation of all accepted nights as their spread, and their mean as the level.

`python -m benchmarks verdict nights` simulates a strict gate with the limit that its plan names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import log1p, sqrt
from statistics import fmean, median, stdev
from typing import NamedTuple

from tabulate import tabulate

from benchmarks import machines
from benchmarks.machines import Noise, Table, share
from pytest_fsstack.judging.quantiles import student_quantile
from pytest_fsstack.over_time.spread import DECIDED_SHARE, Power, judge, power
from pytest_fsstack.records.verdicts import Outcome

NIGHTS, ACCEPTED_BLINDLY = 120, 10
LIMIT, ALPHA = 0.05, 0.05
DEVIATION = 0.02
#: The night from which the stack is 10 % faster, and the night from which it is 15.5 % slower than that.
FASTER, SLOWER = 40, 60

#: Returns the true cost of a stack in a night, as a logarithm.
Truth = Callable[[int], float]
Rule = Callable[[float, Sequence[float]], Outcome]


class Case(NamedTuple):
    """A history of four months: the true costs and the noise."""

    name: str
    truth: Truth
    noise: Noise


def _scaled(noise: Noise, deviation: float = DEVIATION) -> Noise:
    return lambda rng: deviation * noise(rng)


_NOISES = {
    "1 %": _scaled(machines.normal, DEVIATION / 2),
    "2 %": _scaled(machines.normal),
    "2 %, skewed": _scaled(machines.skewed),
    "2 %, heavy tails": _scaled(machines.heavy),
}


def _constant(_night: int) -> float:
    return 0.0


def _creep(night: int) -> float:
    return night * log1p(0.005)


def _lost_again(night: int) -> float:
    return (night >= SLOWER) * log1p(0.155) - (night >= FASTER) * log1p(0.10)


CASES = (
    Case("nothing changes", _constant, _NOISES["2 %"]),
    Case("nothing changes, 1 % from run to run", _constant, _NOISES["1 %"]),
    Case("nothing changes, skewed runs", _constant, _NOISES["2 %, skewed"]),
    Case("0.5 % slower each night", _creep, _NOISES["2 %"]),
    Case(f"10 % faster from night {FASTER}, 15.5 % slower from {SLOWER}", _lost_again, _NOISES["2 %"]),
)


def new_rule(now: float, accepted: Sequence[float]) -> Outcome:
    return judge([now], accepted, LIMIT, ALPHA).outcome or "inconclusive"


def old_rule(now: float, accepted: Sequence[float]) -> Outcome:
    error = stdev(accepted) * sqrt(1 + 1 / len(accepted)) * student_quantile(1 - ALPHA, len(accepted) - 1)
    excess = now - fmean(accepted) - log1p(LIMIT)
    return "fail" if excess > error else "pass" if excess <= -error else "inconclusive"


RULES: dict[str, Rule] = {"before": old_rule, "now": new_rule}


def red_nights(case: Case, rule: Rule, strict: bool, rng: random.Random) -> list[int]:
    """Return the numbers of the red nights of one series, counted from 1."""
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
    """Return the mean number of red nights, the share of series with one, the first, and the true growth then."""
    rng = random.Random(f"{seed} {case.name}")
    nights = [red_nights(case, RULES[name], strict, rng) for _ in range(series)]
    first = [red[0] for red in nights if red]
    part = len(first) / series
    error = sqrt(part * (1 - part) / series)
    return [
        case.name,
        f"{name}{', strict' if strict else ''}",
        f"{fmean(map(len, nights)):.1f}",
        f"{100 * part:.0f} ± {100 * error:.0f} %",
        f"{median(first):.0f}" if first else "-",
        _growth(case, round(median(first))) if first else "-",
    ]


def _growth(case: Case, night: int) -> str:
    """Return the true growth of a stack's cost over its lowest cost so far."""
    best = min(case.truth(earlier) for earlier in range(1, night + 1))
    return f"{100 * (2.718281828 ** (case.truth(night) - best) - 1):+.1f} %"


HEADERS = ["four months", "rule", "red nights of 120", "series with one", "first (median)", "true growth then"]


# -- the strict gate of docs/over-time.md ------------------------------------------------------------------------------


#: A regression, and an improvement that is accepted five nights before the regression.
_WORSE, _BETTER = log1p(0.15), -log1p(0.10)


class Strict(NamedTuple):
    """The results of one series: its limit, the unchanged nights that were red, and the regressions that were red."""

    limit: float
    red: list[bool]
    refused: int
    worse: bool
    lost: bool


class Gate:
    """A strict gate on one series of a session, with the limit that `fsstack compare --plan --strict` names."""

    def __init__(self, rng: random.Random, noise: Noise, series: int, again: bool) -> None:
        self._rng, self._noise, self._again = rng, noise, again
        self._alpha, self._decided = ALPHA / series, 1 - (1 - DECIDED_SHARE) / series
        self.accepted = [noise(rng) for _ in range(ACCEPTED_BLINDLY)]
        self.limit = self._power(0.05).smallest
        self.refused = 0

    def _power(self, limit: float) -> Power:
        return power(self.accepted, 0.0, 1, limit, self._alpha, self._decided)

    def is_red(self, level: float) -> bool:
        """Return whether a night is red in which the stack's cost is at `level`. Accept it if not.

        With `again`, a red night runs a second time. If the limit decides too few nights, the night is refused, and the
        limit of the message applies from then on.
        """
        if self._power(self.limit).decided < 0.5:
            self.refused += 1
            self.limit = self._power(self.limit).smallest
            return True
        return not self._passes(level) and not (self._again and self._passes(level))

    def _passes(self, level: float) -> bool:
        now = level + self._noise(self._rng)
        passes = judge([now], self.accepted, self.limit, self._alpha).outcome == "pass"
        if passes:
            self.accepted.append(now)
        return passes


def strict_series(rng: random.Random, noise: Noise, series: int, again: bool) -> Strict:
    """Run ten unchanged nights. Go on with an improvement and its loss, and with a regression and unchanged nights."""
    gate = Gate(rng, noise, series, again)
    planned, red = gate.limit, [gate.is_red(0.0) for _ in range(10)]
    accepted, limit, refused = gate.accepted[:], gate.limit, gate.refused
    for _ in range(5):
        gate.is_red(_BETTER)
    lost = gate.is_red(_BETTER + _WORSE)
    gate.accepted, gate.limit = accepted, limit
    worse = gate.is_red(_WORSE)
    gate.refused = refused
    red += [gate.is_red(0.0) for _ in range(NIGHTS - ACCEPTED_BLINDLY - len(red))]
    return Strict(planned, red, gate.refused, worse, lost)


def strict_row(name: str, series: int, again: bool, number: int, seed: int) -> list[str]:
    """Return the shares of red and refused nights, and how often a regression is red in its first night."""
    rng = random.Random(f"{seed} strict {name} {series} {again}")
    outcomes = [strict_series(rng, _NOISES[name], series, again) for _ in range(number)]
    return [
        *(name, str(series), "yes" if again else "no", f"{100 * median(outcome.limit for outcome in outcomes):.1f} %"),
        f"{100 * fmean(fmean(outcome.red) for outcome in outcomes):.1f} %",
        f"{100 * fmean(outcome.refused for outcome in outcomes) / (NIGHTS - ACCEPTED_BLINDLY):.1f} %",
        share([sum(outcome.red[:10]) <= 1 for outcome in outcomes]),
        share([outcome.worse for outcome in outcomes]),
        share([outcome.lost for outcome in outcomes]),
    ]


STRICT_HEADERS = [
    *("from run to run", "series", "run again if red", "limit (median)", "red nights", "refused nights"),
    *("at least 9 of the first 10 green", "+15 % red in its first night", "after an improvement"),
]


def strict_table(sessions: int, seed: int) -> Table:
    """Simulate four months of the strict gate with several kinds of noise."""
    number = max(1, sessions // 4)
    title = f"A strict gate over time with the limit of its plan: {number} histories of {NIGHTS} nights a row."
    rows = (
        strict_row(name, series, again, number, seed)
        for name in _NOISES
        for series in (1, 4)
        for again in (False, True)
    )
    return Table(title, STRICT_HEADERS, rows)


def main(arguments: list[str]) -> None:
    """Print the table as Markdown. The arguments are the number of series in a row and the seed."""
    series, seed = (*map(int, arguments), *(400, 1)[len(arguments) :])
    rows = [row(case, name, strict, series, seed) for case in CASES for name in RULES for strict in (False, True)]
    print(tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True))
