"""Which stack costs least: how often the right one is named, and how often the interval of its cost holds."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from math import exp, log1p

from benchmarks.machines import MACHINES, Table, share, sigma_of
from pytest_fsstack.judging import overall
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.results import ChainResults, StackInfo
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Estimate, Looks

_STEPS = ("one", "two", "three", "four", "five")
_TROUBLE = MACHINES["outliers x3, 5 %"]
#: What the stacks cost over the baseline, by the name of the row.
_TRUTHS = {
    "2 equal": (0.2,) * 2,
    "6 equal": (0.2,) * 6,
    "5 cost 20 % more": (0.2, *(0.44,) * 5),
}


def chain_of(rng: random.Random, truths: Sequence[float], cv: float, rounds: int) -> ChainResults:
    """Return a chain of a baseline that encrypts nothing, and stacks that do."""
    costs = {"base": 0.0, **{f"s{number}": log1p(truth) for number, truth in enumerate(truths)}}
    stacks = {name: StackInfo(name, name, encrypts=name != "base") for name in costs}
    chain = ChainResults("t.py::T", ["loop"], "base", Looks.fixed(rounds), 1, list(_STEPS), stacks)
    noises = {step: iter(_TROUBLE(rng, sigma_of(cv), rounds * len(costs))) for step in _STEPS}
    for _ in range(rounds):
        chain.orders.append(rng.sample(list(costs), len(costs)))
        for name in chain.orders[-1]:
            for step in _STEPS:
                chain.add(step, name, Sample({"seconds": exp(costs[name] + next(noises[step]))}))
    return chain


def cheapest(readings: Readings) -> tuple[list[str], Estimate]:
    """Return the stacks that may cost least, and the cost of the first one, as reports show them."""
    steps = overall.with_all_steps(readings.chain, readings.estimate)
    ranked = sorted(steps, key=lambda stack: sum(log1p(one.overhead) for one in steps[stack].values()))
    names = readings.may_cost_least(ranked, _STEPS, {})
    overheads = {step: one.overhead for step, one in steps[names[0]].items()}
    ratios = {step: readings.log_ratios(step, names[0]) for step in _STEPS}
    cost = overall.geometric_mean(ratios, overheads)
    return names, cost if len(names) == 1 else readings.lowest(names[0], cost, _STEPS, {}, len(names))


def table(sessions: int, seed: int) -> Table:
    """Name the cheapest stacks of sessions with fixed rounds."""
    sessions, rows = max(2, sessions // 6), []
    for name, truths in _TRUTHS.items():
        for rounds in (8, 24):
            rng = random.Random(f"{seed} winners {name} {rounds}")
            named_costs = [cheapest(Readings(chain_of(rng, truths, 0.10, rounds))) for _ in range(sessions)]
            truth_of = {f"s{number}": truth for number, truth in enumerate(truths)}
            named = [(truth_of[names[0]], len(names) == 1) for names, _ in named_costs]
            covered = [
                cost.low <= truth <= cost.high for (_, cost), (truth, _) in zip(named_costs, named) if cost.has_interval
            ]
            rows.append(
                [
                    *(name, str(rounds)),
                    share([is_one for _, is_one in named]),
                    share([is_one and truth > min(truths) for truth, is_one in named]),
                    share(covered) if covered else "-",
                ]
            )
    headers = ["stacks", "rounds", "one is named", "a wrong one alone", "interval covers"]
    title = f"Which stack costs least: {sessions} sessions a cell, five steps, CV 10 %, outliers."
    return Table(title, headers, rows)


def marks(sessions: int, seed: int) -> Table:
    """Count the cells of equal stacks whose interval shows a difference."""
    sessions, rows = max(2, sessions // 6), []
    for rounds in (5, 8, 24):
        rng = random.Random(f"{seed} marks {rounds}")
        tables = []
        for _ in range(sessions):
            readings = Readings(chain_of(rng, (0.0,) * 6, 0.10, rounds))
            steps = overall.with_all_steps(readings.chain, readings.estimate)
            tables.append([one.differs for of_stack in steps.values() for one in of_stack.values()])
        shares = [sum(cells) / len(cells) for cells in tables]
        error = statistics.stdev(shares) / len(shares) ** 0.5
        rows.append(
            [str(rounds), f"{100 * statistics.fmean(shares):.1f} ± {100 * error:.1f} %", share(list(map(any, tables)))]
        )
    title = f"Cells of equal stacks: {sessions} tables of 30 cells a row, CV 10 %, outliers."
    return Table(title, ["rounds", "cells that show a difference", "tables with such a cell"], rows)
