"""The common model of reports: the heading of a chain, a table for each metric, and the notes below."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple, get_args

from pytest_fsstack.judging.conditions import summary
from pytest_fsstack.judging.describe import error_rate, limit_text, note_in_words, remarks
from pytest_fsstack.judging.judge import doubts
from pytest_fsstack.judging.readings import settle_chain
from pytest_fsstack.records.readings import Reading
from pytest_fsstack.records.results import ChainResults, Judgement, Results, StackInfo, worst
from pytest_fsstack.records.sample import Action, Metric
from pytest_fsstack.records.verdicts import Estimate, Outcome
from pytest_fsstack.report.wording import (
    ANY_RATIO,
    AS_EXPECTED,
    COARSE,
    COLOURS,
    CONTRADICTS,
    SIGNS,
    TONES,
    Ending,
    ending_of,
)
from pytest_fsstack.units import OverheadUnit, counted, first_names, format_quantity, format_size, percent

#: Metrics that are always measured, but only shown on request.
DETAILS = ("work_seconds", "sync_seconds", "machine_seconds", "written_bytes", "used_bytes")


@dataclass(frozen=True)
class Cell:
    """A cell of a grid: its text, its numbers for programs, and its verdict."""

    #: The text, which may have several lines.
    text: str = ""
    #: Whether it is significantly better or worse than the reference, or neither (None).
    good: bool | None = None
    #: Text beside the lines of `text`: the overhead, its interval, the verdict.
    beside: str = ""
    #: The worst verdict on its budgets, if it has any.
    outcome: Outcome | None = None
    #: Its numbers in base units, by kind. A spreadsheet has a column for each.
    numbers: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Return pairs of lines of `text` and `beside`."""
        return list(zip_longest(self.text.split("\n"), self.beside.split("\n"), fillvalue=""))

    @property
    def tone(self) -> str:
        """Return the class of its colour: ``good``, ``bad``, ``open`` or empty."""
        if self.outcome:
            return TONES[self.outcome]
        return "" if self.good is None else TONES["pass" if self.good else "fail"]

    @property
    def empty(self) -> bool:
        """Whether it has no content."""
        return self.text in ("", "-") and not self.beside


@dataclass(frozen=True)
class Grid:
    """A table. Each row has a cell for each header. The first `labels` cells of a row are its labels."""

    title: str
    headers: list[str]
    rows: list[list[Cell]]
    labels: int = 1
    #: The legend of its good and bad cells, for reports without colours.
    colours: str = COLOURS

    @property
    def judged(self) -> bool:
        return any(cell.outcome for row in self.rows for cell in row)

    @property
    def coloured(self) -> bool:
        return any(cell.good is not None for row in self.rows for cell in row)

    def without_empty_columns(self) -> Grid:
        """Return the grid without empty columns, unless only labels would remain."""
        filled = [
            index for index in range(len(self.headers)) if index == 0 or any(not row[index].empty for row in self.rows)
        ]
        labels = sum(index < self.labels for index in filled)
        if labels == len(filled):
            return self
        rows = [[row[index] for index in filled] for row in self.rows]
        return replace(self, headers=[self.headers[index] for index in filled], rows=rows, labels=labels)


class Remark(NamedTuple):
    """A line below the tables. `sign` is the sign in a table that it explains."""

    text: str
    sign: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {self.text}".lstrip()


class ShownVerdict(NamedTuple):
    """A verdict as reports show it, whether it was expected, and whether the run before may have caused it."""

    judgement: Judgement
    is_expected: bool
    is_doubtful: bool

    @property
    def ending(self) -> Ending:
        """Return how the limit ended."""
        return ending_of(self.judgement, is_expected=self.is_expected)

    @property
    def tone(self) -> str:
        """Return the class of its colour, or an empty text."""
        return "" if self.ending in (AS_EXPECTED, "not judged") else TONES[self.judgement.outcome]

    def short(self, metric: Metric, unit: OverheadUnit) -> str:
        """Return it as tables show it: ``FAIL@16 (max 30 %)``."""
        final, budget = self.judgement.final, self.judgement.budget
        after = f"@{final.decided_after}" if final and final.stopped_early else ""
        sign = f"{SIGNS[final.outcome]}{after}" if final else "not judged"
        words = [sign, "doubtful" if self.is_doubtful else "", "expected" if self.ending == AS_EXPECTED else ""]
        bound = "min" if budget.limit is not None and metric.better == "higher" else "max"
        return f"{', '.join(filter(None, words))} ({bound} {limit_text(budget, metric, unit)})"

    def long(self, metric: Metric, unit: OverheadUnit) -> str:
        """Return it in words: ``limit x1.3 kept, doubtful``."""
        name = "sanity limit" if self.judgement.budget.sanity else "limit"
        ending = self.ending.upper() if self.ending == "broken" else self.ending
        doubtful = ", doubtful" if self.is_doubtful else ""
        return f"{name} {limit_text(self.judgement.budget, metric, unit)} {ending}{doubtful}"


