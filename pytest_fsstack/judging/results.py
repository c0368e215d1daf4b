"""Samples of a chain by step, stack and round; what is made of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pytest_fsstack.judging import runs, verdict
from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.carry_over import CarryOver, Place, Round, carry_overs, cost
from pytest_fsstack.judging.conditions import Conditions, Discarded
from pytest_fsstack.judging.repetition import Repetition
from pytest_fsstack.judging.sample import Metric, Sample
from pytest_fsstack.judging.verdict import Estimate, Looks, Outcome, Verdict
from pytest_fsstack.units import OverheadUnit, format_quantity, shortened

#: Rounds are numbered from a multiple of this on in each boot of a kernel.
ROUNDS_OF_A_BOOT = 10_000
#: The difference of log-ratios from which the resolution of the figures is worth a mark.
_COARSE = 0.01
#: The least and the largest log-ratio that each round can have, by its number.
Bounds = dict[int, tuple[float, float]]
#: What the id of a chain ends with whose stacks are compared with the baseline on their own kernel, and not with
#: themselves on the first one.
IN_EACH_KERNEL = " (in each kernel)"


@dataclass(frozen=True)
class StackInfo:
    """One stack of a chain: its id, its text, and the mounts as the kernel reported them in its last round.

    `tools` are the executables that the text names, with what each says of its version; empty if it does not say it.
    `commands` are those that built it in that round; what a layer asks the kernel for by itself needs none.
    """

    id: str
    spec: str
    mounts: list[str] = field(default_factory=list)
    #: The kernel that its id ends with, where kernels are compared.
    kernel: str = ""
    tools: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)

    @property
    def described(self) -> str:
        """The text, and the versions of the executables that it names."""
        told = [f"{path}: {version or 'it does not tell its version'}" for path, version in self.tools.items()]
        return "; ".join([self.spec, *told])

    @property
    def name(self) -> str:
        """The id without the kernel."""
        return self.id.removesuffix(f":{self.kernel}") if self.kernel else self.id

    @property
    def renamed(self) -> bool:
        """Whether the name is not the one that its layers give it, so that only the text says what it is."""
        layers = [layer.partition("(")[0] for layer in self.spec.split(" | ")]
        parts = [part.partition("-")[0] for part in self.name.split("+")]
        return parts != layers


class Unjudged(Enum):
    """Why there is no verdict on a budget."""

    NOT_MEASURED = "nothing was measured"
    NOT_DONE = "the stack did not do the work"
    NO_METRIC = "nothing records the metric"
    NO_BASELINE = "there is nothing to compare with"
    FEW_BOOTS = "it takes more boots"


@dataclass(frozen=True)
class Judgement:
    """A budget and the verdict on it; `verdict` is None if nothing could be compared, and `unjudged` says why."""

    budget: Budget
    verdict: Verdict | None
    text: str
    unjudged: Unjudged | None = None
    #: What fresh rounds say of a failure, where it has to be confirmed.
    confirmed: Verdict | None = None

    @property
    def final(self) -> Verdict | None:
        """The verdict of the fresh rounds, if there are any."""
        return self.confirmed or self.verdict

    @property
    def outcome(self) -> Outcome:
        return self.final.outcome if self.final else "inconclusive"

    @property
    def advice(self) -> str:
        """What would settle it, if it is not decided."""
        if self.final is None:
            return self.text
        if self.budget.limit is not None:
            return "it is too close to the limit to tell in so many rounds"
        return verdict.advice(self.final)


@dataclass(frozen=True)
class Confirmation:
    """Fresh rounds of the stacks that seem to break a budget: from which round on (from 0), and at which level.

    `starts` are those of stacks that have one of their own, because each kernel confirms its own budgets.
    """

    start: int
    level: float
    starts: Mapping[str, int] = field(default_factory=dict)

    def start_of(self, stack: str) -> int:
        """The first fresh round of a stack, from 0."""
        return self.starts.get(stack, self.start)


@dataclass
class ChainResults:
    """The results of one chain on one device. `samples` are kept by (step, stack id), then by round from 0."""

    #: The node id of the class, or of a test outside of one.
    id: str
    #: As in ``--fsstack-device``.
    device: str
    #: The id of the stack that the others are compared with.
    baseline: str
    #: After how many rounds the budgets were judged, and the error rate.
    looks: Looks
    seed: int
    #: The tests of the chain, in their order.
    steps: list[str] = field(default_factory=list)
    #: By id, the baseline included.
    stacks: dict[str, StackInfo] = field(default_factory=dict)
    samples: dict[tuple[str, str], dict[int, Sample]] = field(default_factory=dict)
    #: Of each budget, by (step, stack id).
    judgements: dict[tuple[str, str], list[Judgement]] = field(default_factory=dict)
    #: Why a step has no samples on a stack, or not all: one line.
    notes: dict[tuple[str, str], str] = field(default_factory=dict)
    #: The order of the stacks in each round.
    orders: list[list[str]] = field(default_factory=list)
    #: What the machine did around each round, as far as it was watched.
    conditions: list[Conditions] = field(default_factory=list)
    #: Rounds that count for nothing, in whose place others were run.
    discarded: list[Discarded] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    #: What each step was asked to do, as far as its timed block and its workloads tell.
    work: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    #: The tables that its scenario is published as: the name of each, and its options.
    tables: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    #: What a reader should know, from the scenario itself.
    remarks: list[str] = field(default_factory=list)
    #: The steps that ran several times in a round.
    repeated: dict[str, Repetition] = field(default_factory=dict)
    #: The stacks that are the baseline a second time: one, or one on each kernel.
    controls: list[str] = field(default_factory=list)
    #: What the run before a run adds to its figures, as far as chance does not explain it.
    carry_over: list[CarryOver] = field(default_factory=list)
    #: The kernel it ran on, where kernels are compared.
    kernel: str = ""
    #: Where kernels are compared: the stack that each stack is compared with, instead of the baseline.
    against: dict[str, str] = field(default_factory=dict)
    #: How often each kernel was booted. Rounds of one boot are not independent: with several, each boot counts once.
    boots: int = 1
    #: Whether a stack and what it is compared with ran in the same boot; else boots of both sides are no pairs.
    paired: bool = True
    #: How many budgets of the session share the error rate, because failures are confirmed; 0 if each has its own.
    budgets_sharing: int = 0
    #: Where failures have to be confirmed, and there were any.
    confirmation: Confirmation | None = None
    #: The environment that it was measured in, if it stands beside chains of other machines.
    environment: Mapping[str, Any] | None = None

    def reference(self, stack: str) -> str:
        """The stack that a stack is compared with."""
        return self.against.get(stack, self.baseline)

    @property
    def rounds(self) -> int:
        """How many rounds count."""
        return len(self.orders)

    @property
    def judged(self) -> int:
        """How many budgets were judged, whether they are decided or not."""
        return sum(each.verdict is not None for found in self.judgements.values() for each in found)

    @property
    def measured(self) -> set[str]:
        """The steps that measured something, on any stack, in any round."""
        found = [self.samples, *(each.samples for each in self.discarded)]
        return {step for samples in found for step, _ in samples}

    def _run(self, stack: str) -> int | None:
        """Rounds so far without those that confirm, in terms of the plan; of several boots each is one."""
        planned = self.confirmation.start_of(stack) if self.confirmation else self.rounds
        return planned if self.boots == 1 else None

    def _planned(self, ratios: dict[int, float], stack: str) -> dict[int, float]:
        if self.confirmation is None:
            return ratios
        return {number: ratio for number, ratio in ratios.items() if number < self.confirmation.start_of(stack)}

    @property
    def confirming(self) -> Looks:
        """The plan of fresh rounds, which confirm a failure at a level of their own and refute it as any pass."""
        level = self.confirmation.level if self.confirmation else self.looks.alpha
        return Looks(self.looks.rounds, min(self.looks.alpha, level), level)

    def _confirm(self, ratios: dict[int, float], bounds: Bounds, stack: str, overhead: float) -> Verdict | None:
        """What the fresh rounds say; None if there are none."""
        if self.confirmation is None:
            return None
        start, looks = self.confirmation.start_of(stack), self.confirming
        # Rounds that others needed after these are none of the plan.
        fresh = {number - start: ratio for number, ratio in ratios.items() if 0 <= number - start < looks.most}
        if not fresh:
            return None
        bounds = {number - start: pair for number, pair in bounds.items()}
        return verdict.judge(fresh, overhead, looks, min(self.rounds - start, looks.most), bounds)

    def of(self, step: str, stack: str) -> dict[int, Sample]:
        """The samples of a step on a stack by round; empty where there are none."""
        return self.samples.get((step, stack), {})

    def add(self, step: str, stack: str, sample: Sample) -> None:
        """Keep a sample of the round that is running."""
        self.samples.setdefault((step, stack), {})[len(self.orders) - 1] = sample
        if sample.work:
            self.work.setdefault(step, sample.work)
        if sample.incomplete:
            self.notes[step, stack] = f"did not do the work: {sample.incomplete}"

    def discard(self, rule: str, conditions: Conditions) -> None:
        """Take the last round out, for all stacks alike; the next one takes its place."""
        place = self.rounds - 1
        found = {key: samples.pop(place) for key, samples in self.samples.items() if place in samples}
        self.samples = {key: samples for key, samples in self.samples.items() if samples}
        self.discarded.append(Discarded(place, rule, self.orders.pop(), conditions, found))

    def incomplete(self, step: str, stack: str) -> str:
        """Why the stack did not do the work in some round of a step; empty where it did."""
        # Work that was not done is no matter of noise: a round that was discarded for that shows it as well.
        others = [each.samples[step, stack] for each in self.discarded if (step, stack) in each.samples]
        samples = [*self.of(step, stack).values(), *others]
        return next((sample.incomplete for sample in samples if sample.incomplete), "")

    def series(self, step: str, stack: str, metric: str) -> list[float]:
        """The metric's figures in the order of the rounds."""
        return [sample.values[metric] for _, sample in sorted(self.of(step, stack).items()) if metric in sample.values]

    def metric(self, step: str, stack: str, name: str) -> Metric | None:
        return next((sample.metrics[name] for sample in self.of(step, stack).values() if name in sample.values), None)

    def metrics(self, step: str) -> dict[str, Metric]:
        """What was measured in a step, on any stack."""
        # By stack and round, so that results that were saved and read list them in the same order.
        return {
            name: sample.metrics[name]
            for stack in self.stacks
            for _, sample in sorted(self.of(step, stack).items())
            for name in sample.values
        }

    def median(self, step: str, stack: str, metric: str = "seconds") -> float | None:
        series = self.series(step, stack, metric)
        return statistics.median(series) if series else None

    def log_ratios(self, step: str, stack: str, name: str) -> dict[int, float]:
        """log(stack) - log(baseline) of every round in which both were measured, oriented so that more is worse.

        With several boots it is the median of each boot's rounds, and the boots are numbered.
        """
        rounds, pairs, of_metric = self._pairs(step, stack, name)
        return self._by_boot(rounds, verdict.log_ratios(*zip(*pairs), **of_metric)) if pairs else {}

    def _bounds(self, step: str, stack: str, name: str) -> Bounds:
        """The least and the largest log-ratio that each round can have; empty if the figures are exact enough."""
        rounds, pairs, of_metric = self._pairs(step, stack, name)
        bounds = verdict.bounds(*zip(*pairs), **of_metric) if pairs else []
        lows, highs = (self._by_boot(rounds, [pair[side] for pair in bounds]) for side in (0, 1))
        return {number: (low, highs[number]) for number, low in lows.items()}

    def coarse(self, step: str, stack: str, name: str) -> bool:
        """Whether the overhead is known only to the resolution of the figures."""
        return stack != self.reference(stack) and any(
            high - low > _COARSE for low, high in self._bounds(step, stack, name).values()
        )

    def _pairs(self, step: str, stack: str, name: str) -> tuple[list[int], list[tuple[float, float]], dict[str, Any]]:
        """The rounds in which both sides were measured, their figures, and what these are; empty if none compares."""
        metric = self.metric(step, stack, name)
        ours, base = self.of(step, stack), self.of(step, self.reference(stack))
        rounds = [
            index for index in sorted(ours) if name in _comparable(ours[index]) and name in _comparable(base.get(index))
        ]
        pairs = [(ours[index].values[name], base[index].values[name]) for index in rounds]
        # A ratio needs two figures above zero, or a resolution that stands for zero.
        if metric is None or not pairs or (not metric.resolution and min(map(min, pairs)) <= 0):
            return [], [], {}
        return rounds, pairs, {"better": metric.better, "resolution": metric.resolution}

    def _by_boot(self, rounds: list[int], ratios: list[float]) -> dict[int, float]:
        """The log-ratios by round, or the median of each boot."""
        if self.boots == 1:
            return dict(zip(rounds, ratios))
        boots: dict[int, list[float]] = {}
        for index, ratio in zip(rounds, ratios):
            boots.setdefault(index // ROUNDS_OF_A_BOOT, []).append(ratio)
        return dict(enumerate(statistics.median(ratios) for ratios in boots.values()))

    def _boots(self, step: str, stack: str, name: str) -> tuple[list[float], list[float]] | None:
        """Return a figure of each boot of a stack, and of what it is compared with; None if nothing compares.

        A round's log-ratio is to the median of all of these boots in the same round, which takes a drift of the machine
        out. The figure is the pseudo-median of the rounds that all boots have (Hodges & Lehmann).
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

        ours, theirs = ([figure(rounds) for rounds in rounds_of.values()] for rounds_of in boots)
        return ours, theirs

    def estimate(self, step: str, stack: str, metric: str = "seconds") -> Estimate | None:
        """The overhead over the baseline with its interval; None for the baseline itself and where nothing compares."""
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
            for judgement in self.judgements.get((step, stack), [])
            if judgement.budget.metric == metric and judgement.budget.overhead is not None
        ]
        verdicts = [*(judgement.confirmed for judgement in judged), *(judgement.verdict for judgement in judged)]
        if final := next(filter(None, verdicts), None):
            return final.estimate
        planned = self._planned(ratios, stack)
        bounds = self._bounds(step, stack, metric)
        return verdict.estimate(planned, self._looks_of(stack), bounds=bounds) if planned else None

    def _looks_of(self, stack: str) -> Looks:
        """The plan of a stack: one without a budget runs a single block, whatever the figures are.

        A control runs for as long as any other stack does.
        """
        has_budgets = any(
            found for (_, judged), found in self.judgements.items() if judged == stack or stack in self.controls
        )
        if has_budgets or len(self.looks.rounds) == 1:
            return self.looks
        return Looks.fixed(self.looks.rounds[0], self.looks.alpha)

    def judge(self, step: str, stack: str, budget: Budget) -> Judgement:
        """The verdict on one budget so far."""
        if not self.of(step, stack):
            return Judgement(budget, None, f"{budget.metric}: nothing was measured", Unjudged.NOT_MEASURED)
        if reason := self.incomplete(step, stack):
            text = f"{budget.metric}: {stack} did not do the work: {reason}"
            return Judgement(budget, None, text, Unjudged.NOT_DONE)
        metric = self.metric(step, stack, budget.metric)
        if metric is None:
            measured = ", ".join(self.metrics(step))
            text = f"{step} has no metric {budget.metric!r} here; it has: {measured}"
            return Judgement(budget, None, text, Unjudged.NO_METRIC)
        if budget.limit is not None:
            series = self.series(step, stack, budget.metric)
            rounds = [index for index, sample in sorted(self.of(step, stack).items()) if budget.metric in sample.values]
            found = verdict.log_ratios(
                series,
                [budget.limit] * len(series),
                better=metric.better,
                # A figure of zero is far below any limit, but has no logarithm.
                resolution=metric.resolution or budget.limit * 1e-9,
            )
            ratios = dict(zip(rounds, found))
            planned = self._planned(ratios, stack)
            if not planned:
                return Judgement(budget, None, f"{budget.metric}: nothing was measured", Unjudged.NOT_MEASURED)
            judged = verdict.judge(planned, 0.0, self.looks, self._run(stack))
            bound = "at most" if metric.better == "lower" else "at least"
            text = (
                f"{budget.metric}: median of these {judged.estimate.rounds} rounds "
                f"{format_quantity(statistics.median(series), metric.unit)}, "
                f"budget {bound} {format_quantity(budget.limit, metric.unit)}"
            )
            return Judgement(budget, judged, text)
        assert budget.overhead is not None
        if not self.paired:
            return self._judge_boots(step, stack, budget)
        ratios = self.log_ratios(step, stack, budget.metric)
        if not (planned := self._planned(ratios, stack)):
            base = self.reference(stack)
            figures = [self.series(step, name, budget.metric) for name in (stack, base)]
            if not metric.resolution and all(figures) and min(map(min, figures)) <= 0:
                text = f"{budget.metric}: figures of 0 have no ratio: give timed.record(..., resolution=...)"
                return Judgement(budget, None, text, Unjudged.NO_METRIC)
            note = self.notes.get((step, base), "it was not measured")
            text = f"{budget.metric}: nothing to compare with: baseline {base}: {note}"
            return Judgement(budget, None, text, Unjudged.NO_BASELINE)
        bounds = self._bounds(step, stack, budget.metric)
        judged = verdict.judge(planned, budget.overhead, self.looks, self._run(stack), bounds)
        confirmed = self._confirm(ratios, bounds, stack, budget.overhead) if judged.outcome == "fail" else None
        if confirmed is None:
            return Judgement(budget, judged, f"{budget.metric}: {verdict.describe(judged)}")
        verb = {"fail": "confirm", "pass": "refute", "inconclusive": "do not confirm"}[confirmed.outcome]
        text = (
            f"{budget.metric}: {verdict.describe(confirmed)}; these fresh rounds {verb} what the first "
            f"{judged.estimate.rounds} say: {verdict.percent(judged.estimate.overhead, budget.overhead)}"
        )
        return Judgement(budget, judged, text, confirmed=confirmed)

    def _judge_boots(self, step: str, stack: str, budget: Budget) -> Judgement:
        """The verdict on an overhead over a stack in other boots."""
        sides = self._boots(step, stack, budget.metric)
        if sides is None:
            text = f"{budget.metric}: nothing to compare with: no round was measured in all boots of both kernels"
            return Judgement(budget, None, text, Unjudged.NO_BASELINE)
        judged = runs.judge(*sides, budget.overhead or 0.0, self.looks.alpha)
        if judged is None:
            number, alpha = f"{len(sides[0])} against {len(sides[1])} boots", self.looks.alpha
            text = (
                f"{budget.metric}: {number} are figures without a verdict: at alpha {alpha:.3g} it takes "
                f"{runs.fewest(alpha)} of each (--fsstack-boots)"
            )
            return Judgement(budget, None, text, Unjudged.FEW_BOOTS)
        return Judgement(budget, judged, f"{budget.metric}: {verdict.describe(judged)}")

    def compared_metrics(self, step: str) -> list[str]:
        """Return the metrics of a step that are judged over a reference on some stack, or else the time."""
        judged = [
            judgement.budget.metric
            for (of, _), judgements in self.judgements.items()
            for judgement in judgements
            if of == step and judgement.budget.overhead is not None
        ]
        return list(dict.fromkeys(judged or ["seconds"]))

    def doubts(self, step: str, stack: str, judgement: Judgement) -> list[CarryOver]:
        """Return the carry-over that could change a verdict; none for a limit, which is about these rounds only."""
        verdict = judgement.final
        if verdict is None or verdict.outcome == "inconclusive" or judgement.budget.overhead is None:
            return []
        info = self.stacks[stack]
        place = (step, judgement.budget.metric, info.name, info.kernel)
        return [carry for carry in self.carry_over if carry.concerns(*place) and carry.could_change(verdict)]

    def doubt(self, step: str, stack: str) -> str:
        """Return why the verdicts on a step are doubtful, in a few words; empty if they are not."""
        judgements = self.judgements.get((step, stack), [])
        reasons = [str(carry) for judgement in judgements for carry in self.doubts(step, stack, judgement)]
        return f"the run before matters: {', '.join(dict.fromkeys(reasons))}" if reasons else ""

    def expected(self, step: str, stack: str, *, strict: bool = False) -> str:
        """Why a step was expected not to keep its budgets; empty if it was not, or if more is broken.

        Where it is `strict`, what is not decided and was expected to be is no excuse for what is broken.
        """
        outcome, judgements = self.worst(step, stack), self.judgements.get((step, stack), [])
        failing = ("fail", "inconclusive") if strict else (outcome,)
        worst_ones = [judgement for judgement in judgements if judgement.outcome in (outcome, *failing)]
        reasons = [judgement.budget.xfail or "" for judgement in worst_ones]
        # One that is not broken, although it should be, is worth a word; one that is, and should not be, is a failure.
        is_expected = any(reasons) if outcome == "pass" else all(reasons)
        return (
            "; ".join(dict.fromkeys(filter(None, reasons))) if is_expected and not self.incomplete(step, stack) else ""
        )

    def find_carry_over(self) -> list[CarryOver]:
        """Return what the run before adds to the judged figures, or else to the times, the surest first."""
        rounds, metrics = [], {step: self.compared_metrics(step) for step in self.steps}
        for number in range(self.rounds + 1):
            rounds += [Round(discarded.order) for discarded in self.discarded if discarded.place == number]
            if number < self.rounds:
                rounds.append(Round(self.orders[number], self._figures_of_round(number, metrics)))
        return carry_overs(rounds, f"{self.seed} {self.id}")

    def _figures_of_round(self, number: int, metrics: Mapping[str, list[str]]) -> dict[Place, dict[str, float]]:
        """Return the figures of one round, by step and metric, then by stack."""
        figures: dict[Place, dict[str, float]] = {}
        for (step, stack), samples in self.samples.items():
            if number in samples and not samples[number].incomplete:
                for metric in metrics[step]:
                    figures.setdefault((step, metric, ""), {})[stack] = cost(samples[number], metric)
        return figures

    def limits(self, step: str, stack: str, metric: str) -> list[float]:
        """Return the overheads that the budgets on a metric allow; figures are not rounded to these."""
        budgets = [judgement.budget for judgement in self.judgements.get((step, stack), [])]
        return [budget.overhead for budget in budgets if budget.metric == metric and budget.overhead is not None]

    def worst(self, step: str, stack: str) -> Outcome | None:
        """The outcome of a step on a stack over all its budgets; None where it has no budget."""
        return worst(judgement.outcome for judgement in self.judgements.get((step, stack), []))


def worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The worst of some outcomes; None if there are none."""
    found = set(outcomes)
    order: tuple[Outcome, ...] = ("fail", "inconclusive", "pass")
    return next((outcome for outcome in order if outcome in found), None)


#: How a test can end, the worst first.
OUTCOMES = ("failed", "skipped", "xfailed", "passed")


@dataclass(frozen=True)
class TestOutcome:
    """How a test on a stack ended, with the first line of its error, and its place in the results.

    `path` and `line` (from 1; 0: not known) are those of the test's source. `chain` is empty if it measured nothing.
    """

    #: pytest shall not collect this class.
    __test__ = False

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
    """A sample's figures, unless the stack did not do the work."""
    return sample.values if sample and not sample.incomplete else {}


@dataclass
class Results:
    """All chains of a session, and the environment that they were measured in."""

    environment: dict[str, Any] = field(default_factory=dict)
    chains: list[ChainResults] = field(default_factory=list)
    #: Why the session ended before all of its tests; empty if it did not.
    interrupted: str = ""
    #: When the session began and when it was over, in UTC by ISO 8601; empty if that is not known.
    start: str = ""
    stop: str = ""
    #: The size of steps that was chosen; empty if that is not known.
    scale: str = ""
    #: What the run is told apart by: commit, branch, kernel and others.
    labels: dict[str, str] = field(default_factory=dict)
    #: How each test on a stack ended, by its id.
    tests: dict[str, TestOutcome] = field(default_factory=dict)
    #: How the tables that a chain names are made, by name.
    shapes: Mapping[str, Callable[..., Any]] = field(default_factory=dict, compare=False)

    @property
    def judged(self) -> int:
        """How many budgets were judged, whether they are decided or not."""
        return sum(chain.judged for chain in self.chains)

    def test(self, chain: ChainResults, step: str, stack: str) -> TestOutcome | None:
        """Return the worst outcome of the tests of a step on a stack; None if none is known."""
        tests = [
            test
            for test in self.tests.values()
            if (test.chain, test.step, test.stack) == (chain.id.removesuffix(IN_EACH_KERNEL), step, stack)
            and test.device in chain.device.split(", ")
        ]
        return min(tests, key=lambda test: OUTCOMES.index(test.outcome), default=None)

    @property
    def undecided(self) -> int:
        """How many budgets were judged without being decided."""
        judgements = [judgement for chain in self.chains for found in chain.judgements.values() for judgement in found]
        return sum(each.verdict is not None and each.outcome == "inconclusive" for each in judgements)

    @property
    def comparisons(self) -> int:
        """How many stacks were compared with a baseline in at least one step."""
        return sum(
            chain.estimate(step, stack) is not None
            for chain in self.chains
            for step, stack in chain.samples
            if stack not in chain.controls
        )


def describe_failure(chain: ChainResults, step: str, stack: str, again: str = "") -> str:
    """For people: the broken budget with its figures in the first line, then what to do next, then the samples.

    `again` is the command that runs this test alone, if there is one.
    """
    judgements = chain.judgements[step, stack]
    order = sorted(judgements, key=lambda each: each.outcome != worst(other.outcome for other in judgements))
    lines = [_first_line(chain, step, stack, order[0])]
    lines += ["", *(["  again:   " + again] if again else [])]
    lines.append(f"  step:    {step}, {chain.rounds} rounds; {_replay(chain)}")
    lines += [f"  {each.outcome + ':':<8} {each.text}" for each in judgements]
    for name in dict.fromkeys(judgement.budget.metric for judgement in judgements if judgement.outcome == "fail"):
        lines += ["", *_sample_lines(chain, step, stack, name)]
    lines += ["", _promise(chain, judgements), *filter(None, [chain.doubt(step, stack)])]
    return "\n".join(lines)


def _promise(chain: ChainResults, judgements: list[Judgement]) -> str:
    rate = f"in at most {chain.looks.alpha * 100:g} % of sessions."
    if chain.budgets_sharing > 1:
        return f"Budgets that are kept: any of this session's is called broken {rate}"
    if all(each.budget.overhead is None for each in judgements if each.outcome == "fail"):
        return "A limit is compared with these rounds only: it has no error rate, because the machine is in it."
    return f"A budget that is kept is called broken {rate}"


#: Columns that are shown of the first line of a failure at least, 80 with what pytest writes before it.
COLUMNS = 80 - len("Failed: ")
#: Characters that are left of a name at least.
_SHORT = 8


def _first_line(chain: ChainResults, step: str, stack: str, judgement: Judgement) -> str:
    """One budget with its figures in 80 columns, if its metric's name allows: the middle of long names is left out."""
    reference = chain.reference(stack)

    def line(width: int) -> str:
        return f"{shortened(stack, width)}: {_in_short(chain, step, stack, judgement, shortened(reference, width))}"

    longest = max(len(stack), len(reference), _SHORT)
    widths = range(longest, _SHORT - 1, -1)
    return next((found for width in widths if len(found := line(width)) <= COLUMNS), line(_SHORT))


def describe_shortly(chain: ChainResults, step: str, stack: str) -> str:
    """For people, in a line: the worst verdict on the budgets of a step on a stack, and the figures of that budget."""
    outcome = chain.worst(step, stack)
    for each in chain.judgements.get((step, stack), []):
        if each.outcome == outcome:
            return f"{outcome}: {_in_short(chain, step, stack, each, chain.reference(stack))}"
    return ""


def _in_short(chain: ChainResults, step: str, stack: str, judgement: Judgement, reference: str) -> str:
    """One budget with its figures, for what shows only the first line of a failure."""
    budget, metric = judgement.budget, chain.metric(step, stack, judgement.budget.metric)
    if judgement.verdict is None or metric is None:
        return judgement.text
    if budget.limit is not None:
        median, limit = chain.median(step, stack, budget.metric), format_quantity(budget.limit, metric.unit)
        bound = "at most" if metric.better == "lower" else "at least"
        return f"{budget.metric} {format_quantity(median or 0.0, metric.unit)}, budget {bound} {limit}"
    final, limits = judgement.final or judgement.verdict, [budget.overhead or 0.0]
    numbers = final.estimate
    unit = OverheadUnit.fitting([numbers.overhead])
    return (
        f"{budget.metric} {unit.signed(numbers.overhead, limits)} {unit.interval(numbers.low, numbers.high, limits)} "
        f"over {reference}, budget {unit.limit(limits[0])}"
    )


def describe_undecided(chain: ChainResults, step: str, stack: str) -> str:
    """One line: the numbers of the budgets that are not decided, and what would settle them."""
    parts = []
    for judgement in chain.judgements[step, stack]:
        if judgement.outcome == "inconclusive":
            parts.append(f"{judgement.text}; {judgement.advice}" if judgement.final else judgement.text)
    return f"inconclusive: {' | '.join(parts)}"


def _sample_lines(chain: ChainResults, step: str, stack: str, name: str) -> list[str]:
    metric = chain.metric(step, stack, name)
    unit = f" ({metric.unit})" if metric and metric.unit else ""
    reference = chain.reference(stack)
    width = max(len(stack), len(reference))
    lines = [f"  {name}{unit}, in the order of the rounds"]
    for shown in dict.fromkeys((reference, stack)):
        lines.append(f"  {shown:<{width}}  {' '.join(f'{value:.4g}' for value in chain.series(step, shown, name))}")
    return lines


def _replay(chain: ChainResults) -> str:
    return f"the order of the stacks is that of --fsstack-seed={chain.seed}"
