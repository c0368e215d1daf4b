"""From paired samples to a verdict: how large is the overhead, and does it keep its budget?

Numbers in, verdict out. The unit of evidence is the round: in each one every stack ran once, in random order, so
the log-ratio of a sample to the baseline of the same round is free of whatever drifted between rounds. Exchanging the
two runs of a pair flips the sign of its excess over the budget and nothing else: at the budget, the signs are fair and
independent coins, if no run leaves anything behind for the next one (Fisher's randomisation test; docs/statistics.md).

Rounds are judged in blocks. The Walsh averages (d_i + d_j) / 2, i <= j, of the log-ratios d are formed only between
rounds of the same block, and of all blocks together

- the estimate is their median (the Hodges-Lehmann estimator, grouped);
- *fail* is reached if at most c of them are at or below the limit log(1 + budget), *pass* if at most c are above it;
- the interval reaches from the (c + 1)-th lowest to the (c + 1)-th highest, so that it says what the verdict says.

The formulas for one block are those of Hollander, Wolfe & Chicken, *Nonparametric Statistical Methods*, 3rd ed. (Wiley
2014), sections 3.1 (test), 3.2 (estimate) and 3.3 (interval). There is a look after each block; the boundary c of each
is computed exactly (`boundaries`), so that all looks together are wrong in at most alpha of sessions, on either side.
All counting is on integers, and one count is behind the estimate, the interval and the verdict.

An *overhead* is a ratio minus 1, as a plain number (0.3 is 30 %), oriented so that more is worse.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from math import ceil, e, expm1, inf, isfinite, log, log1p, nextafter, sqrt
from operator import add
from typing import Literal

Better = Literal["lower", "higher"]
Outcome = Literal["pass", "fail", "inconclusive"]

# log(105) - log(100) and log1p(0.05) differ in their last bits. Without a tolerance, an integer-valued metric that is
# exactly at its budget in every round would fall on one side of it in every round, and be judged by a rounding error.
# So the excess over the limit is counted in whole steps of this.
GRID = 1e-9

#: Of a plan with several looks; a plan with one look has one block, as far as this many rounds can be.
BLOCK = 8
LARGEST_BLOCK = 64

# Ten times the default plan. Who would need more rounds than this is better served by another budget.
_REASONABLE_ROUNDS = 800

# Followed, the number of rounds at which the interval would just reach the budget settles half of the cases.
_MARGIN = 1.5

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

    ``rounds`` are the numbers of rounds after which to look, ascending; the rounds between two looks are a block.
    ``alpha`` bounds the probability, over all looks, of a *fail* if the overhead is not above its budget, and that of a
    *pass* if it is. A plan with several looks spends alpha as they come (`spent`), and gives up on what it will hardly
    decide; a plan with one look spends it there.

    Raises ValueError if ``rounds`` is empty, not ascending or not positive, or if ``alpha`` is not between 0 and 0.5.
    """

    rounds: tuple[int, ...] = tuple(range(BLOCK, 10 * BLOCK + 1, BLOCK))
    alpha: float = 0.05

    def __post_init__(self) -> None:
        if not self.rounds or self.rounds[0] < 1 or list(self.rounds) != sorted(set(self.rounds)):
            raise ValueError(f"looks must be at ascending numbers of rounds (got {self.rounds})")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha must be between 0 and 0.5 (got {self.alpha})")

    @classmethod
    def fixed(cls, rounds: int, alpha: float = 0.05) -> Looks:
        """Return a plan of one look after ``rounds`` rounds, which may spend the whole ``alpha``."""
        return cls((rounds,), alpha)

    @property
    def most(self) -> int:
        """Rounds after which there is no further look."""
        return self.rounds[-1]

    @property
    def confidence(self) -> float:
        """Guaranteed confidence of the two-sided interval that says the same as the two one-sided tests.

        It holds whenever the rounds stop (Jennison & Turnbull's repeated confidence interval).
        """
        return 1 - 2 * self.alpha

    @property
    def minimum_rounds(self) -> int:
        """Fewest rounds that can decide anything.

        The smallest tail of the exact test is 0.5 ** rounds: all log-ratios on one side. With one look that many rounds
        must be run; with several, the first look at which the plan has spent enough decides.
        """
        if len(self.rounds) == 1:
            rounds = 1
            while 0.5**rounds > self.alpha:
                rounds += 1
            return rounds
        return next((n for n in self.rounds if 0.5**n <= self.spent(n)), self.most)

    def spent(self, rounds: int) -> float:
        """Most of alpha that looks up to that many rounds may spend.

        alpha ln(1 + (e - 1) t) at the share t of the planned rounds: the spending function of Pocock type of Lan &
        DeMets, Biometrika 70 (1983) 659.
        """
        share = min(1.0, rounds / self.most)
        # At the end exactly alpha, which the logarithm of e misses in the last bit.
        return self.alpha if share == 1 else self.alpha * log1p((e - 1) * share)

    def block_of(self, number: int) -> int:
        """Index of the block that a round belongs to, both from 0. What exceeds the plan counts to the last block."""
        return min(bisect_right(self.rounds, number), len(self.rounds) - 1)


