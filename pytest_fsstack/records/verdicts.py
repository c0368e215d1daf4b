"""Verdicts: the plan of looks, estimates with their intervals, and what else is known of figures."""

from __future__ import annotations

from bisect import bisect_right
from itertools import count
from math import e, inf, log1p, nextafter
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_fsstack.records.sample import OverheadNumber, RoundNumber

Outcome = Literal["pass", "fail", "inconclusive"]
if TYPE_CHECKING:
    End = float
else:
    End = float | None  # JSON has no infinity, so an open end is null there

#: The usual plan: the number of looks, the rounds between two of them, and the fewest rounds before the first one.
_LOOKS, _BLOCK, _FIRST_BLOCK = 10, 8, 6
#: Looks at which boots have enough rounds to be compared by one figure of each, which needs no rounds for a decision.
LOOKS_OF_BOOTS = tuple(range(_BLOCK, _LOOKS * _BLOCK + 1, _BLOCK))
#: The share of alpha that the first look may spend.
_LARGEST_FIRST_SHARE = 1 / 3


class Looks(msgspec.Struct, frozen=True, gc=False):
    """The plan of looks at the samples, and the error rate of all looks together.

    ``rounds`` are the numbers of rounds after which to look, ascending; the rounds between two looks are a block. By
    default there are ten looks. The first one comes as soon as a third of alpha is enough for a decision, but not
    before the sixth round, and the others after eight further rounds each: 6, 14, ..., 78 at 5 %. Over all looks,
    ``alpha`` bounds the probability of a false *fail*, and that of a false *pass*. A plan with several looks spends
    alpha step by step (`spent`), and gives up on budgets that it will hardly decide. ``alpha_of_fail``, if given,
    bounds a false *fail* instead.

    Raises ValueError if ``rounds`` is not ascending or not positive, or if ``alpha`` is not between 0 and 0.5.
    """

    rounds: tuple[int, ...] = ()
    alpha: float = 0.05
    alpha_of_fail: float | None = None

    def __post_init__(self) -> None:
        if not all(0 < alpha < 0.5 for alpha in (self.alpha, self.failing)):
            raise ValueError(f"alpha must be between 0 and 0.5 (got {self.alpha} and {self.failing})")
        if not self.rounds:
            first = next(n for n in count(_FIRST_BLOCK) if self._can_decide_first(n))
            rounds = tuple(range(first, first + _LOOKS * _BLOCK, _BLOCK))
            msgspec.structs.force_setattr(self, "rounds", rounds)
        if self.rounds[0] < 1 or list(self.rounds) != sorted(set(self.rounds)):
            raise ValueError(f"looks must be at ascending numbers of rounds (got {self.rounds})")

    @classmethod
    def fixed(cls, rounds: int, alpha: float = 0.05) -> Looks:
        """Return a plan of one look after ``rounds`` rounds, with the whole ``alpha``."""
        return cls((rounds,), alpha)

    def confirming(self, level: float) -> Looks:
        """Return the plan of fresh rounds that confirm a failure at this level, and refute it as usual."""
        is_usual = self.rounds == Looks(alpha=self.alpha).rounds
        return Looks(() if is_usual else self.rounds, min(self.alpha, level), level)

    @property
    def failing(self) -> float:
        """Return the probability that a budget fails although it is kept."""
        return self.alpha if self.alpha_of_fail is None else self.alpha_of_fail

    @property
    def max_rounds(self) -> int:
        """Return the number of rounds at the last look."""
        return self.rounds[-1]

    @property
    def confidence(self) -> float:
        """Return the guaranteed confidence of the two-sided interval that agrees with the two one-sided tests.

        It holds whenever the rounds stop (Jennison & Turnbull's repeated confidence interval).
        """
        return 1 - self.alpha - self.failing

    @property
    def minimum_rounds(self) -> int:
        """Return the fewest rounds that can decide anything.

        The smallest tail of the exact test is 0.5 ** rounds: all log-ratios are on one side. With several looks, the
        first look for which enough alpha is spent decides.
        """
        if len(self.rounds) == 1:
            rounds = 1
            while 0.5**rounds > self.alpha:
                rounds += 1
            return rounds
        return next((n for n in self.rounds if 0.5**n <= self.spent(n)), self.max_rounds)

    def spent(self, rounds: int) -> float:
        """Return the alpha that looks up to so many rounds may spend."""
        return self.alpha * self.share_spent(rounds)

    def share_spent(self, rounds: int) -> float:
        """Return the share of alpha that looks up to so many rounds may spend.

        ln(1 + (e - 1) t) at the share t of the planned rounds: the spending function of Pocock type of Lan & DeMets,
        Biometrika 70 (1983) 659. If that does not suffice for the first look to decide, a part of alpha is spent at
        once, just enough for it, and the function spends the rest.
        """
        if rounds >= self.max_rounds:
            # The logarithm of e misses 1 in the last bit.
            return 1.0
        first = self.rounds[0]
        # Rounded up, because the look would miss its decision by the last bit.
        needed, usual = nextafter(0.5**first / self.alpha, inf), self._gradual_share(first)
        if needed <= usual or not self._can_decide_first(first):
            return self._gradual_share(rounds)
        if rounds == first:
            return needed
        at_once = (needed - usual) / (1 - usual)
        return at_once + (1 - at_once) * self._gradual_share(rounds)

    def _can_decide_first(self, rounds: int) -> bool:
        return 0.5**rounds <= _LARGEST_FIRST_SHARE * self.alpha

    def _gradual_share(self, rounds: int) -> float:
        return log1p((e - 1) * rounds / self.max_rounds)

    def may_give_up(self, look: int) -> bool:
        """Return whether a look (from 1) may give up on a budget: from the middle of the plan on."""
        return 2 * look >= len(self.rounds)

    def block_of(self, number: int) -> int:
        """Return the index of a round's block, both from 0. Rounds after the plan belong to the last block."""
        return min(bisect_right(self.rounds, number), len(self.rounds) - 1)


