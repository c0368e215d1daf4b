"""Two identical kernels on a drifting machine: how often is the second one called slower than a limit of 5 % allows?

    python -m benchmarks turns [sessions [seed]]

In turns, by the plugin's own order of the workers, plan and verdict between kernels; and one kernel after the other, as
two boots are compared by hand, judged by the same test.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import exp, log1p

from benchmarks.machines import BUDGET, CVS, MACHINES, Table, Trouble, above, share
from pytest_fsstack.judging import saved
from pytest_fsstack.judging.results import ChainResults, Results, StackInfo
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.verdict import Looks, judge
from pytest_fsstack.kernels.comparison import Boot, Course
from pytest_fsstack.kernels.turns import drawn

_BOOTS: list[Boot] = [("first", 0), ("second", 0)]
_STEP, _STACK = "write", "ext4"


def in_turns(rng: random.Random, trouble: Trouble, cv: float, truth: float, limit: float) -> tuple[str, int]:
    """The verdict on the second kernel, whose true cost is `truth`, and after how many rounds."""
    looks, seed = Looks(), rng.getrandbits(32)
    machine = iter(trouble(rng, log1p(cv**2) ** 0.5, 2 * looks.most))
    course, number = Course(["first", "second"], 1, limit), 0
    while True:
        course.end_round({})
        playing = [boot for boot in _BOOTS if course.wanted(boot) != []]
        if not playing:
            break
        number += 1
        for boot in drawn(seed, _STEP, number, playing):
            seconds = exp(next(machine)) * (1 + truth if boot == _BOOTS[1] else 1)
            course.hear(boot, _message(boot, number, seconds, looks))
    judged = course.conclude().worst(_STEP, f"{_STACK}:second")
    assert judged is not None
    return judged, number


def _message(boot: Boot, number: int, seconds: float, looks: Looks) -> dict[str, object]:
    """What a kernel's worker says after a round: it has no budgets of its own."""
    chain = ChainResults("test_it.py::test_write", "loop", _STACK, looks, 0, kernel=boot[0], steps=[_STEP])
    chain.stacks[_STACK] = StackInfo(_STACK, _STACK)
    chain.orders = [[_STACK]] * number
    chain.add(_STEP, _STACK, Sample({"seconds": seconds}))
    results = saved.dump(Results({}, [chain]))
    plan: dict[str, object] = {"wanted": [], "states": [], "left": {}}
    return {"over": False, "results": results, "alive": [_STACK], "failed": 0, **plan}


def one_after_the_other(
    rng: random.Random, trouble: Trouble, cv: float, truth: float, limit: float, rounds: int = 30
) -> str:
    """The verdict if all rounds run on the first kernel, and then all on the second."""
    noise = trouble(rng, log1p(cv**2) ** 0.5, 2 * rounds)
    ratios = {number: log1p(truth) + noise[rounds + number] - noise[number] for number in range(rounds)}
    return judge(ratios, limit, Looks.fixed(rounds)).outcome


def table(sessions: int, seed: int) -> Table:
    """Compare two kernels in turns, and one after the other."""
    sessions = max(1, sessions // 4)
    title = f"Two kernels: {sessions} sessions a cell, outliers and drift, limit 5 %."
    return Table(title, ["two kernels", "CV", "false fails", "finds 10 %", "rounds at 10 %"], _rows(sessions, seed))


def _rows(sessions: int, seed: int) -> Iterator[list[str]]:
    trouble = MACHINES["outliers, drift 20 % per 60 runs"]
    for cv in CVS:
        rng = random.Random(f"{seed} turns {cv}")
        kept, broken = (
            [in_turns(rng, trouble, cv, truth, BUDGET) for _ in range(sessions)] for truth in (BUDGET, above(0.10))
        )
        rounds = sum(number for _, number in broken) / sessions
        rates = [share([outcome == "fail" for outcome, _ in sessions_]) for sessions_ in (kept, broken)]
        yield ["in turns", f"{cv:.0%}", *rates, f"{rounds:.1f}"]
    for cv in CVS:
        rng = random.Random(f"{seed} one after the other {cv}")
        rates = [
            share([one_after_the_other(rng, trouble, cv, truth, BUDGET) == "fail" for _ in range(sessions)])
            for truth in (BUDGET, above(0.10))
        ]
        yield ["one after the other", f"{cv:.0%}", *rates, "30.0"]


def main(arguments: list[str]) -> None:
    """Print the table as Markdown, for so many sessions and from a seed."""
    sessions, seed = (*map(int, arguments), *(700, 1)[len(arguments) :])
    print(table(sessions, seed))
