"""Simulated machines, sessions on them, and tables of the results.

Run times are log-normal with a coefficient of variation (CV). Each machine adds one kind of disturbance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import cos, exp, log, log1p, pi, sqrt

from tabulate import tabulate

from pytest_fsstack.judging.cells import (
    Cell,
    CellRun,
    ChainPlan,
    KernelBoot,
    PlannedStack,
    PlannedTest,
    Policy,
    StepRun,
    Task,
)
from pytest_fsstack.judging.course import Course
from pytest_fsstack.judging.repetition import RepeatCount
from pytest_fsstack.judging.verdict import judge
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Looks, Verdict

BUDGET = 0.05
CVS = (0.05, 0.10, 0.20)

#: Draws the noise of the runs of a session, as logarithms, from the standard deviation of one run and their number.
Trouble = Callable[[random.Random, float, int], list[float]]


@dataclass(frozen=True)
class Table:
    """A table of a benchmark, with a title that explains the figures."""

    title: str
    headers: Sequence[str]
    rows: Iterable[Sequence[str]]

    def __str__(self) -> str:
        return f"{self.title}\n\n{tabulate(list(self.rows), self.headers, tablefmt='github', disable_numparse=True)}"


def share(outcomes: Sequence[bool]) -> str:
    """Return the share of true outcomes with its standard error, in percent."""
    part = sum(outcomes) / len(outcomes)
    error = (part * (1 - part) / len(outcomes)) ** 0.5
    return f"{100 * part:.1f} ± {100 * error:.1f} %"


def share_of(outcome: str, outcomes: Sequence[str]) -> str:
    """Return the share of one outcome with its standard error, in percent."""
    return share([other == outcome for other in outcomes])


def rates(at_budget: Sequence[str], *above_budget: Sequence[str]) -> list[str]:
    """Return the shares of false fails and of false passes at the budget, then of fails above it."""
    kept = [share_of("fail", at_budget), share_of("pass", at_budget)]
    return kept + [share_of("fail", outcomes) for outcomes in above_budget]


def above(part: float) -> float:
    """Return the overhead of a stack that takes longer than the budget allows, by this part of the allowed time."""
    return (1 + BUDGET) * (1 + part) - 1


#: The one step of simulated chains.
STEP = "write"
#: The logarithm of the longest possible time of a sample.
_LARGEST = log(1e100)


def course_of(
    rng: random.Random,
    budgets: Mapping[str, Sequence[Budget]],
    policy: Policy | None = None,
    *,
    kernels: Sequence[str] = ("",),
    boots: int = 1,
    repeats: Mapping[str, RepeatCount] | None = None,
) -> Course:
    """Return the plugin's own course of stacks with these budgets. The first stack is the baseline."""
    plan = ChainPlan(
        "test_it.py::test_write",
        "loop",
        next(iter(budgets)),
        (STEP,),
        {name: PlannedStack(name, (STEP,)) for name in budgets},
        tuple(PlannedTest(STEP, name, tuple(of_stack)) for name, of_stack in budgets.items()),
        repeats=repeats or {},
    )
    places = [KernelBoot(kernel, boot) for boot in range(boots) for kernel in kernels]
    policy = replace(policy or Policy(), seed=rng.getrandbits(32))
    return Course(dict.fromkeys(places, plan), policy, "simulated", kernels, boots)


def run(course: Course, log_of: Callable[[Cell], float], build: float = 0.0) -> None:
    """Run a course to its end. `log_of` returns the logarithm of each time in seconds, in the order of the runs.

    `build` is the time to build a stack, in seconds.
    """

    def step_of(task: Task) -> StepRun:
        logs = [min(_LARGEST, log_of(task.cell)) for _ in range(task.repetitions.get(STEP, 1))]
        samples = [Sample({"seconds": exp(log_time)}) for log_time in logs]
        return StepRun(STEP, tuple(samples), sum(sample["seconds"] for sample in samples))

    run_steps(course, step_of, build)


def run_steps(course: Course, step_of: Callable[[Task], StepRun], build: float = 0.0) -> None:
    """Run a course to its end. `step_of` returns the run of the step in a task."""
    while tasks := course.next_tasks():
        for task in filter(course.can_run, tasks):
            step = step_of(task)
            course.add(task, CellRun((step,), build + step.seconds))
        course.end_tasks({})


def session_of(rng: random.Random, trouble: Trouble, cv: float, truth: float, looks: Looks) -> Course:
    """Run one session: rounds of a baseline and a stack in random order."""
    noise = iter(trouble(rng, sigma_of(cv), 2 * looks.max_rounds))
    course = course_of(rng, {"base": [], "stack": [Budget(overhead=BUDGET)]}, Policy(looks))
    run(course, lambda cell: next(noise) + (log1p(truth) if cell.stack == "stack" else 0.0))
    return course


def session(rng: random.Random, trouble: Trouble, cv: float, truth: float, looks: Looks) -> Verdict:
    """Judge one session."""
    course = session_of(rng, trouble, cv, truth, looks)
    (judgement,) = course.chain.judgements_of(STEP, "stack")
    assert judgement.verdict is not None
    return judgement.verdict


def stopped(ratios: dict[int, float], looks: Looks) -> Verdict:
    """Judge look by look, and stop at the first verdict."""
    for end in looks.rounds:
        verdict = judge({number: ratios[number] for number in range(end)}, BUDGET, looks)
        if verdict.settled:
            break
    return verdict


def log_ratios(rng: random.Random, trouble: Trouble, cv: float, truth: float, rounds: int) -> dict[int, float]:
    """Return the log-ratio of each round of a session."""
    noise = trouble(rng, sigma_of(cv), 2 * rounds)
    ratios = {}
    for number in range(rounds):
        first, second = noise[2 * number : 2 * number + 2]
        ratios[number] = log1p(truth) + (first - second if rng.random() < 0.5 else second - first)
    return ratios


