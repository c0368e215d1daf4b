"""Series: figures and overheads of a step on a stack, with names that are the same in each run.

Kernel, machine, device, commit and date are labels of the run, so a history continues when one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.names import Kind, kind_of
from pytest_fsstack.records.readings import Reading
from pytest_fsstack.records.results import ChainResults, Results, worst
from pytest_fsstack.records.sample import Better
from pytest_fsstack.records.verdicts import Estimate, Outcome


@dataclass(frozen=True)
class Series:
    """The entry of one run in a series: the figure of a reading, or by another `kind` its overhead.

    `samples` are those of a figure, in the order of rounds. `outcome` is the worst verdict on the budgets of this
    figure or overhead. `labels` are those of the run, with ``device`` and, if known, ``kernel``. They have ``emulated``
    if the CPU of the stack or of its reference was.
    """

    kind: Kind
    test: str
    step: str
    stack: str
    reading: Reading
    samples: tuple[float, ...] = ()
    outcome: Outcome | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.reading.overhead_series if self.estimate else self.reading.series

    @property
    def metric(self) -> str:
        return self.reading.metric.name

    @property
    def unit(self) -> str:
        """Return the unit of a figure. That of an overhead is empty."""
        return "" if self.estimate else self.reading.metric.unit

    @property
    def better(self) -> Better:
        return "lower" if self.estimate else self.reading.metric.better

    @property
    def estimate(self) -> Estimate | None:
        """Return the overhead (0.3 is 30 %), or None for a figure."""
        return None if self.kind == "figure" else self.reading.estimate

    @property
    def value(self) -> float:
        """Return the median of a figure, or the estimate of an overhead."""
        return self.estimate.overhead if self.estimate else self.reading.median

    @property
    def low(self) -> float | None:
        """Return the lower end of an overhead's interval, or None if it is open."""
        return self.estimate.low if self.estimate and self.estimate.has_interval else None

    @property
    def high(self) -> float | None:
        """Return the upper end of an overhead's interval, or None if it is open."""
        return self.estimate.high if self.estimate and self.estimate.has_interval else None

    @property
    def rounds(self) -> int:
        return self.estimate.rounds if self.estimate else self.reading.rounds

    @property
    def reference(self) -> str | None:
        """Return the id of the stack that an overhead is over."""
        return self.reading.reference if self.estimate else None


def series(results: Results) -> list[Series]:
    """Return all series of a run, once for each kernel and device. Controls and incomplete work are left out."""
    by_key: dict[tuple[str, str, str], Series] = {}
    for chain in settle(results).chains:
        for step in chain.steps:
            for stack in chain.stacks:
                if stack not in chain.controls and chain.measures(step, stack) and not chain.incomplete(step, stack):
                    labels = _labels(results, chain, stack)
                    for entry in _of(chain, step, stack, labels):
                        # With several kernels, two chains have the same samples.
                        by_key.setdefault((entry.name, labels.get("kernel", ""), chain.device), entry)
    return list(by_key.values())


def _labels(results: Results, chain: ChainResults, stack: str) -> dict[str, str]:
    kernel = chain.stacks[stack].kernel
    emulated = {"emulated": "emulated"} if chain.is_emulated(stack) else {}
    return {**results.labels, **({"kernel": kernel} if kernel else {}), **emulated, "device": chain.device}


def _of(chain: ChainResults, step: str, stack: str, labels: Mapping[str, str]) -> Iterator[Series]:
    place = (chain.id, step, chain.stacks[stack].name)
    for name, reading in chain.known(step, stack).readings.items():
        budgets = [judgement for judgement in chain.judgements_of(step, stack) if judgement.budget.metric == name]
        limits, overheads = (
            worst(judgement.outcome for judgement in budgets if (judgement.budget.limit is None) == of_overhead)
            for of_overhead in (False, True)
        )
        yield Series("figure", *place, reading, tuple(chain.series(step, stack, name)), limits, labels)
        if reading.estimate:
            yield Series(kind_of(chain, stack), *place, reading, (), overheads, labels)
