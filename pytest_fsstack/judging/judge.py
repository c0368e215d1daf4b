"""The judge: budgets against the samples of a chain. Each overhead is that of a stack over its reference."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from pytest_fsstack.judging import runs, verdict
from pytest_fsstack.judging.carry_over import FigureKey, Round, carry_overs, cost, could_change
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Judgement, RoundKey, Unjudged
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.records.verdicts import CarryOver, Estimate, Looks, Verdict

#: The difference of log-ratios above which figures are marked as coarse.
_COARSE = 0.01
#: The smallest and largest possible log-ratio of rounds, by their numbers.
Bounds = Mapping[int, tuple[float, float]]
#: The log-ratio of a round in which only one side has the figure.
_UNKNOWN = (-inf, inf)


@dataclass(frozen=True)
class Compared:
    """The log-ratios of a stack to its reference by round, for rounds with both. More is worse.

    `bounds` are empty if the figures are exact enough. Rounds in which only one side has the figure are only in there.
    With several boots, both are medians of the rounds of each boot, by its number.
    """

    ratios: Mapping[int, float]
    bounds: Bounds

    @property
    def coarse(self) -> bool:
        """Whether the resolution of the figures limits the overhead's precision."""
        return any(_COARSE < high - low < inf for low, high in self.bounds.values())

    def part(self, start: int, end: float) -> Compared:
        """Return the rounds from `start` up to before `end`, numbered from 0."""
        return Compared(
            {number - start: ratio for number, ratio in self.ratios.items() if start <= number < end},
            {number - start: ends for number, ends in self.bounds.items() if start <= number < end},
        )


def compared(chain: ChainResults, step: str, stack: str, name: str) -> Compared:
    """Return the log-ratios of a metric. Empty if nothing compares."""
    metric = chain.metric(step, stack, name)
    samples, base = chain.of(step, stack), chain.of(step, chain.reference(stack))
    has = {key: (name in _comparable(samples[key]), name in _comparable(base[key])) for key in samples if key in base}
    rounds = [key for key, both in has.items() if all(both)]
    unknown = [key for key, both in has.items() if any(both) and not all(both)]
    pairs = [(samples[key].values[name], base[key].values[name]) for key in rounds]
    # A ratio needs two positive figures, or a resolution that replaces zero.
    if metric is None or not pairs or (not metric.takes_zero and min(map(min, pairs)) <= 0):
        return Compared({}, {})
    logs = verdict.log_ratios(*zip(*pairs), **_options(metric))
    ratios = _by_boot(chain, rounds, logs)
    bounds = verdict.bounds(*zip(*pairs), **_options(metric))
    if metric.unit == "B":
        # A device transfers whole sectors, so none are exactly none.
        bounds = [pair if any(figures) else (0.0, 0.0) for pair, figures in zip(bounds, pairs)]
    if not bounds and not unknown:
        return Compared(ratios, {})
    bounds = [*(bounds or [(ratio, ratio) for ratio in logs]), *[_UNKNOWN] * len(unknown)]
    lows, highs = (_by_boot(chain, [*rounds, *unknown], [pair[side] for pair in bounds]) for side in (0, 1))
    return Compared(ratios, {number: (low, highs[number]) for number, low in lows.items()})


def _options(metric: Metric) -> dict[str, Any]:
    """Return the arguments of `verdict.log_ratios` for a metric."""
    return {"better": metric.better, "resolution": metric.resolution, "exact": metric.exact}


def _comparable(sample: Sample) -> Mapping[str, float]:
    """Return a sample's figures, or none if the stack did not do its work."""
    return {} if sample.incomplete else sample.values


def _by_boot(chain: ChainResults, rounds: list[RoundKey], values: list[float]) -> dict[int, float]:
    """Return values of rounds by round, or their median by boot."""
    if chain.boots == 1:
        return {key.number: value for key, value in zip(rounds, values)}
    boots: dict[int, list[float]] = {}
    for key, value in zip(rounds, values):
        boots.setdefault(key.boot, []).append(value)
    return {boot: statistics.median(of_boot) for boot, of_boot in boots.items()}


class _Boots(NamedTuple):
    """The figures of the boots of a stack and of its reference, and the range of each boot."""

    new: list[float]
    old: list[float]
    ranges: runs.Ranges


