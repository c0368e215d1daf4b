"""How often is a verdict wrong, and what does it find? Print it, beside what comparing two means says.

    python -m benchmarks verdict [sessions [seed]] [section ...]

Simulated sessions of a baseline and a stack whose true overhead is known, judged by the plugin's own `judge` with its
default plan of looks: a session ends where its verdict says so. The machines are those of `benchmarks.machines`. The
rules of others (`benchmarks.rules`) see the baseline run eight times, and then the stack eight times. "Finds 10 %" is
a true overhead of 1.05 x 1.10 - 1 = 15.5 %. Behind ± is the standard error.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable
from math import exp

from benchmarks import boots, budgets, carry_over, estimates, hosts, nights, repeats, rules, turns
from benchmarks.machines import BUDGET, CVS, MACHINES, Table, Trouble, above, session, share, sigma_of
from pytest_fsstack.judging.verdict import Looks, Verdict


def machines(sessions: int, seed: int) -> Table:
    """Judge sessions on each kind of machine."""
    rows = [[name, *_rates(sessions, f"{seed} {name}", trouble, 0.10)] for name, trouble in MACHINES.items()]
    title = f"Machines: {sessions} sessions a cell, CV 10 %, budget 5 %."
    return Table(title, ["machine", *_RATES], rows)


def noise(sessions: int, seed: int) -> Table:
    """Judge sessions with little and with much noise."""
    some = ("normal", "outliers, drift 20 % per 60 runs", "bimodal")
    rows = [
        [name, f"{cv:.0%}", *_rates(sessions, f"{seed} {name} {cv}", MACHINES[name], cv)] for name in some for cv in CVS
    ]
    return Table(f"Noise: {sessions} sessions a cell, budget 5 %.", ["machine", "CV", *_RATES], rows)


_RATES = ["false fails", "false passes", "finds 5 %", "finds 10 %", "rounds at 10 %", "rounds at budget"]


def _rates(sessions: int, seed: str, trouble: Trouble, cv: float) -> list[str]:
    rng, looks = random.Random(seed), Looks()
    kept = [session(rng, trouble, cv, BUDGET, looks) for _ in range(sessions)]
    little, more = ([session(rng, trouble, cv, above(part), looks) for _ in range(sessions)] for part in (0.05, 0.10))
    return [
        share([verdict.outcome == "fail" for verdict in kept]),
        share([verdict.outcome == "pass" for verdict in kept]),
        share([verdict.outcome == "fail" for verdict in little]),
        share([verdict.outcome == "fail" for verdict in more]),
        f"{statistics.fmean(map(_rounds, more)):.1f}",
        f"{statistics.fmean(map(_rounds, kept)):.1f}",
    ]


def _rounds(verdict: Verdict) -> int:
    return verdict.looks.rounds[verdict.look - 1]


def others(sessions: int, seed: int) -> Table:
    """Apply the rules of other tools, at the budget and 10 % above it."""
    known, rows = rules.known(), []
    sessions = max(1, sessions // 4)
    for name, trouble in MACHINES.items():
        rng = random.Random(f"{seed} others {name}")
        kept = [sequential(rng, trouble, 0.10, BUDGET, known) for _ in range(sessions)]
        broken = [sequential(rng, trouble, 0.10, above(0.10), known) for _ in range(sessions)]
        cells = [
            f"{share([fails[rule] for fails in kept])} / {share([fails[rule] for fails in broken])}" for rule in known
        ]
        rows.append([name, *cells])
    missing = "" if rules.OTAVA in known else f" Without {rules.OTAVA}: pip install --no-deps apache-otava."
    title = f"Rules of others, false fails / finds 10 %: {sessions} sessions a cell, CV 10 %.{missing}"
    return Table(title, ["machine", *known], rows)


def sequential(
    rng: random.Random, trouble: Trouble, cv: float, truth: float, known: dict[str, rules.Rule]
) -> dict[str, bool]:
    """Whether each of other people's rules calls the stack slower than its budget allows."""
    times = [exp(value) for value in trouble(rng, sigma_of(cv), 16)]
    base, stack = times[:8], [value * (1 + truth) for value in times[8:]]
    return {name: rule(base, stack, BUDGET) for name, rule in known.items()}


#: Each makes its table from a number of sessions and a seed.
SECTIONS: dict[str, Callable[[int, int], Table]] = {
    "budgets": budgets.table,
    "machines": machines,
    "noise": noise,
    "others": others,
    "kernels": turns.table,
    "boots": boots.table,
    "repetitions": repeats.table,
    "estimates": estimates.coverage,
    "ticks": estimates.ticks,
    "advice": estimates.advice,
    "carry-over": carry_over.table_of_notices,
    "carry-over-verdicts": carry_over.table_of_verdicts,
    "nights": nights.strict_table,
    "hosts": hosts.table,
    "hosts-intervals": hosts.intervals,
    "hosts-odd": hosts.odd,
}


def main(arguments: list[str]) -> int:
    """Print the tables as Markdown, or those of some sections. Returns 2 if a word is not one."""
    numbers = [int(word) for word in arguments if word.isdecimal()]
    names = [word for word in arguments if not word.isdecimal()]
    unknown = [name for name in names if name not in SECTIONS]
    if unknown or len(numbers) > 2:
        print(f"takes a number of sessions, a seed, and sections: {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    sessions, seed = (*numbers, *(700, 1)[len(numbers) :])
    for name in names or SECTIONS:
        print(SECTIONS[name](sessions, seed), end="\n\n", flush=True)
    return 0
