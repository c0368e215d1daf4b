"""Samples of a chain by step, stack and round; what is made of them; the bridge to pytest-benchmark."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_fsstack import verdict
from pytest_fsstack.budget import Budget
from pytest_fsstack.measure import Metric, Sample
from pytest_fsstack.units import format_quantity
from pytest_fsstack.verdict import Estimate, Looks, Outcome, Verdict

#: Rounds are numbered from a multiple of this on in each boot of a kernel.
ROUNDS_OF_A_BOOT = 10_000


@dataclass(frozen=True)
class ArmInfo:
    """One stack of a chain: its id, its text, and the mounts as the kernel reported them in the first round."""

    id: str
    spec: str
    mounts: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Judgement:
    """A budget and the verdict on it; `verdict` is None where nothing could be compared, and `reason` says why."""

    budget: Budget
    verdict: Verdict | None
    text: str

    @property
    def outcome(self) -> Outcome:
        return self.verdict.outcome if self.verdict else "inconclusive"


@dataclass
class Chain:
    """The results of one chain on one device. `samples` are kept by (step, stack id), then by round from 0."""

    id: str
    device: str
    baseline: str
    looks: Looks
    seed: int
    steps: list[str] = field(default_factory=list)
    arms: dict[str, ArmInfo] = field(default_factory=dict)
    samples: dict[tuple[str, str], dict[int, Sample]] = field(default_factory=dict)
    judgements: dict[tuple[str, str], list[Judgement]] = field(default_factory=dict)
    #: Why a step has no samples on a stack, or not all: one line.
    notes: dict[tuple[str, str], str] = field(default_factory=dict)
    #: The order of the stacks in each round.
    orders: list[list[str]] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    #: The tables that its scenario is published as: the name of each, and its options.
    tables: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    #: What a reader should know, from the scenario itself.
    remarks: list[str] = field(default_factory=list)
    #: The kernel it ran on, where kernels are compared.
    kernel: str = ""
    #: Where kernels are compared: the stack that each stack is compared with, instead of the baseline.
    against: dict[str, str] = field(default_factory=dict)
    #: How often each kernel was booted. Rounds of one boot are not independent: with several, each boot counts once.
    boots: int = 1

    def reference(self, arm: str) -> str:
        """The stack that a stack is compared with."""
        return self.against.get(arm, self.baseline)

    @property
    def rounds(self) -> int:
        return len(self.orders)

    def of(self, step: str, arm: str) -> dict[int, Sample]:
        """The samples of a step on a stack by round; empty where there are none."""
        return self.samples.get((step, arm), {})

    def add(self, step: str, arm: str, sample: Sample) -> None:
        """Keep a sample of the round that is running."""
        self.samples.setdefault((step, arm), {})[len(self.orders) - 1] = sample
        if sample.incomplete:
            self.notes[step, arm] = f"did not do the work: {sample.incomplete}"

    def incomplete(self, step: str, arm: str) -> str:
        """Why the stack did not do the work in some round of a step; empty where it did."""
        return next((sample.incomplete for sample in self.of(step, arm).values() if sample.incomplete), "")

    def series(self, step: str, arm: str, metric: str) -> list[float]:
        """The metric's figures in the order of the rounds."""
        return [sample.values[metric] for _, sample in sorted(self.of(step, arm).items()) if metric in sample.values]

    def metric(self, step: str, arm: str, name: str) -> Metric | None:
        return next((sample.metrics[name] for sample in self.of(step, arm).values() if name in sample.values), None)

    def metrics(self, step: str) -> dict[str, Metric]:
        """What was measured in a step, on any stack."""
        return {
            name: sample.metrics[name]
            for (measured, _), samples in self.samples.items()
            if measured == step
            for sample in samples.values()
            for name in sample.values
        }

    def median(self, step: str, arm: str, metric: str = "seconds") -> float | None:
        series = self.series(step, arm, metric)
        return statistics.median(series) if series else None

    def log_ratios(self, step: str, arm: str, name: str) -> list[float]:
        """log(stack) - log(baseline) of every round in which both were measured, oriented so that more is worse.

        With several boots it is the median of each boot's rounds.
        """
        metric = self.metric(step, arm, name)
        ours, base = self.of(step, arm), self.of(step, self.reference(arm))
        rounds = [
            index for index in sorted(ours) if name in _comparable(ours[index]) and name in _comparable(base.get(index))
        ]
        pairs = [(ours[index].values[name], base[index].values[name]) for index in rounds]
        # A ratio needs two figures above zero, or a resolution that stands for zero.
        if metric is None or not pairs or (not metric.resolution and min(map(min, pairs)) <= 0):
            return []
        ratios = verdict.log_ratios(*zip(*pairs), better=metric.better, resolution=metric.resolution)
        if self.boots == 1:
            return ratios
        boots: dict[int, list[float]] = {}
        for index, ratio in zip(rounds, ratios):
            boots.setdefault(index // ROUNDS_OF_A_BOOT, []).append(ratio)
        return [statistics.median(found) for found in boots.values()]

    def estimate(self, step: str, arm: str, metric: str = "seconds") -> Estimate | None:
        """The overhead over the baseline with its interval; None for the baseline itself and where nothing compares."""
        ratios = [] if arm == self.reference(arm) else self.log_ratios(step, arm, metric)
        return verdict.estimate(ratios, self.looks.level) if ratios else None

    def judge(self, step: str, arm: str, budget: Budget) -> Judgement:
        """The verdict on one budget so far."""
        if not self.of(step, arm):
            return Judgement(budget, None, f"{budget.metric}: nothing was measured")
        metric = self.metric(step, arm, budget.metric)
        if metric is None:
            measured = ", ".join(self.metrics(step))
            return Judgement(budget, None, f"{step} has no metric {budget.metric!r} here; it has: {measured}")
        if budget.limit is not None:
            series = self.series(step, arm, budget.metric)
            ratios = verdict.log_ratios(
                series,
                [budget.limit] * len(series),
                better=metric.better,
                # A figure of zero is far below any limit, but has no logarithm.
                resolution=metric.resolution or budget.limit * 1e-9,
            )
            judged = verdict.judge(ratios, 0.0, self.looks)
            bound = "at most" if metric.better == "lower" else "at least"
            text = (
                f"{budget.metric}: median {format_quantity(statistics.median(series), metric.unit)}, "
                f"budget {bound} {format_quantity(budget.limit, metric.unit)}, {len(series)} rounds"
            )
            return Judgement(budget, judged, text)
        assert budget.overhead is not None
        ratios = self.log_ratios(step, arm, budget.metric)
        if not ratios:
            base = self.reference(arm)
            note = self.notes.get((step, base), "it was not measured")
            return Judgement(budget, None, f"{budget.metric}: nothing to compare with: baseline {base}: {note}")
        judged = verdict.judge(ratios, budget.overhead, self.looks)
        return Judgement(budget, judged, f"{budget.metric}: {verdict.describe(judged)}")

    def worst(self, step: str, arm: str) -> Outcome | None:
        """The outcome of a step on a stack over all its budgets; None where it has no budget."""
        outcomes = [judgement.outcome for judgement in self.judgements.get((step, arm), [])]
        return next((outcome for outcome in _WORST_FIRST if outcome in outcomes), None)


_WORST_FIRST: tuple[Outcome, ...] = ("fail", "inconclusive", "pass")


def _comparable(sample: Sample | None) -> Mapping[str, float]:
    """A sample's figures, unless the stack did not do the work."""
    return sample.values if sample and not sample.incomplete else {}


@dataclass
class Results:
    """All chains of a session, and the environment that they were measured in."""

    environment: dict[str, Any] = field(default_factory=dict)
    chains: list[Chain] = field(default_factory=list)
    #: Where kernels are compared: the chains of each kernel by itself, out of which `chains` are made.
    parts: list[Chain] = field(default_factory=list)
    #: How the tables that a chain names are made, by name.
    shapes: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def comparisons(self) -> int:
        """How many stacks were compared with a baseline in at least one step."""
        return sum(chain.estimate(step, arm) is not None for chain in self.chains for step, arm in chain.samples)


def describe_failure(chain: Chain, step: str, arm: str) -> str:
    """For people: which budgets are broken, by how much, with what certainty, and the samples themselves."""
    judgements = chain.judgements[step, arm]
    against = f" over {chain.reference(arm)}" if any(j.budget.overhead is not None for j in judgements) else ""
    lines = [f"{step} on {arm} costs more than its budget allows{against}:"]
    for judgement in judgements:
        lines.append(f"  {judgement.outcome:<12} {judgement.text}")
    for name in dict.fromkeys(judgement.budget.metric for judgement in judgements if judgement.outcome == "fail"):
        lines += ["", *_sample_lines(chain, step, arm, name)]
    looks = chain.looks
    lines += [
        "",
        f"A budget that is kept is called broken in at most {looks.alpha * 100:g} % of sessions. {_replay(chain)}",
    ]
    return "\n".join(lines)


def describe_undecided(chain: Chain, step: str, arm: str) -> str:
    """One line: the numbers of the budgets that are not decided, and what would settle them."""
    parts = []
    for judgement in chain.judgements[step, arm]:
        if judgement.outcome == "inconclusive":
            parts.append(judgement.text + _hint(judgement))
    return f"inconclusive: {' | '.join(parts)}"


def _hint(judgement: Judgement) -> str:
    if judgement.verdict is None:
        return ""
    if judgement.budget.limit is not None:
        return "; it is too close to the limit to tell in so many rounds"
    return f"; {verdict.advice(judgement.verdict)}"


def _sample_lines(chain: Chain, step: str, arm: str, name: str) -> list[str]:
    metric = chain.metric(step, arm, name)
    unit = f" ({metric.unit})" if metric and metric.unit else ""
    reference = chain.reference(arm)
    width = max(len(arm), len(reference))
    lines = [f"  {name}{unit}, in the order of the rounds"]
    for shown in dict.fromkeys((reference, arm)):
        lines.append(f"  {shown:<{width}}  {' '.join(f'{value:.4g}' for value in chain.series(step, shown, name))}")
    return lines


def _replay(chain: Chain) -> str:
    return f"The order of the stacks is that of --fsstack-seed={chain.seed}."


def dump(chain: Chain) -> dict[str, Any]:
    """A chain as JSON takes it, for `load` in another process."""
    return {
        "id": chain.id,
        "device": chain.device,
        "baseline": chain.baseline,
        "looks": [list(chain.looks.rounds), chain.looks.alpha],
        "seed": chain.seed,
        "steps": chain.steps,
        "groups": chain.groups,
        "tables": [list(table) for table in chain.tables],
        "remarks": chain.remarks,
        "orders": chain.orders,
        "kernel": chain.kernel,
        "arms": [[arm.id, arm.spec, arm.mounts] for arm in chain.arms.values()],
        "notes": [[*place, note] for place, note in chain.notes.items()],
        "samples": [
            [
                *place,
                index,
                dict(sample.values),
                [vars(sample.metrics[name]) for name in sample.values],
                dict(sample.kept),
                sample.incomplete,
            ]
            for place, rounds in chain.samples.items()
            for index, sample in rounds.items()
        ],
        "budgets": [
            [*place, vars(each.budget)] for place, judgements in chain.judgements.items() for each in judgements
        ],
    }


def load(data: dict[str, Any]) -> Chain:
    """The chain that `dump` wrote; its verdicts are reached again from its samples."""
    rounds, alpha = data["looks"]
    names = ("id", "device", "baseline", "seed", "steps", "groups", "remarks", "orders", "kernel")
    plain = {name: data[name] for name in names}
    chain = Chain(looks=Looks(tuple(rounds), alpha), **plain)
    chain.tables = [(name, options) for name, options in data["tables"]]
    chain.arms = {name: ArmInfo(name, spec, mounts) for name, spec, mounts in data["arms"]}
    chain.notes = {(step, arm): note for step, arm, note in data["notes"]}
    for step, arm, index, values, metrics, kept, incomplete in data["samples"]:
        known = {metric["name"]: Metric(**metric) for metric in metrics}
        chain.samples.setdefault((step, arm), {})[index] = Sample(values, known, kept, incomplete)
    for step, arm, budget in data["budgets"]:
        chain.judgements.setdefault((step, arm), []).append(chain.judge(step, arm, Budget(**budget)))
    return chain


def facts(chain: Chain, step: str, arm: str) -> dict[str, Any]:
    """All that is known of a step on a stack, as JSON takes it; empty where nothing was measured."""
    samples = chain.of(step, arm)
    if not samples:
        return {}
    found: dict[str, Any] = {
        "stack": chain.arms[arm].spec,
        "device": chain.device,
        "baseline": chain.baseline,
        "rounds": len(samples),
        "seed": chain.seed,
        "verdict": chain.worst(step, arm),
        "incomplete": chain.incomplete(step, arm) or None,
        "budgets": [
            {"metric": each.budget.metric, **_given(each.budget), "verdict": each.outcome, "text": each.text}
            for each in chain.judgements.get((step, arm), [])
        ],
        "metrics": {},
    }
    for name in chain.metrics(step):
        series, metric = chain.series(step, arm, name), chain.metric(step, arm, name)
        if metric is None:
            continue
        estimate = chain.estimate(step, arm, name)
        found["metrics"][name] = {
            "unit": metric.unit,
            "better": metric.better,
            "median": statistics.median(series),
            "samples": series,
            **({} if estimate is None else {"overhead": _interval(estimate)}),
        }
    return found


def flat(found: dict[str, Any]) -> list[tuple[str, object]]:
    """The same as name and value pairs, without the samples, for JUnit's properties."""
    names = ("stack", "device", "baseline", "rounds", "seed", "verdict", "incomplete")
    pairs = [(name, found[name]) for name in names]
    for name, metric in found["metrics"].items():
        pairs.append((name, metric["median"]))
        pairs += [(f"{name}_{part}", value) for part, value in metric.get("overhead", {}).items()]
    return [(name, value) for name, value in pairs if value is not None]


def _given(budget: Budget) -> dict[str, float]:
    return {"overhead": budget.overhead} if budget.overhead is not None else {"limit": budget.limit or 0.0}


def _interval(estimate: Estimate) -> dict[str, float | None]:
    """JSON has no infinity: an open end is null."""
    return {
        "estimate": estimate.overhead,
        "low": estimate.low,
        "high": estimate.high if math.isfinite(estimate.high) else None,
        "confidence": estimate.confidence,
    }


class _Record:
    """What pytest-benchmark's `Metadata` reads of its own fixture."""

    def __init__(self, name: str, fullname: str, group: str | None, param: str, extra: dict[str, Any]) -> None:
        self.name, self.fullname, self.group, self.param, self.extra_info = name, fullname, group, param, extra
        self.params: dict[str, str] = {"fsstack": param}
        self.cprofile_stats = None
        self.has_error = False


_TIMER = "fsstack"


def hide_benchmark_records(session: Any) -> None:
    """Take our records out of pytest-benchmark's tables, which say less than ours; they stay in its files."""
    groups = [
        (name, [each for each in found if each["options"].get("timer") != _TIMER])
        for name, found in session.groups or []
    ]
    session.groups = [(name, found) for name, found in groups if found]


def add_benchmark_record(
    session: Any,
    *,
    name: str,
    fullname: str,
    group: str | None,
    param: str,
    seconds: Sequence[float],
    extra: dict[str, Any],
) -> None:
    """Append a step's wall times (one a round, in seconds) to pytest-benchmark's session."""
    from pytest_benchmark.stats import Metadata

    metadata: Any = Metadata
    record = metadata(_Record(name, fullname, group, param, extra), iterations=1, options={"timer": _TIMER})
    for value in seconds:
        record.update(value)
    session.benchmarks.append(record)