def _boots(chain: ChainResults, step: str, stack: str, name: str) -> _Boots | None:
    """Return the figures of the boots of a stack and of its reference, or None if nothing is comparable.

    A round's log-ratio is relative to the median of all these boots in that round, which removes a drift of the
    machine. A boot's figure is the pseudo-median of the rounds that all boots ran and any of them has (Hodges &
    Lehmann). Where a boot has none, the ratio could be any.
    """
    metric, sides = chain.metric(step, stack, name), (stack, chain.reference(stack))
    boots: tuple[dict[int, dict[int, float | None]], ...] = ({}, {})
    for side, rounds_of in zip(sides, boots):
        for key, sample in chain.of(step, side).items():
            rounds_of.setdefault(key.boot, {})[key.number] = _comparable(sample).get(name)
    every = [rounds for rounds_of in boots for rounds in rounds_of.values()]
    if metric is None or not all(boots):
        return None
    figures = {
        index: [figure for rounds in every if (figure := rounds[index]) is not None]
        for index in set(every[0]).intersection(*every)
    }
    typical = {index: statistics.median(of_round) for index, of_round in figures.items() if of_round}
    if not typical or (not metric.takes_zero and min(min(figures[index]) for index in typical) <= 0):
        return None

    def logs(rounds: Mapping[int, float | None]) -> list[float]:
        pairs = [(figure, typical[index]) for index in typical if (figure := rounds[index]) is not None]
        return verdict.log_ratios(*zip(*pairs), **_options(metric)) if pairs else []

    def limits(known: list[float]) -> tuple[float, float]:
        low, high = (runs.pseudo_median([*known, *[end] * (len(typical) - len(known))]) for end in _UNKNOWN)
        return low, high

    known = [[logs(rounds) for rounds in rounds_of.values()] for rounds_of in boots]
    new, old = ([runs.pseudo_median(of_boot) for of_boot in side if of_boot] for side in known)
    ranges_new, ranges_old = (list(map(limits, side)) for side in known)
    return _Boots(new, old, (ranges_new, ranges_old)) if new and old else None


# -- estimates ---------------------------------------------------------------------------------------------------------


def estimate(chain: ChainResults, step: str, stack: str, metric: str, rounds: Compared) -> Estimate | None:
    """Return the overhead with its interval, or None for a reference and if nothing is comparable."""
    if stack == chain.reference(stack):
        return None
    if not chain.paired:
        boots = _boots(chain, step, stack, metric)
        return runs.estimate(boots.new, boots.old, chain.looks.alpha, ranges=boots.ranges) if boots else None
    judged = [
        judgement
        for judgement in chain.judgements_of(step, stack)
        if judgement.budget.metric == metric and judgement.budget.overhead is not None
    ]
    verdicts = [*(judgement.confirmed for judgement in judged), *(judgement.verdict for judgement in judged)]
    if final := next(filter(None, verdicts), None):
        return final.estimate
    planned = _planned(chain, rounds)
    if not planned.ratios:
        return None
    return verdict.judge(planned.ratios, 0.0, _looks_of(chain, step, stack), bounds=planned.bounds).estimate


def _looks_of(chain: ChainResults, step: str, stack: str) -> Looks:
    """Return the plan of a step. It is a single block, whatever the figures are, unless budgets need more rounds.

    These are budgets of the step itself or of a later one. A control runs as long as any other stack.
    """
    earlier = chain.steps[: chain.steps.index(step)]
    has_budgets = any(
        judgements and judged_step not in earlier
        for judged_step, judged, judgements in chain.all_judgements()
        if judged == stack or stack in chain.controls
    )
    if has_budgets or len(chain.looks.rounds) == 1:
        return chain.looks
    return Looks.fixed(chain.looks.rounds[0], chain.looks.alpha)


def _planned(chain: ChainResults, rounds: Compared) -> Compared:
    """Return the rounds without those that confirm failures."""
    return rounds.part(0, chain.confirmation.start if chain.confirmation else inf)


def _run(chain: ChainResults) -> int | None:
    """Return the number of rounds so far without confirmation. Each of several boots counts as one."""
    planned = chain.confirmation.start if chain.confirmation else chain.rounds
    return planned if chain.boots == 1 else None


# -- verdicts ----------------------------------------------------------------------------------------------------------


def judge_all(chain: ChainResults, step: str, stack: str, *budgets: Budget) -> None:
    """Judge the budgets of a step on a stack with the samples so far, and keep the judgements in the chain."""
    chain.judgements.setdefault(step, {})[stack] = [judge(chain, step, stack, budget) for budget in budgets]


def judge(chain: ChainResults, step: str, stack: str, budget: Budget) -> Judgement:
    """Return the verdict on one budget with the samples so far."""
    if not chain.measures(step, stack):
        return Judgement(budget, unjudged=Unjudged.NOT_MEASURED)
    if chain.incomplete(step, stack):
        return Judgement(budget, unjudged=Unjudged.NOT_DONE)
    metric = chain.metric(step, stack, budget.metric)
    if metric is None:
        return Judgement(budget, unjudged=Unjudged.NO_METRIC)
    if budget.wrong_sign(metric.better):
        return Judgement(budget, unjudged=Unjudged.UNFIT)
    emulated = chain.is_emulated(stack) if budget.limit is None else chain.stacks[stack].emulated
    if emulated and metric.is_of_time and not chain.judges_emulated:
        return Judgement(budget, unjudged=Unjudged.EMULATED)
    if budget.limit is not None:
        return _judge_limit(chain, step, stack, metric, budget, budget.limit)
    assert budget.overhead is not None
    judge_overhead = _judge_rounds if chain.paired else _judge_boots
    return judge_overhead(chain, step, stack, metric, budget, budget.overhead)


