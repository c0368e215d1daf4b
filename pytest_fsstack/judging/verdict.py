"""The verdict of paired samples: the size of the overhead, and whether it keeps its budget.

Numbers in, verdict out. The unit of evidence is the round. Each round runs every stack once, in random order. So drifts
between rounds cancel in the log-ratio of a sample to the baseline of the same round. Exchanging the two runs of a pair
only flips the sign of its excess over the budget. At the budget, the signs are fair and independent coins, if no run
affects the next one (Fisher's randomisation test; docs/statistics.md).

Rounds are judged in blocks. The Walsh averages (d_i + d_j) / 2, i <= j, of the log-ratios d are formed only between
rounds of the same block, and of all blocks together

- the estimate is their median (the Hodges-Lehmann estimator, grouped);
- *fail* is reached if at most c of them are at or below the limit log(1 + budget), *pass* if at most c are above it;
- the interval reaches from the (c + 1)-th lowest to the (c + 1)-th highest.

The formulas for one block are those of Hollander, Wolfe & Chicken, *Nonparametric Statistical Methods*, 3rd ed. (Wiley
2014), sections 3.1 (test), 3.2 (estimate) and 3.3 (interval). There is a look after each block. The boundary c of each
is computed exactly (`boundaries`): all looks together are wrong in at most alpha of sessions, on either side.

The first decision stands. Other budgets may need rounds after it, and the estimate is that of all rounds. The interval
is what the intervals of all looks have in common, so it says what the verdict says. A look decides nothing if its
interval has nothing in common with those before. An estimate beyond an end of the interval is moved to that end. All
counting is on integers, and one count is behind the estimate, the interval and the verdict.

Figures may be known only to a resolution, such as the tick of a clock. *fail* then takes the least ratios that the true
figures can have, *pass* the largest ones, and the interval reaches from the one to the other. A round in which only one
side has the figure could have any ratio, so it counts against both verdicts.

An *overhead* is a ratio minus 1, as a plain number (0.3 is 30 %), oriented so that more is worse.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate, pairwise
from math import ceil, expm1, inf, isfinite, log, log1p, nextafter, sqrt
from operator import add
from statistics import NormalDist

from pytest_fsstack.records.sample import Better
from pytest_fsstack.records.verdicts import Estimate, Looks, Outcome, Verdict
from pytest_fsstack.units import LARGEST, OverheadUnit, counted, percent

# log(105) - log(100) and log1p(0.05) differ in their last bits. Without a tolerance, such rounding would decide on an
# integer metric that is exactly at its budget in every round. So excesses over the limit are counted in whole steps of
# this size.
GRID = 1e-9

LARGEST_BLOCK = 64

#: A resolution below this share of the figure is ignored.
_MIN_RESOLUTION = 1e-4
#: The logarithm of an exact count of 0. Even the mean of a round of some against none and of one of equal counts is
#: beyond `LARGEST`, but ratios of it stay finite.
_LOG_OF_NONE = -200.0

# Ten times the default plan. If more rounds were needed, advise another budget.
_REASONABLE_ROUNDS = 800

#: The chance with which the advised number of rounds settles a verdict.
_SETTLING_CHANCE = 0.8
_CHANCES = ((_SETTLING_CHANCE, "four of five"), (0.5, "one of two"))
# With fewer boots, where the interval would just reach the budget, only half of the cases would be settled.
_MARGIN = 1.5


def log_ratios(
    samples: Sequence[float],
    baseline: Sequence[float],
    *,
    better: Better = "lower",
    resolution: float = 0.0,
    exact: bool = False,
) -> list[float]:
    """Return log(sample / baseline) of each round, oriented so that more is worse.

    ``samples`` and ``baseline`` hold the same metric of the same rounds in the same order, in any unit. With
    ``better="higher"``, as for a throughput, the log-ratio is negated: 80 MB/s instead of 100 MB/s is an overhead of 25
    %.

    A value below ``resolution`` (same unit) counts as ``resolution``, which gives a logarithm to a count that can be
    zero, such as bytes written; two values below it are equal. Choose the smallest difference that the metric can show:
    the sector for bytes written, the clock tick for CPU time.

    An ``exact`` count has no resolution. None against none is no overhead, and some against none is an overhead above
    any budget (`LARGEST`).

    Raises ValueError if the lengths differ, if a value is not finite or is negative, or if it is 0 while ``resolution``
    is 0.
    """
    if len(samples) != len(baseline):
        raise ValueError(
            f"samples and baseline are not of the same rounds: {len(samples)} against {len(baseline)} values"
        )
    if not (isfinite(resolution) and resolution >= 0):
        raise ValueError(f"resolution must be 0 or more: {resolution}")
    for value in (*samples, *baseline):
        if not 0 <= value < inf:
            raise ValueError(f"a measured value must be finite and 0 or more (got {value})")
        if max(value, resolution) == 0 and not exact:
            raise ValueError(f"{value} has no logarithm: give the metric a resolution above 0")
    sign = 1 if better == "lower" else -1

    def log_of(value: float) -> float:
        return log(value) if (value := max(value, resolution)) else _LOG_OF_NONE

    return [sign * (log_of(sample) - log_of(base)) for sample, base in zip(samples, baseline, strict=True)]


def bounds(
    samples: Sequence[float],
    baseline: Sequence[float],
    *,
    better: Better = "lower",
    resolution: float = 0.0,
    exact: bool = False,
) -> list[tuple[float, float]]:
    """Return the smallest and largest possible log-ratio of each round, if figures may be too small by the resolution.

    The list is empty if the resolution makes no difference (`_EXACT`). The arguments are those of `log_ratios`.
    """
    if exact:
        return []
    smallest = min((max(value, resolution) for value in (*samples, *baseline)), default=0.0)
    if not resolution or resolution <= smallest * _MIN_RESOLUTION:
        return []
    widened = [[max(value, resolution) + resolution for value in values] for values in (samples, baseline)]
    one = log_ratios(samples, widened[1], better=better, resolution=resolution)
    other = log_ratios(widened[0], baseline, better=better, resolution=resolution)
    return [(min(pair), max(pair)) for pair in zip(one, other, strict=True)]


@cache
def boundaries(blocks: tuple[tuple[int, ...], ...], spent: tuple[float, ...]) -> tuple[int, ...]:
    """Return the exact boundary c of each look: how many Walsh averages may lie on the wrong side, or -1.

    ``blocks`` are the numbers of pairs in the blocks that each look adds, ``spent`` is how much of alpha may be spent
    by then. With n fair signs so far, the number of Walsh averages of a block of m pairs above the centre is the sum of
    a random subset of 1..m (Hollander, Wolfe & Chicken, 3.1); blocks add up. What has crossed a boundary is taken out
    before the next block is added: the exact recursion for discrete statistics of Stallard & Todd, Statistics in
    Medicine 19 (2000) 3051. It counts sign patterns, so it is exact for any alpha and any sizes.
    """
    patterns, crossed, pairs, boundaries_so_far = [1], 0, 0, []
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
        boundaries_so_far.append(boundary)
    return tuple(boundaries_so_far)


def judge(
    ratios: Mapping[int, float],
    budget: float,
    looks: Looks,
    run: int | None = None,
    bounds: Mapping[int, tuple[float, float]] | None = None,
) -> Verdict:
    """Judge one log-ratio a round, by the number of the round from 0, against ``budget`` (0.3 is 30 %).

    The first look that decides is final: *fail* if the overhead is proven to be above the budget, *pass* if it is
    proven not to be, else *inconclusive*. ``run`` is the number of rounds so far, which exceeds the number of
    log-ratios if pairs were lost. If it is between two looks (an interrupted session), the rounds since the last look
    form a block. From the middle of the plan on, a plan with several looks gives up if twice its statistic,
    extrapolated to the end, would not reach the last boundary. Further rounds can still decide a budget that was given
    up. ``bounds`` are the possible ranges of the log-ratios, if a resolution limits them. Rounds that are only in there
    count too: in them, only one side has a figure.

    A metric that equals its budget in every round passes. Equality is to nine decimals of the log-ratio. A Walsh
    average at the limit does not count as above it, which makes *fail* conservative. *pass* is conservative too: a
    false *pass* needs an overhead above the budget, and then averages at the limit lie below the centre.

    Raises ValueError if there is no log-ratio, if one is not finite, or if ``budget`` is not above -1 and finite.
    """
    if not -1 < budget < inf:
        raise ValueError(f"a budget must be an overhead above -1, which is -100 % (got {budget})")
    if not ratios or not all(map(isfinite, ratios.values())):
        raise ValueError(f"one finite log-ratio a round is needed, for one round or more (got {list(ratios.values())})")
    bounds = bounds or {}
    numbers = sorted({*ratios, *bounds})
    run = max(numbers[-1] + 1, run or 0)
    last = looks.block_of(run - 1)
    evidence = _Evidence(ratios, bounds, looks, budget)
    outcome: Outcome = "inconclusive"
    look, decided_after, given_up = last + 1, None, False
    for number, block in enumerate(_blocks(numbers, looks, last), 1):
        evidence.add(block, run if number > last else looks.rounds[number - 1])
        if decided_after is None and evidence.rounds:
            outcome = evidence.outcome()
            if outcome != "inconclusive":
                look, decided_after, given_up = number, evidence.rounds, False
            elif not given_up and evidence.hopeless():
                look, given_up = number, True
    return Verdict(
        outcome,
        evidence.estimate(),
        budget,
        looks,
        look,
        given_up,
        evidence.middle.z,
        decided_after=decided_after,
        coarse=decided_after is None and evidence.coarse(),
    )


def expected_rounds(verdict: Verdict) -> int:
    """Return the look, as a number of rounds, that will settle a verdict if its trend holds.

    That is the look that settled it. Otherwise, it is the first look at which the trend would cross the boundary, or be
    given up. Noise moves it either way, so use it only as a forecast.
    """
    looks, rounds = verdict.looks, verdict.looks.rounds[verdict.look - 1]
    if verdict.settled or len(looks.rounds) == 1:
        return rounds
    bounds, later = _whole(looks), looks.rounds[verdict.look :]
    hopeless = abs(verdict.z) * sqrt(looks.max_rounds / rounds) < bounds[-1] / 2
    for number, (end, bound) in enumerate(zip(later, bounds[verdict.look :], strict=True), verdict.look + 1):
        if abs(verdict.z) * sqrt(end / rounds) >= bound or (hopeless and looks.may_give_up(number)):
            return end
    return looks.max_rounds


@cache
def _whole(looks: Looks) -> tuple[float, ...]:
    """Return the boundary of each look in standard deviations, without lost pairs. Infinity if it cannot decide."""
    sizes = tuple((end - start,) for start, end in pairwise((0, *looks.rounds)))
    deviations = []
    for count, bound in enumerate(boundaries(sizes, tuple(map(looks.spent, looks.rounds))), 1):
        total, variance = _moments(sizes[:count])
        deviations.append((total / 2 - bound) / sqrt(variance) if bound >= 0 else inf)
    return tuple(deviations)


def _blocks(numbers: list[int], looks: Looks, last: int) -> list[list[int]]:
    """Return the ascending numbers of the rounds in blocks."""
    if last == 0:
        return [numbers]
    blocks: list[list[int]] = [[] for _ in range(last + 1)]
    for number in numbers:
        blocks[looks.block_of(number)].append(number)
    return blocks


class _Averages:
    """Walsh averages of the rounds up to a look, as excesses over a limit in half steps of the grid."""

    def __init__(self, ratios: Mapping[int, float], limit: float) -> None:
        self._excesses = {
            number: round((ratio - log1p(limit)) / GRID) if isfinite(ratio) else ratio
            for number, ratio in ratios.items()
        }
        #: The block sizes of each look: one, or several if a single one would take too long to count.
        self.sizes: tuple[tuple[int, ...], ...] = ()
        self.ordered: list[float] = []

    def add(self, numbers: Sequence[int]) -> None:
        """Add the rounds up to the next look."""
        parts = _split([self._excesses[number] for number in numbers if number in self._excesses])
        # Ascending sums are sorted faster.
        ascending = map(sorted, parts)
        self.ordered += [one + other for part in ascending for index, one in enumerate(part) for other in part[index:]]
        self.ordered.sort()
        self.sizes += (tuple(map(len, parts)),)

    @property
    def above(self) -> int:
        """Return the number of averages above the limit."""
        return len(self.ordered) - self.below

    @property
    def below(self) -> int:
        """Return the number of averages at or below the limit."""
        return bisect_right(self.ordered, 0)

    @property
    def z(self) -> float:
        """Return how far the number above the limit is from half of all, in standard deviations, or 0."""
        total, variance = _moments(self.sizes)
        return (self.above - total / 2) / sqrt(variance) if total else 0.0

    @property
    def median(self) -> float:
        """Return twice the median, which is always a whole number."""
        middle, odd = divmod(len(self.ordered), 2)
        return 2 * self.ordered[middle] if odd else self.ordered[middle - 1] + self.ordered[middle]


class _Evidence:
    """The rounds up to a look, and the intersection of the intervals of all looks."""

    def __init__(
        self, ratios: Mapping[int, float], bounds: Mapping[int, tuple[float, float]], looks: Looks, around: float
    ) -> None:
        self.looks, self.around = looks, around
        self.middle = self.least = self.largest = _Averages(ratios, around)
        if bounds:
            self.least, self.largest = (
                _Averages({**ratios, **{number: pair[side] for number, pair in bounds.items()}}, around)
                for side in (0, 1)
            )
        self.rounds = self.missing = 0
        self._ratios = ratios
        self._shares: tuple[float, ...] = ()
        self._low, self._high = -inf, inf
        self._agrees = True

    def add(self, numbers: Sequence[int], end: int) -> None:
        """Add the rounds up to the next look, which is after `end` rounds."""
        for averages in {self.middle, self.least, self.largest}:
            averages.add(numbers)
        self.rounds += len(numbers)
        self.missing += sum(number not in self._ratios for number in numbers)
        self._shares += (self.looks.share_spent(end),)
        low, high = self._ends()
        self._agrees = max(low, self._low) <= min(high, self._high)
        if self._agrees:
            self._low, self._high = max(low, self._low), min(high, self._high)

    def _ends(self) -> tuple[float, float]:
        """Return the interval of this look alone."""
        low, high = self._boundary(self.looks.failing), self._boundary(self.looks.alpha)
        smallest, largest = self.least.ordered, self.largest.ordered
        return smallest[low] if low >= 0 else -inf, largest[-high - 1] if high >= 0 else inf

    def _boundary(self, alpha: float) -> int:
        return boundaries(self.least.sizes, tuple(alpha * share for share in self._shares))[-1]

    def outcome(self) -> Outcome:
        """Return the outcome of this look: inconclusive if its interval does not intersect the earlier ones."""
        if not self._agrees:
            return "inconclusive"
        if self.least.below <= self._boundary(self.looks.failing):
            return "fail"
        return "pass" if self.largest.above <= self._boundary(self.looks.alpha) else "inconclusive"

    def coarse(self) -> bool:
        """Return whether only what figures leave open prevents a decision."""
        half = len(self.least.ordered) / 2
        fails = self.middle.below <= self._boundary(self.looks.failing) and self.least.below >= half
        return fails or (self.middle.above <= self._boundary(self.looks.alpha) and self.largest.above >= half)

    def hopeless(self) -> bool:
        """Whether the rest of the plan would hardly decide."""
        looks, number = self.looks, len(self.least.sizes)
        share = looks.rounds[number - 1] / looks.max_rounds
        if not looks.may_give_up(number) or share == 1 or not self.rounds:
            return False
        # The remaining blocks are complete, as planned.
        later = tuple((after - before,) for before, after in zip(looks.rounds[number - 1 :], looks.rounds[number:]))
        sizes = (*self.least.sizes, *later)
        shares = (*self._shares, *map(looks.share_spent, looks.rounds[number:]))
        total, variance = _moments(sizes)
        boundary = boundaries(sizes, tuple(looks.alpha * share for share in shares))[-1]
        strength = max(self.least.z, -self.largest.z)
        return strength / sqrt(share) < (total / 2 - boundary) / sqrt(variance) / 2

    def estimate(self) -> Estimate:
        """Return the estimate of all rounds so far."""
        median = min(max(self.middle.median, 2 * self._low), 2 * self._high)
        return Estimate(
            overhead=overhead_beside(self.around, median, 4),
            low=overhead_beside(self.around, self._low, 2) if isfinite(self._low) else -1.0,
            high=overhead_beside(self.around, self._high, 2) if isfinite(self._high) else inf,
            confidence=self.looks.confidence,
            rounds=self.rounds,
            missing=self.missing,
        )


def overhead_beside(limit: float, excess: float, parts: int) -> float:
    """Return the overhead at an excess over a limit, given in parts of a step of the grid.

    It is on the same side of the limit as the excess, and finite.
    """
    if excess == 0:
        return limit
    largest = log(LARGEST)
    ratio = min(max(log1p(limit) + excess * GRID / parts, -largest), largest)
    # The excess was rounded to the grid, so equal figures would seem to differ.
    overhead = expm1(ratio) if abs(ratio) > GRID else 0.0
    return max(overhead, nextafter(limit, inf)) if excess > 0 else min(overhead, nextafter(limit, -inf))


def _split(block: list[float]) -> list[list[float]]:
    """Split a block into as few equal parts as can be counted fast. The order of the rounds stays."""
    parts = max(1, ceil(len(block) / LARGEST_BLOCK))
    edges = [len(block) * part // parts for part in range(parts + 1)]
    return [block[start:end] for start, end in pairwise(edges)]


def _moments(sizes: Sequence[Sequence[int]]) -> tuple[int, float]:
    """Return the number of Walsh averages, and the variance of the number above the centre (Hollander, Wolfe & Chicken,
    3.1).
    """
    flat = [size for parts in sizes for size in parts]
    return sum(m * (m + 1) // 2 for m in flat), sum(m * (m + 1) * (2 * m + 1) for m in flat) / 24


def advice(verdict: Verdict) -> str:
    """Return a sentence with advice for an inconclusive verdict. Empty if it is settled.

    It suggests a number of rounds in one look, or a longer workload, since both reduce the noise equally.
    """
    if verdict.outcome != "inconclusive":
        return ""
    numbers, looks = verdict.estimate, verdict.looks
    if numbers.missing:
        return (
            f"record the figure in every round: only one side has it in {numbers.missing} of "
            f"{counted(numbers.rounds, 'boot' if verdict.runs else 'round')}, which count against both verdicts"
        )
    if verdict.coarse:
        return "more rounds do not settle it, a workload that takes longer or a figure with a finer resolution may"
    if not verdict.runs and (numbers.rounds < looks.minimum_rounds or not numbers.has_interval):
        return (
            f"{counted(numbers.rounds, 'round')} cannot decide at alpha {looks.alpha:g}: "
            f"at least {counted(max(looks.minimum_rounds, numbers.rounds + 1), 'round')} are needed"
        )
    what, number = "boots" if verdict.runs else "rounds", rounds_advised(verdict, _CHANCES[-1][0])
    if number is None:
        low, high = percent(numbers.low), percent(numbers.high)
        return (
            f"the estimate is so close to the budget that no reasonable number of {what} is known to settle it: move "
            f"the budget (above {high} these {what} would pass, below {low} they would fail)"
        )
    if verdict.runs:
        return f"if the estimate holds, about {number} boots (--fsstack-boots={number}) would settle it"
    return _advice_on_rounds(verdict)


def _advice_on_rounds(verdict: Verdict) -> str:
    """Return the numbers of rounds that would settle a verdict, each with its chance."""
    advised = [(rounds, share) for chance, share in _CHANCES if (rounds := rounds_advised(verdict, chance))]
    (needed, share), *fewer = advised
    times = max(needed / verdict.estimate.rounds, 1.1)
    return (
        f"about {needed} rounds (--fsstack-rounds={needed}), or a workload {times:.1f} times as long, would settle "
        f"{share} such cases{''.join(f', {rounds} rounds {part}' for rounds, part in fewer)}"
    )


def rounds_advised(verdict: Verdict, chance: float = _SETTLING_CHANCE) -> int | None:
    """Return how many rounds, or boots, settle an inconclusive verdict with a given chance. None if too many."""
    if verdict.runs:
        return _boots_advised(verdict)
    numbers = range(verdict.estimate.rounds + 1, _REASONABLE_ROUNDS)
    index = bisect_left(numbers, chance, key=lambda rounds: _chance_of_settling(verdict, rounds))
    return numbers[index] if index < len(numbers) else None


def _chance_of_settling(verdict: Verdict, rounds: int) -> float:
    """Return the chance that one look after so many fresh rounds decides.

    The true z of the rounds so far is normally distributed around the observed one. The z of fresh rounds grows with
    the square root of their number, and has noise of its own.
    """
    normal, growth = NormalDist(), rounds / verdict.estimate.rounds
    threshold, expected = normal.inv_cdf(1 - verdict.looks.alpha), abs(verdict.z) * sqrt(growth)
    return sum(normal.cdf((side * expected - threshold) / sqrt(1 + growth)) for side in (1, -1))


def _boots_advised(verdict: Verdict) -> int | None:
    """Return how many boots would probably settle a verdict. The interval shrinks with their square root."""
    numbers, limit = verdict.estimate, log1p(verdict.budget)
    # A log-ratio below -37 gives an overhead of exactly -1.
    overheads = (numbers.low, numbers.overhead, numbers.high)
    low, centre, high = (log1p(overhead) if overhead > -1 else -inf for overhead in overheads)
    half_width = max(GRID, centre - low if centre > limit else high - centre)
    boots = numbers.rounds * half_width**2 * _MARGIN / max(abs(centre - limit), GRID) ** 2
    return None if boots >= _REASONABLE_ROUNDS else max(ceil(boots), numbers.rounds + 1)


def describe(verdict: Verdict) -> str:
    """Describe a verdict in one line.

    >>> numbers = Estimate(overhead=0.412, low=0.36, high=0.459, confidence=0.9, rounds=16)
    >>> describe(Verdict("fail", numbers, 0.30, Looks(), 1, decided_after=8))
    'overhead 41.2 % (90.0 % interval 36.0 to 45.9 %), budget 30 %, 16 rounds, decided after 8'
    """
    numbers, budgets = verdict.estimate, [verdict.budget]
    unit = OverheadUnit.fitting([numbers.overhead, *budgets])
    confidence = percent(numbers.confidence)
    if numbers.has_interval:
        interval = f"{confidence} interval {unit.interval(numbers.low, numbers.high, budgets).strip('()')}"
    else:
        interval = f"no {confidence} interval" if numbers.missing else f"too few rounds for a {confidence} interval"
    number = "{} against {} boots".format(*verdict.runs) if verdict.runs else counted(numbers.rounds, "round")
    if numbers.missing:
        number += f" ({numbers.missing} of them with a figure on one side only)"
    overhead = unit.signed(numbers.overhead, budgets).removeprefix("+")
    return f"overhead {overhead} ({interval}), budget {unit.limit(verdict.budget)}, {number}{_ending(verdict)}"


def _ending(verdict: Verdict) -> str:
    if verdict.stopped_early:
        return f", decided after {verdict.decided_after}"
    if verdict.coarse and not verdict.estimate.missing:
        return ", known only to the resolution of the figures"
    return ", given up: not decidable here" if verdict.given_up else ""
