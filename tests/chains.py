"""Results of sessions for tests, built in one way: `a_chain(figures).with_budget(...)`, then `built` or `results`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results, StackInfo, View
from pytest_fsstack.records.sample import METRICS, Metric, Sample
from pytest_fsstack.records.verdicts import Looks

#: Seconds, figures by metric, or a whole sample. None if a stack has none.
Figures = float | Mapping[str, float] | Sample | None
#: The figures of all rounds alike, of one round after the other, or by the number of the round from 0.
Series = Figures | Sequence[Figures] | Callable[[int], Figures]


def wobbling(seconds: float, share: float = 0.01) -> Callable[[int], float]:
    """Return times that grow by a share in each round and begin again after three."""
    return lambda number: seconds * (1 + number % 3 * share)


@dataclass(frozen=True)
class AChain:
    """The figures of a chain by step and stack, and what else is known of it. The first stack is the baseline."""

    figures: Mapping[str, Mapping[str, Series]]
    rounds: int
    #: Fields of `ChainResults`.
    facts: Mapping[str, Any]
    stacks: Mapping[str, StackInfo] = field(default_factory=dict)
    metrics: Mapping[str, Metric] = field(default_factory=lambda: METRICS)
    budgets: tuple[tuple[str, str, tuple[Budget, ...]], ...] = ()

    def with_stack(self, stack: str, spec: str = "", **facts: Any) -> AChain:
        """Return the same with more known of a stack, or with a stack that has no figures."""
        info = StackInfo(stack, spec or stack.replace("+", " | "), **facts)
        return replace(self, stacks={**self.stacks, stack: info})

    def on_kernels(self, view: View) -> AChain:
        """Return the same, whose stacks have ids such as `ext4:6.1`. Within kernels, the first one is the baseline."""
        pairs = {stack: stack.split(":") for stack in self.stacks}
        (baseline, first), *_ = pairs.values()
        within = {stack: f"{baseline}:{kernel}" for stack, (_, kernel) in pairs.items()}
        between = {stack: f"{name}:{first}" for stack, (name, _) in pairs.items()}
        infos = {stack: StackInfo(stack, name, kernel=kernel, name=name) for stack, (name, kernel) in pairs.items()}
        facts = {"view": view, "against": within if view == "within" else between}
        return replace(self, stacks=infos, facts={**self.facts, **facts})

    def with_metrics(self, *metrics: Metric) -> AChain:
        """Return the same with metrics that workloads record."""
        return replace(self, metrics={**self.metrics, **{metric.name: metric for metric in metrics}})

    def with_budget(self, step: str, stack: str, *budgets: Budget, **budget: Any) -> AChain:
        """Return the same with budgets that are judged, given whole or as the fields of one."""
        all_of_them = (*budgets, Budget(**budget)) if budget else budgets
        return replace(self, budgets=(*self.budgets, (step, stack, all_of_them)))

    @property
    def built(self) -> ChainResults:
        """Return the chain, judged."""
        facts: dict[str, Any] = {"looks": Looks.fixed(max(self.rounds, 1)), "steps": list(self.figures)}
        facts |= {"id": "t.py::T", "devices": ["loop"], "baseline": next(iter(self.stacks)), "seed": 1}
        chain = ChainResults(stacks=dict(self.stacks), **deepcopy({**facts, **self.facts}))
        for number in range(self.rounds):
            self._add_round(chain, number)
        for step, stack, budgets in self.budgets:
            judge_all(chain, step, stack, *budgets)
        return chain

    def _add_round(self, chain: ChainResults, number: int) -> None:
        samples = [
            (step, stack, sample)
            for step, by_stack in self.figures.items()
            for stack, series in by_stack.items()
            if (sample := self._sample(series, number)) is not None
        ]
        if "orders" not in self.facts:
            chain.orders.append(list(dict.fromkeys(stack for _, stack, _ in samples)))
        for step, stack, sample in samples:
            chain.add(step, stack, sample, number)

    def _sample(self, series: Series, number: int) -> Sample | None:
        if callable(series):
            return self._sample(series(number), number)
        if isinstance(series, Sequence):
            return self._sample(series[number], number) if number < len(series) else None
        if series is None or isinstance(series, Sample):
            return series
        values = series if isinstance(series, Mapping) else {"seconds": series}
        return Sample(values, {name: self.metrics[name] for name in values})

    def results(self, environment: Mapping[str, Any] | None = None, **facts: Any) -> Results:
        """Return the results of a session with this chain alone."""
        return Results(dict(environment or {}), [self.built], **facts)


def a_chain(
    figures: Mapping[str, Mapping[str, Series]], rounds: int | None = None, looks: Looks | None = None, **facts: Any
) -> AChain:
    """Return a chain to be with these figures, by step and stack. By default it has as many rounds as the longest
    series, or 8.
    """
    every = [series for by_stack in figures.values() for series in by_stack.values()]
    longest = max((len(series) for series in every if isinstance(series, Sequence)), default=8)
    chain = AChain(figures, longest if rounds is None else rounds, facts | ({"looks": looks} if looks else {}))
    for name in dict.fromkeys(stack for by_stack in figures.values() for stack in by_stack):
        chain = chain.with_stack(name)
    return chain