@dataclass(frozen=True)
class Figure:
    """A metric of a step on a stack as all reports show it. `reading` is None if it was not measured."""

    reading: Reading | None
    #: The number of the note on the step and the stack, such as ``[1]``, and the note.
    mark: str = ""
    note: str = ""
    #: The throughput beside a time.
    rate: Reading | None = None
    verdicts: tuple[ShownVerdict, ...] = ()
    #: Whether remarks below the tables explain its signs.
    is_remarked: bool = True
    #: Whether more rounds follow, so that too few are no news.
    is_so_far: bool = False

    @property
    def estimate(self) -> Estimate | None:
        """Return the overhead, or None if nothing is compared."""
        return self.reading.estimate if self.reading else None

    @property
    def quantities(self) -> list[str]:
        """Return the median as text, and the throughput beside a time."""
        shown = [self.reading, self.rate if self.rate and self.rate.median else None]
        return [format_quantity(reading.median, reading.metric.unit) for reading in shown if reading]

    @property
    def outcome(self) -> Outcome | None:
        """Return the worst verdict on its budgets, if it has any."""
        return worst(verdict.judgement.outcome for verdict in self.verdicts)

    @property
    def good(self) -> bool | None:
        """Whether it is better than its reference. None if its interval shows no difference, or less than 1 %."""
        if self.estimate is None or not self.estimate.has_interval:
            return None
        if self.estimate.high < -_NOTHING:
            return True
        return False if self.estimate.low > _NOTHING else None

    @property
    def limits(self) -> list[float]:
        """Return the allowed overheads, to which figures are not rounded."""
        budgets = [verdict.judgement.budget.overhead for verdict in self.verdicts]
        return [overhead for overhead in budgets if overhead is not None]

    def overhead(self, unit: OverheadUnit) -> str:
        """Return the overhead as text, with the signs that the remarks explain."""
        if self.reading is None or self.estimate is None:
            return "baseline" if self.reading and not self.reading.reference else ""
        coarse = COARSE if self.is_remarked and self.reading.coarse else ""
        apart = f" {CONTRADICTS}" if self.is_remarked and self.reading.apart is not None else ""
        return f"{coarse}{unit.signed(self.estimate.overhead, self.limits)}{apart}"

    def interval(self, unit: OverheadUnit) -> str:
        """Return the interval as text, in parentheses."""
        if self.estimate is None or (self.is_so_far and not self.estimate.has_interval):
            return ""
        if self.estimate.missing and not self.estimate.has_interval:
            return "(no interval)"
        return unit.interval(self.estimate.low, self.estimate.high, self.limits)

    def cell(self, unit: OverheadUnit) -> Cell:
        """Return a cell with the median, and beside it the overhead, its interval and the verdicts."""
        if self.reading is None:
            return Cell("-", beside=self.mark)
        metric = self.reading.metric
        # Other metrics than the time show the interval only with a budget, to keep the tables short.
        interval = self.interval(unit) if metric.name == "seconds" or self.verdicts else ""
        verdicts = [verdict.short(metric, unit) for verdict in self.verdicts]
        beside = [" ".join(filter(None, (self.overhead(unit), self.mark))), *filter(None, [interval]), *verdicts]
        numbers: dict[str, float | str] = {f"median ({metric.unit})".removesuffix(" ()"): self.reading.median}
        if self.rate and self.rate.median:
            numbers["rate (B/s)"] = self.rate.median
        numbers |= {**overhead_numbers(self.estimate), **self._budget_numbers()}
        text = "\n".join(self.quantities)
        return Cell(text, beside="\n".join(beside), outcome=self.outcome, numbers=numbers)

    def plain_cell(self, *, coloured: bool = False) -> Cell:
        """Return a cell with the median alone, which may have a colour."""
        if self.reading is None:
            return Cell(f"- {self.mark}".rstrip())
        unit = self.reading.metric.unit
        text = f"{format_quantity(self.reading.median, unit)} {self.mark}".rstrip()
        return Cell(text, self.good if coloured else None, numbers={f"({unit})" if unit else "": self.reading.median})

    def _budget_numbers(self) -> dict[str, float | str]:
        """Return the budgets and the worst verdict on them. Overheads are fractions."""
        numbers: dict[str, float | str] = {}
        for judgement in (verdict.judgement for verdict in self.verdicts):
            budget, final = judgement.budget, judgement.final
            decided_after = final.decided_after if final else None
            facts = {"budget": budget.overhead, "limit": budget.limit, "decided after": decided_after}
            numbers |= {name: value for name, value in facts.items() if value is not None}
        return {**numbers, "verdict": self.outcome} if self.outcome else numbers


