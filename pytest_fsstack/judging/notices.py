"""Notices about the noise of a chain."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import expm1, log, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from pytest_fsstack.judging.conditions import unrest
from pytest_fsstack.records.notices import Noise, Notice, OddTimes, OverheadChanged

if TYPE_CHECKING:
    from pytest_fsstack.judging.readings import Readings
    from pytest_fsstack.records.results import ChainResults

#: Fewer rounds give no notices.
_MIN_ROUNDS = 8
#: The share of sessions with a false notice about a trend or a correlation, at most.
_FALSE_ALARM_RATE = 0.01
#: In standard errors: the boundary of the default plan's last look (2.17), plus the 90 % quantile (1.28).
_DETECTABLE = 2.17 + 1.28
#: The distance of an outlier from the median, in robust standard deviations (1.4826 times the median deviation).
_OUTLIER_DISTANCE = 5.0


def notices(readings: Readings, comparisons: int = 0) -> list[Notice]:
    """Return notices about the machine and the stacks of a chain, the most important first. They use only wall times.

    `comparisons` is the number of compared stacks and steps in the session, if larger than in the chain.
    """
    chain = readings.chain
    if not chain.has_times:
        return []
    ratios = {
        (step, stack): list(readings.log_ratios(step, stack).values())
        for step in chain.steps
        for stack in chain.stacks
        if stack != chain.reference(stack)
    }
    comparisons = max(comparisons, len(ratios))
    series = {(step, stack): chain.series(step, stack, "seconds") for step in chain.steps for stack in chain.stacks}
    changed = _by_step(place for place, d in ratios.items() if changes(d, comparisons))
    odd = _by_step(place for place, times in series.items() if outliers(times) or bimodal(times))
    variation = max((spread(chain.series(step, chain.baseline, "seconds")) for step in chain.steps), default=0.0)
    rounds = chain.looks.max_rounds
    judged = any(
        judgement.budget.overhead is not None for *_, judgements in chain.all_judgements() for judgement in judgements
    )
    return [
        *([OverheadChanged(changed)] if changed else []),
        *of_the_machine(chain),
        *([OddTimes(odd)] if odd else []),
        *([Noise(variation, rounds, visible(variation, rounds))] if variation and judged else []),
    ]


def of_the_machine(chain: ChainResults) -> list[Notice]:
    """Return a notice about other load on the machine during a chain, or none."""
    notice = unrest(chain.conditions) if chain.has_times else None
    return [notice] if notice else []


def _by_step(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    by_step: dict[str, list[str]] = {}
    for step, stack in pairs:
        by_step.setdefault(step, []).append(stack)
    return by_step


def changes(d: Sequence[float], comparisons: int = 1) -> bool:
    """Whether log-ratios, in the order of their rounds, show a trend or a serial correlation, by ranks.

    Each of the two is called so with a p of 1 %, divided by the number of `comparisons` that are made.

    The trend is Spearman's rank correlation with the round, the correlation of successive rounds is Bartels' rank
    version of von Neumann's ratio (Journal of the American Statistical Association 77 (1982) 40), both by their normal
    approximations.
    """
    n = len(d)
    if n < _MIN_ROUNDS or len(set(d)) < n:
        return False
    order = sorted(range(n), key=d.__getitem__)
    ranks = [0] * n
    for rank, index in enumerate(order):
        ranks[index] = rank
    apart = sum((rank - index) ** 2 for index, rank in enumerate(ranks))
    trend = (1 - 6 * apart / (n * (n * n - 1))) * sqrt(n - 1)
    middle = (n - 1) / 2
    ratio = sum((one - other) ** 2 for one, other in pairwise(ranks)) / sum((r - middle) ** 2 for r in ranks)
    variance = 4 * (n - 2) * (5 * n * n - 2 * n - 9) / (5 * n * (n + 1) * (n - 1) ** 2)
    one_sided, two_sided = (NormalDist().inv_cdf(1 - _FALSE_ALARM_RATE / comparisons / sides) for sides in (1, 2))
    return abs(trend) > two_sided or (2 - ratio) / sqrt(variance) > one_sided


def outliers(series: Sequence[float]) -> int:
    """Count the figures far from the others, by the median deviation of their logarithms."""
    logs = _logs(series)
    if len(logs) < _MIN_ROUNDS:
        return 0
    centre = statistics.median(logs)
    deviation = 1.4826 * statistics.median(abs(value - centre) for value in logs)
    return sum(abs(value - centre) > _OUTLIER_DISTANCE * deviation for value in logs) if deviation else 0


def bimodal(series: Sequence[float]) -> bool:
    """Whether the figures form two groups of at least a quarter each, with a gap as wide as both groups together."""
    logs = sorted(_logs(series))
    if len(logs) < 2 * _MIN_ROUNDS:
        return False
    for split in range(len(logs) // 4, len(logs) - len(logs) // 4 + 1):
        low, high = logs[:split], logs[split:]
        if high[0] - low[-1] > low[-1] - low[0] + high[-1] - high[0]:
            return True
    return False


def spread(series: Sequence[float]) -> float:
    """Return the coefficient of variation of a typical round, from the quartiles of the logarithms. 0 for too few
    rounds.
    """
    logs = _logs(series)
    if len(logs) < _MIN_ROUNDS:
        return 0.0
    low, _, high = statistics.quantiles(logs, n=4)
    # The quartiles of a normal distribution are 1.349 standard deviations apart.
    return expm1((high - low) / 1.349)


def visible(noise: float, rounds: int) -> float:
    """Return the excess over a budget that so many rounds detect in nine of ten cases, at that noise.

    A round's log-ratio has the noise of two runs. The Wilcoxon test is 0.955 times as efficient as that of the mean.
    """
    return expm1(_DETECTABLE * sqrt(2) * log(1 + noise) / sqrt(0.955 * rounds))


def _logs(series: Sequence[float]) -> list[float]:
    return [log(value) for value in series if value > 0]