@dataclass(frozen=True)
class Estimate:
    """An overhead and its interval, all as ratio - 1.

    ``low`` and ``high`` are -1 and infinity if ``rounds`` are too few for an interval of this ``confidence``. The
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

    ``look`` is the number of the look that decided, from 1, or that of the last one so far. ``given_up`` says of an
    inconclusive verdict that further rounds of the plan would hardly have decided it. ``z`` is how many standard
    deviations more averages are above the limit than would be if the overhead were at it. ``runs`` are the numbers of
    boots of both sides, if these were compared and not rounds (`judging.runs`).
    """

    outcome: Outcome
    estimate: Estimate
    budget: float
    looks: Looks
    look: int
    given_up: bool = False
    z: float = 0.0
    runs: tuple[int, int] | None = None

    @property
    def settled(self) -> bool:
        """Whether further rounds of the plan are of no use to it."""
        return self.outcome != "inconclusive" or self.given_up

    @property
    def stopped_early(self) -> bool:
        """Whether it was decided before the plan's last look. Such an estimate tends to exaggerate."""
        return self.outcome != "inconclusive" and self.look < len(self.looks.rounds)


@cache
def boundaries(blocks: tuple[tuple[int, ...], ...], spent: tuple[float, ...]) -> tuple[int, ...]:
    """The exact boundary c at each look: the most Walsh averages that may lie on the wrong side; -1 if none suffices.

    ``blocks`` are the numbers of pairs in the blocks that each look adds, ``spent`` is how much of alpha may be spent
    by then. With n fair signs so far, the number of Walsh averages of a block of m pairs above the centre is the sum of
    a random subset of 1..m (Hollander, Wolfe & Chicken, 3.1); blocks add up. What has crossed a boundary is taken out
    before the next block is added: the exact recursion for discrete statistics of Stallard & Todd, Statistics in
    Medicine 19 (2000) 3051. It counts sign patterns, so it is exact for any alpha and any sizes.
    """
    patterns, crossed, pairs, found = [1], 0, 0, []
    for sizes, allowed in zip(blocks, spent, strict=True):
        for size in sizes:
            for rank in range(1, size + 1):
                gap = [0] * rank
                patterns = list(map(add, patterns + gap, gap + patterns))
            pairs += size
            crossed <<= size
        budget = int(Fraction(allowed) * 2**pairs) - crossed
        tail = list(accumulate(patterns))
        boundary = bisect_right(tail, budget) - 1
        if boundary >= 0:
            crossed += tail[boundary]
            patterns = [0] * (boundary + 1) + patterns[boundary + 1 :]
        found.append(boundary)
    return tuple(found)


def estimate(ratios: Mapping[int, float], looks: Looks, *, around: float = 0.0) -> Estimate:
    """Estimate the overhead from one log-ratio a round, by the number of the round from 0, with its interval.

    ``around`` is the overhead to which equality is exact, which is the budget if there is one. With ties the interval
    is wider than it need be, never narrower.

    Raises ValueError if there is no log-ratio, or if one is not finite.
    """
    _check(ratios)
    run = max(ratios) + 1
    last, seen = looks.block_of(run - 1), _Blocks(looks, around)
    for look, block in enumerate(_blocks(ratios, looks, last)):
        seen.add(block, run if look == last else looks.rounds[look])
    return seen.estimate()


def judge(ratios: Mapping[int, float], budget: float, looks: Looks, run: int | None = None) -> Verdict:
    """Judge one log-ratio a round, by the number of the round from 0, against ``budget`` (0.3 is 30 %).

    The looks are taken in their order, and the first one that decides stands: *fail* if the overhead is shown to be
    above the budget, *pass* if it is shown not to be, else *inconclusive*. ``run`` is how many rounds have been run,
    which is more than there are log-ratios if pairs were lost; if it is between two looks (an interrupted session), the
    last block is the rounds since the last look. A plan with several looks gives up from its half on if twice its
    statistic, were its trend to hold to the end, would still not reach the last boundary.

    At the budget is not above it, so a metric that is equal to its budget in every round passes. Equality is to nine
    decimals of the log-ratio. A Walsh average at the limit counts as not above it, which makes *fail* conservative; a
    false *pass* is one against an overhead above the budget, under which the averages at the limit are some of those
    below the centre, which makes *pass* conservative too.

    Raises ValueError if there is no log-ratio, if one is not finite, or if ``budget`` is not above -1 and finite.
    """
    if not -1 < budget < inf:
        raise ValueError(f"a budget must be an overhead above -1, which is -100 % (got {budget})")
    _check(ratios)
    run = max(max(ratios) + 1, run or 0)
    last = looks.block_of(run - 1)
    seen = _Blocks(looks, budget)
    for look, block in enumerate(_blocks(ratios, looks, last)):
        seen.add(block, run if look == last else looks.rounds[look])
        outcome = seen.outcome()
        given_up = outcome == "inconclusive" and seen.hopeless()
        if outcome != "inconclusive" or given_up:
            break
    return Verdict(outcome, seen.estimate(), budget, looks, look + 1, given_up, seen.z())


