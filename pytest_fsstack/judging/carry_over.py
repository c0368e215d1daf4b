"""Carry-over: does a run take longer because of the run before it?

The order of the runs of a round, or of several mixed ones, is drawn at random, so each run's predecessor is random too.
Without carry-over, another order would only exchange the typical times of the stacks. So drawing the orders again gives
the null distribution of any statistic of times and predecessors: a randomisation test.

- A time becomes its logarithm less the median of its stack, and less the median of its neighbours in time, which is the
  speed of the machine. It counts twice: as its rank, which sees an effect however large it is, and with less weight
  the farther it is from the others (Tukey's biweight), which finds more where there are outliers.
- For each run before (a stack, or a kernel), what follows it is compared with the others of the same stack: in each
  step, and in all steps together, because a busy device slows down all of them.
- The largest of these differences is compared with the largest of each draw. So the error rate is that of the chain,
  however many comparisons it has.
"""

from __future__ import annotations

import itertools
import random
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import expm1, log, log1p, sqrt
from typing import TYPE_CHECKING

from pytest_fsstack.records.verdicts import CarryOver

if TYPE_CHECKING:
    from pytest_fsstack.records.sample import Metric, Sample
    from pytest_fsstack.records.verdicts import Verdict

#: The share of chains without carry-over that are falsely doubted, at most.
LEVEL = 0.01
#: Number of random orders; with the observed order, they are 1,000.
_DRAWS = 999
#: Runs on either side of a run. Their median estimates the speed of the machine at that time.
_WINDOW = 15
#: The distance at which a time has no weight, in ninth deciles of all distances from 0: 6 standard deviations.
_CUTOFF = 3.65
#: Sums that differ by less than this are equal.
_TOLERANCE = 1e-9

#: A step, a metric and a stack; "" means all steps, or all stacks.
FigureKey = tuple[str, str, str]


def could_change(carry: CarryOver, verdict: Verdict) -> bool:
    """Return whether the verdict could change if the whole effect were part of the overhead."""
    size, limit = abs(log1p(carry.overhead)), log1p(verdict.budget)
    low, high = verdict.estimate.low, verdict.estimate.high
    return (low <= -1 or log1p(low) - size <= limit) and log1p(high) + size >= limit


@dataclass(frozen=True)
class Round:
    """The runs of a round, or of several mixed ones, in order, and their figures by series.

    A figure of 0 is missing. A discarded round has no figures.
    """

    order: Sequence[str]
    figures: Mapping[FigureKey, Sequence[float]] = field(default_factory=dict)


def cost(sample: Sample, metric: Metric) -> float:
    """Return a figure so that more is worse, or 0 if there is none."""
    value = sample.values.get(metric.name, 0.0)
    return 1 / value if value > 0 and metric.better == "higher" else value


def carry_overs(rounds: Sequence[Round], seed: str) -> list[CarryOver]:
    """Return the effects of the previous run on the figures, the most significant first. Empty if chance explains them.

    `rounds` are in chronological order, and include discarded ones. `seed` makes the result repeatable.
    """
    runs = _Runs(rounds)
    observed = runs.observed()
    largest = max(map(abs, observed.values()), default=0.0)
    if not largest:
        return []
    rng, maxima = random.Random(f"{seed} carry-over"), list[float]()
    may_exceed = round(LEVEL * (_DRAWS + 1)) - 1
    while len(maxima) < _DRAWS:
        maxima.append(max(map(abs, runs.differences(runs.drawn(rng)).values()), default=0.0))
        may_exceed -= maxima[-1] >= largest - _TOLERANCE
        if may_exceed < 0:
            return []
    maxima.sort()
    carry = []
    for (step, metric, stack), (after, difference) in _strongest(observed).items():
        p = (1 + _DRAWS - bisect_left(maxima, abs(difference) - _TOLERANCE)) / (_DRAWS + 1)
        if p <= LEVEL:
            carry.append(CarryOver(step, after, runs.overhead((step, metric, stack), after), p, metric, stack))
    return sorted(carry, key=lambda carry: (carry.p, -abs(carry.overhead)))


def _strongest(differences: Mapping[tuple[FigureKey, str], float]) -> dict[FigureKey, tuple[str, float]]:
    """Return the predecessor with the largest difference, by series.

    Between two stacks, longer times after one mean shorter times after the other. The longer ones are returned.
    """
    strongest: dict[FigureKey, tuple[str, float]] = {}
    # Rounded, because the order of additions changes the last digits.
    for (place, after), difference in sorted(
        differences.items(), key=lambda item: (round(abs(item[1]), 9), item[1]), reverse=True
    ):
        strongest.setdefault(place, (after, difference))
    return strongest


