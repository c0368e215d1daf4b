"""Error rates and power of verdicts, compared with the rules of other tools.

    python -m benchmarks verdict [sessions [seed]] [section ...]

Sessions of a baseline and a stack with a known true overhead are simulated on the machines of `benchmarks.machines`.
The plugin's own `judge` decides, with its default plan of looks, and a session ends with its verdict. For the rules of
others (`benchmarks.rules`), the baseline runs eight times, and then the stack runs eight times. "Finds 10 %" is a true
overhead of 1.05 x 1.10 - 1 = 15.5 %. ± is the standard error.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Callable
from math import exp

from benchmarks import boots, budgets, carry_over, estimates, hosts, missing, nights, repeats, rules, turns, winners
from benchmarks.machines import BUDGET, CVS, MACHINES, Table, Trouble, above, rates, session, share, sigma_of
from pytest_fsstack.records.verdicts import Looks, Verdict


def machines(sessions: int, seed: int) -> Table:
    """Judge sessions on each kind of machine."""
    rows = [[name, *_rates(sessions, f"{seed} {name}", trouble, 0.10)] for name, trouble in MACHINES.items()]
    title = f"Machines: {sessions} sessions a cell, CV 10 %, budget 5 %."
    return Table(title, ["machine", *_RATES], rows)


def noise(sessions: int, seed: int) -> Table:
    """Judge sessions with little and with much noise."""
    names = ("normal", "outliers, drift 20 % per 60 runs", "bimodal")
    rows = [
        [name, f"{cv:.0%}", *_rates(sessions, f"{seed} {name} {cv}", MACHINES[name], cv)]
        for name in names
        for cv in CVS
    ]
    return Table(f"Noise: {sessions} sessions a cell, budget 5 %.", ["machine", "CV", *_RATES], rows)


_RATES = ["false fails", "false passes", "finds 5 %", "finds 10 %", "rounds at 10 %", "rounds at budget"]


def _rates(sessions: int, seed: str, trouble: Trouble, cv: float) -> list[str]:
    rng, looks = random.Random(seed), Looks()
    at_budget = [session(rng, trouble, cv, BUDGET, looks) for _ in range(sessions)]
    slightly_above, above_budget = (
        [session(rng, trouble, cv, above(part), looks) for _ in range(sessions)] for part in (0.05, 0.10)
    )
    outcomes = ([verdict.outcome for verdict in verdicts] for verdicts in (at_budget, slightly_above, above_budget))
    return [
        *rates(*outcomes),
        f"{statistics.fmean(map(_rounds, above_budget)):.1f}",
        f"{statistics.fmean(map(_rounds, at_budget)):.1f}",
    ]


def _rounds(verdict: Verdict) -> int:
    return verdict.looks.rounds[verdict.look - 1]


def others(sessions: int, seed: int) -> Table:
    """Apply the rules of other tools, at the budget and 10 % above it."""
    other_rules, rows = rules.by_tool(), []
    sessions = max(1, sessions // 4)
    for name, trouble in MACHINES.items():
        rng = random.Random(f"{seed} others {name}")
        kept = [sequential(rng, trouble, 0.10, BUDGET, other_rules) for _ in range(sessions)]
        broken = [sequential(rng, trouble, 0.10, above(0.10), other_rules) for _ in range(sessions)]
        cells = [
            f"{share([fails[rule] for fails in kept])} / {share([fails[rule] for fails in broken])}"
            for rule in other_rules
        ]
        rows.append([name, *cells])
    missing = "" if rules.OTAVA in other_rules else f" Without {rules.OTAVA}: pip install --no-deps apache-otava."
    title = f"Rules of others, false fails / finds 10 %: {sessions} sessions a cell, CV 10 %.{missing}"
    return Table(title, ["machine", *other_rules], rows)


def sequential(
    rng: random.Random, trouble: Trouble, cv: float, truth: float, other_rules: dict[str, rules.Rule]
) -> dict[str, bool]:
    """Return whether each rule calls the stack slower than its budget allows."""
    times = [exp(value) for value in trouble(rng, sigma_of(cv), 16)]
    base, stack = times[:8], [value * (1 + truth) for value in times[8:]]
    return {name: rule(base, stack, BUDGET) for name, rule in other_rules.items()}


#: The sections by name. Each returns its table from a number of sessions and a seed.
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
    "missing": missing.table,
    "winners": winners.table,
    "marks": winners.marks,
    "advice": estimates.advice,
    "carry-over": carry_over.table_of_notices,
    "carry-over-verdicts": carry_over.table_of_verdicts,
    "nights": nights.strict_table,
    "hosts": hosts.table,
    "hosts-intervals": hosts.intervals,
    "hosts-odd": hosts.odd,
    "hosts-stopped": hosts.stopped,
}


def main(arguments: list[str]) -> int:
    """Print all tables, or those of some sections, as Markdown. Return 2 for an unknown section."""
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
