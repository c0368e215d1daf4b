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
    "2 like the baseline": (0.0,) * 2,
    **{f"5 cost {more} % more": (0.2, *(1.2 * (1 + more / 100) - 1,) * 5) for more in (5, 10, 20, 100)},
}
_ROUNDS = (5, 6, 14, 24)


def chain_of(rng: random.Random, truths: Sequence[float], cv: float, rounds: int) -> ChainResults:
    """Return a chain of a baseline and stacks. The baseline encrypts nothing."""
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


class Named:
    """The stacks of a session that may cost least, as reports name them. The baseline may compete with them."""

    def __init__(self, readings: Readings, competes: bool = False) -> None:
        self._readings, self._steps = readings, overall.with_all_steps(readings.chain, readings.estimate)
        sums = {stack: sum(log1p(one.overhead) for one in steps.values()) for stack, steps in self._steps.items()}
        self.first = min(sums, key=lambda stack: sums[stack])
        if competes:
            sums[readings.chain.baseline] = 0.0
        self._ranked = sorted(sums, key=lambda stack: sums[stack])
        self.names = readings.may_cost_least(self._ranked, _STEPS, {})

    @property
    def is_one(self) -> bool:
        """Whether one stack is named that is not the baseline."""
        return self.names == [self.first]

    def cost(self) -> Estimate:
        """Return the cost of the first stack that is not the baseline."""
        overheads = {step: one.overhead for step, one in self._steps[self.first].items()}
        cost = overall.geometric_mean({step: self._readings.log_ratios(step, self.first) for step in _STEPS}, overheads)
        return self._readings.of_cheapest(self.first, cost, self._ranked, self.names, _STEPS, {})


def table(sessions: int, seed: int) -> Table:
    """Name the cheapest stacks of sessions with fixed rounds."""
    sessions, rows = max(2, sessions // 2), []
    for name, truths in _TRUTHS.items():
        truth_of = {f"s{number}": truth for number, truth in enumerate(truths)}
        cells = []
        for rounds in _ROUNDS:
            rng = random.Random(f"{seed} winners {name} {rounds}")
            of_one: list[bool] = []
            of_several: list[bool] = []
            wrong = 0
            for number in range(sessions):
                named = Named(Readings(chain_of(rng, truths, 0.10, rounds)), competes=0.0 in truths)
                truth = truth_of[named.first]
                # The interval takes most of the time.
                if named.is_one or number < sessions // 6:
                    cost = named.cost()
                    (of_one if named.is_one else of_several).append(cost.low <= truth <= cost.high)
                wrong += named.is_one and truth > min(truths)
            cells.append(
                "/".join(
                    [_percent(len(of_one), sessions), _percent(wrong, sessions), _covers(of_one), _covers(of_several)]
                )
            )
        rows.append([name, *cells])
    title = (
        f"Which stack costs least: {sessions} sessions a cell, five steps, CV 10 %, outliers. In %: one is named / a "
        "wrong one / the interval of one covers / of the first of several."
    )
    return Table(title, ["stacks", *(f"{rounds} rounds" for rounds in _ROUNDS)], rows)


def _percent(number: int, of: int) -> str:
    return f"{100 * number / of:.0f}"


def _covers(covered: list[bool]) -> str:
    """Return the share of intervals that cover, with its standard error if it is more than half a percent."""
    return share(covered).replace(" %", "").replace(" ", "") if len(covered) > 9 else "-"


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
