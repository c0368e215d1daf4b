"""Readings: what is known of each figure, from its samples and judgements."""

from __future__ import annotations

import msgspec

from pytest_fsstack.records.sample import LogError, LogRatio, Metric, OverheadNumber, RoundNumber, Typical
from pytest_fsstack.records.verdicts import CarryOver, Estimate, Outcome


class Ratios(msgspec.Struct, frozen=True, gc=False):
    """The logarithms of the ratios of a stack to its reference in each round (with several boots, in each boot).

    `typical` is their pseudo-median (Hodges & Lehmann), `deviation` their standard deviation, null for a single one.
    More is worse.
    """

    typical: LogRatio
    rounds: RoundNumber
    deviation: LogError | None = None


class Reading(msgspec.Struct, frozen=True, gc=False):
    """Figures of a metric of a step on a stack, computed once. `rounds` is the number of samples with it."""

    #: The name of its series.
    series: str
    metric: Metric
    #: The median of its samples.
    median: Typical
    rounds: RoundNumber
    #: The id of the stack that it is compared with. Empty for a reference itself.
    reference: str = ""
    #: The overhead over the reference. Null if nothing can be compared.
    estimate: Estimate | None = None
    #: The name of the series of its overhead.
    overhead_series: str = ""
    ratios: Ratios | None = None
    #: The ratios of the rounds up to the first look. Whether later rounds run depends on verdicts.
    first_ratios: Ratios | None = None
    #: Whether the resolution of the figures limits the precision of the overhead.
    coarse: bool = False
    #: The overhead of the two medians, if it contradicts the estimate.
    apart: OverheadNumber | None = None
    #: The worst outcome of its budgets. Null without a budget.
    verdict: Outcome | None = None

    def is_noise_beside(self, base: Reading) -> bool:
        """Whether this figure or that of the reference is only noise, so that their ratio means nothing."""
        return not self.metric.exact and min(self.median, base.median) <= self.metric.resolution


class Derived(msgspec.Struct, frozen=True, gc=False):
    """Facts about a step on a stack. `samples` is the number of its samples that have figures."""

    samples: RoundNumber = 0
    #: The worst outcome. Null without a budget.
    verdict: Outcome | None = None
    #: Effects of the previous run that could change a verdict, so that it is doubtful.
    doubts: list[CarryOver] = []
    #: Why the stack did not do the work.
    incomplete: str = ""
    #: Why a broken budget was expected to be broken.
    expected: str = ""
    #: By metric.
    readings: dict[str, Reading] = {}
