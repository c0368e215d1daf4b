"""Sessions in which a run leaves something behind for the next one: who notices, and what becomes of the verdicts?"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import exp, log1p

from benchmarks.machines import BUDGET, MACHINES, Table, Trouble, share, sigma_of
from pytest_fsstack.judging.carry_over import Round, carry_overs
from pytest_fsstack.judging.plan import Planner
from pytest_fsstack.judging.verdict import Looks, judge

_CV = 0.05
_ROUNDS = 40
_MACHINES = ("normal", "outliers, drift 20 % per 60 runs")
_PLACE = ("write", "seconds", "")


class Runs:
    """Runs one after the other, each of which takes so much more or less after the run of `culprit`."""

    def __init__(self, rng: random.Random, noise: Sequence[float], culprit: str, effect: float) -> None:
        self._rng, self._noise, self._culprit, self._effect = rng, iter(noise), culprit, log1p(effect)
        self._before = ""
        self.rounds: list[Round] = []

    def run(self, stacks: Sequence[str], truths: dict[str, float]) -> dict[str, float]:
        """Run a round in random order. Returns the logarithms of the times."""
        logs = {}
        for stack in self._rng.sample(stacks, len(stacks)):
            logs[stack] = log1p(truths.get(stack, 0.0)) + next(self._noise)
            logs[stack] += self._effect if self._before == self._culprit else 0.0
            self._before = stack
        self.rounds.append(Round(list(logs), {_PLACE: {stack: exp(value) for stack, value in logs.items()}}))
        return logs


def noticed(rng: random.Random, trouble: Trouble, stacks: int, effect: float) -> bool:
    """Return whether a chain of that many rounds shows that its last stack leaves something behind."""
    names = [str(number) for number in range(stacks)]
    runs = Runs(rng, trouble(rng, sigma_of(_CV), stacks * _ROUNDS), names[-1], effect)
    for _ in range(_ROUNDS):
        runs.run(names, {})
    return bool(carry_overs(runs.rounds, str(rng.random())))


def table_of_notices(sessions: int, seed: int) -> Table:
    """Count the chains that are doubted, by what a run leaves behind."""
    sessions = max(1, sessions // 4)
    headers = ["machine", "stacks", "no carry-over", "2 %", "5 %", "10 %"]
    title = (
        f"Carry-over that is noticed: {sessions} chains a cell, without carry-over {10 * sessions}, {_ROUNDS} rounds, "
        f"CV {_CV:.0%}, after one stack."
    )
    return Table(title, headers, _rows_of_notices(sessions, seed))


def _rows_of_notices(sessions: int, seed: int) -> Iterator[list[str]]:
    for machine in _MACHINES:
        for stacks in (2, 3, 6):
            cells = []
            for effect in (0.0, 0.02, 0.05, 0.10):
                rng = random.Random(f"{seed} notices {machine} {stacks} {effect}")
                # Chance is soon known to be the explanation, so there can be more of these.
                chains = sessions if effect else 10 * sessions
                cells.append(share([noticed(rng, MACHINES[machine], stacks, effect) for _ in range(chains)]))
            yield [machine, str(stacks), *cells]


def session(rng: random.Random, trouble: Trouble, stacks: int, effect: float, looks: Looks) -> tuple[str, bool]:
    """Return the verdict on a stack that is exactly at its budget, and whether it is doubted: runs take more after it.

    All others cost nothing. Decided stacks run no further, by the plugin's own plan.
    """
    names = [str(number) for number in range(stacks)]
    baseline, judged = names[0], names[-1]
    planner = Planner(looks, dict.fromkeys(names, baseline))
    planner.states[baseline] = "measured"
    runs = Runs(rng, trouble(rng, sigma_of(_CV), stacks * looks.most), judged, effect)
    ratios: dict[str, dict[int, float]] = {name: {} for name in names}
    number = 0
    while alive := planner.next_round():
        logs = runs.run(alive, {judged: BUDGET})
        for name in alive:
            ratios[name][number] = logs[name] - logs[baseline]
        number += 1
        if planner.due(number):
            running = [name for name in alive if planner.states[name] == "running"]
            planner.look(number, {name: [judge(ratios[name], BUDGET, looks, number)] for name in running})
    verdict = judge(ratios[judged], BUDGET, looks, number)
    carry = carry_overs(runs.rounds, str(rng.random()))
    return verdict.outcome, any(each.could_change(verdict) for each in carry)


def table_of_verdicts(sessions: int, seed: int) -> Table:
    """Judge stacks that are exactly at their budget, after which runs take more or less."""
    sessions = max(1, sessions // 4)
    headers = ["after the stack", "stacks", "false fails", "false passes", "doubted", "wrong and not doubted"]
    title = f"Verdicts with carry-over: {sessions} sessions a cell, CV {_CV:.0%}, truth at the budget of 5 %."
    return Table(title, headers, _rows_of_verdicts(sessions, seed))


def _rows_of_verdicts(sessions: int, seed: int) -> Iterator[list[str]]:
    for effect in (0.0, 0.02, 0.05, 0.10, -0.10):
        for stacks in (2, 6):
            rng = random.Random(f"{seed} verdicts {effect} {stacks}")
            outcomes = [session(rng, MACHINES["normal"], stacks, effect, Looks()) for _ in range(sessions)]
            yield [
                f"{effect:+.0%}",
                str(stacks),
                share([outcome == "fail" for outcome, _ in outcomes]),
                share([outcome == "pass" for outcome, _ in outcomes]),
                share([doubted for _, doubted in outcomes]),
                share([outcome != "inconclusive" and not doubted for outcome, doubted in outcomes]),
            ]