def _judge_limit(chain: ChainResults, step: str, stack: str, metric: Metric, budget: Budget, limit: float) -> Judgement:
    """Judge an absolute limit by the stack's rounds alone."""
    # Rounds of several boots are numbered in a row.
    samples = {key.boot * chain.rounds + key.number: sample for key, sample in chain.of(step, stack).items()}
    figures = {number: sample[metric.name] for number, sample in samples.items() if metric.name in sample.values}
    series = list(figures.values())
    if limit == 0 and not metric.exact:
        return Judgement(budget, unjudged=Unjudged.UNFIT)
    # Zero is far below any limit, but has no logarithm.
    options = {**_options(metric), "resolution": 0.0 if metric.exact else metric.resolution or limit * 1e-9}
    ratios = verdict.log_ratios(series, [limit] * len(series), **options)
    unknown = dict.fromkeys(samples.keys() - figures.keys(), _UNKNOWN)
    rounds = _planned(chain, Compared(dict(zip(figures, ratios)), unknown))
    if not rounds.ratios:
        return Judgement(budget, unjudged=Unjudged.NOT_MEASURED)
    run = _run(chain) or chain.boots * chain.rounds
    return Judgement(budget, verdict.judge(rounds.ratios, 0.0, chain.looks, run, rounds.bounds))


def _judge_rounds(
    chain: ChainResults, step: str, stack: str, metric: Metric, budget: Budget, overhead: float
) -> Judgement:
    """Judge an overhead by rounds of one boot. Each round is a pair of the stack and its reference."""
    rounds = compared(chain, step, stack, metric.name)
    planned = _planned(chain, rounds)
    if not planned.ratios:
        figures = [chain.series(step, name, metric.name) for name in (stack, chain.reference(stack))]
        no_ratio = not metric.takes_zero and all(figures) and min(map(min, figures)) <= 0
        return Judgement(budget, unjudged=Unjudged.UNFIT if no_ratio else Unjudged.NO_BASELINE)
    judged = verdict.judge(planned.ratios, overhead, chain.looks, _run(chain), planned.bounds)
    confirmed = _confirm(chain, rounds, overhead) if judged.outcome == "fail" else None
    return Judgement(budget, judged, confirmed=confirmed)


def _confirm(chain: ChainResults, rounds: Compared, overhead: float) -> Verdict | None:
    """Return the verdict of the fresh rounds, or None."""
    if chain.confirmation is None:
        return None
    start, looks = chain.confirmation.start, chain.confirming
    # Later rounds that ran for other stacks are not part of the plan.
    fresh = rounds.part(start, start + looks.max_rounds)
    if not fresh.ratios:
        return None
    run = min(chain.rounds - start, looks.max_rounds)
    return verdict.judge(fresh.ratios, overhead, looks, run, fresh.bounds)


def _judge_boots(
    chain: ChainResults, step: str, stack: str, metric: Metric, budget: Budget, overhead: float
) -> Judgement:
    """Judge an overhead between boots. Each boot is one figure, and there are no pairs."""
    boots = _boots(chain, step, stack, metric.name)
    if boots is None:
        return Judgement(budget, unjudged=Unjudged.NO_BASELINE)
    judged = runs.judge(boots.new, boots.old, overhead, chain.looks.alpha, boots.ranges)
    return Judgement(budget, judged, unjudged=None if judged else Unjudged.FEW_BOOTS)


# -- carry-over --------------------------------------------------------------------------------------------------------


def doubts(chain: ChainResults, step: str, stack: str, judgement: Judgement) -> list[CarryOver]:
    """Return the carry-over that could change a verdict. Absolute limits are never affected."""
    final = judgement.final
    if final is None or final.outcome == "inconclusive" or judgement.budget.overhead is None:
        return []
    info = chain.stacks[stack]
    place = (step, judgement.budget.metric, info.name, info.kernel)
    return [carry for carry in chain.carry_over if carry.concerns(*place) and could_change(carry, final)]


def find_carry_over(chain: ChainResults) -> list[CarryOver]:
    """Return effects of the previous run on judged figures, or else on times, the most significant first."""
    rounds, figures = list[Round](), _figures_by_run(chain)
    for number, order in (*chain.draws(), (chain.rounds, [])):
        rounds += [Round(discarded.order) for discarded in chain.discarded if discarded.replaced_by == number]
        of_runs = [figures.get(run, {}) for run in order]
        places = dict.fromkeys(place for of_run in of_runs for place in of_run)
        by_place = {place: [of_run.get(place, 0.0) for of_run in of_runs] for place in places}
        rounds.append(Round([stack for _, stack in order], by_place))
    return carry_overs(rounds, f"{chain.seed} {chain.id}")


def _figures_by_run(chain: ChainResults) -> dict[tuple[int, str], dict[FigureKey, float]]:
    """Return the compared figures of each run by step and metric. A run has the number of its round and its stack."""
    figures: dict[tuple[int, str], dict[FigureKey, float]] = {}
    metrics = {step: chain.compared_metrics(step) for step in chain.steps}
    for step, stack, samples in chain.all_samples():
        defined = chain.defined_metrics(step)
        for key, sample in samples.items():
            for metric in metrics[step] if not sample.incomplete else ():
                if metric in sample.values:
                    figures.setdefault((key.number, stack), {})[step, metric, ""] = cost(sample, defined[metric])
    return figures
