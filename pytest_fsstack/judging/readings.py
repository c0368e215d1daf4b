"""Readings of a chain: what follows from its samples and judgements, each computed once. Reports read nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from math import exp, inf, log, log1p
from statistics import fmean

from msgspec.structs import replace

from pytest_fsstack.judging import judge, overall, runs
from pytest_fsstack.judging.verdict import GRID, judge as judge_ratios, log_ratios as logarithms, overhead_beside
from pytest_fsstack.records import saved
from pytest_fsstack.records.names import kind_of, name_of
from pytest_fsstack.records.readings import Derived, Ratios, Reading
from pytest_fsstack.records.results import ChainResults, Results, worst
from pytest_fsstack.records.sample import Metric
from pytest_fsstack.records.verdicts import CarryOver, Estimate, Looks

#: The factor between the ratio of two medians and the overhead from which on they may contradict each other.
_MUCH = 1.05


class Readings:
    """The readings of a chain. Those in its record are used, and others are computed when they are first read.

    Do not change the chain while readings of it are in use.
    """

    def __init__(self, chain: ChainResults) -> None:
        self.chain = chain
        self._readings: dict[tuple[str, str, str], Reading | None] = {}
        self._compared: dict[tuple[str, str, str], judge.Compared] = {}

    def of(self, step: str, stack: str, metric: str = "seconds") -> Reading | None:
        """Return the reading of a metric of a step on a stack, or None if it was not measured."""
        if self.chain.derived:
            return self.chain.reading(step, stack, metric)
        key = (step, stack, metric)
        if key not in self._readings:
            self._readings[key] = self._read(*key)
        return self._readings[key]

    def derived(self, step: str, stack: str, only: Iterable[str] | None = None) -> Derived:
        """Return what is known of a step on a stack, with the readings of all metrics or only these."""
        chain = self.chain
        if chain.derived:
            return chain.known(step, stack)
        samples = chain.of(step, stack)
        names = dict.fromkeys(name for sample in samples.values() for name in sample.values)
        chosen = names if only is None else [name for name in only if name in names]
        readings = {name: reading for name in chosen if (reading := self.of(step, stack, name))}
        outcome, incomplete = chain.worst(step, stack), chain.incomplete(step, stack)
        return Derived(
            sum(bool(sample.values) for sample in samples.values()),
            outcome,
            self.doubts(step, stack),
            incomplete,
            chain.expected(step, stack),
            readings,
        )

    def median(self, step: str, stack: str, metric: str = "seconds") -> float | None:
        """Return the median of a metric's samples, or None if it was not measured."""
        reading = self.of(step, stack, metric)
        return reading.median if reading else None

    def estimate(self, step: str, stack: str, metric: str = "seconds") -> Estimate | None:
        """Return the overhead with its interval, or None for a reference and if nothing is comparable."""
        reading = self.of(step, stack, metric)
        return reading.estimate if reading else None

    def log_ratios(self, step: str, stack: str, metric: str = "seconds") -> Mapping[int, float]:
        """Return the log-ratios of a metric by round (with several boots, by boot), oriented so that more is worse."""
        return self._rounds(step, stack, metric).ratios

    def doubts(self, step: str, stack: str) -> list[CarryOver]:
        """Return the effects of the previous run that could change a verdict on a step."""
        judgements = self.chain.judgements_of(step, stack)
        carried = [carry for judgement in judgements for carry in judge.doubts(self.chain, step, stack, judgement)]
        return [carry for index, carry in enumerate(carried) if carry not in carried[:index]]

    def costs(self, weights: Mapping[str, float]) -> dict[str, Estimate]:
        """Return the cost over all steps of each stack that has all of them."""
        costs = {}
        for stack, steps in overall.with_all_steps(self.chain, self.estimate).items():
            overheads = {step: estimate.overhead for step, estimate in steps.items()}
            costs[stack] = overall.geometric_mean(self._by_step(stack, steps), overheads, weights)
        return costs

    def may_cost_least(self, stacks: Sequence[str], steps: Iterable[str], weights: Mapping[str, float]) -> list[str]:
        """Return the first of some stacks, which has the lowest cost, and those that are not shown to cost more.

        Each is compared with the first one in the same rounds, by the exact test of verdicts. Reports rank stacks by
        their cost over all steps, so the ratio of a round is that over all steps too. To be shown to cost more, the
        reference needs so many rounds that a stricter interval exists (`of_cheapest`), or a distance that is larger
        than those between the rounds.
        """
        (first, of_first), *others = self._ratios_of(stacks, steps, weights).items()
        names, alpha = [first], self.chain.looks.alpha
        for stack, of_stack in others:
            more = _differences(of_stack, of_first)
            looks = Looks.fixed(max(1, len(more)), alpha)
            is_open = not more or judge_ratios(more, 0.0, looks).outcome != "fail"
            if stack == self.chain.reference(stack) and 0.5 ** len(more) > alpha * (1 - overall.CONFIDENCE):
                is_open = is_open or min(more.values()) < max(more.values()) - min(more.values())
            if is_open:
                names.append(stack)
        return names

    def of_cheapest(
        self,
        stack: str,
        cost: Estimate,
        stacks: Sequence[str],
        names: Sequence[str],
        steps: Iterable[str],
        weights: Mapping[str, float],
    ) -> Estimate:
        """Return the cost of a stack that was chosen for being the lowest, so that it tends to be below its truth.

        The logarithm of the stack's cost is the mean of it and its rivals, less the mean of their distances from it.
        Which stack is chosen depends on the distances and not on the mean. If noise is symmetric, it says nothing about
        the mean. So the upper end is that of the mean, less the lower ends of the distances, which are taken to be at
        least 0. All of them hold together (Bonferroni), or are the widest exact intervals that the rounds allow. Rivals
        of which each round is above all rounds of the stack are left out. `names` are those of `stacks` that may cost
        least. If the reference is not one of them, a stricter interval of the stack itself counts as well.
        """
        if not cost.has_interval:
            return cost
        rivals, reference = self._ratios_of(stacks, steps, weights), self.chain.reference(stack)
        of_first = rivals.pop(stack)
        highest = max(of_first.values())
        near = {
            name: ratios
            for name, ratios in rivals.items()
            if name == reference or not ratios or min(ratios.values()) <= highest
        }
        if not near:
            return cost
        rounds = sorted(set.intersection(set(of_first), *map(set, near.values())))
        if len(rounds) < overall.MIN_ROUNDS:
            return replace(cost, low=-1.0, high=inf)
        alpha = min(self.chain.looks.alpha, (1 - overall.CONFIDENCE) / 2)
        own = _exact(of_first, alpha / len(names))
        distances = [_exact(_differences(ratios, of_first), alpha / 2 / len(near)).low for ratios in near.values()]
        apart = sum(log1p(max(0.0, distance)) for distance in distances) / (len(near) + 1)
        mean = {number: fmean([of_first[number], *(ratios[number] for ratios in near.values())]) for number in rounds}
        high = max(cost.high, (1 + _exact(mean, alpha / 2).high) * exp(-apart) - 1)
        if reference in near.keys() - set(names):
            high = max(high, _exact(of_first, alpha * (1 - overall.CONFIDENCE)).high)
        return replace(cost, low=min(cost.low, own.low), high=high)

    def _ratios_of(
        self, stacks: Sequence[str], steps: Iterable[str], weights: Mapping[str, float]
    ) -> dict[str, Mapping[int, float]]:
        """Return the log-ratios over all steps, by stack and round. Those of a reference itself are 0."""
        ratios = {
            stack: overall.by_round(self._by_step(stack, steps), weights)
            for stack in stacks
            if stack != self.chain.reference(stack)
        }
        zeros = dict.fromkeys((number for of_stack in ratios.values() for number in of_stack), 0.0)
        return {stack: ratios.get(stack, zeros) for stack in stacks}

    def _by_step(self, stack: str, steps: Iterable[str]) -> dict[str, Mapping[int, float]]:
        return {step: self.log_ratios(step, stack, overall.main_metric(self.chain, step)) for step in steps}

    def _rounds(self, step: str, stack: str, metric: str) -> judge.Compared:
        key = (step, stack, metric)
        if key not in self._compared:
            self._compared[key] = judge.compared(self.chain, *key)
        return self._compared[key]

    def _read(self, step: str, stack: str, name: str) -> Reading | None:
        chain, series = self.chain, self.chain.series(step, stack, name)
        if not series:
            return None
        reference, metric = chain.reference(stack), chain.defined_metrics(step)[name]
        judgements = [judgement for judgement in chain.judgements_of(step, stack) if judgement.budget.metric == name]
        reading = Reading(
            name_of(chain, step, stack, name),
            metric,
            statistics.median(series),
            len(series),
            verdict=worst(judgement.outcome for judgement in judgements),
        )
        if stack == reference:
            return reading
        rounds = self._rounds(step, stack, name)
        estimate = judge.estimate(chain, step, stack, name, rounds)
        first = [ratio for number, ratio in rounds.ratios.items() if number < chain.looks.rounds[0]]
        return replace(
            reading,
            reference=reference,
            estimate=estimate,
            overhead_series=name_of(chain, step, stack, name, kind_of(chain, stack)),
            ratios=_ratios(list(rounds.ratios.values())) if chain.paired else None,
            first_ratios=_ratios(first) if chain.paired else None,
            coarse=rounds.coarse,
            apart=_apart(metric, reading.median, self.median(step, reference, name), estimate),
        )