#: A difference that is ignored even if it is significant. Space differs by some blocks in every round.
_NOTHING = 0.01


class View:
    """A chain as reports show it."""

    def __init__(self, chain: ChainResults, results: Results | None = None, *, is_so_far: bool = False) -> None:
        self.chain, self.results = settle_chain(chain), results or Results(chains=[chain])
        #: Whether its rounds still run, so that too few are no news.
        self.is_so_far = is_so_far

    @cached_property
    def notes(self) -> list[str]:
        """Return the footnotes of all results, or of this chain alone. The first has number 1."""
        chains = self.results.chains
        texts = [footnote(one, *pair) for one in chains for pair in steps_on_stacks(one) if one.note(*pair)]
        return list(dict.fromkeys(texts))

    def metrics(self, details: Iterable[str] = ()) -> list[str]:
        """Return the metrics with a table: the time, metrics with budgets, those of workloads, and `details`.

        If the scenario has its own tables, only metrics with budgets have one, unless there are `details`. If it only
        counts, the same applies even with `details`.
        """
        judged = [
            judgement.budget.metric for _, _, judgements in self.chain.all_judgements() for judgement in judgements
        ]
        measured = {name: metric for step in self.chain.steps for name, metric in self.chain.metrics(step).items()}
        added = [name for name, metric in measured.items() if metric.is_recorded]
        details = tuple(details)
        if self.chain.only_counts or (self.chain.tables and not details):
            return [name for name in dict.fromkeys(judged) if name in measured]
        ordered = dict.fromkeys(["seconds", *judged, *added, *details])
        return [name for name in ordered if name == "seconds" or name in measured]

    def tables(self, *, details: bool) -> list[Grid]:
        """Return the grids of the metrics that have one, with or without `details`."""
        grids = [self.grid(metric) for metric in self.metrics(DETAILS if details else ())]
        return [*grids, *self._of_layers()] if details and not self.chain.only_counts else grids

    def _of_layers(self) -> Iterator[Grid]:
        """Yield a grid of the actions on layers, with a row for each layer, and for all layers of a stack if several.

        A cell is of the first step that has the action.
        """
        chain, rows, actions = self.chain, list[tuple[str, str, dict[Action, Figure]]](), set[Action]()
        for stack, info in chain.stacks.items():
            layers: dict[str, dict[Action, Figure]] = {}
            for step in chain.steps:
                for name, reading in chain.known(step, stack).readings.items():
                    if action := reading.metric.action:
                        layers.setdefault(reading.metric.layer, {}).setdefault(action, self.figure(step, stack, name))
            several = len(layers) > 2
            for layer, figures in layers.items():
                if layer or several or len(layers) == 1:
                    rows.append((info.label, layer or ("all" if several else "none"), figures))
                    actions |= figures.keys()
        estimates = [figure.estimate for *_, figures in rows for figure in figures.values()]
        unit = OverheadUnit.fitting(estimate.overhead for estimate in estimates if estimate)
        if rows:
            columns, empty = [action for action in get_args(Action) if action in actions], Figure(None)
            cells = [
                [Cell(label), Cell(layer), *(figures.get(action, empty).cell(unit) for action in columns)]
                for label, layer, figures in rows
            ]
            yield Grid("layers", ["stack", "layer", *columns], cells, labels=2)

    def grid(self, metric: str) -> Grid:
        """Return a grid of a metric, with a row for each stack and a column for each step that measured it."""
        return self._grid(metric, {step: (step, metric) for step in self.steps(metric) or self.chain.steps})

    def steps(self, metric: str) -> list[str]:
        """Return the steps that measured a metric, and for the time those that failed on stacks with other times."""
        chain = self.chain
        ran = [stack for stack in chain.stacks if any(chain.measures(step, stack) for step in chain.steps)]
        return [
            step
            for step in chain.steps
            if metric in chain.metrics(step) or (metric == "seconds" and any(chain.note(step, stack) for stack in ran))
        ]

    def grid_of_step(self, title: str, step: str, metrics: Mapping[str, str]) -> Grid:
        """Return a grid of a step, with a row for each stack and a column for each of the `metrics`, by title."""
        return self._grid(title, {column: (step, metric) for column, metric in metrics.items()})

    def _grid(self, title: str, columns: Mapping[str, tuple[str, str]]) -> Grid:
        """Return a grid with a row for each stack, and a column for each pair of a step and a metric, by title."""
        chain, pairs = self.chain, columns.values()
        estimates = [chain.overhead(step, stack, metric) for step, metric in pairs for stack in chain.stacks]
        unit = OverheadUnit.fitting(estimate.overhead for estimate in estimates if estimate)
        rows = [
            [Cell(info.label), *(self.figure(step, stack, metric).cell(unit) for step, metric in pairs)]
            for stack, info in chain.stacks.items()
        ]
        return Grid(title, [title, *columns], rows)

    def mark(self, step: str, stack: str) -> str:
        """Return the number of the note on a step on a stack, such as ``[1]``, or an empty text."""
        note = self.chain.note(step, stack)
        return f"[{self.notes.index(footnote(self.chain, step, stack)) + 1}]" if note else ""

    @property
    def remarks(self) -> list[Remark]:
        """Return the remarks below the tables."""
        return [
            *(Remark(text, CONTRADICTS) for text in self.contradictions),
            *(Remark(text, COARSE) for text in self.coarse),
            *map(Remark, self.missing),
            *map(Remark, remarks(self.chain)),
        ]

    @property
    def coarse(self) -> list[str]:
        """Return a line about overheads that are known only to the resolution of their figures, if there are any."""
        names = [
            f"{step} on {stack} ({metric}: {format_quantity(reading.metric.resolution, reading.metric.unit)})"
            for metric in self._remarked
            for step, stack in steps_on_stacks(self.chain)
            if (reading := self.chain.reading(step, stack, metric)) and reading.coarse
        ]
        return [f"known only to the resolution of the figures: {first_names(names)}"] if names else []

    @property
    def missing(self) -> list[str]:
        """Return a line about overheads of which only one side has the figure in some rounds, if there are any."""
        cells = [
            f"{step} on {stack} ({metric}: {estimate.missing} of {counted(estimate.rounds, unit)})"
            for unit in ["round" if self.chain.paired and self.chain.boots == 1 else "boot"]
            for metric in self._remarked
            for step, stack in steps_on_stacks(self.chain)
            if (estimate := self.chain.overhead(step, stack, metric)) and estimate.missing
        ]
        if not cells:
            return []
        return [f"a stack or its reference has no figure where the other has one: {first_names(cells)}. {ANY_RATIO}"]

    @property
    def contradictions(self) -> list[str]:
        """Return a line about cells whose medians contradict the overhead, with the reason, if there are any."""
        cells = [
            f"{step} on {stack} ({OverheadUnit.fitting([apart]).signed(apart)})"
            for metric in self._remarked
            for step, stack in steps_on_stacks(self.chain)
            if (reading := self.chain.reading(step, stack, metric)) and (apart := reading.apart) is not None
        ]
        if not cells:
            return []
        return [
            f"the medians alone are as far apart as in brackets: {first_names(cells)}. What changed on the machine "
            "from round to round is in them; an overhead is the median of what a stack costs in each round"
        ]

    @cached_property
    def _remarked(self) -> list[str]:
        """Return the metrics that the remarks are about."""
        return self.metrics()

    def figure(self, step: str, stack: str, metric: str = "seconds") -> Figure:
        """Return a metric of a step on a stack as reports show it."""
        chain, verdicts = self.chain, verdicts_of(self.results, self.chain, step, stack)
        return Figure(
            chain.reading(step, stack, metric),
            self.mark(step, stack),
            note_in_words(chain.note(step, stack)),
            chain.reading(step, stack, "throughput") if metric == "seconds" else None,
            tuple(verdict for verdict in verdicts if verdict.judgement.budget.metric == metric),
            is_remarked=metric in self._remarked,
            is_so_far=self.is_so_far,
        )


