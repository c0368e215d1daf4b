"""Two kernels whose speed differs from boot to boot: how often is a verdict wrong, by the number of boots?"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import exp, log1p

from benchmarks.machines import BUDGET, MACHINES, Table, above, share, sigma_of
from benchmarks.turns import in_turns
from pytest_fsstack.judging.results import ChainResults, StackInfo
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.verdict import Looks
from pytest_fsstack.kernels.comparison import Course

#: What differs from boot to boot.
_BOOT = 0.02
_KERNELS = ("first", "second")
_STEP, _STACK = "write", "ext4"
_TROUBLE = MACHINES["outliers, drift 20 % per 60 runs"]


def outcome_of(rng: random.Random, boots: int, cv: float, truth: float, rounds: int = 8) -> str:
    """Return the verdict on the second kernel, whose true cost is `truth`, from that many boots of each."""
    shifts = {(kernel, boot): rng.gauss(0, _BOOT) for boot in range(boots) for kernel in _KERNELS}
    if boots == 1:
        shift = shifts["second", 0] - shifts["first", 0]
        return in_turns(rng, _TROUBLE, cv, exp(log1p(truth) + shift) - 1, BUDGET)[0]
    course = Course(_KERNELS, boots, BUDGET)
    noise = iter(_TROUBLE(rng, sigma_of(cv), rounds * len(shifts)))
    for _ in range(rounds):
        for kernel, boot in rng.sample(list(shifts), len(shifts)):
            cost = log1p(truth) if kernel == "second" else 0.0
            seconds = exp(next(noise) + shifts[kernel, boot] + cost)
            chain = course.found.setdefault((kernel, boot), _chain(kernel))
            chain.orders.append([_STACK])
            chain.add(_STEP, _STACK, Sample({"seconds": seconds}))
    return course.conclude().worst(_STEP, f"{_STACK}:second") or "none"


def _chain(kernel: str) -> ChainResults:
    stacks = {_STACK: StackInfo(_STACK, _STACK)}
    return ChainResults(
        "test_it.py::test_write", "loop", _STACK, Looks(), 0, kernel=kernel, steps=[_STEP], stacks=stacks
    )


def table(sessions: int, seed: int) -> Table:
    """Compare two kernels by 1, 2, 3, 5 and 8 boots of each."""
    sessions = max(1, sessions // 4)
    title = f"Boots: {sessions} comparisons a cell, outliers and drift, {_BOOT:.0%} from boot to boot, limit 5 %."
    return Table(
        title, ["boots of each", "CV", "false fails", "false passes", "finds 5 %", "finds 10 %"], _rows(sessions, seed)
    )


def _rows(sessions: int, seed: int) -> Iterator[list[str]]:
    for boots in (1, 2, 3, 5, 8):
        for cv in (0.02, 0.05, 0.10):
            rng = random.Random(f"{seed} boots {boots} {cv}")
            kept, little, more = (
                [outcome_of(rng, boots, cv, truth) for _ in range(sessions)]
                for truth in (BUDGET, above(0.05), above(0.10))
            )
            yield [
                str(boots),
                f"{cv:.0%}",
                share([outcome == "fail" for outcome in kept]),
                share([outcome == "pass" for outcome in kept]),
                share([outcome == "fail" for outcome in little]),
                share([outcome == "fail" for outcome in more]),
            ]
