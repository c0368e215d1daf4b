"""Series: figures and overheads of a step on a stack, with names that are the same in each run.

Kernel, machine, device, commit and date are labels of the run, so a history continues when one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.names import Kind, kind_of, name_of
from pytest_fsstack.records.results import ChainResults, Results, worst
from pytest_fsstack.records.sample import Better
from pytest_fsstack.records.verdicts import Outcome


@dataclass(frozen=True)
class Series:
    """The entry of one run in a series.

    `value` is the median of a figure in its `unit`, or the estimate of an overhead (0.3 is 30 %; the unit is empty).
    `low` and `high` are the ends of its interval, or None if they are open. `samples` are those of a figure, in the
    order of rounds. `labels` are those of the run, with ``device`` and, if known, ``kernel``. They have
    ``emulated`` if the CPU of the stack or of its reference was.
    """

    name: str
    test: str
    step: str
    stack: str
    metric: str
    kind: Kind
    unit: str
    better: Better
    value: float
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    rounds: int = 0
    samples: tuple[float, ...] = ()
    #: For an overhead, the id of the reference stack.
    reference: str | None = None
    #: The worst verdict on the budgets of this figure or overhead, or None.
    outcome: Outcome | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


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
    info, kind = chain.stacks[stack], kind_of(chain, stack)
    for name, samples in _samples(chain, step, stack).items():
        metric, median = chain.metric(step, stack, name), chain.median(step, stack, name)
        assert metric is not None
        assert median is not None
        place = (chain.id, step, info.name, name)
        judgements = [judgement for judgement in chain.judgements_of(step, stack) if judgement.budget.metric == name]
        yield Series(
            name_of(chain, step, stack, name),
            *place,
            "figure",
            metric.unit,
            metric.better,
            median,
            rounds=len(samples),
            samples=tuple(samples),
            outcome=worst(judgement.outcome for judgement in judgements if judgement.budget.limit is not None),
            labels=labels,
        )
        if estimate := chain.overhead(step, stack, name):
            yield Series(
                name_of(chain, step, stack, name, kind),
                *place,
                kind,
                "",
                "lower",
                estimate.overhead,
                low=estimate.low if estimate.has_interval else None,
                high=estimate.high if estimate.has_interval else None,
                confidence=estimate.confidence,
                rounds=estimate.rounds,
                reference=chain.reference(stack),
                outcome=worst(judgement.outcome for judgement in judgements if judgement.budget.overhead is not None),
                labels=labels,
            )


def _samples(chain: ChainResults, step: str, stack: str) -> dict[str, list[float]]:
    names = chain.known(step, stack).readings
    return {name: chain.series(step, stack, name) for name in names}
