"""Two identical kernels on a drifting machine: how often is the second one called slower than a limit of 5 % allows?

In turns, by the plugin's own order of the workers, plan and verdict between kernels; and one kernel after the other, as
whoever compares two boots by hand measures, judged by the same test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from math import exp, log1p

from pytest_fsstack.judging import saved
from pytest_fsstack.judging.results import ChainResults, Results, StackInfo
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.verdict import Looks, judge
from pytest_fsstack.kernels.comparison import Boot, Course
from pytest_fsstack.kernels.turns import drawn

#: Log of the machine's factor for the run at this place of a session, given the log-noise of one run.
Trouble = Callable[[random.Random, float, int], list[float]]

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


HEADERS = ["two kernels", "CV", "false fails", "finds 10 %", "rounds at 10 %"]


def rows(
    sessions: int, seed: int, trouble: Trouble, limit: float, cvs: tuple[float, ...] = (0.05, 0.10, 0.20)
) -> Iterator[list[str]]:
    """A row for each way and noise; "finds 10 %" is a kernel that exceeds the limit by a tenth of the time allowed."""
    slower = (1 + limit) * 1.10 - 1
    for cv in cvs:
        rng = random.Random(f"{seed} turns {cv}")
        at = [in_turns(rng, trouble, cv, limit, limit)[0] for _ in range(sessions)]
        above = [in_turns(rng, trouble, cv, slower, limit) for _ in range(sessions)]
        mean = sum(number for _, number in above) / sessions
        yield ["in turns", f"{cv:.0%}", _failed(at), _failed([each for each, _ in above]), f"{mean:.1f}"]
    for cv in cvs:
        rng = random.Random(f"{seed} one after the other {cv}")
        at = [one_after_the_other(rng, trouble, cv, limit, limit) for _ in range(sessions)]
        above_ = [one_after_the_other(rng, trouble, cv, slower, limit) for _ in range(sessions)]
        yield ["one after the other", f"{cv:.0%}", _failed(at), _failed(above_), "30.0"]


def _failed(outcomes: list[str]) -> str:
    return f"{100 * outcomes.count('fail') / len(outcomes):.1f} %"