class _Runs:
    """All runs of a chain in a row: the stack of each, and the residuals of its times."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        self.names = list(dict.fromkeys(name for one in rounds for name in one.order))
        self.rounds = [[self.names.index(name) for name in one.order] for one in rounds]
        self.order = [stack for order in self.rounds for stack in order]
        places = dict.fromkeys(place for one in rounds for place in one.figures)
        self.residuals = {place: self._residuals(rounds, place) for place in places}
        self.scores = {place: _scores(_levelled(values)) for place, values in self.residuals.items()}
        for _, metric, stack in places:
            steps = self._steps_of(("", metric, stack))
            if len(steps) > 1:
                self.scores["", metric, stack] = [
                    _together(each) for each in zip(*[self.scores[step] for step in steps])
                ]
        self.present = {place: [value is not None for value in kinds[0]] for place, kinds in self.scores.items()}

    def _steps_of(self, place: FigureKey) -> list[FigureKey]:
        """Return the series, or the series of every step if it stands for all steps."""
        return [place] if place[0] else [step for step in self.residuals if step[1:] == place[1:]]

    def _residuals(self, rounds: Sequence[Round], place: FigureKey) -> list[float | None]:
        """Return the logarithm of each figure less the median of its stack; None where there is no figure."""
        figures = [value for one in rounds for value in one.figures.get(place, [0.0] * len(one.order))]
        logs = [log(value) if value > 0 else None for value in figures]
        # The very first run has no predecessor.
        logs[:1] = [None]
        series: dict[int, list[float]] = {}
        for stack, value in zip(self.order, logs):
            if value is not None:
                series.setdefault(stack, []).append(value)
        medians = {stack: statistics.median(values) for stack, values in series.items()}
        return [None if value is None else value - medians[stack] for stack, value in zip(self.order, logs)]

    def drawn(self, rng: random.Random) -> list[int]:
        """Draw the order of each round again."""
        return [stack for stacks in self.rounds for _, stack in sorted((rng.random(), stack) for stack in stacks)]

    def observed(self) -> dict[tuple[FigureKey, str], float]:
        """Return the differences in the observed order.

        The residuals are centred on the medians of the observed order, not on those of a drawn one. So these
        differences are larger than those of draws even without carry-over.
        """
        larger = sqrt(len(self.order) / (len(self.order) - len(self.names) + 1)) if self.order else 1.0
        return {key: difference / larger for key, difference in self.differences(self.order).items()}

    def differences(self, order: Sequence[int]) -> dict[tuple[FigureKey, str], float]:
        """Return how far the times after each predecessor are from the others of the same stacks, in standard
        deviations.
        """
        count = len(self.names)
        pairs = [stack * count + before for before, stack in zip((0, *order), order)]
        differences = {}
        for place, kinds in self.scores.items():
            numbers = Counter(itertools.compress(pairs, self.present[place]))
            sums = [_sums(pairs, scores, count) for scores in kinds]
            for before, name in enumerate(self.names):
                differences[place, name] = max((_difference(each, numbers, before, count) for each in sums), key=abs)
        return differences

    def overhead(self, place: FigureKey, after: str) -> float:
        """Return the typical excess of a time after that predecessor over times of the same stack after others."""
        before = self.names.index(after)
        sides: dict[tuple[FigureKey, int], tuple[list[float], list[float]]] = {}
        for step in self._steps_of(place):
            for index, residual in enumerate(self.residuals[step]):
                if residual is not None:
                    side = self.order[index - 1] == before
                    sides.setdefault((step, self.order[index]), ([], []))[side].append(residual)
        excesses = (one - other for lower, ones in sides.values() for one in ones for other in lower)
        return expm1(statistics.median(excesses))


def _together(steps: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Add the scores of all steps of each run, skipping missing ones."""
    present = [[score for score in scores if score is not None] for scores in zip(*steps)]
    return _standardised([sum(scores) if scores else None for scores in present])


def _sums(pairs: Sequence[int], scores: Sequence[float | None], count: int) -> list[float]:
    """Return the sums of scores by stack and predecessor."""
    sums = [0.0] * count**2
    for pair, score in zip(pairs, scores):
        sums[pair] += score or 0.0
    return sums


def _difference(sums: Sequence[float], numbers: Mapping[int, int], before: int, count: int) -> float:
    """Return the difference for one predecessor, from sums and counts by stack and predecessor."""
    difference = variance = 0.0
    for start in range(0, count**2, count):
        number = numbers[start + before]
        runs = sum([numbers[pair] for pair in range(start, start + count)])
        if 0 < number < runs:
            difference += sums[start + before] - number * sum(sums[start : start + count]) / runs
            variance += number * (1 - number / runs)
    return difference / sqrt(variance) if variance else 0.0


def _levelled(residuals: Sequence[float | None]) -> list[float | None]:
    """Return the residuals less the median of their neighbours in time, which removes a drift of the machine."""
    levelled: list[float | None] = []
    for index, value in enumerate(residuals):
        near = [*residuals[max(0, index - _WINDOW) : index], *residuals[index + 1 : index + _WINDOW + 1]]
        neighbours = [residual for residual in near if residual is not None]
        level = statistics.median(neighbours) if neighbours else 0.0
        levelled.append(None if value is None else value - level)
    return levelled


def _scores(values: Sequence[float | None]) -> list[list[float | None]]:
    """Return two series of scores: the ranks of the values, and the values with less weight the farther they are from
    0.
    """
    ordered = sorted(value for value in values if value is not None)
    ranks = [None if value is None else bisect_left(ordered, value) + bisect_right(ordered, value) for value in values]
    distances = sorted(map(abs, ordered))
    far = _CUTOFF * distances[9 * (len(distances) - 1) // 10] if distances else 0.0
    weighted = [None if value is None else _weighted(value, far) for value in values]
    return [_standardised(ranks), _standardised(weighted)]


def _standardised(values: Sequence[float | None]) -> list[float | None]:
    """Scale the values to mean 0 and variance 1."""
    present = [value for value in values if value is not None]
    size = statistics.pstdev(present) if present else 0.0
    mean = statistics.fmean(present) if present else 0.0
    return [None if value is None else (value - mean) / size if size else 0.0 for value in values]


def _weighted(value: float, far: float) -> float:
    return value * (1 - (value / far) ** 2) ** 2 if abs(value) < far else 0.0
