"""False fails and power of verdicts between two kernels on a drifting machine, with a limit of 5 %.

    python -m benchmarks turns [sessions [seed]]

The kernels run in turns, by the plugin's own order, plan and verdict. For comparison they run one after the other, as
you would compare two boots by hand, and the same test judges them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import log1p

from benchmarks.machines import BUDGET, CVS, MACHINES, STEP, Table, Trouble, above, course_of, run, share_of, sigma_of
from pytest_fsstack.judging.cells import Policy
from pytest_fsstack.judging.verdict import judge
from pytest_fsstack.records.verdicts import Looks

KERNELS = ("first", "second")


def in_turns(rng: random.Random, trouble: Trouble, cv: float, truth: float, limit: float) -> tuple[str, int]:
    """Return the verdict on the second kernel, whose true cost is `truth`, and the number of rounds."""
    noise = iter(trouble(rng, sigma_of(cv), 2 * Looks().max_rounds))
    course = course_of(rng, {"ext4": []}, Policy(limit=limit, judges_one_boot=True), kernels=KERNELS)
    run(course, lambda cell: next(noise) + (log1p(truth) if cell.kernel == "second" else 0.0))
    return course.views.between().worst(STEP, "ext4:second") or "", course.chain.rounds


def one_after_the_other(
    rng: random.Random, trouble: Trouble, cv: float, truth: float, limit: float, rounds: int = 30
) -> str:
    """Return the verdict if all rounds run on the first kernel, and then all on the second."""
    noise = trouble(rng, sigma_of(cv), 2 * rounds)
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
        at_limit, above_limit = (
            [in_turns(rng, trouble, cv, truth, BUDGET) for _ in range(sessions)] for truth in (BUDGET, above(0.10))
        )
        rounds = sum(number for _, number in above_limit) / sessions
        fails = [share_of("fail", [outcome for outcome, _ in ran]) for ran in (at_limit, above_limit)]
        yield ["in turns", f"{cv:.0%}", *fails, f"{rounds:.1f}"]
    for cv in CVS:
        rng = random.Random(f"{seed} one after the other {cv}")
        fails = [
            share_of("fail", [one_after_the_other(rng, trouble, cv, truth, BUDGET) for _ in range(sessions)])
            for truth in (BUDGET, above(0.10))
        ]
        yield ["one after the other", f"{cv:.0%}", *fails, "30.0"]


def main(arguments: list[str]) -> None:
    """Print the table as Markdown. The arguments are the number of sessions and the seed."""
    sessions, seed = (*map(int, arguments), *(700, 1)[len(arguments) :])
    print(table(sessions, seed))