class Estimate(msgspec.Struct, frozen=True, gc=False):
    """An overhead and its interval, all as ratio - 1.

    ``low`` and ``high`` are -1 and infinity if ``rounds`` are too few for an interval of this ``confidence``. The
    confidence is a lower bound, because the exact distribution is discrete. Over several hosts, ``rounds`` are hosts.
    ``missing`` of the rounds have a figure on one side only, so their ratio could be any.
    """

    overhead: OverheadNumber
    low: OverheadNumber
    high: End
    confidence: float
    rounds: RoundNumber
    missing: RoundNumber = 0

    def __post_init__(self) -> None:
        if self.high is None:
            msgspec.structs.force_setattr(self, "high", inf)

    @property
    def has_interval(self) -> bool:
        """Whether the rounds are enough for an interval."""
        return self.high < inf

    @property
    def differs(self) -> bool:
        """Whether the interval shows a difference, by chance if there is none in 1 - `confidence` of cases."""
        return self.has_interval and not self.low <= 0 <= self.high

    @property
    def ratios(self) -> tuple[float, float | None, float | None]:
        """Return the ratio to the reference with the ends of its interval, or None without an interval."""
        ends = (1 + self.low, 1 + self.high) if self.has_interval else (None, None)
        return 1 + self.overhead, *ends


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The verdict of the samples of one step and metric on its budget.

    ``look`` is the number (from 1) of the look that decided or gave up, or else of the last one. ``decided_after`` is
    the number of rounds that decided; the estimate includes later rounds. ``given_up``: inconclusive, and further
    rounds would hardly have decided it. ``coarse``: inconclusive only because of what figures leave open. ``z``
    is the excess of averages above the limit over the number expected at the limit, in standard deviations. ``runs``
    are the numbers of boots of both sides, if boots were compared (`judging.runs`).
    """

    outcome: Outcome
    estimate: Estimate
    budget: float
    looks: Looks
    look: int
    given_up: bool = False
    z: float = 0.0
    runs: tuple[int, int] | None = None
    decided_after: int | None = None
    coarse: bool = False

    @property
    def settled(self) -> bool:
        """Whether further rounds of the plan cannot change it."""
        return self.outcome != "inconclusive" or self.given_up or self.coarse

    @property
    def stopped_early(self) -> bool:
        """Whether it was decided before the last look of the plan. Such an estimate tends to exaggerate."""
        return self.decided_after is not None and self.look < len(self.looks.rounds)


class CarryOver(msgspec.Struct, frozen=True, gc=False):
    """The excess of a step's figures (0.05 is 5 %) after a certain run, with the p value for the whole chain.

    `step` is empty for all steps. `stack` and `kernel` are empty for all stacks and all kernels.
    """

    step: str
    after: str
    overhead: float
    p: float
    metric: str = "seconds"
    stack: str = ""
    kernel: str = ""

    def concerns(self, step: str, metric: str, stack: str, kernel: str) -> bool:
        """Return whether this concerns a step's figures on a stack and a kernel."""
        pairs = ((self.step, step), (self.stack, stack), (self.kernel, kernel))
        return self.metric == metric and all(side in ("", other) for side, other in pairs)


class Repetition(msgspec.Struct, frozen=True):
    """The number of runs of a step in each round, and the reason.

    `variance` is the share of the time's variance that is between repetitions of a round. `cost` is one repetition's
    share of the duration of a round. Both are None if too little was measured.
    """

    count: int
    auto: bool
    variance: float | None = None
    cost: float | None = None
