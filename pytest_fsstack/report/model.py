"""The common model of reports: the heading of a chain, a table for each metric, and the notes below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple

from pytest_fsstack.judging.conditions import summary
from pytest_fsstack.judging.describe import error_rate
from pytest_fsstack.judging.judge import doubts
from pytest_fsstack.judging.readings import settle_chain
from pytest_fsstack.records.results import ChainResults, Judgement, Results, StackInfo, worst
from pytest_fsstack.records.sample import METRICS, Metric
from pytest_fsstack.records.verdicts import Estimate, Outcome
from pytest_fsstack.units import OverheadUnit, first_names, format_quantity, format_size, percent

#: Signs of verdicts in tables without colours.
SIGNS: dict[Outcome, str] = {"pass": "pass", "fail": "FAIL", "inconclusive": "?"}

#: How a limit ended that was expected to be broken, and is.
AS_EXPECTED = "broken as expected"

#: The legend of good and bad cells in most tables, for Markdown.
COLOURS = (
    "Bold: better than what it is compared with; \N{BLACK UP-POINTING TRIANGLE}: worse; beyond the noise of the "
    "rounds, and by more than 1 %."
)

LEGEND = (
    "pass: within its budget (in parentheses); FAIL: above it; ?: undecided, see above; @N: decided after N rounds "
    "(the figures are those of all rounds)"
)
#: Marks an overhead that is known only to the resolution of its figures.
COARSE = "~"

#: Marks an overhead that seems to contradict the medians beside it.
CONTRADICTS = "\N{NOT EQUAL TO}"

#: Metrics that are always measured, but only shown on request.
DETAILS = ("machine_seconds", "written_bytes", "used_bytes")


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
        judged = {"pass": "good", "fail": "bad", "inconclusive": "open"}.get(self.outcome or "", "")
        return judged or {True: "good", False: "bad"}.get(self.good, "")  # type: ignore[arg-type]

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


class View:
    """A chain as reports show it."""

    def __init__(self, chain: ChainResults, results: Results | None = None) -> None:
        self.chain, self.results = settle_chain(chain), results or Results(chains=[chain])
        chains = self.results.chains
        texts = [note_in_words(one, *place) for one in chains for place in places(one) if one.note(*place)]
        #: Footnotes of all results, or of this chain alone. The first has number 1.
        self.notes = list(dict.fromkeys(texts))

    def metrics(self, details: Iterable[str] = ()) -> list[str]:
        """Return the metrics with a table: the time, metrics with budgets, those of workloads, and `details`.

        If the scenario has its own tables, only metrics with budgets have one, unless there are `details`. If it only
        counts, the same applies even with `details`.
        """
        judged = [
            judgement.budget.metric for _, _, judgements in self.chain.all_judgements() for judgement in judgements
        ]
        measured = dict.fromkeys(name for step in self.chain.steps for name in self.chain.metrics(step))
        added = [name for name in measured if name not in METRICS]
        details = tuple(details)
        if self.chain.only_counts or (self.chain.tables and not details):
            return [name for name in dict.fromkeys(judged) if name in measured]
        ordered = dict.fromkeys(["seconds", *judged, *added, *details])
        return [name for name in ordered if name == "seconds" or name in measured]

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
            [Cell(info.label), *(self._cell(step, stack, metric, unit) for step, metric in pairs)]
            for stack, info in chain.stacks.items()
        ]
        return Grid(title, [title, *columns], rows)

    def mark(self, step: str, stack: str) -> str:
        """Return the number of the note on a step on a stack, such as ``[1]``, or an empty text."""
        note = self.chain.note(step, stack)
        return f"[{self.notes.index(note_in_words(self.chain, step, stack)) + 1}]" if note else ""

    @property
    def remarks(self) -> list[Remark]:
        """Return the remarks below the tables."""
        return [
            *(Remark(text, CONTRADICTS) for text in self.contradictions),
            *(Remark(text, COARSE) for text in self.coarse),
            *map(Remark, self.chain.remarks),
        ]

    @property
    def coarse(self) -> list[str]:
        """Return a line about overheads that are known only to the resolution of their figures, if there are any."""
        names = [
            f"{step} on {stack} ({metric}: {format_quantity(reading.metric.resolution, reading.metric.unit)})"
            for metric in self._remarked
            for step, stack in places(self.chain)
            if (reading := self.chain.reading(step, stack, metric)) and reading.coarse
        ]
        return [f"known only to the resolution of the figures: {first_names(names)}"] if names else []

    @property
    def contradictions(self) -> list[str]:
        """Return a line about cells whose medians contradict the overhead, with the reason, if there are any."""
        cells = [
            f"{step} on {stack} ({OverheadUnit.fitting([apart]).signed(apart)})"
            for metric in self._remarked
            for step, stack in places(self.chain)
            if (reading := self.chain.reading(step, stack, metric)) and (apart := reading.apart) is not None
        ]
        if not cells:
            return []
        return [
            f"the medians alone are as far apart as in brackets: {first_names(cells)}. What changed on the machine "
            "from round to round is in them; an overhead is the median of what a stack costs in each round"
        ]

    def overhead(self, step: str, stack: str, metric: str, unit: OverheadUnit) -> str:
        """Return the overhead as text, with the signs that the remarks explain."""
        chain, reading = self.chain, self.chain.reading(step, stack, metric)
        if stack == chain.reference(stack):
            return "baseline"
        if reading is None or reading.estimate is None:
            return ""
        text = unit.signed(reading.estimate.overhead, chain.limits(step, stack, metric))
        remarked = metric in self._remarked
        coarse = COARSE if remarked and reading.coarse else ""
        apart = f" {CONTRADICTS}" if remarked and reading.apart is not None else ""
        return f"{coarse}{text}{apart}"

    @cached_property
    def _remarked(self) -> list[str]:
        """Return the metrics that the remarks are about."""
        return self.metrics()

    def _cell(self, step: str, stack: str, metric: str, unit: OverheadUnit) -> Cell:
        chain, median, mark = self.chain, self.chain.median(step, stack, metric), self.mark(step, stack)
        properties = chain.metric(step, stack, metric)
        if median is None or properties is None:
            return Cell("-", beside=mark)
        estimate = chain.overhead(step, stack, metric)
        judged = [judgement for judgement in chain.judgements_of(step, stack) if judgement.budget.metric == metric]
        rate = chain.median(step, stack, "throughput") if metric == "seconds" else None
        budgets = chain.limits(step, stack, metric)
        overhead = self.overhead(step, stack, metric, unit)
        verdicts = [f"{self._verdict(step, stack, item)} ({_bound(item, properties, unit)})" for item in judged]
        # Other metrics than the time show the interval only with a budget, to keep the tables short.
        shows_interval = estimate and (metric == "seconds" or judged)
        interval = unit.interval(estimate.low, estimate.high, budgets) if estimate and shows_interval else ""
        beside = [" ".join(filter(None, (overhead, mark))), *filter(None, [interval]), *verdicts]
        return Cell(
            "\n".join(filter(None, (format_quantity(median, properties.unit), _rate(rate)))),
            beside="\n".join(beside),
            outcome=worst(judgement.outcome for judgement in judged),
            numbers={
                f"median ({properties.unit})" if properties.unit else "median": median,
                **({"rate (B/s)": rate} if rate else {}),
                **overhead_numbers(estimate),
                **_budget_numbers(judged),
            },
        )

    def _verdict(self, step: str, stack: str, judgement: Judgement) -> str:
        """Return a verdict as tables show it."""
        sign = f"{SIGNS[judgement.outcome]}{_after(judgement)}" if judgement.final else "not judged"
        doubtful = ", doubtful" if doubts(self.chain, step, stack, judgement) else ""
        outcome = outcome_in_words(self.results, self.chain, step, stack, judgement)
        return f"{sign}{doubtful}{', expected' if outcome == AS_EXPECTED else ''}"


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


def places(chain: ChainResults) -> list[tuple[str, str]]:
    return [(step, stack) for stack in chain.stacks for step in chain.steps]


def of_step(by_step: Mapping[str, Any], step: str, default: Any) -> Any:
    """Return the entry of a step, by its name with or without its parameters."""
    return by_step.get(step, by_step.get(step.partition("[")[0], default))


def note_in_words(chain: ChainResults, step: str, stack: str) -> str:
    return f"{stack}: {chain.note(step, stack)}"


def is_expected(
    results: Results, chain: ChainResults, step: str, stack: str, judgement: Judgement | None = None
) -> bool:
    """Whether a failure was expected, by the reason in a budget or by pytest's mark xfail.

    With a `judgement`, only the reason in its own budget counts.
    """
    test = results.test(chain, step, stack)
    reason = judgement.budget.xfail if judgement else chain.expected(step, stack)
    return bool(reason) or (test is not None and test.outcome == "xfailed")


def outcome_in_words(results: Results, chain: ChainResults, step: str, stack: str, judgement: Judgement) -> str:
    """Return how a limit ended: kept, broken, broken as expected, undecided or not judged."""
    if judgement.final is None:
        return "not judged"
    if judgement.outcome == "fail" and is_expected(results, chain, step, stack, judgement):
        return AS_EXPECTED
    return {"fail": "broken", "inconclusive": "undecided", "pass": "kept"}[judgement.outcome]


def _bound(judgement: Judgement, metric: Metric, unit: OverheadUnit) -> str:
    """Return the budget of a verdict: ``max 30 %`` or ``min 100.0 MiB/s``."""
    budget = judgement.budget
    if budget.limit is None:
        return f"max {unit.limit(budget.overhead or 0.0)}"
    return f"{'max' if metric.better == 'lower' else 'min'} {format_quantity(budget.limit, metric.unit)}"


def _after(judgement: Judgement) -> str:
    """Return ``@N`` if a verdict was decided after N rounds, before the last planned one."""
    final = judgement.final
    return f"@{final.decided_after}" if final and final.stopped_early else ""


def _budget_numbers(judged: list[Judgement]) -> dict[str, float | str]:
    """Return the budgets of a cell and the worst verdict on them. Overheads are fractions."""
    numbers: dict[str, float | str] = {}
    for judgement in judged:
        if judgement.budget.overhead is not None:
            numbers["budget"] = judgement.budget.overhead
        if judgement.budget.limit is not None:
            numbers["limit"] = judgement.budget.limit
        if judgement.final and judgement.final.decided_after:
            numbers["decided after"] = judgement.final.decided_after
    outcome = worst(judgement.outcome for judgement in judged)
    return {**numbers, "verdict": outcome} if outcome else numbers


def _rate(rate: float | None) -> str:
    return format_quantity(rate, METRICS["throughput"].unit) if rate else ""


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
    # Stacks that are decided early, and those that confirm no failure, have fewer than others.
    measured = [len({key for step in chain.steps for key in chain.of(step, stack)}) for stack in chain.stacks]
    fewest = min(filter(None, measured), default=chain.rounds) if chain.boots == 1 else chain.rounds
    number = f"{fewest} to {chain.rounds}" if fewest < chain.rounds else f"{chain.rounds}"
    rounds = f"{number}{ended} round{'s' if limit > 1 else ''}"
    if chain.boots > 1:
        rounds += f" in each of {chain.boots} boots"
    if chain.discarded:
        rounds += f" ({summary(chain.discarded)})"
    kind = "sums" if chain.only_counts else "medians"
    return f"{kind} of {rounds}. To repeat the random order of the stacks: --fsstack-seed={chain.seed}"


def reference(chain: ChainResults) -> str:
    """Return the reference of its stacks in words."""
    if not chain.against:
        return chain.baseline
    if chain.view == "within":
        return f"{chain.stacks[chain.baseline].name} on the same kernel"
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
    return ". ".join(filter(None, [*sentences, _error_rate(chain)]))


def _error_rate(chain: ChainResults) -> str:
    """Return the rate of false failures in words, empty if there is no budget over a baseline."""
    judged = [judgement for _, _, judgements in chain.all_judgements() for judgement in judgements]
    if all(judgement.budget.overhead is None for judgement in judged):
        return ""
    return error_rate(chain)


def budget_in_words(chain: ChainResults, step: str, stack: str, judgement: Judgement) -> str:
    budget, metric = judgement.budget, chain.metric(step, stack, judgement.budget.metric)
    if budget.limit is None:
        return f"{budget.metric}, budget {(budget.overhead or 0) * 100:g} %"
    limit = format_quantity(budget.limit, metric.unit if metric else "")
    return f"{budget.metric}, budget at {'least' if metric and metric.better == 'higher' else 'most'} {limit}"
