"""Error rates of verdicts between two kernels whose speed differs from boot to boot, by the number of boots."""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import exp, log1p

from benchmarks.machines import BUDGET, MACHINES, STEP, Table, above, course_of, rates, run, sigma_of
from benchmarks.turns import KERNELS, in_turns
from pytest_fsstack.judging.cells import KernelBoot, Policy
from pytest_fsstack.records.verdicts import LOOKS_OF_BOOTS, Looks

#: The standard deviation between boots.
_BOOT = 0.02
_ONE_BOOT = "1, `--fsstack-judge-one-boot`"
_TROUBLE = MACHINES["outliers, drift 20 % per 60 runs"]


def outcome_of(rng: random.Random, boots: int, cv: float, truth: float, *, judges_one_boot: bool = False) -> str:
    """Return the verdict on the second kernel, whose true cost is `truth`, from `boots` boots of each."""
    shifts = {KernelBoot(kernel, boot): rng.gauss(0, _BOOT) for boot in range(boots) for kernel in KERNELS}
    if judges_one_boot:
        shift = shifts[KernelBoot("second")] - shifts[KernelBoot("first")]
        return in_turns(rng, _TROUBLE, cv, exp(log1p(truth) + shift) - 1, BUDGET)[0]
    # With several boots, rounds do not count for the verdict. One block is enough.
    looks = Looks(LOOKS_OF_BOOTS)
    noise = iter(_TROUBLE(rng, sigma_of(cv), looks.rounds[0] * len(shifts)))
    course = course_of(rng, {"ext4": []}, Policy(looks, limit=BUDGET), kernels=KERNELS, boots=boots)
    run(
        course, lambda cell: next(noise) + shifts[cell.kernel_boot] + (log1p(truth) if cell.kernel == "second" else 0.0)
    )
    course.conclude()
    return course.views.between().worst(STEP, "ext4:second") or "none"


def table(sessions: int, seed: int) -> Table:
    """Compare two kernels by 1, 2, 3, 5 and 8 boots of each."""
    sessions = max(1, sessions // 4)
    title = f"Boots: {sessions} comparisons a cell, outliers and drift, {_BOOT:.0%} from boot to boot, limit 5 %."
    return Table(
        title, ["boots of each", "CV", "false fails", "false passes", "finds 5 %", "finds 10 %"], _rows(sessions, seed)
    )


def _rows(sessions: int, seed: int) -> Iterator[list[str]]:
    for name, boots in {"1": 1, _ONE_BOOT: 1, "2": 2, "3": 3, "5": 5, "8": 8}.items():
        for cv in (0.02, 0.05, 0.10):
            rng = random.Random(f"{seed} boots {boots} {cv}")
            outcomes = (
                [outcome_of(rng, boots, cv, truth, judges_one_boot=name == _ONE_BOOT) for _ in range(sessions)]
                for truth in (BUDGET, above(0.05), above(0.10))
            )
            yield [name, f"{cv:.0%}", *rates(*outcomes)]
