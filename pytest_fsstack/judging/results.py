"""Results of a session: samples by step, stack and round, with judgements and figures derived from them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar

import msgspec
from msgspec.structs import force_setattr, replace

from pytest_fsstack.judging import runs, verdict
from pytest_fsstack.judging.carry_over import FigureKey, Round, carry_overs, cost, could_change, in_words
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.conditions import Conditions, Discarded
from pytest_fsstack.records.sample import (
    METRICS,
    Better,
    LogError,
    Metric,
    OverheadNumber,
    RoundNumber,
    Sample,
    Typical,
    is_of_time,
)
from pytest_fsstack.records.verdicts import CarryOver, Estimate, Looks, Outcome, Repetition, Verdict
from pytest_fsstack.units import format_quantity, percent

#: The rounds of each boot of a kernel start at a multiple of this number.
ROUNDS_OF_A_BOOT = 10_000
#: The difference of log-ratios above which figures are marked as coarse.
_COARSE = 0.01
#: The smallest and largest possible log-ratio of each round, by its number.
Bounds = dict[int, tuple[float, float]]
#: What figures of an emulated CPU mean.
EMULATED = "shows function, not speed"
#: Why figures in time have no verdict there, and what to do.
NOT_ON_EMULATED = (
    f"not judged, because the CPU is emulated, which {EMULATED}: measure with KVM, or judge anyway with "
    "--fsstack-judge-emulated"
)
#: The suffix of a chain's id if its stacks are compared with the baseline on their own kernel.
IN_EACH_KERNEL = " (in each kernel)"


class StackInfo(msgspec.Struct, frozen=True):
    """A stack of a chain: its id, its text, and the mounts that the kernel reported in its last round.

    `tools` are the executables that the text names, with their versions (empty if unknown). `commands` are those that
    built it in its last round; system calls of layers are not in it. `settings` are the requested settings of the
    machine, as read back.
    """

    id: str
    spec: str
    mounts: list[str] = []
    #: The kernel in its id, if kernels are compared.
    kernel: str = ""
    tools: dict[str, str] = {}
    commands: list[str] = []
    #: Whether one of its layers encrypts.
    encrypts: bool = False
    settings: dict[str, str] = {}
    #: Whether it ran on an emulated CPU, whose times say nothing about real machines.
    emulated: bool = False

    @property
    def label(self) -> str:
        """Return the id as tables show it, with a word if the CPU was emulated."""
        return f"{self.id} (emulated)" if self.emulated else self.id

    @property
    def described(self) -> str:
        """Return the text, and the versions of its executables."""
        versions = [f"{path}: {version or 'it does not tell its version'}" for path, version in self.tools.items()]
        return "; ".join([self.spec, *versions])

    @property
    def name(self) -> str:
        """Return the id without the kernel."""
        return self.id.removesuffix(f":{self.kernel}") if self.kernel else self.id

    @property
    def renamed(self) -> bool:
        """Whether the name was given by the user, so only the text shows the layers."""
        settings = ", ".join(f"{key}={value}" for key, value in self.settings.items())
        pipe = self.spec.removesuffix(f" @ {settings}")
        layers = [layer.partition("(")[0] for layer in pipe.split(" | ")]
        parts = [part.partition("-")[0] for part in self.name.split("+")]
        return parts != [*layers, *(key.replace("/", ".") for key in self.settings)]


class Unjudged(Enum):
    """Why there is no verdict on a budget."""

    NOT_MEASURED = "nothing was measured"
    NOT_DONE = "the stack did not do the work"
    NO_METRIC = "nothing records the metric"
    UNFIT = "the metric cannot have this budget"
    NO_BASELINE = "there is nothing to compare with"
    FEW_BOOTS = "it takes more boots"
    EMULATED = "the CPU is emulated"


class Judgement(msgspec.Struct, frozen=True):
    """A budget and its verdict. If nothing could be compared, `verdict` is None and `unjudged` gives the reason."""

    budget: Budget
    verdict: Verdict | None
    text: str
    unjudged: Unjudged | None = None
    #: The verdict of the fresh rounds, if the failure needs confirmation.
    confirmed: Verdict | None = None
    #: The final outcome.
    outcome: Outcome = "inconclusive"

    def __post_init__(self) -> None:
        force_setattr(self, "outcome", self.final.outcome if self.final else "inconclusive")

    @property
    def final(self) -> Verdict | None:
        """Return the verdict of the fresh rounds, or else the first one."""
        return self.confirmed or self.verdict

    @property
    def advice(self) -> str:
        """The advice for an undecided budget."""
        if self.final is None:
            return self.text
        if self.budget.limit is not None and self.final.estimate.rounds >= self.final.looks.minimum_rounds:
            return "it is too close to the limit to tell in so many rounds"
        return verdict.advice(self.final)


class Confirmation(msgspec.Struct, frozen=True):
    """Fresh rounds of the stacks that seem to break a budget: the first one (from 0), and the level."""

    start: int
    level: float


class Overhead(msgspec.Struct, frozen=True):
    """The overhead of a stack over its reference (0.3 is 30 %), with its interval. An open end is null."""

    #: The name of its series.
    series: str
    reference: str
    estimate: OverheadNumber
    low: float
    high: float | None
    confidence: float
    rounds: RoundNumber
    #: The standard error of the log-ratio; null without at least two pairs of rounds.
    error: LogError | None = None


class Figure(msgspec.Struct, frozen=True):
    """A step's figure on a stack for one metric: the median of its rounds, and the overhead over a reference."""

    #: The name of its series.
    series: str
    unit: str
    better: Better
    #: Figures that differ by less are equal.
    resolution: float
    median: Typical
    overhead: Overhead | None = None

    @property
    def is_of_time(self) -> bool:
        """Whether it depends on the speed of the machine."""
        return is_of_time(self.unit)