def expected_rounds(verdict: Verdict) -> int:
    """The look, as a number of rounds from the first, at which a verdict will be settled if its trend holds.

    It is the look that settled it, if one did; else the first one whose boundary it would cross, or at which it would
    be given up. Noise moves it either way: it is for people who wait.
    """
    looks, rounds = verdict.looks, verdict.looks.rounds[verdict.look - 1]
    if verdict.settled or len(looks.rounds) == 1:
        return rounds
    bounds, later = _whole(looks), looks.rounds[verdict.look :]
    hopeless = abs(verdict.z) * sqrt(looks.most / rounds) < bounds[-1] / 2
    for end, bound in zip(later, bounds[verdict.look :], strict=True):
        if abs(verdict.z) * sqrt(end / rounds) >= bound or (hopeless and 2 * end >= looks.most):
            return end
    return looks.most


@cache
def _whole(looks: Looks) -> tuple[float, ...]:
    """The boundary at each look, in standard deviations, if no pair is lost; infinity if none suffices."""
    sizes = tuple((end - start,) for start, end in pairwise((0, *looks.rounds)))
    found = []
    for done, bound in enumerate(boundaries(sizes, tuple(map(looks.spent, looks.rounds))), 1):
        total, variance = _moments(sizes[:done])
        found.append((total / 2 - bound) / sqrt(variance) if bound >= 0 else inf)
    return tuple(found)


def _blocks(ratios: Mapping[int, float], looks: Looks, last: int) -> list[list[float]]:
    blocks: list[list[float]] = [[] for _ in range(last + 1)]
    for number in sorted(ratios):
        blocks[looks.block_of(number)].append(ratios[number])
    return blocks


class _Blocks:
    """The Walsh averages of the rounds up to a look, as their excess over a limit in whole half steps of the grid."""

    def __init__(self, looks: Looks, around: float) -> None:
        self.looks, self.around, self.centre = looks, around, log1p(around)
        #: Of each look, the sizes of its blocks: one, or several if it would be too large to count.
        self.sizes: tuple[tuple[int, ...], ...] = ()
        self.spent: tuple[float, ...] = ()
        self.sums: list[int] = []
        self.above = self.rounds = 0

    def add(self, block: Sequence[float], end: int) -> None:
        """Add the log-ratios up to the next look, which is after `end` rounds."""
        parts = _split([round((ratio - self.centre) / GRID) for ratio in block])
        sums = [one + other for part in parts for index, one in enumerate(part) for other in part[index:]]
        self.sums += sums
        self.above += sum(value > 0 for value in sums)
        self.rounds += len(block)
        self.sizes += (tuple(map(len, parts)),)
        self.spent += (self.looks.spent(end),)

    @property
    def boundary(self) -> int:
        return boundaries(self.sizes, self.spent)[-1]

    def outcome(self) -> Outcome:
        if len(self.sums) - self.above <= self.boundary:
            return "fail"
        return "pass" if self.above <= self.boundary else "inconclusive"

    def hopeless(self) -> bool:
        looks, done = self.looks, len(self.sizes)
        share = looks.rounds[done - 1] / looks.most
        if share < 0.5 or share == 1 or not self.sums:
            return False
        # As the plan has it: the remaining blocks are whole.
        rest = tuple((after - before,) for before, after in zip(looks.rounds[done - 1 :], looks.rounds[done:]))
        sizes = (*self.sizes, *rest)
        spent = (*self.spent, *map(looks.spent, looks.rounds[done:]))
        total, variance = _moments(sizes)
        at_end = (total / 2 - boundaries(sizes, spent)[-1]) / sqrt(variance)
        return abs(self.z()) / sqrt(share) < at_end / 2

    def z(self) -> float:
        """How far the averages above the limit are from half of all, in standard deviations; 0 if there are none."""
        total, variance = _moments(self.sizes)
        return (self.above - total / 2) / sqrt(variance) if total else 0.0

    def estimate(self) -> Estimate:
        ordered, cut = sorted(self.sums), self.boundary + 1
        middle, odd = divmod(len(ordered), 2)
        # Twice the sum, so that the middle of two is a whole number too.
        median = 2 * ordered[middle] if odd else ordered[middle - 1] + ordered[middle]
        return Estimate(
            overhead=self._overhead(median, 4),
            low=self._overhead(ordered[cut - 1], 2) if cut else -1.0,
            high=self._overhead(ordered[-cut], 2) if cut else inf,
            confidence=self.looks.confidence,
            rounds=self.rounds,
        )

    def _overhead(self, excess: int, parts: int) -> float:
        return overhead_beside(self.around, excess, parts)