def verdicts_of(results: Results, chain: ChainResults, step: str, stack: str) -> Iterator[ShownVerdict]:
    """Yield the verdicts on a step on a stack."""
    for judgement in chain.judgements_of(step, stack):
        expected = judgement.outcome == "fail" and is_expected(results, chain, step, stack, judgement)
        yield ShownVerdict(judgement, expected, bool(doubts(chain, step, stack, judgement)))


def is_expected(
    results: Results, chain: ChainResults, step: str, stack: str, judgement: Judgement | None = None
) -> bool:
    """Whether a failure was expected, by the reason in a budget or by pytest's mark xfail.

    With a `judgement`, only the reason in its own budget counts.
    """
    reason = judgement.budget.xfail if judgement else chain.expected(step, stack)
    test = None if reason else results.test(chain, step, stack)
    return bool(reason) or (test is not None and test.outcome == "xfailed")


def overhead_numbers(estimate: Estimate | None) -> dict[str, float | str]:
    """Return an overhead and the ends of its interval as fractions. With too few rounds, there are no ends."""
    if estimate is None:
        return {}
    ends = {"low": estimate.low, "high": estimate.high} if estimate.has_interval else {}
    return {"overhead": estimate.overhead, **ends}


def described(stack: StackInfo) -> str:
    """Return the text of a stack, and the versions of its executables."""
    versions = [f"{path}: {version or 'version unknown'}" for path, version in stack.tools.items()]
    return "; ".join([stack.spec, *versions])