def _differences(ratios: Mapping[int, float], others: Mapping[int, float]) -> dict[int, float]:
    """Return the differences of log-ratios in their common rounds, numbered from 0."""
    return dict(enumerate(ratios[number] - others[number] for number in sorted(ratios.keys() & others.keys())))


def _exact(ratios: Mapping[int, float], alpha: float) -> Estimate:
    """Return an estimate of which each end is wrong in alpha, or in the smallest share that so many rounds allow."""
    looks = Looks.fixed(len(ratios), max(alpha, 0.5 ** len(ratios)))
    return judge_ratios(dict(enumerate(ratios.values())), 0.0, looks).estimate


def _ratios(logs: list[float]) -> Ratios | None:
    if not logs:
        return None
    return Ratios(runs.pseudo_median(logs), len(logs), statistics.stdev(logs) if len(logs) > 1 else None)


def _apart(metric: Metric, median: float, base: float | None, estimate: Estimate | None) -> float | None:
    """Return the overhead of the two medians, if it is clearly outside of the interval."""
    if not (estimate and median and base) or not estimate.has_interval:
        return None
    (ratio,) = logarithms([median], [base], better=metric.better)
    apart = overhead_beside(0.0, ratio / GRID, 1)
    much = abs(log1p(apart) - log1p(estimate.overhead)) > log(_MUCH)
    return apart if much and not estimate.low <= apart <= estimate.high else None


