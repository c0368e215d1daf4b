"""Results of a session: samples by step, stack, boot and round, with judgements and readings of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
from msgspec.structs import force_setattr, replace

from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.conditions import Conditions, Discarded
from pytest_fsstack.records.notices import Notice
from pytest_fsstack.records.readings import Derived, Reading
from pytest_fsstack.records.sample import METRICS, BootNumber, Metric, RoundNumber, Sample
from pytest_fsstack.records.verdicts import CarryOver, Estimate, Looks, Outcome, Repetition, Verdict

#: What the stacks of a chain are compared with: the baseline on the same kernel, or the same stack on the first one.
View = Literal["within", "between"]


class RoundKey(NamedTuple):
    """A round of a boot, both from 0. Without several boots of a kernel, the boot is 0."""

    boot: int
    number: int


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
    #: The id without the kernel. It defaults to the id.
    name: str = ""
    #: Whether the user gave the name, so only the text shows the layers.
    named: bool = False
    #: Whether the kernel's own ciphers encrypt in one of its layers.
    kernel_cipher: bool = False
    #: Whether it ran on an emulated CPU, whose times say nothing about real machines.
    emulated: bool = False

    @property
    def label(self) -> str:
        """Return the id as tables show it, with a word if the CPU was emulated."""
        return f"{self.id} (emulated)" if self.emulated else self.id

    def __post_init__(self) -> None:
        force_setattr(self, "name", self.name or self.id)


class Note(msgspec.Struct, frozen=True):
    """Why a step has no samples on a stack, or too few. `reason` is one line, as a tool or a test reported it.

    `cause` is where that comes from, if not from the step itself: the step before it, the baseline or the kernel.
    """

    kind: Literal[
        "failed",
        "skipped",
        "failed as expected",
        "left out",
        "incomplete",
        "cannot run",
        "without baseline",
        "kernel went down",
    ]
    reason: str = ""
    cause: str = ""
    #: The round of a failure or skip, from 0. The other kinds have none.
    round: RoundNumber = 0


class Unjudged(Enum):
    """Why there is no verdict on a budget."""

    NOT_MEASURED = "nothing was measured"
    NOT_DONE = "the stack did not do the work"
    NO_METRIC = "nothing records the metric"
    UNFIT = "the metric cannot have this budget"
    NO_BASELINE = "there is nothing to compare with"
    FEW_BOOTS = "it takes more boots"
    EMULATED = "the CPU is emulated"


class Judgement(msgspec.Struct, frozen=True, gc=False):
    """A budget and its verdict. If nothing could be compared, `verdict` is None and `unjudged` gives the reason."""

    budget: Budget
    verdict: Verdict | None = None
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


class Confirmation(msgspec.Struct, frozen=True):
    """Fresh rounds of the stacks that seem to break a budget: the first one (from 0), and the level."""

    start: int
    level: float


class Mixed(msgspec.Struct):
    """Rounds whose runs were drawn in one order: the first one (from 0), their number, and the round of each run."""

    start: RoundNumber
    rounds: int
    runs: list[RoundNumber] = []

    @property
    def numbers(self) -> range:
        """Return the numbers of the rounds."""
        return range(self.start, self.start + self.rounds)


class ChainResults(msgspec.Struct):
    """The results of one chain on one device. Facts about a step on a stack are nested by step, then by stack id."""

    #: The node id of the class, or of a test outside of one.
    id: str
    #: As in ``--fsstack-device``, without repetitions. There is one, unless kernels ran on several.
    devices: list[str]
    #: The id of the baseline.
    baseline: str
    #: The looks at the samples, and the error rate.
    looks: Looks
    seed: int
    #: The tests of the chain, in order.
    steps: list[str] = []
    #: By id, the baseline included.
    stacks: dict[str, StackInfo] = {}
    #: By step, stack, boot and number of the round (both from 0). Without several boots of a kernel, the boot is 0.
    samples: dict[str, dict[str, dict[BootNumber, dict[RoundNumber, Sample]]]] = {}
    #: One for each budget.
    judgements: dict[str, dict[str, list[Judgement]]] = {}
    #: Why a step has no samples on a stack, or too few.
    notes: dict[str, dict[str, Note]] = {}
    #: The order of the stacks in each round.
    orders: list[list[str]] = []
    #: Rounds that were mixed.
    mixed: list[Mixed] = []
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
    #: Doubts about the measurements, the most important first. Added at the end of the session.
    notices: list[Notice] = []
    #: The steps that ran several times in a round.
    repeated: dict[str, Repetition] = {}
    #: The controls (second copies of the baseline): one, or one on each kernel.
    controls: list[str] = []
    #: Effects of the previous run on figures that chance does not explain.
    carry_over: list[CarryOver] = []
    view: View = "within"
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
    #: What follows from the samples and judgements, by step, then by stack. Added at the end of the session.
    derived: dict[str, dict[str, Derived]] = {}
    #: The cost of each stack over all steps. Added at the end of the session.
    overall: dict[str, Estimate] = {}

    @property
    def device(self) -> str:
        """Return the devices in one text."""
        return ", ".join(self.devices)

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
    def too_many_discarded(self) -> bool:
        """Whether as many rounds were discarded as were planned."""
        return len(self.discarded) >= self.looks.max_rounds

    @property
    def rounds_of_phase(self) -> int:
        """Return the number of rounds so far, of the plan or of the confirmation."""
        return self.rounds - (self.confirmation.start if self.confirmation else 0)

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

    def note(self, step: str, stack: str) -> Note | None:
        """Return why a step lacks samples on a stack, or None if it has all."""
        return self.notes.get(step, {}).get(stack)

    @property
    def measured(self) -> set[str]:
        """Return the steps with samples on any stack in any round."""
        return {step for samples in (self.samples, *(item.samples for item in self.discarded)) for step in samples}

    @property
    def confirming(self) -> Looks:
        """Return the plan of the fresh rounds. They confirm a failure at their own level, and refute it as usual."""
        return self.looks.confirming(self.confirmation.level if self.confirmation else self.looks.alpha)

    def of(self, step: str, stack: str) -> dict[RoundKey, Sample]:
        """Return the samples of a step on a stack in the order of the boots and rounds."""
        by_boot = self.samples.get(step, {}).get(stack, {})
        return {
            RoundKey(boot, number): sample
            for boot, samples in sorted(by_boot.items())
            for number, sample in sorted(samples.items())
        }

    def add(self, step: str, stack: str, sample: Sample, number: int | None = None, boot: int = 0) -> None:
        """Add a sample of a round, by default of the current one."""
        if sample.work:
            self.work.setdefault(step, sample.work)
        if sample.metrics:
            recorded = {name: metric for name, metric in sample.metrics.items() if METRICS.get(name) != metric}
            self.own_metrics[step] = {**recorded, **self.own_metrics.get(step, {})}
        if sample.incomplete:
            self.notes.setdefault(step, {})[stack] = Note("incomplete", sample.incomplete)
        rounds = self.samples.setdefault(step, {}).setdefault(stack, {}).setdefault(boot, {})
        rounds[self.rounds - 1 if number is None else number] = replace(sample, metrics={}, work={})

    def begin(self, rounds: int) -> range:
        """Begin so many rounds, mixed if they are several. Return their numbers."""
        numbers = range(self.rounds, self.rounds + rounds)
        if rounds > 1:
            self.mixed.append(Mixed(numbers[0], rounds))
        self.orders += [[] for _ in numbers]
        return numbers

    def begin_run(self, number: int, stack: str) -> None:
        """Record the next run of a round that has begun."""
        self.orders[number].append(stack)
        if self.mixed and number in self.mixed[-1].numbers:
            self.mixed[-1].runs.append(number)

    def draws(self) -> Iterator[tuple[int, list[tuple[int, str]]]]:
        """Yield each order that was drawn: its first round, and the round and the stack of each run."""
        number, mixed = 0, {one.start: one for one in self.mixed}
        while number < self.rounds:
            one = mixed.get(number) or Mixed(number, 1, [number] * len(self.orders[number]))
            stacks = {of_one: iter(self.orders[of_one]) for of_one in one.runs}
            yield number, [(of_one, next(stacks[of_one])) for of_one in one.runs]
            number += one.rounds

    def end_early(self) -> None:
        """Forget the last rounds that had begun without any run."""
        while self.orders and not self.orders[-1]:
            self.orders.pop()
        if self.mixed and self.mixed[-1].start >= self.rounds:
            self.mixed.pop()
        elif self.mixed:
            self.mixed[-1].rounds = min(self.mixed[-1].rounds, self.rounds - self.mixed[-1].start)

    def discard(self, rule: str, conditions: Conditions) -> None:
        """Discard the last round for all stacks. The next one replaces it."""
        number, discarded = self.rounds - 1, dict[str, dict[str, Sample]]()
        for step, by_stack in self.samples.items():
            for stack, by_boot in by_stack.items():
                for samples in by_boot.values():
                    if number in samples:
                        discarded.setdefault(step, {})[stack] = samples.pop(number)
        self.samples = {
            step: {stack: by_boot for stack, by_boot in by_stack.items() if any(by_boot.values())}
            for step, by_stack in self.samples.items()
            if any(samples for by_boot in by_stack.values() for samples in by_boot.values())
        }
        self.discarded.append(Discarded(number, rule, self.orders.pop(), conditions, discarded))

    def all_samples(self) -> Iterator[tuple[str, str, dict[RoundKey, Sample]]]:
        """Yield each measured step and stack, with its samples."""
        for step, by_stack in self.samples.items():
            for stack in by_stack:
                yield step, stack, self.of(step, stack)

    def measures(self, step: str, stack: str) -> bool:
        """Whether a step has figures on a stack."""
        if self.derived:
            return self.known(step, stack).samples > 0
        return any(sample.values for sample in self.of(step, stack).values())

    def incomplete(self, step: str, stack: str) -> str:
        """Return why a stack did not do its work in some round of a step, or an empty text."""
        if self.derived:
            return self.known(step, stack).incomplete
        # Incomplete work is no noise, so discarded rounds count here.
        discarded = [item.samples[step][stack] for item in self.discarded if stack in item.samples.get(step, {})]
        samples = [*self.of(step, stack).values(), *discarded]
        return next((sample.incomplete for sample in samples if sample.incomplete), "")

    def series(self, step: str, stack: str, metric: str) -> list[float]:
        """Return the metric's figures in the order of the rounds."""
        return [sample.values[metric] for sample in self.of(step, stack).values() if metric in sample.values]

    def metric(self, step: str, stack: str, name: str) -> Metric | None:
        """Return a metric by name, or None if it was not measured."""
        if self.derived:
            return reading.metric if (reading := self.reading(step, stack, name)) else None
        is_recorded = any(name in sample.values for sample in self.of(step, stack).values())
        return self.defined_metrics(step)[name] if is_recorded else None

    def metrics(self, step: str) -> dict[str, Metric]:
        """Return the metrics of a step on any stack."""
        if self.derived:
            known = [self.known(step, stack) for stack in self.stacks]
            return {name: reading.metric for one in known for name, reading in one.readings.items()}
        samples = (sample for stack in self.stacks for sample in self.of(step, stack).values())
        defined = self.defined_metrics(step)
        return {name: defined[name] for sample in samples for name in sample.values}

    def defined_metrics(self, step: str) -> Mapping[str, Metric]:
        """Return all metrics that the samples of a step may have."""
        return {**METRICS, **self.own_metrics.get(step, {})}

    def compared_metrics(self, step: str) -> list[str]:
        """Return the metrics of a step with an overhead budget on any stack, or else the time."""
        judged = [
            judgement.budget.metric
            for judgements in self.judgements.get(step, {}).values()
            for judgement in judgements
            if judgement.budget.overhead is not None
        ]
        return list(dict.fromkeys(judged or ["seconds"]))

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

    def known(self, step: str, stack: str) -> Derived:
        """Return what follows from the samples of a step on a stack. Raises ValueError if nothing was derived yet."""
        if self.samples and not self.derived:
            raise ValueError(f"{self.id}: there are no readings yet: call pytest_fsstack.judging.readings.settle")
        return self.derived.get(step, {}).get(stack, _NOTHING)

    def reading(self, step: str, stack: str, metric: str = "seconds") -> Reading | None:
        """Return the reading of a metric of a step on a stack, or None if it was not measured."""
        return self.known(step, stack).readings.get(metric)

    def median(self, step: str, stack: str, metric: str = "seconds") -> float | None:
        """Return the median of a metric's samples, or None if it was not measured."""
        reading = self.reading(step, stack, metric)
        return reading.median if reading else None

    def overhead(self, step: str, stack: str, metric: str = "seconds") -> Estimate | None:
        """Return the overhead with its interval, or None for a reference and if nothing is comparable."""
        reading = self.reading(step, stack, metric)
        return reading.estimate if reading else None

    def worst(self, step: str, stack: str) -> Outcome | None:
        """Return the worst outcome of a step on a stack over its budgets, or None."""
        return worst(judgement.outcome for judgement in self.judgements_of(step, stack))


def worst(outcomes: Iterable[Outcome | None]) -> Outcome | None:
    """Return the worst outcome, or None if there is none."""
    present = set(outcomes)
    order: tuple[Outcome, ...] = ("fail", "inconclusive", "pass")
    return next((outcome for outcome in order if outcome in present), None)


_NOTHING = Derived()

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
    #: Whether it failed, and the verdicts on its budgets are the only reason.
    by_limits: bool = False


#: The version of the file format. It is raised whenever an older reader would misread the new format.
FORMAT = 5
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
        place = (stack, step, chain.id)
        tests = [
            test
            for test in self.tests.values()
            if (test.stack, test.step, test.chain) == place and test.device in chain.devices
        ]
        return min(tests, key=lambda test: OUTCOMES.index(test.outcome), default=None)

    @property
    def undecided(self) -> int:
        """Return the number of judged but undecided budgets."""
        judgements = [
            judgement for chain in self.chains for _, _, judged in chain.all_judgements() for judgement in judged
        ]
        return sum(judgement.verdict is not None and judgement.outcome == "inconclusive" for judgement in judgements)