def title_of(chain: ChainResults) -> str:
    """Return the name of a chain, which tells the two views of a comparison of kernels apart."""
    return f"{chain.id} (in each kernel)" if chain.against and chain.view == "within" else chain.id


def heading(results: Results, chain: ChainResults) -> dict[str, str]:
    """Return the conditions of a chain's figures by name, as text. Unknown ones are left out."""
    machine = results.environment if chain.environment is None else chain.environment
    kernels = dict.fromkeys(stack.kernel for stack in chain.stacks.values() if stack.kernel)
    facts = {
        "date": machine.get("date"),
        "device": _device(chain, machine),
        "kernel": ", ".join(kernels) or machine.get("kernel", {}).get("release"),
        "machine": _machine(machine),
        "stacks": _names(chain),
        "corpus": _corpus(machine.get("corpus")),
        "settle": _settle(machine.get("settings", {})),
        "figures": _figures(chain),
        "cost": _cost(chain) if len(chain.stacks) > 1 and chain.has_times else None,
        "ended": f"early: {results.interrupted}" if results.interrupted else None,
    }
    return {name: text for name, text in facts.items() if text}


def steps_on_stacks(chain: ChainResults) -> list[tuple[str, str]]:
    return [(step, stack) for stack in chain.stacks for step in chain.steps]


def footnote(chain: ChainResults, step: str, stack: str) -> str:
    return f"{stack}: {note_in_words(chain.note(step, stack))}"


def _device(chain: ChainResults, machine: Mapping[str, Any]) -> str:
    facts: dict[str, Any] = next(
        (device for device in machine.get("devices", []) if [device.get("spec")] == chain.devices), {}
    )
    in_file = chain.device.partition(" ")[0] == "loop"
    words = [
        format_size(facts["size"]) if facts.get("size") else None,
        f"in a file on {facts['filesystem']}" if facts.get("filesystem") and in_file else None,
        {True: "direct I/O", False: "no direct I/O"}.get(facts.get("direct_io")),  # type: ignore[arg-type]
        facts.get("model"),
        {True: "rotating", False: "not rotating"}.get(facts.get("rotational")),  # type: ignore[arg-type]
        f"scheduler {facts['scheduler']}" if facts.get("scheduler") else None,
    ]
    description = ", ".join(word for word in words if word)
    return f"{chain.device}: {description}" if description else chain.device


def _machine(machine: Mapping[str, Any]) -> str:
    cpu = machine.get("cpu", {})
    words = [
        f"{cpu['count']} x {cpu['model']}" if cpu.get("count") and cpu.get("model") else cpu.get("model"),
        f"governor {cpu['governor']}" if cpu.get("governor") else None,
        f"{format_size(machine['memory'])} of memory" if machine.get("memory") else None,
    ]
    return ", ".join(word for word in words if word)