class Derived(msgspec.Struct, frozen=True):
    """Facts about a step on a stack, derived from samples and judgements."""

    #: The worst outcome; null without a budget.
    verdict: Outcome | None = None
    #: Why the verdict is doubtful, in a few words.
    doubt: str = ""
    #: Why the stack did not do the work.
    incomplete: str = ""
    #: By metric.
    figures: dict[str, Figure] = {}


class ChainResults(msgspec.Struct):
    """The results of one chain on one device. Facts about a step on a stack are nested by step, then by stack id."""

    #: The node id of the class, or of a test outside of one.
    id: str
    #: As in ``--fsstack-device``.
    device: str
    #: The id of the baseline.
    baseline: str
    #: The looks at the samples, and the error rate.
    looks: Looks
    seed: int
    #: The tests of the chain, in order.
    steps: list[str] = []
    #: By id, the baseline included.
    stacks: dict[str, StackInfo] = {}
    #: By step, stack and number of the round (from 0).
    samples: dict[str, dict[str, dict[RoundNumber, Sample]]] = {}
    #: One for each budget.
    judgements: dict[str, dict[str, list[Judgement]]] = {}
    #: Why a step has no samples on a stack, or too few: one line.
    notes: dict[str, dict[str, str]] = {}
    #: The order of the stacks in each round.
    orders: list[list[str]] = []
    #: Conditions of the machine around each round, as far as they were watched.
    conditions: list[Conditions] = []
    #: Discarded rounds. Each was run again.
    discarded: list[Discarded] = []
    #: By step, its group in the tables of pytest-benchmark.
    groups: dict[str, str] = {}
    #: By step, the parameters of its timed block and its workloads.
    work: dict[str, Mapping[str, Any]] = {}
    #: By step, a one-sentence summary from its test or workload.
    summaries: dict[str, str] = {}
    #: By step, metrics that its workloads record in addition to `METRICS`.
    own_metrics: dict[str, dict[str, Metric]] = {}
    #: The tables of its scenario: name and options.
    tables: list[tuple[str, dict[str, Any]]] = []
    #: Remarks for readers, from the scenario.
    remarks: list[str] = []
    #: The steps that ran several times in a round.
    repeated: dict[str, Repetition] = {}
    #: The controls (second copies of the baseline): one, or one on each kernel.
    controls: list[str] = []
    #: Effects of the previous run on figures that chance does not explain.
    carry_over: list[CarryOver] = []
    #: If kernels are compared: the reference of each stack, instead of the baseline.
    against: dict[str, str] = {}
    #: The number of boots of each kernel. Rounds of one boot are not independent, so with several boots each counts
    #: once.
    boots: int = 1
    #: Whether a stack and its reference ran in the same boot. Otherwise, boots of both sides are not paired.
    paired: bool = True
    #: The number of budgets that share the error rate, because failures are confirmed; 0 if each has its own.
    budgets_sharing: int = 0
    #: The confirmation of failures, if there was one.
    confirmation: Confirmation | None = None
    #: Whether budgets on time are judged although the CPU is emulated (--fsstack-judge-emulated).
    judges_emulated: bool = False
    #: The environment, if it differs between the chains (results of several machines).
    environment: Mapping[str, Any] | None = None
    #: Facts for other programs, added at the end of the session.
    derived: dict[str, dict[str, Derived]] = {}

    def reference(self, stack: str) -> str:
        """Return the reference of a stack."""
        return self.against.get(stack, self.baseline)

    def is_emulated(self, stack: str) -> bool:
        """Whether a stack or its reference ran on an emulated CPU, so that costs in time mean nothing."""
        sides = (self.stacks.get(name) for name in (stack, self.reference(stack)))
        return any(info.emulated for info in sides if info)

    @property
    def rounds(self) -> int:
        """Return the number of rounds that count."""
        return len(self.orders)

    @property
    def only_counts(self) -> bool:
        """Whether the scenario only publishes counts, so that its times mean nothing."""
        return bool(self.tables) and all(name in ("counts", "coverage") for name, _ in self.tables)

    @property
    def has_times(self) -> bool:
        """Whether its times are shown or judged."""
        return not self.only_counts or self.judged > 0

    @property
    def judged(self) -> int:
        """Return the number of judged budgets, decided or not."""
        return sum(
            judgement.verdict is not None for _, _, judgements in self.all_judgements() for judgement in judgements
        )

    def all_judgements(self) -> Iterator[tuple[str, str, list[Judgement]]]:
        """Yield each step and stack that has budgets, with the judgements."""
        for step, by_stack in self.judgements.items():
            for stack, judgements in by_stack.items():
                yield step, stack, judgements

    def judgements_of(self, step: str, stack: str) -> list[Judgement]:
        """Return the judgements of a step on a stack. Empty without budgets."""
        return self.judgements.get(step, {}).get(stack, [])

    def note(self, step: str, stack: str) -> str:
        """Return why a step lacks samples on a stack. Empty if it has all."""
        return self.notes.get(step, {}).get(stack, "")

    @property
    def measured(self) -> set[str]:
        """Return the steps with samples on any stack in any round."""
        return {step for samples in (self.samples, *(item.samples for item in self.discarded)) for step in samples}

    @property
    def _run(self) -> int | None:
        """Return the number of rounds so far without confirmation. Each of several boots counts as one."""
        planned = self.confirmation.start if self.confirmation else self.rounds
        return planned if self.boots == 1 else None

    def _planned(self, ratios: dict[int, float]) -> dict[int, float]:
        if self.confirmation is None:
            return ratios
        return {number: ratio for number, ratio in ratios.items() if number < self.confirmation.start}

    @property
    def confirming(self) -> Looks:
        """Return the plan of the fresh rounds. They confirm a failure at their own level, and refute it as usual."""
        level = self.confirmation.level if self.confirmation else self.looks.alpha
        return Looks(self.looks.rounds, min(self.looks.alpha, level), level)

    def _confirm(self, ratios: dict[int, float], bounds: Bounds, overhead: float) -> Verdict | None:
        """Return the verdict of the fresh rounds, or None."""
        if self.confirmation is None:
            return None
        start, looks = self.confirmation.start, self.confirming
        # Later rounds that ran for other stacks are not part of the plan.
        fresh = {number - start: ratio for number, ratio in ratios.items() if 0 <= number - start < looks.max_rounds}
        if not fresh:
            return None
        bounds = {number - start: pair for number, pair in bounds.items()}
        return verdict.judge(fresh, overhead, looks, min(self.rounds - start, looks.max_rounds), bounds)

    def of(self, step: str, stack: str) -> dict[int, Sample]:
        """Return the samples of a step on a stack by round."""
        return self.samples.get(step, {}).get(stack, {})

    def add(self, step: str, stack: str, sample: Sample, number: int | None = None) -> None:
        """Add a sample of a round, by default of the current one."""
        if sample.work:
            self.work.setdefault(step, sample.work)
        if sample.metrics:
            recorded = {name: metric for name, metric in sample.metrics.items() if METRICS.get(name) != metric}
            self.own_metrics[step] = {**recorded, **self.own_metrics.get(step, {})}
        if sample.incomplete:
            self.notes.setdefault(step, {})[stack] = f"did not do the work: {sample.incomplete}"
        samples = self.samples.setdefault(step, {}).setdefault(stack, {})
        samples[self.rounds - 1 if number is None else number] = replace(sample, metrics={}, work={})

    def discard(self, rule: str, conditions: Conditions) -> None:
        """Discard the last round for all stacks. The next one replaces it."""
        number, discarded = self.rounds - 1, dict[str, dict[str, Sample]]()
        for step, stack, samples in self.all_samples():
            if number in samples:
                discarded.setdefault(step, {})[stack] = samples.pop(number)
        self.samples = {
            step: {stack: samples for stack, samples in by_stack.items() if samples}
            for step, by_stack in self.samples.items()
            if any(by_stack.values())
        }
        self.discarded.append(Discarded(number, rule, self.orders.pop(), conditions, discarded))

    def all_samples(self) -> Iterator[tuple[str, str, dict[int, Sample]]]:
        """Yield each measured step and stack, with its samples by round."""
        for step, by_stack in self.samples.items():
            for stack, samples in by_stack.items():
                yield step, stack, samples

    def incomplete(self, step: str, stack: str) -> str:
        """Return why a stack did not do its work in some round of a step, or an empty text."""
        # Incomplete work is no noise, so discarded rounds count here.
        discarded = [item.samples[step][stack] for item in self.discarded if stack in item.samples.get(step, {})]
        samples = [*self.of(step, stack).values(), *discarded]
        return next((sample.incomplete for sample in samples if sample.incomplete), "")

    def series(self, step: str, stack: str, metric: str) -> list[float]:
        """Return the metric's figures in the order of the rounds."""
        return [sample.values[metric] for _, sample in sorted(self.of(step, stack).items()) if metric in sample.values]

    def metric(self, step: str, stack: str, name: str) -> Metric | None:
        """Return a metric by name, or None if it was not measured."""
        is_recorded = any(name in sample.values for sample in self.of(step, stack).values())
        return self._defined(step)[name] if is_recorded else None

    def metrics(self, step: str) -> dict[str, Metric]:
        """Return the metrics of a step on any stack."""
        # Sorted, so that saved results list the metrics in the same order when they are read.
        samples = (sample for stack in self.stacks for _, sample in sorted(self.of(step, stack).items()))
        defined = self._defined(step)
        return {name: defined[name] for sample in samples for name in sample.values}

    def _defined(self, step: str) -> Mapping[str, Metric]:
        return {**METRICS, **self.own_metrics.get(step, {})}

    def median(self, step: str, stack: str, metric: str = "seconds") -> float | None:
        series = self.series(step, stack, metric)
        return statistics.median(series) if series else None

    def log_ratios(self, step: str, stack: str, name: str) -> dict[int, float]:
        """Return log(stack) - log(baseline) by round, for rounds with both, oriented so that more is worse.

        With several boots, return the median of each boot's rounds by the boot's number.
        """
        rounds, pairs, of_metric = self._pairs(step, stack, name)
        return self._by_boot(rounds, verdict.log_ratios(*zip(*pairs), **of_metric)) if pairs else {}

    def _bounds(self, step: str, stack: str, name: str) -> Bounds:
        """Return the smallest and largest possible log-ratio by round. Empty if the figures are exact enough."""
        rounds, pairs, of_metric = self._pairs(step, stack, name)
        bounds = verdict.bounds(*zip(*pairs), **of_metric) if pairs else []
        if (metric := self.metric(step, stack, name)) and metric.unit == "B":
            # A device transfers whole sectors, so none are exactly none.
            bounds = [pair if any(figures) else (0.0, 0.0) for pair, figures in zip(bounds, pairs)]
        lows, highs = (self._by_boot(rounds, [pair[side] for pair in bounds]) for side in (0, 1))
        return {number: (low, highs[number]) for number, low in lows.items()}

    def coarse(self, step: str, stack: str, name: str) -> bool:
        """Whether the resolution of the figures limits the overhead's precision."""
        return stack != self.reference(stack) and any(
            high - low > _COARSE for low, high in self._bounds(step, stack, name).values()
        )

    def _pairs(self, step: str, stack: str, name: str) -> tuple[list[int], list[tuple[float, float]], dict[str, Any]]:
        """Return rounds with figures of both sides, the figures, and their arguments. Empty if none compares."""
        metric = self.metric(step, stack, name)
        runs, base = self.of(step, stack), self.of(step, self.reference(stack))
        rounds = [
            index for index in sorted(runs) if name in _comparable(runs[index]) and name in _comparable(base.get(index))
        ]
        pairs = [(runs[index].values[name], base[index].values[name]) for index in rounds]
        # A ratio needs two positive figures, or a resolution that replaces zero.
        if metric is None or not pairs or (not metric.resolution and min(map(min, pairs)) <= 0):
            return [], [], {}
        return rounds, pairs, {"better": metric.better, "resolution": metric.resolution}

    def _by_boot(self, rounds: list[int], ratios: list[float]) -> dict[int, float]:
        """Return the log-ratios by round, or their median by boot."""
        if self.boots == 1:
            return dict(zip(rounds, ratios))
        boots: dict[int, list[float]] = {}
        for index, ratio in zip(rounds, ratios):
            boots.setdefault(index // ROUNDS_OF_A_BOOT, []).append(ratio)
        return dict(enumerate(statistics.median(ratios) for ratios in boots.values()))

    def _boots(self, step: str, stack: str, name: str) -> tuple[list[float], list[float]] | None:
        """Return a figure for each boot of a stack and of its reference, or None if nothing is comparable.

        A round's log-ratio is relative to the median of all these boots in that round, which removes a drift of the
        machine. A boot's figure is the pseudo-median of the rounds that all boots have (Hodges & Lehmann).
        """
        metric, sides = self.metric(step, stack, name), (stack, self.reference(stack))
        boots: tuple[dict[int, dict[int, float]], ...] = ({}, {})
        for side, rounds_of in zip(sides, boots):
            for number, sample in sorted(self.of(step, side).items()):
                if name in _comparable(sample):
                    boot, index = divmod(number, ROUNDS_OF_A_BOOT)
                    rounds_of.setdefault(boot, {})[index] = sample.values[name]
        every = [rounds for rounds_of in boots for rounds in rounds_of.values()]
        if metric is None or not all(boots) or not (shared := set(every[0]).intersection(*every)):
            return None
        if not metric.resolution and min(rounds[index] for rounds in every for index in shared) <= 0:
            return None
        typical = [statistics.median(rounds[index] for rounds in every) for index in shared]

        def figure(rounds: dict[int, float]) -> float:
            values = [rounds[index] for index in shared]
            return runs.pseudo_median(
                verdict.log_ratios(values, typical, better=metric.better, resolution=metric.resolution)
            )

        new, old = ([figure(rounds) for rounds in rounds_of.values()] for rounds_of in boots)
        return new, old

    def estimate(self, step: str, stack: str, metric: str = "seconds") -> Estimate | None:
        """Return the overhead with its interval, or None for the baseline and if nothing is comparable."""
        if stack == self.reference(stack):
            return None
        if not self.paired:
            sides = self._boots(step, stack, metric)
            return runs.estimate(*sides, self.looks.alpha) if sides else None
        ratios = self.log_ratios(step, stack, metric)
        if not ratios:
            return None
        judged = [
            judgement
            for judgement in self.judgements_of(step, stack)
            if judgement.budget.metric == metric and judgement.budget.overhead is not None
        ]
        verdicts = [*(judgement.confirmed for judgement in judged), *(judgement.verdict for judgement in judged)]
        if final := next(filter(None, verdicts), None):
            return final.estimate
        planned = self._planned(ratios)
        bounds = self._bounds(step, stack, metric)
        return verdict.judge(planned, 0.0, self._looks_of(stack), bounds=bounds).estimate if planned else None

    def _looks_of(self, stack: str) -> Looks:
        """Return the plan of a stack. Without a budget it runs a single block, whatever the figures are.

        A control runs as long as any other stack.
        """
        has_budgets = any(
            judgements for _, judged, judgements in self.all_judgements() if judged == stack or stack in self.controls
        )
        if has_budgets or len(self.looks.rounds) == 1:
            return self.looks
        return Looks.fixed(self.looks.rounds[0], self.looks.alpha)

    def judge_all(self, step: str, stack: str, *budgets: Budget) -> None:
        """Judge the budgets of a step on a stack with the samples so far."""
        self.judgements.setdefault(step, {})[stack] = [self.judge(step, stack, budget) for budget in budgets]

    def judge(self, step: str, stack: str, budget: Budget) -> Judgement:
        """Return the verdict on one budget with the samples so far."""
        if not self.of(step, stack):
            return Judgement(budget, None, f"{budget.metric}: nothing was measured", Unjudged.NOT_MEASURED)
        if reason := self.incomplete(step, stack):
            text = f"{budget.metric}: {stack} did not do the work: {reason}"
            return Judgement(budget, None, text, Unjudged.NOT_DONE)
        metric = self.metric(step, stack, budget.metric)
        if metric is None:
            every = self.metrics(step)
            text = f"{step} has no metric {budget.metric!r} here; it has: {', '.join(every)}"
            if budget.metric in every:
                text = f"{step} records the metric {budget.metric!r} on other stacks, but not on {stack}"
            return Judgement(budget, None, text, Unjudged.NO_METRIC)
        if mistake := budget.wrong_sign(metric.better):
            return Judgement(budget, None, mistake, Unjudged.UNFIT)
        emulated = self.is_emulated(stack) if budget.limit is None else self.stacks[stack].emulated
        if emulated and metric.is_of_time and not self.judges_emulated:
            return Judgement(budget, None, f"{metric.name}: {NOT_ON_EMULATED}", Unjudged.EMULATED)
        if budget.limit is not None:
            return self._judge_limit(step, stack, metric, budget, budget.limit)
        assert budget.overhead is not None
        judge = self._judge_rounds if self.paired else self._judge_boots
        return judge(step, stack, metric, budget, budget.overhead)

    def _judge_limit(self, step: str, stack: str, metric: Metric, budget: Budget, limit: float) -> Judgement:
        """Judge an absolute limit by the stack's rounds alone."""
        samples = sorted(self.of(step, stack).items())
        figures = self._planned(
            {index: sample[metric.name] for index, sample in samples if metric.name in sample.values}
        )
        if not figures:
            return Judgement(budget, None, f"{metric.name}: nothing was measured", Unjudged.NOT_MEASURED)
        series = list(figures.values())
        # Zero is far below any limit, but has no logarithm.
        resolution = metric.resolution or limit * 1e-9
        ratios = verdict.log_ratios(series, [limit] * len(series), better=metric.better, resolution=resolution)
        judged = verdict.judge(dict(zip(figures, ratios)), 0.0, self.looks, self._run)
        bound = "at most" if metric.better == "lower" else "at least"
        text = (
            f"{metric.name}: median of these {len(series)} rounds "
            f"{format_quantity(statistics.median(series), metric.unit)}, "
            f"budget {bound} {format_quantity(limit, metric.unit)}"
        )
        return Judgement(budget, judged, text)

    def _judge_rounds(self, step: str, stack: str, metric: Metric, budget: Budget, overhead: float) -> Judgement:
        """Judge an overhead by rounds of one boot. Each round is a pair of the stack and its reference."""
        ratios = self.log_ratios(step, stack, metric.name)
        if not (planned := self._planned(ratios)):
            return self._without_pairs(step, stack, metric, budget)
        bounds = self._bounds(step, stack, metric.name)
        judged = verdict.judge(planned, overhead, self.looks, self._run, bounds)
        confirmed = self._confirm(ratios, bounds, overhead) if judged.outcome == "fail" else None
        if confirmed is None:
            return Judgement(budget, judged, f"{metric.name}: {verdict.describe(judged)}")
        verb = {"fail": "confirm", "pass": "refute", "inconclusive": "do not confirm"}[confirmed.outcome]
        text = (
            f"{metric.name}: {verdict.describe(confirmed)}; these fresh rounds {verb} what the first "
            f"{judged.estimate.rounds} say: {percent(judged.estimate.overhead, overhead)}"
        )
        return Judgement(budget, judged, text, confirmed=confirmed)

    def _without_pairs(self, step: str, stack: str, metric: Metric, budget: Budget) -> Judgement:
        base = self.reference(stack)
        figures = [self.series(step, name, metric.name) for name in (stack, base)]
        if not metric.resolution and all(figures) and min(map(min, figures)) <= 0:
            text = f"{metric.name}: figures of 0 have no ratio: give timed.record(..., resolution=...)"
            return Judgement(budget, None, text, Unjudged.UNFIT)
        # It may have been measured, but without this metric.
        recorded = f"{step} does not record {metric.name!r} on it" if self.of(step, base) else "it was not measured"
        note = self.note(step, base) or recorded
        text = f"{metric.name}: nothing to compare with: baseline {base}: {note}"
        return Judgement(budget, None, text, Unjudged.NO_BASELINE)

    def _judge_boots(self, step: str, stack: str, metric: Metric, budget: Budget, overhead: float) -> Judgement:
        """Judge an overhead between boots. Each boot is one figure, and there are no pairs."""
        sides = self._boots(step, stack, metric.name)
        if sides is None:
            text = f"{metric.name}: nothing to compare with: no round was measured in all boots of both kernels"
            return Judgement(budget, None, text, Unjudged.NO_BASELINE)
        judged = runs.judge(*sides, overhead, self.looks.alpha)
        if judged is None:
            number, alpha = f"{len(sides[0])} against {len(sides[1])} boots", self.looks.alpha
            text = (
                f"{metric.name}: {number} are figures without a verdict: at alpha {alpha:.3g} it takes "
                f"{runs.min_runs(alpha)} of each (--fsstack-boots)"
            )
            return Judgement(budget, None, text, Unjudged.FEW_BOOTS)
        return Judgement(budget, judged, f"{metric.name}: {verdict.describe(judged)}")

    def compared_metrics(self, step: str) -> list[str]:
        """Return the metrics of a step with an overhead budget on any stack, or else the time."""
        judged = [
            judgement.budget.metric
            for judgements in self.judgements.get(step, {}).values()
            for judgement in judgements
            if judgement.budget.overhead is not None
        ]
        return list(dict.fromkeys(judged or ["seconds"]))

    def doubts(self, step: str, stack: str, judgement: Judgement) -> list[CarryOver]:
        """Return the carry-over that could change a verdict. Absolute limits are never affected."""
        verdict = judgement.final
        if verdict is None or verdict.outcome == "inconclusive" or judgement.budget.overhead is None:
            return []
        info = self.stacks[stack]
        place = (step, judgement.budget.metric, info.name, info.kernel)
        return [carry for carry in self.carry_over if carry.concerns(*place) and could_change(carry, verdict)]

    def doubt(self, step: str, stack: str) -> str:
        """Return in a few words why the verdicts on a step are doubtful, or an empty text."""
        judgements = self.judgements_of(step, stack)
        reasons = [in_words(carry) for judgement in judgements for carry in self.doubts(step, stack, judgement)]
        return f"the run before matters: {', '.join(dict.fromkeys(reasons))}" if reasons else ""

    def expected(self, step: str, stack: str, *, strict: bool = False) -> str:
        """Return why a step was expected to break its budgets. Empty if it was not, or if more budgets are broken.

        With `strict`, an expected but undecided budget does not excuse a broken one.
        """
        outcome, judgements = self.worst(step, stack), self.judgements_of(step, stack)
        failing = ("fail", "inconclusive") if strict else (outcome,)
        worst_ones = [judgement for judgement in judgements if judgement.outcome in (outcome, *failing)]
        reasons = [judgement.budget.xfail or "" for judgement in worst_ones]
        # An unexpected pass is reported. An unexpected failure is a failure.
        is_expected = any(reasons) if outcome == "pass" else all(reasons)
        return (
            "; ".join(dict.fromkeys(filter(None, reasons))) if is_expected and not self.incomplete(step, stack) else ""
        )

    def find_carry_over(self) -> list[CarryOver]:
        """Return effects of the previous run on judged figures, or else on times, the most significant first."""
        rounds, metrics = [], {step: self.compared_metrics(step) for step in self.steps}
        for number in range(self.rounds + 1):
            rounds += [Round(discarded.order) for discarded in self.discarded if discarded.replaced_by == number]
            if number < self.rounds:
                rounds.append(Round(self.orders[number], self._figures_of_round(number, metrics)))
        return carry_overs(rounds, f"{self.seed} {self.id}")

    def _figures_of_round(self, number: int, metrics: Mapping[str, list[str]]) -> dict[FigureKey, dict[str, float]]:
        """Return the figures of one round, by step and metric, then by stack."""
        figures: dict[FigureKey, dict[str, float]] = {}
        for step, stack, samples in self.all_samples():
            if number in samples and not samples[number].incomplete:
                defined = self._defined(step)
                for metric in metrics[step]:
                    if metric in samples[number].values:
                        figures.setdefault((step, metric, ""), {})[stack] = cost(samples[number], defined[metric])
        return figures

    def limits(self, step: str, stack: str, metric: str) -> list[float]:
        """Return the allowed overheads of a metric. Figures are not rounded to these."""
        budgets = [judgement.budget for judgement in self.judgements_of(step, stack)]
        return [budget.overhead for budget in budgets if budget.metric == metric and budget.overhead is not None]

    def worst(self, step: str, stack: str) -> Outcome | None:
        """Return the worst outcome of a step on a stack over its budgets, or None."""
        return worst(judgement.outcome for judgement in self.judgements_of(step, stack))


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the worst outcome, or None."""
    present = set(outcomes)
    order: tuple[Outcome, ...] = ("fail", "inconclusive", "pass")
    return next((outcome for outcome in order if outcome in present), None)


#: Outcomes of a test, the worst first.
OUTCOMES = ("failed", "skipped", "xfailed", "xpassed", "passed")


class TestOutcome(msgspec.Struct, frozen=True):
    """The outcome of a test on a stack, with the first line of its error, and its place in the results.

    `path` and `line` (from 1; 0 if unknown) are those of the test's source. `chain` is empty if nothing was measured.
    """

    #: pytest must not collect this class.
    __test__: ClassVar = False

    id: str
    outcome: str
    text: str = ""
    path: str = ""
    line: int = 0
    chain: str = ""
    device: str = ""
    step: str = ""
    stack: str = ""


def _comparable(sample: Sample | None) -> Mapping[str, float]:
    """Return a sample's figures, or none if the stack did not do its work."""
    return sample.values if sample and not sample.incomplete else {}


#: The version of the file format. It is raised whenever an older reader would misread the new format.
FORMAT = 4
#: Functions that make tables, by name.
Tables = Mapping[str, Callable[..., Any]]
_NO_TABLES: Tables = {}
_NO_COMPARISON: Any = None


class Results(msgspec.Struct, dict=True, tag_field="format", tag=FORMAT):
    """All chains of a session, and their environment."""

    environment: dict[str, Any] = {}
    chains: list[ChainResults] = []
    #: Why the session ended early. Empty if it ran to its end.
    interrupted: str = ""
    #: Start and end of the session in UTC, ISO 8601. Empty if unknown.
    start: str = ""
    stop: str = ""
    #: The chosen scale. Empty if unknown.
    scale: str = ""
    #: The share of timed blocks in the duration of the session.
    timed_share: float | None = None
    #: Labels of the run: commit, branch, kernel and others.
    labels: dict[str, str] = {}
    #: The outcome of each test on a stack, by its id.
    tests: dict[str, TestOutcome] = {}
    #: Failures beside the tests on stacks: other tests, files that were not collected, a gate that judged nothing.
    failures: list[str] = []

    # What has no type is not a field, and is not saved.
    #: The comparison with earlier runs, for reports (`over_time.text.Section`).
    comparison = _NO_COMPARISON
    #: Functions that make the tables of chains, by name.
    table_layouts = _NO_TABLES

    @property
    def judged(self) -> int:
        """Return the number of judged budgets, decided or not."""
        return sum(chain.judged for chain in self.chains)

    def test(self, chain: ChainResults, step: str, stack: str) -> TestOutcome | None:
        """Return the worst outcome of the tests of a step on a stack, or None."""
        tests = [
            test
            for test in self.tests.values()
            if (test.chain, test.step, test.stack) == (chain.id.removesuffix(IN_EACH_KERNEL), step, stack)
            and test.device in chain.device.split(", ")
        ]
        return min(tests, key=lambda test: OUTCOMES.index(test.outcome), default=None)

    @property
    def undecided(self) -> int:
        """Return the number of judged but undecided budgets."""
        judgements = [
            judgement for chain in self.chains for _, _, judged in chain.all_judgements() for judgement in judged
        ]
        return sum(judgement.verdict is not None and judgement.outcome == "inconclusive" for judgement in judgements)

    @property
    def comparisons(self) -> int:
        """Count the stacks that were compared with a baseline in at least one step."""
        return sum(
            chain.estimate(step, stack) is not None
            for chain in self.chains
            for step, stack, _ in chain.all_samples()
            if stack not in chain.controls
        )
