"""Error rates and power of comparisons with earlier runs.

    python -m benchmarks over-time [sessions] [seed]

The first table has histories with one figure for each run, and several kinds of noise. In the second table, runs have
30 rounds and a known true overhead, and are compared by the plugin's own `comparison.compare` with a limit of 5 %. Runs
have a standard deviation of 2 %, which is the same for all rounds of a run. Run times have a CV of 5 %, with outliers
and drift. The last rows apply the exact test to the rounds of two runs, as if these were independent.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from math import exp, log, log1p

from tabulate import tabulate

from benchmarks.machines import BUDGET, MACHINES, Noise, above, correlated, heavy, normal, sigma_of, skewed
from pytest_fsstack.judging import runs
from pytest_fsstack.over_time import spread
from pytest_fsstack.over_time.comparison import compare
from pytest_fsstack.records.results import ChainResults, Results, StackInfo
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Looks

#: The numbers of new and of earlier runs.
SIDES = ((1, 5), (1, 10), (3, 3), (5, 5), (8, 8))
ROUNDS_OF_TWO_RUNS = (10, 30, 100)
HEADERS = ["compared", "false fails", "finds 5 %", "finds 10 %"]

_ROUNDS = 30
_RUN_EFFECT, _CV = 0.02, 0.05
_TROUBLE = MACHINES["outliers, drift 20 % per 60 runs"]
#: The overhead of the stack in the earlier runs.
_THEN = 0.30


def rounds(rng: random.Random, truth: float, number: int) -> list[tuple[float, float]]:
    """Return the times of the baseline and of the stack in each round of a run."""
    noise = _TROUBLE(rng, sigma_of(_CV), 2 * number)
    effect = rng.gauss(0, sigma_of(_RUN_EFFECT))
    times = []
    for index in range(number):
        base, stack = rng.sample(noise[2 * index : 2 * index + 2], 2)
        times.append((exp(base), exp(stack + effect) * (1 + truth)))
    return times


def run(rng: random.Random, truth: float) -> Results:
    """Return the results of a session. All sessions are of one machine."""
    chain = ChainResults("t.py::T", ["loop"], "ext4", Looks.fixed(_ROUNDS), 0, steps=["write"])
    chain.stacks = {name: StackInfo(name, name) for name in ("ext4", "luks")}
    for times in rounds(rng, truth, _ROUNDS):
        chain.orders.append(["ext4", "luks"])
        for name, seconds in zip(chain.stacks, times, strict=True):
            chain.add("write", name, Sample({"seconds": seconds}))
    return Results({"machine_id": "0" * 32}, [chain])


def runs_fail(rng: random.Random, now: int, then: int, more: float) -> bool:
    """Whether `now` runs in which the stack costs `more` fail against `then` earlier ones."""
    sides = [[run(rng, truth) for _ in range(number)] for number, truth in ((now, _more(more)), (then, _THEN))]
    (change,) = compare(*sides, limit=BUDGET).compared
    return change.outcome == "fail"


def rounds_fail(rng: random.Random, number: int, more: float) -> bool:
    """Whether one run fails against another if their rounds are compared."""
    sides = [[log(stack / base) for base, stack in rounds(rng, truth, number)] for truth in (_more(more), _THEN)]
    verdict = runs.judge(sides[0], sides[1], BUDGET, Looks().alpha)
    return verdict is not None and verdict.outcome == "fail"


def _more(more: float) -> float:
    return (1 + _THEN) * (1 + more) - 1


def rows(sessions: int, seed: int) -> Iterator[list[str]]:
    """Yield a row for each number of runs, and for the rounds of two runs."""
    for now, then in SIDES:
        rng = random.Random(f"{seed} {now} {then}")
        shares = [_share(runs_fail(rng, now, then, above(share)) for _ in range(sessions)) for share in (0, 0.05, 0.10)]
        yield [f"{now} against {then} earlier runs" if now == 1 else f"{now} against {then} runs", *shares]
    for number in ROUNDS_OF_TWO_RUNS:
        rng = random.Random(f"{seed} rounds {number}")
        shares = [_share(rounds_fail(rng, number, above(share)) for _ in range(sessions)) for share in (0, 0.05, 0.10)]
        yield [f"the rounds of two runs, {number} each", *shares]


# -- histories, one figure a run ---------------------------------------------------------------------------------------

#: The distribution of runs, and the correlation of successive runs. The standard deviation is `_RUN_EFFECT`.
NOISES: dict[str, tuple[Noise, float]] = {
    "normal": (normal, 0.0),
    "heavy tails (t3)": (heavy, 0.0),
    "skewed": (skewed, 0.0),
    "AR(1) 0.2": (normal, 0.2),
    "AR(1) 0.5": (normal, 0.5),
}
#: The numbers of earlier runs. `IMPROVED` also has the number of runs since an improvement.
EARLIER = (6, 10, 20, 40)
IMPROVED = ((20, 3), (20, 5), (40, 20))


def figures(rng: random.Random, name: str, number: int) -> list[float]:
    """Return the logarithms of runs without a change."""
    return [_RUN_EFFECT * value for value in islice(correlated(rng, *NOISES[name]), number)]


def history_fails(rng: random.Random, name: str, earlier: int, more: float, improved: int = 0) -> bool:
    """Whether a run that costs `more` fails. `improved` of the earlier runs came after an improvement of 10 %."""
    *then, now = figures(rng, name, earlier + 1)
    start = earlier - improved if improved else 0
    level = log1p(0.10) if improved else 0.0
    judged = spread.judge(
        [now + log1p(more)],
        [value + level * (place < start) for place, value in enumerate(then)],
        BUDGET,
        Looks().alpha,
    )
    return judged.outcome == "fail"


def history_rows(sessions: int, seed: int) -> Iterator[list[str]]:
    """Yield a row for each kind of noise: the shares of false fails and of found regressions, by earlier runs."""
    for name in NOISES:
        rng = random.Random(f"{seed} {name}")
        at = [_share(history_fails(rng, name, n, BUDGET) for _ in range(sessions)) for n in EARLIER]
        finds = [_share(history_fails(rng, name, n, above(0.10)) for _ in range(sessions)) for n in EARLIER]
        lost = [
            _share(history_fails(rng, name, n, above(0.10), since) for _ in range(sessions)) for n, since in IMPROVED
        ]
        yield [name, *at, *finds, *lost]


def _share(results: Iterator[bool]) -> str:
    outcomes = list(results)
    return f"{100 * sum(outcomes) / len(outcomes):.1f} %"


def main(arguments: list[str]) -> None:
    """Print both tables as Markdown. The arguments are the number of comparisons in a cell and the seed."""
    sessions, seed = (*map(int, arguments), *(1000, 1)[len(arguments) :])
    headers = [
        "runs",
        *(f"false fails, {number} runs" for number in EARLIER),
        *(f"finds 10 %, {number} runs" for number in EARLIER),
        *(f"finds 10 %, {since} of {number} runs after an improvement" for number, since in IMPROVED),
    ]
    print(tabulate(history_rows(sessions, seed), headers, tablefmt="github", disable_numparse=True), flush=True)
    print()
    print(tabulate(rows(sessions, seed), HEADERS, tablefmt="github", disable_numparse=True), flush=True)
