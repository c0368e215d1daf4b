"""Repetitions of reading steps within a round: their number, and the sample that they give.

A repetition costs less than a round, which builds the stack anew, but it only reduces the variance within a round. With
costs c and variances v, the best precision per second is at sqrt(c_build / c_repetition * v_within / v_build)
repetitions (Kalibera & Jones, Rigorous benchmarking in reasonable time, ISMM 2013).

The costs are known after round 1, the variances after the first block. Between these, the ratio of the variances is
taken to be `_USUAL_RATIO`. A step with nothing but sanity limits runs once until the first look, which decides most of
them.

All stacks of a step are repeated equally often, so exchanging the two runs of a pair still changes only a sign. The
number depends on the costs of all stacks together, and after the first block on variances. So the signs of later rounds
do not depend on it (docs/statistics.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Literal

from pytest_fsstack.records.sample import Sample
from pytest_fsstack.records.verdicts import Looks, Repetition

RepeatCount = int | Literal["auto"]

#: For "auto". More would hardly help: the variance between builds remains.
MAX_COUNT = 15
#: The ratio of the variances within and between rounds, before it is known. Of `du` it was 6 to 99, of rsync 1 to 10.
_USUAL_RATIO = 2.0


def describe(repetition: Repetition, step: str) -> str:
    """Describe the number of repetitions and its reason in one line."""
    times = f"{repetition.count} time{'s' if repetition.count > 1 else ''}"
    text = f"{step} runs {times} in a round{' (auto)' if repetition.auto else ''}"
    if repetition.cost is None:
        return text
    takes = f"one takes {repetition.cost * 100:.0f} % of the time of a round"
    if repetition.variance is None:
        return f"{text}: {takes}"
    return f"{text}: {repetition.variance * 100:.0f} % of the variance of its time is between repetitions, and {takes}"


def combined(samples: Sequence[Sample]) -> Sample:
    """Return the sample of a round from its repetitions: the median of each metric.

    Recorded extras are those of the repetition with the median time. If one repetition was incomplete, the round is.
    """
    if len(samples) == 1:
        return samples[0]
    names = dict.fromkeys(name for sample in samples for name in sample.values)
    values = {name: statistics.median(each.values[name] for each in samples if name in each.values) for name in names}
    # One that was incomplete may have no time.
    typical = min(samples, key=lambda sample: abs(sample.values.get("seconds", math.inf) - values.get("seconds", 0.0)))
    metrics = {name: metric for sample in samples for name, metric in sample.metrics.items()}
    incomplete = next((sample.incomplete for sample in samples if sample.incomplete), "")
    return Sample(values, metrics, typical.kept, incomplete, len(samples), typical.work)


def best(build: float, repetition: float, ratio: float = _USUAL_RATIO) -> int:
    """Return the best number of repetitions: odd, from 1 to `MAX_COUNT`. Odd numbers keep an outlier out of the median.

    `build` and `repetition` are the costs in seconds of a round without repetitions, and of one repetition. `ratio` is
    that of the variances within and between rounds. Together, repetitions cost at most as much as the build, because
    an estimated ratio may be much too large.
    """
    share = build / repetition if repetition else math.inf
    number = min(math.sqrt(share * ratio) if ratio else 1.0, share, MAX_COUNT)
    # The nearest odd number, but at most the costs of a build.
    return 1 + 2 * int(min(round((number - 1) / 2), (share - 1) / 2)) if number > 1 else 1


def variances(
    logs: Mapping[str, Mapping[int, Sequence[float]]], reference: Callable[[str], str]
) -> tuple[float, float] | None:
    """Return the variances of log seconds between and within rounds, or None if no stack can be compared.

    `logs` are those of the repetitions, by stack and round. The variance between rounds is that of a stack relative to
    its `reference` in the same round, as in verdicts, so a drift of the machine cancels. Both are robust, because the
    median of repetitions ignores outliers.
    """
    near = [abs(one - other) for of in logs.values() for runs in of.values() for one, other in combinations(runs, 2)]
    if not near:
        return None
    within, values = _variance(near), []
    for stack, of in logs.items():
        base = logs.get(reference(stack), {})
        common = sorted(of.keys() & base.keys())
        if base is of or len(common) < 2:
            continue
        ratios = [statistics.median(of[number]) - statistics.median(base[number]) for number in common]
        noise = statistics.fmean(_of_median(len(runs[number])) for number in common for runs in (of, base)) * within
        values.append(_variance([abs(one - other) for one, other in combinations(ratios, 2)]) / 2 - noise)
    return (max(0.0, statistics.fmean(values)), within) if values else None


def _variance(differences: Sequence[float]) -> float:
    """Return the variance of figures from the sizes of their differences. Half of these are within 0.954 deviations."""
    return (statistics.median(differences) / 0.954) ** 2


def _of_median(count: int) -> float:
    """Return the variance of the median of so many normal figures, relative to one figure. Exact to 3 % if odd."""
    return math.pi / (2 * count + math.pi - 2)


class Repeated:
    """The repetitions of a step while its chain runs.

    `sanity_only` is for a step whose budgets are all sanity limits, which need no precision before the first look.
    """

    def __init__(self, repeat: RepeatCount, looks: Looks, *, sanity_only: bool = False) -> None:
        self.repeat = repeat
        # A plan of one block judges all rounds together, so no number may depend on figures.
        self._open = repeat == "auto" and len(looks.rounds) > 1
        self._by_cost = repeat == "auto" and looks.max_rounds >= looks.minimum_rounds and not sanity_only
        self.count = repeat if isinstance(repeat, int) else 1
        self._logs: dict[str, dict[int, list[float]]] = {}
        self._repetitions: list[float] = []
        self._rounds: list[float] = []
        self._running = 0.0

    def add(self, stack: str, number: int, samples: Sequence[Sample], took: float) -> None:
        """Add the repetitions of a step on a stack in a round, with their total duration in seconds."""
        seconds = [sample.values.get("seconds", 0.0) for sample in samples]
        if len(seconds) == self.count and min(seconds) > 0:
            self._logs.setdefault(stack, {})[number] = [math.log(duration) for duration in seconds]
            self._repetitions.append(took / len(seconds))
            self._running = took

    def end(self, took: float) -> None:
        """Add the duration of a stack's whole run in a round, which includes the repetitions added last."""
        if self._running:
            self._rounds.append(max(0.0, took - self._running))
            self._running = 0.0

    def end_round(self) -> None:
        """Choose the number for the first block by the costs, once they are known."""
        if self._by_cost and self._rounds:
            self.count, self._by_cost = best(*self._costs()), False

    def _costs(self) -> tuple[float, float]:
        """Return the mean seconds of a round without repetitions, and of one repetition."""
        return statistics.fmean(self._rounds), statistics.fmean(self._repetitions)

    def settle(self, reference: Callable[[str], str]) -> Repetition:
        """Choose the number for the next rounds, if it is "auto" and the first block is over."""
        still_open, self._open = self._open, False
        if not self._rounds:
            return Repetition(self.count, self.repeat == "auto")
        ratio, share = _USUAL_RATIO, None
        if estimated := variances(self._logs, reference):
            between, within = estimated
            ratio = within / between if between else math.inf if within else 0.0
            share = within / (between + within) if within else 0.0
        build, repetition = self._costs()
        if still_open:
            self.count = best(build, repetition, ratio)
        cost = repetition / (build + repetition) if build + repetition else 0.0
        return Repetition(self.count, self.repeat == "auto", share, cost)
