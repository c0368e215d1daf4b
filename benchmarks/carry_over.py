"""Carry-over: how often does the plugin notice that a run affects the next one, and how wrong are the verdicts?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import exp, log1p

from benchmarks.machines import BUDGET, MACHINES, STEP, Table, Trouble, course_of, rates, run, share, sigma_of
from pytest_fsstack.judging.carry_over import FigureKey, Round, carry_overs
from pytest_fsstack.judging.cells import Cell, Policy
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.verdicts import Looks

_CV = 0.05
_ROUNDS = 40
_MACHINES = ("normal", "outliers, drift 20 % per 60 runs")
#: Numbers of stacks and of steps. All steps take longer after the culprit.
_CHAINS = ((2, 1), (2, 3), (3, 1), (6, 1))


class Runs:
    """A sequence of runs. Steps take longer by `effect` if the run before was of `culprit`."""

    def __init__(self, rng: random.Random, noise: Sequence[float], culprit: str, effect: float, steps: int = 1) -> None:
        self._rng, self._noise, self._culprit, self._effect = rng, iter(noise), culprit, log1p(effect)
        self._before, self._steps = "", steps
        self.rounds: list[Round] = []

    def run(self, stacks: Sequence[str], truths: dict[str, float]) -> dict[str, float]:
        """Run a round in random order. Return the logarithms of the times of the last step."""
        order, logs = self._rng.sample(stacks, len(stacks)), dict[str, float]()
        figures: dict[FigureKey, list[float]] = {}
        for stack in order:
            usual = log1p(truths.get(stack, 0.0)) + (self._effect if self._before == self._culprit else 0.0)
            for step in range(self._steps):
                logs[stack] = usual + next(self._noise)
                figures.setdefault((f"step {step}", "seconds", ""), []).append(exp(logs[stack]))
            self._before = stack
        self.rounds.append(Round(order, figures))
        return logs


def noticed(rng: random.Random, trouble: Trouble, stacks: int, steps: int, effect: float) -> bool:
    """Return whether the carry-over of the last stack is noticed in a chain."""
    names = [str(number) for number in range(stacks)]
    noise = trouble(rng, sigma_of(_CV), steps * stacks * _ROUNDS)
    runs = Runs(rng, noise, names[-1], effect, steps)
    for _ in range(_ROUNDS):
        runs.run(names, {})
    return bool(carry_overs(runs.rounds, str(rng.random())))


def table_of_notices(sessions: int, seed: int) -> Table:
    """Count the chains that are doubted, by the size of the carry-over."""
    sessions = max(1, sessions // 4)
    headers = ["machine", "stacks", "steps", "no carry-over", "2 %", "5 %", "10 %"]
    title = (
        f"Carry-over that is noticed: {sessions} chains a cell, without carry-over {10 * sessions}, {_ROUNDS} rounds, "
        f"CV {_CV:.0%}, after one stack."
    )
    return Table(title, headers, _rows_of_notices(sessions, seed))


def _rows_of_notices(sessions: int, seed: int) -> Iterator[list[str]]:
    for machine in _MACHINES:
        for stacks, steps in _CHAINS:
            cells = []
            for effect in (0.0, 0.02, 0.05, 0.10):
                rng = random.Random(f"{seed} notices {machine} {stacks} {steps} {effect}")
                # The test ends early without carry-over, so more of these chains are affordable.
                chains = sessions if effect else 10 * sessions
                cells.append(share([noticed(rng, MACHINES[machine], stacks, steps, effect) for _ in range(chains)]))
            yield [machine, str(stacks), str(steps), *cells]


def session(rng: random.Random, trouble: Trouble, stacks: int, effect: float, looks: Looks) -> tuple[str, bool]:
    """Return the verdict on a stack that is exactly at its budget, and whether the verdict is doubted.

    Runs after that stack take longer by `effect`. All other stacks cost nothing. Decided stacks run no further.
    """
    names = [str(number) for number in range(stacks)]
    baseline, judged = names[0], names[-1]
    budgets = {name: [] if name == baseline else [Budget(overhead=BUDGET)] for name in names}
    course = course_of(rng, budgets, Policy(looks))
    noise, before = iter(trouble(rng, sigma_of(_CV), stacks * looks.max_rounds)), [""]

    def log_of(cell: Cell) -> float:
        carried = log1p(effect) if before[0] == judged else 0.0
        before[0] = cell.stack
        return next(noise) + carried + (log1p(BUDGET) if cell.stack == judged else 0.0)

    run(course, log_of)
    course.conclude()
    doubted = bool(course.readings.doubts(STEP, judged))
    return course.chain.worst(STEP, judged) or "", doubted


def table_of_verdicts(sessions: int, seed: int) -> Table:
    """Judge stacks that are exactly at their budget and slow down or speed up the next run."""
    sessions = max(1, sessions // 4)
    headers = ["after the stack", "stacks", "false fails", "false passes", "doubted", "wrong and not doubted"]
    title = f"Verdicts with carry-over: {sessions} sessions a cell, CV {_CV:.0%}, truth at the budget of 5 %."
    return Table(title, headers, _rows_of_verdicts(sessions, seed))


def _rows_of_verdicts(sessions: int, seed: int) -> Iterator[list[str]]:
    for effect in (0.0, 0.02, 0.05, 0.10, -0.10):
        for stacks in (2, 3, 6):
            rng = random.Random(f"{seed} verdicts {effect} {stacks}")
            outcomes = [session(rng, MACHINES["normal"], stacks, effect, Looks()) for _ in range(sessions)]
            yield [
                f"{effect:+.0%}",
                str(stacks),
                *rates([outcome for outcome, _ in outcomes]),
                share([doubted for _, doubted in outcomes]),
                share([outcome != "inconclusive" and not doubted for outcome, doubted in outcomes]),
            ]
