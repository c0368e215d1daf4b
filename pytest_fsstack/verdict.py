"""From paired samples to a verdict: how large is the overhead, and does it keep its budget?

Numbers in, verdict out. The unit of evidence is the round: in each one, every stack ran once, so the log-ratio of a
sample to the baseline of the same round is free of whatever drifted between rounds. All that follows works on these
log-ratios, d_i, one a round:

- the estimate is the Hodges-Lehmann estimator, the median of the Walsh averages (d_i + d_j) / 2, i <= j;
- the interval is cut from the same Walsh averages by the exact null distribution of the signed-rank statistic;
- the decision is the exact Wilcoxon signed-rank test of d_i against log(1 + budget), once on either side.

Of these the interval is the test turned inside out: the verdict is *fail* exactly if the whole interval is above the
budget, and *pass* exactly if none of it is.
The formulas are those of Hollander, Wolfe & Chicken, *Nonparametric Statistical Methods*, 3rd ed. (Wiley 2014),
sections 3.1 (test), 3.2 (estimate) and 3.3 (interval). They assume that d_i is symmetric around its centre, which a
pair of equally noisy samples is on the log scale, and of its shape nothing else: outliers count by rank.

An *overhead* is a ratio minus 1, as a plain number (0.3 is 30 %), oriented so that more is worse.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, expm1, inf, isfinite, log, log1p
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

Better = Literal["lower", "higher"]
Outcome = Literal["pass", "fail", "inconclusive"]

# log(105) - log(100) and log1p(0.05) differ in their last bits. Without a tolerance, an integer-valued metric that is
# exactly at its budget in every round would fall on one side of it in every round, and be judged by a rounding error.
_TOLERANCE_DECIMALS = 9

# Ten times the last look of the default plan. Who would need more rounds than this is better served by another budget.
_REASONABLE_ROUNDS = 300

_RATIO_FROM = 3.0


def log_ratios(
    samples: Sequence[float],
    baseline: Sequence[float],
    *,
    better: Better = "lower",
    resolution: float = 0.0,
) -> list[float]:
    """Return log(sample / baseline) of each round, oriented so that more is worse.

    ``samples`` and ``baseline`` hold the same metric of the same rounds in the same order, in any unit. Where more is
    ``better="higher"``, as for a throughput, the log-ratio is negated: the overhead of 80 MB/s on 100 MB/s is 25 %.

    A value below ``resolution`` (same unit) counts as ``resolution``, which gives a logarithm to a count that can be
    zero, such as bytes written; two values below it are equal. Choose the smallest difference that the metric can show:
    the sector for bytes written, the clock tick for CPU time.

    Raises ValueError if the lengths differ, if a value is not finite, or if it is not positive while ``resolution``
    is 0.
    """
    if len(samples) != len(baseline):
        raise ValueError(
            f"samples and baseline are not of the same rounds: {len(samples)} against {len(baseline)} values"
        )
    if not (isfinite(resolution) and resolution >= 0):
        raise ValueError(f"resolution must be 0 or more: {resolution}")

    def logarithm(value: float) -> float:
        if not isfinite(value):
            raise ValueError(f"not a measured value: {value}")
        if max(value, resolution) <= 0:
            raise ValueError(f"{value} has no logarithm: give the metric a resolution above 0")
        return log(max(value, resolution))

    sign = 1 if better == "lower" else -1
    return [sign * (logarithm(ours) - logarithm(theirs)) for ours, theirs in zip(samples, baseline, strict=True)]


@dataclass(frozen=True)
class Looks:
    """When the samples are judged, and how often all looks together may be wrong.

    ``rounds`` are the numbers of rounds after which to look, ascending; ``alpha`` bounds the probability, over all
    looks, of a *fail* when the overhead is not above its budget, and that of a *pass* when it is. The looks share alpha
    equally (Bonferroni), so stopping at the first look that decides is paid for.

    Raises ValueError if ``rounds`` is empty, not ascending or not positive, or if ``alpha`` is not between 0 and 0.5.
    """

    rounds: tuple[int, ...] = (10, 20, 30)
    alpha: float = 0.05

    def __post_init__(self) -> None:
        if not self.rounds or self.rounds[0] < 1 or list(self.rounds) != sorted(set(self.rounds)):
            raise ValueError(f"looks must be at ascending numbers of rounds: {self.rounds}")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must be between 0 and 0.5: {self.alpha}")

    @classmethod
    def fixed(cls, rounds: int, alpha: float = 0.05) -> Looks:
        """Return a plan of one look after ``rounds`` rounds, which may spend the whole ``alpha``."""
        return cls((rounds,), alpha)

    @property
    def level(self) -> float:
        """Level of the one-sided test at each look."""
        return self.alpha / len(self.rounds)

    @property
    def confidence(self) -> float:
        """Confidence of the two-sided interval that says the same as the two one-sided tests of a look."""
        return 1 - 2 * self.level

    @property
    def minimum_rounds(self) -> int:
        """Fewest rounds that can decide anything.

        The smallest p-value of the exact test is 0.5 ** rounds: all log-ratios on one side.
        """
        rounds = 1
        while 0.5**rounds > self.level:
            rounds += 1
        return rounds


@dataclass(frozen=True)
class Estimate:
    """An overhead and its interval, all as ratio - 1.

    ``low`` and ``high`` are -1 and infinity where ``rounds`` are too few for an interval of this ``confidence``. The
    confidence is a lower bound: the exact distribution has steps, and the interval never takes the step too far.
    """

    overhead: float
    low: float
    high: float
    confidence: float
    rounds: int


@dataclass(frozen=True)
class Verdict:
    """What the samples of one step and metric say about its budget.

    ``p_above`` is the one-sided p-value of the claim that the overhead is above the budget, ``p_below`` of the claim
    that it is not. ``look`` is the number of the look, from 1; where rounds were lost, it is the next one due.
    """

    outcome: Outcome
    estimate: Estimate
    budget: float
    p_above: float
    p_below: float
    looks: Looks
    look: int


def estimate(logratios: Sequence[float], level: float) -> Estimate:
    """Estimate the overhead from one log-ratio a round, with its interval of confidence 1 - 2 * ``level``.

    Hodges-Lehmann estimator and Tukey's interval (Hollander, Wolfe & Chicken, 3.2 and 3.3), in logarithms, returned as
    overheads. With ties the interval is wider than it need be, never narrower.

    Raises ValueError if there is no log-ratio, if one is not finite, or if ``level`` is not between 0 and 0.5.
    """
    import numpy as np

    d = _checked(logratios)
    if not 0 < level < 0.5:
        raise ValueError(f"level must be between 0 and 0.5: {level}")
    i, j = np.triu_indices(len(d))
    walsh = np.sort((d[i] + d[j]) / 2)
    cut = _cut(len(d), level)
    return Estimate(
        overhead=expm1(float(np.median(walsh))),
        low=expm1(float(walsh[cut - 1])) if cut else -1.0,
        high=expm1(float(walsh[-cut])) if cut else inf,
        confidence=1 - 2 * level,
        rounds=len(d),
    )


def judge(logratios: Sequence[float], budget: float, looks: Looks) -> Verdict:
    """Judge one log-ratio a round against ``budget``, the overhead allowed (0.3 is 30 %, 12.0 is x13.0).

    Exact one-sided Wilcoxon signed-rank tests (Hollander, Wolfe & Chicken, 3.1), each at ``looks.level``: *fail* if the
    overhead is shown to be above the budget, *pass* if it is shown not to be, else *inconclusive*. At the budget is not
    above it, so a metric that is equal to its budget in every round passes. Equality is to nine decimals of the
    log-ratio.

    Raises ValueError if there is no log-ratio, if one is not finite, or if ``budget`` is not above -1 and finite.
    """
    if not -1 < budget < inf:
        raise ValueError(f"a budget is an overhead above -1 (which is -100 %): {budget}")
    excess = (_checked(logratios) - log1p(budget)).round(_TOLERANCE_DECIMALS)
    ranks = _signed_ranks(excess)
    p_negative = _p_negative if len(ranks) >= looks.minimum_rounds else _p_negative_of_few
    p_above, p_below = p_negative(-ranks), p_negative(ranks)
    outcome: Outcome = "fail" if p_above <= looks.level else "pass" if p_below <= looks.level else "inconclusive"
    return Verdict(
        outcome=outcome,
        estimate=estimate(logratios, looks.level),
        budget=budget,
        p_above=p_above,
        p_below=p_below,
        looks=looks,
        look=min(bisect_left(looks.rounds, len(excess)) + 1, len(looks.rounds)),
    )


def advice(verdict: Verdict) -> str:
    """Return what would settle an inconclusive verdict, as a sentence for people; "" for one that is settled.

    An interval's half-width shrinks with the square root of the number of rounds, and the noise of a sample with that
    of the workload's length; so either has to grow by (half-width / distance from the budget) squared, if the estimate
    stays where it is.
    """
    if verdict.outcome != "inconclusive":
        return ""
    found, looks = verdict.estimate, verdict.looks
    if found.rounds < looks.minimum_rounds:
        return (
            f"{_rounds(found.rounds)} cannot decide at alpha {looks.alpha:g}: "
            f"at least {_rounds(looks.minimum_rounds)} are needed"
        )
    limit = log1p(verdict.budget)
    low, centre, high = (_log_ratio(overhead) for overhead in (found.low, found.overhead, found.high))
    distance = abs(centre - limit)
    half_width = centre - low if centre > limit else high - centre
    distance, half_width = round(distance, _TOLERANCE_DECIMALS), round(half_width, _TOLERANCE_DECIMALS)
    if half_width**2 * found.rounds >= distance**2 * _REASONABLE_ROUNDS:
        return (
            "the estimate is so close to the budget that no reasonable number of rounds will settle it: move the "
            f"budget (above {percent(found.high)} these rounds would pass, below {percent(found.low)} they would fail)"
        )
    factor = (half_width / distance) ** 2
    needed = max(ceil(found.rounds * factor), found.rounds + 1)
    return (
        f"if the estimate holds, about {_rounds(needed)} would settle it, "
        f"or a workload about {max(factor, 1.1):.1f} times as long"
    )


def describe(verdict: Verdict) -> str:
    """Return the verdict's numbers in one line.

    >>> looks = Looks()
    >>> found = Estimate(overhead=0.412, low=0.36, high=0.459, confidence=looks.confidence, rounds=10)
    >>> describe(Verdict("fail", found, 0.30, 0.00098, 1.0, looks, 1))
    'overhead 41.2 % (96.7 % interval 36.0 to 45.9 %), budget 30 %, 10 rounds'
    """
    found = verdict.estimate
    if isfinite(found.high):
        low, high = percent(found.low), percent(found.high)
        if low.endswith(" %") and high.endswith(" %"):
            low = low.removesuffix(" %")
        interval = f"{percent(found.confidence)} interval {low} to {high}"
    else:
        interval = f"too few rounds for a {percent(found.confidence)} interval"
    budget = f"{verdict.budget * 100:g} %"
    if verdict.budget >= _RATIO_FROM:
        budget += f" = {percent(verdict.budget)}"
    return f"overhead {percent(found.overhead)} ({interval}), budget {budget}, {_rounds(found.rounds)}"


def percent(overhead: float) -> str:
    """Return an overhead for people: in percent below 300 %, from there on as ratio to the baseline.

    >>> percent(0.412), percent(-0.03), percent(12.4)
    ('41.2 %', '-3.0 %', 'x13.4')

    ``x13.4`` reads "13.4 times the baseline": nobody pictures 1240 % more.
    """
    if overhead >= _RATIO_FROM:
        return f"x{1 + overhead:.1f}"
    # Adding 0.0 turns the -0.0 of a rounded tiny gain into 0.0.
    return f"{round(overhead * 100, 1) + 0.0:.1f} %"


def _log_ratio(overhead: float) -> float:
    # A log-ratio below -37 becomes an overhead of exactly -1.
    return log1p(overhead) if overhead > -1 else -inf


def _rounds(number: int) -> str:
    return f"{number} round" if number == 1 else f"{number} rounds"


def _checked(logratios: Sequence[float]) -> Floats:
    import numpy as np

    d = np.asarray(logratios, dtype=np.float64)
    if d.ndim != 1 or d.size == 0 or not np.isfinite(d).all():
        raise ValueError(f"one finite log-ratio a round is needed, for one round or more: {logratios}")
    return d


def _signed_ranks(excess: Floats) -> Floats:
    """Return the signed ranks, without zeros and ties: ranks 1..n of the sizes, each with the sign of its value.

    A zero counts as negative, and of two equal sizes the negative one as the larger. The sum of the positive ranks is
    then the number of Walsh averages above zero, so that test and interval agree whatever the ties. It is conservative
    too: any other way of breaking the ties finds more Walsh averages above zero, so "above" is never claimed too
    easily; and "not above" is claimed against centres above zero, where the Walsh averages at zero or below are some of
    those below the centre.

    Data with zeros or ties never reaches scipy, because its exact test is not exact for them, and differs between
    versions: 1.13 turns to the normal approximation with a warning, 1.17 drops the zeros, so that few values decide
    for many.
    """
    import numpy as np

    ranks = np.empty(len(excess))
    ranks[np.lexsort((excess <= 0, np.abs(excess)))] = np.arange(1, len(excess) + 1)
    return np.where(excess > 0, ranks, -ranks)


def _p_negative(ranks: Floats) -> float:
    """Return the exact p-value of the claim that the centre is negative.

    Always the lower tail, because scipy gets a small upper one as 1 - lower, which loses its digits.
    """
    from scipy.stats import wilcoxon

    return float(wilcoxon(ranks, alternative="less", method="exact").pvalue)


def _p_negative_of_few(ranks: Floats) -> float:
    """Return the same without scipy, whose import takes a second, and on a guest's root up to a minute.

    For rounds that are too few to decide anything: what is a verdict is scipy's.
    """
    return float(_at_most(len(ranks))[round(ranks[ranks > 0].sum())])


@cache
def _at_most(rounds: int) -> Floats:
    """Return P(T <= t) for each t, T being the signed-rank statistic without ties.

    That is a sum in which each rank 1..rounds takes part with probability 1/2.
    """
    import numpy as np

    pmf = np.ones(1)
    for rank in range(1, rounds + 1):
        # Convolution with half a unit at 0 and half at rank; np.convolve would multiply all the zeros between.
        pmf = (np.pad(pmf, (0, rank)) + np.pad(pmf, (rank, 0))) / 2
    return np.cumsum(pmf)


@cache
def _cut(rounds: int, level: float) -> int:
    """Return which Walsh average, counted from either end, is the interval's end; 0 if there is none.

    That is one more than the largest t with P(T <= t) <= level.
    """
    import numpy as np

    return int(np.searchsorted(_at_most(rounds), level, side="right"))
