"""Repetitions of reading steps within a round: their number, and the sample that they give.

A repetition costs less than a round, which builds the stack anew, but it only reduces the variance within a round. With
costs c and variances v, the best precision per second is at sqrt(c_build / c_repetition * v_within / v_build)
repetitions (Kalibera & Jones, Rigorous benchmarking in reasonable time, ISMM 2013). All stacks of a step are repeated
equally often, so exchanging the two runs of a pair still changes only a sign. A number that was chosen from one block
applies only to later blocks, whose signs do not depend on it (docs/statistics.md).
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

#: For "auto", before anything is measured, and if nothing can be chosen.
INITIAL_COUNT = 3
#: For "auto". More would hardly help: the variance between builds remains.
MAX_COUNT = 5


def describe(repetition: Repetition, step: str) -> str:
    """Describe the number of repetitions and its reason in one line."""
    auto = (
        f" (auto; {INITIAL_COUNT} times at first)"
        if repetition.auto and repetition.count != INITIAL_COUNT
        else " (auto)"
        if repetition.auto
        else ""
    )
    text = f"{step} runs {repetition.count} time{'s' if repetition.count > 1 else ''} in a round{auto}"
    if repetition.variance is None or repetition.cost is None:
        return text
    return (
        f"{text}: {repetition.variance * 100:.0f} % of the variance of its time is between repetitions, and one takes "
        f"{repetition.cost * 100:.0f} % of the time of a round"
    )


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


def best(build: float, repetition: float, between: float, within: float) -> int:
    """Return the best number of repetitions: odd, from 1 to `MAX_COUNT`. Odd numbers keep an outlier out of the median.

    `build` and `repetition` are the costs in seconds of a round without repetitions, and of one repetition. `between`
    and `within` are the variances between rounds, and between repetitions of a round.
    """
    if not within:
        return 1
    if not between or not repetition:
        return MAX_COUNT
    # The nearest odd number.
    return min(MAX_COUNT, 1 + 2 * round((math.sqrt(build / repetition * within / between) - 1) / 2))


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
    """The repetitions of a step while its chain runs."""

    def __init__(self, repeat: RepeatCount, looks: Looks) -> None:
        self.repeat = repeat
        # A plan of one block judges all rounds together, so no number may depend on figures.
        self._open = repeat == "auto" and len(looks.rounds) > 1
        judged = looks.max_rounds >= looks.minimum_rounds
        self.count = repeat if isinstance(repeat, int) else INITIAL_COUNT if judged else 1
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

    def settle(self, reference: Callable[[str], str]) -> Repetition:
        """Choose the number for the next rounds, if it is "auto" and the first block is over."""
        estimated = variances(self._logs, reference)
        if estimated is None or not self._rounds:
            self._open = False
            return Repetition(self.count, self.repeat == "auto")
        (between, within), build = estimated, statistics.fmean(self._rounds)
        repetition = statistics.fmean(self._repetitions)
        if self._open:
            self.count, self._open = best(build, repetition, between, within), False
        total, cost = between + within, build + repetition
        return Repetition(
            self.count, self.repeat == "auto", within / total if total else 0.0, repetition / cost if cost else 0.0
        )