def sigma_of(cv: float) -> float:
    """Return the standard deviation of the logarithm of log-normal times with this coefficient of variation."""
    return sqrt(log1p(cv**2))


#: Draws the noise of one run, as a multiple of its standard deviation.
Noise = Callable[[random.Random], float]


def normal(rng: random.Random) -> float:
    return rng.gauss(0, 1)


def heavy(rng: random.Random) -> float:
    # Student's t with three degrees of freedom has the variance 3.
    return rng.gauss(0, 1) / sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(3)))


def skewed(rng: random.Random) -> float:
    return rng.expovariate(1) - 1


def correlated(rng: random.Random, noise: Noise, closely: float) -> Iterator[float]:
    """Yield runs without end. `closely` is the correlation of successive runs."""
    last = noise(rng)
    while True:
        yield last
        last = closely * last + sqrt(1 - closely**2) * noise(rng)


def _normal(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [rng.gauss(0, sigma) for _ in range(runs)]


def _t3(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [sigma * heavy(rng) for _ in range(runs)]


def _uniform(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [sigma * 12**0.5 * (rng.random() - 0.5) for _ in range(runs)]


def _exponential(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [sigma * rng.expovariate(1) for _ in range(runs)]


def _pareto(rng: random.Random, sigma: float, runs: int) -> list[float]:
    # The distribution of the logarithm has no variance, and barely a mean.
    return [sigma * rng.paretovariate(1.1) for _ in range(runs)]


def _outliers(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [value + (log(3) if rng.random() < 0.05 else 0) for value in _normal(rng, sigma, runs)]


def _drift(rng: random.Random, sigma: float, runs: int) -> list[float]:
    slope = rng.choice((-1, 1)) * log1p(0.20) / 60
    return [value + slope * place for place, value in enumerate(_outliers(rng, sigma, runs))]


def _step(rng: random.Random, sigma: float, runs: int) -> list[float]:
    place_of_step, height = rng.randrange(runs), rng.choice((-1, 1)) * log1p(0.20)
    return [value + height * (place >= place_of_step) for place, value in enumerate(_normal(rng, sigma, runs))]


def _steps(rng: random.Random, sigma: float, runs: int) -> list[float]:
    values, level = [], 0.0
    for value in _normal(rng, sigma, runs):
        level += rng.gauss(0, log1p(0.20)) * (rng.random() < 0.05)
        values.append(value + level)
    return values


def _bimodal(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [value + (log(1.3) if rng.random() < 0.3 else 0) for value in _normal(rng, sigma, runs)]


def _bimodal_within(rng: random.Random, sigma: float, runs: int) -> list[float]:
    # The modes have four fifths of the variance. The CV is that of the whole noise.
    gap, within = sigma * (0.8 / (0.3 * 0.7)) ** 0.5, sigma * 0.2**0.5
    return [rng.gauss(0, within) + (gap if rng.random() < 0.3 else 0) for _ in range(runs)]


def _autocorrelated(correlation: float) -> Trouble:
    def trouble(rng: random.Random, sigma: float, runs: int) -> list[float]:
        values, last = [], rng.gauss(0, sigma)
        for _ in range(runs):
            values.append(last)
            last = correlation * last + rng.gauss(0, sigma * (1 - correlation**2) ** 0.5)
        return values

    return trouble


def _walk(rng: random.Random, sigma: float, runs: int) -> list[float]:
    values, level = [], 0.0
    for value in _normal(rng, sigma, runs):
        level += rng.gauss(0, sigma / 3)
        values.append(value + level)
    return values


def _growing(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [value * 25 ** (place / runs) / 5 for place, value in enumerate(_normal(rng, sigma, runs))]


def _noisy_at_times(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [value * (4 if place // 16 % 2 else 0.5) for place, value in enumerate(_normal(rng, sigma, runs))]


def _bursts(rng: random.Random, sigma: float, runs: int) -> list[float]:
    values, remaining = [], 0
    for value in _normal(rng, sigma, runs):
        remaining = 10 if remaining == 0 and rng.random() < 0.03 else max(0, remaining - 1)
        values.append(value + log(2) * (remaining > 0))
    return values


def _waves(period: int) -> Trouble:
    def trouble(rng: random.Random, sigma: float, runs: int) -> list[float]:
        phase = rng.random()
        waves = [log1p(0.10) * cos(2 * pi * (place / period + phase)) for place in range(runs)]
        return [value + wave for value, wave in zip(_normal(rng, sigma, runs), waves, strict=True)]

    return trouble


def _warming_up(rng: random.Random, sigma: float, runs: int) -> list[float]:
    return [value + 0.5 * 0.9**place for place, value in enumerate(_normal(rng, sigma, runs))]


MACHINES: dict[str, Trouble] = {
    "normal": _normal,
    "uniform": _uniform,
    "t3": _t3,
    "exponential": _exponential,
    "Pareto 1.1": _pareto,
    "outliers x3, 5 %": _outliers,
    "outliers, drift 20 % per 60 runs": _drift,
    "step of 20 %": _step,
    "steps of 20 % in 5 % of runs": _steps,
    "bimodal": _bimodal,
    "bimodal, the CV in all": _bimodal_within,
    "AR(1) 0.5": _autocorrelated(0.5),
    "AR(1) 0.9": _autocorrelated(0.9),
    "random walk": _walk,
    "noise that grows x25": _growing,
    "noisy every other 16 runs": _noisy_at_times,
    "bursts of 10 runs x2": _bursts,
    "waves of 10 %, 3 runs": _waves(3),
    "waves of 10 %, 40 runs": _waves(40),
    "first runs slow": _warming_up,
}