def settle(results: Results, only: Iterable[str] | None = None) -> Results:
    """Return results with the readings of all chains, of all metrics or only these. Chains with readings keep them."""
    if all(map(_is_settled, results.chains)):
        return results
    chains = [chain if _is_settled(chain) else _settled(results, chain, only) for chain in results.chains]
    settled = replace(results, chains=chains)
    settled.comparison, settled.table_layouts = results.comparison, results.table_layouts
    return settled


def dumps(results: Results) -> str:
    """Return results with their readings as the JSON of a file."""
    return saved.dumps(settle(results))


def settle_chain(chain: ChainResults, only: Iterable[str] | None = None) -> ChainResults:
    """Return a chain with its readings, of all metrics or only these. One that has readings keeps them."""
    if _is_settled(chain):
        return chain
    readings = Readings(chain)
    derived = {step: {stack: readings.derived(step, stack, only) for stack in chain.stacks} for step in chain.steps}
    return replace(chain, derived=derived)


def _is_settled(chain: ChainResults) -> bool:
    return bool(chain.derived or not chain.steps)


def _settled(results: Results, chain: ChainResults, only: Iterable[str] | None) -> ChainResults:
    return replace(settle_chain(chain, only), overall=Readings(chain).costs(overall.weights(results, chain)))


def compared(results: Results) -> bool:
    """Whether any step was compared with a reference on any stack that is no control."""
    return any(
        readings.estimate(step, stack) is not None
        for readings in map(Readings, results.chains)
        for step in readings.chain.steps
        for stack in readings.chain.stacks
        if stack not in readings.chain.controls
    )