def _settle(settings: Mapping[str, Any]) -> str | None:
    """Return how the machine settles between two stacks, and how often it did not."""
    in_vain = settings.get("not_settled")
    return f"{settings['settle']}, in vain {in_vain} times" if in_vain else settings.get("settle")


def _corpus(corpus: dict[str, Any] | None) -> str | None:
    if not corpus:
        return None
    return f"{corpus['name']}: {corpus['files']:,} files, {format_size(corpus['bytes'])}"


def _names(chain: ChainResults) -> str:
    """Return the specs of stacks that the user has named, once for all kernels."""
    return "; ".join(dict.fromkeys(f"{info.name} = {info.spec}" for info in chain.stacks.values() if info.named))


def _figures(chain: ChainResults) -> str:
    # With several boots, `looks` counts boots.
    judged = any(judgements for _, _, judgements in chain.all_judgements())
    limit = chain.looks.rounds[-1] if judged and chain.boots == 1 else chain.rounds
    ended = f" of at most {limit}" if chain.rounds < limit else ""
    # Steps that are decided early, and those that confirm no failure, have fewer than others.
    measured = [len(samples) for _, _, samples in chain.all_samples()]
    fewest = min(filter(None, measured), default=chain.rounds) if chain.boots == 1 else chain.rounds
    number = f"{fewest} to {chain.rounds}" if fewest < chain.rounds else f"{chain.rounds}"
    rounds = f"{number}{ended} round{'s' if limit > 1 else ''}"
    if chain.boots > 1:
        rounds += f" in each of {chain.boots} boots"
    if chain.discarded:
        rounds += f" ({summary([item.rule for item in chain.discarded])})"
    kind = "sums" if chain.only_counts else "medians"
    return f"{kind} of {rounds}. To repeat the random order of the stacks: --fsstack-seed={chain.seed}"


def reference(chain: ChainResults) -> str:
    """Return the reference of its stacks in words."""
    if not chain.against:
        return chain.baseline
    if chain.view == "within":
        # The guest of the first kernel may not have booted.
        bases = [base for base in (chain.baseline, *chain.against.values()) if base in chain.stacks]
        return f"{chain.stacks[bases[0]].name if bases else chain.baseline} on the same kernel"
    return "the same stack on the first kernel"


def _cost(chain: ChainResults) -> str:
    """Return what costs are compared with, and how certain their intervals and verdicts are, in sentences."""
    looks, paired = chain.looks, chain.view == "within"
    compared = f"over {reference(chain)}{' in the same round' if paired else ''}"
    interval = f"{percent(looks.confidence)} interval"
    if chain.confirmation and (confidence := chain.confirming.confidence) != looks.confidence:
        interval += f" ({percent(confidence)} where fresh rounds were run to confirm a failure)"
    sentences = [f"{compared}, with its {interval}"]
    if chain.against and chain.boots == 1:
        sentences.append("Each kernel was booted once, so the interval leaves out how much boots differ")
    if not chain.paired:
        sentences.append(f"Each of {chain.boots} boots of a kernel counts as one figure")
    return ". ".join(filter(None, [*sentences, by_chance(chain), _error_rate(chain)]))


def by_chance(chain: ChainResults) -> str:
    """Return how many intervals of equal stacks would show a difference, and how many do. Empty without intervals.

    It counts the intervals that tables show: those of times, and of metrics with a budget.
    """
    chain = settle_chain(chain)
    shown = [
        estimate
        for step, stack in steps_on_stacks(chain)
        for metric in dict.fromkeys(["seconds", *(one.budget.metric for one in chain.judgements_of(step, stack))])
        if (estimate := chain.overhead(step, stack, metric)) and estimate.has_interval
    ]
    if not shown:
        return ""
    expected, number = sum(1 - estimate.confidence for estimate in shown), sum(estimate.differs for estimate in shown)
    # One or two cells say little about a share.
    rate = f"{expected:.0f} of {len(shown)}" if expected >= 1 else f"1 of {len(shown) / expected:.0f}"
    share = f"{number} of {len(shown)} do" if expected < 1 else f"{number} do"
    return f"If no stack differed, about {rate} intervals would still show a difference. Here {share}"


def _error_rate(chain: ChainResults) -> str:
    """Return the rate of false failures in words, empty if there is no budget over a baseline."""
    judged = [judgement for _, _, judgements in chain.all_judgements() for judgement in judgements]
    if all(judgement.budget.overhead is None for judgement in judged):
        return ""
    return error_rate(chain)
