"""Verdicts: the plan of looks, estimates with their intervals, and what else is known of figures."""

from __future__ import annotations

from bisect import bisect_right
from math import e, inf, log1p
from typing import TYPE_CHECKING, Literal

import msgspec

from pytest_fsstack.records.sample import OverheadNumber, RoundNumber

Outcome = Literal["pass", "fail", "inconclusive"]
if TYPE_CHECKING:
    End = float
else:
    End = float | None  # JSON has no infinity, so an open end is null there

#: The block size of a plan with several looks. A plan with one look has a single block.
BLOCK = 8


class Looks(msgspec.Struct, frozen=True, gc=False):
    """The plan of looks at the samples, and the error rate of all looks together.

    ``rounds`` are the numbers of rounds after which to look, ascending; the rounds between two looks are a block. Over
    all looks, ``alpha`` bounds the probability of a false *fail*, and that of a false *pass*. A plan with several looks
    spends alpha step by step (`spent`), and gives up on budgets that it will hardly decide. ``alpha_of_fail``, if
    given, bounds a false *fail* instead.

    Raises ValueError if ``rounds`` is empty, not ascending or not positive, or if ``alpha`` is not between 0 and 0.5.
    """

    rounds: tuple[int, ...] = tuple(range(BLOCK, 10 * BLOCK + 1, BLOCK))
    alpha: float = 0.05
    alpha_of_fail: float | None = None

    def __post_init__(self) -> None:
        if not self.rounds or self.rounds[0] < 1 or list(self.rounds) != sorted(set(self.rounds)):
            raise ValueError(f"looks must be at ascending numbers of rounds (got {self.rounds})")
        if not all(0 < alpha < 0.5 for alpha in (self.alpha, self.failing)):
            raise ValueError(f"alpha must be between 0 and 0.5 (got {self.alpha} and {self.failing})")

    @classmethod
    def fixed(cls, rounds: int, alpha: float = 0.05) -> Looks:
        """Return a plan of one look after ``rounds`` rounds, with the whole ``alpha``."""
        return cls((rounds,), alpha)

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
        Biometrika 70 (1983) 659.
        """
        share = min(1.0, rounds / self.max_rounds)
        # At the end exactly 1, which the logarithm of e misses in the last bit.
        return 1.0 if share == 1 else log1p((e - 1) * share)

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