def overhead_beside(limit: float, excess: int, parts: int) -> float:
    """The overhead at an excess of that many parts of a step of the grid, on the same side of a limit as the excess."""
    if excess == 0:
        return limit
    found = expm1(log1p(limit) + excess * GRID / parts)
    return max(found, nextafter(limit, inf)) if excess > 0 else min(found, nextafter(limit, -inf))


def _split(block: list[int]) -> list[list[int]]:
    """A block in as few equal parts as can be counted in no time; the rounds stay in their order."""
    parts = max(1, ceil(len(block) / LARGEST_BLOCK))
    edges = [len(block) * part // parts for part in range(parts + 1)]
    return [block[start:end] for start, end in pairwise(edges)]


def _moments(sizes: Sequence[Sequence[int]]) -> tuple[int, float]:
    """Number of Walsh averages, and the variance of how many are above the centre (Hollander, Wolfe & Chicken, 3.1)."""
    flat = [size for parts in sizes for size in parts]
    return sum(m * (m + 1) // 2 for m in flat), sum(m * (m + 1) * (2 * m + 1) for m in flat) / 24


def _check(ratios: Mapping[int, float]) -> None:
    if not ratios or not all(map(isfinite, ratios.values())):
        raise ValueError(f"one finite log-ratio a round is needed, for one round or more (got {list(ratios.values())})")


def advice(verdict: Verdict) -> str:
    """Return what would settle an inconclusive verdict, as a sentence for people; "" for one that is settled.

    An interval's half-width shrinks with the square root of the number of rounds, and the noise of a sample with that
    of the workload's length; so either has to grow by (half-width / distance from the budget) squared, if the estimate
    stays where it is. Because it does not quite, the number of rounds is half as many again: so followed, it settles
    three of four cases (docs/statistics.md).
    """
    if verdict.outcome != "inconclusive":
        return ""
    found, looks = verdict.estimate, verdict.looks
    if not verdict.runs and (found.rounds < looks.minimum_rounds or not isfinite(found.high)):
        return (
            f"{_rounds(found.rounds)} cannot decide at alpha {looks.alpha:g}: "
            f"at least {_rounds(max(looks.minimum_rounds, found.rounds + 1))} are needed"
        )
    what = "boots" if verdict.runs else "rounds"
    limit = log1p(verdict.budget)
    low, centre, high = (_log_ratio(overhead) for overhead in (found.low, found.overhead, found.high))
    distance = abs(centre - limit)
    half_width = max(GRID, centre - low if centre > limit else high - centre)
    if half_width**2 * found.rounds * _MARGIN >= distance**2 * _REASONABLE_ROUNDS:
        return (
            f"the estimate is so close to the budget that no reasonable number of {what} will settle it: move the "
            f"budget (above {percent(found.high)} these {what} would pass, below {percent(found.low)} they would fail)"
        )
    factor = (half_width / distance) ** 2 * _MARGIN
    needed = max(ceil(found.rounds * factor), found.rounds + 1)
    if verdict.runs:
        return f"if the estimate holds, about {needed} boots (--fsstack-boots={needed}) would settle it"
    return (
        f"if the estimate holds, about {_rounds(needed)} (--fsstack-rounds={needed}) would settle it, "
        f"or a workload about {max(factor, 1.1):.1f} times as long"
    )


def describe(verdict: Verdict) -> str:
    """Return the verdict's numbers in one line.

    >>> found = Estimate(overhead=0.412, low=0.36, high=0.459, confidence=0.9, rounds=16)
    >>> describe(Verdict("fail", found, 0.30, Looks(), 2))
    'overhead 41.2 % (90.0 % interval 36.0 to 45.9 %), budget 30 %, 16 rounds, stopped early'
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
    how = ", stopped early" if verdict.stopped_early else ", given up: not decidable here" if verdict.given_up else ""
    number = "{} against {} boots".format(*verdict.runs) if verdict.runs else _rounds(found.rounds)
    return f"overhead {percent(found.overhead)} ({interval}), budget {budget}, {number}{how}"


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
