"""What all reports show of a chain: its heading, a table a metric, and the notes below."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from pytest_fsstack.measure import METRICS
from pytest_fsstack.results import Chain, Judgement, Results
from pytest_fsstack.units import format_quantity, format_size
from pytest_fsstack.verdict import Estimate, Outcome, advice, percent

#: How a verdict shows where there is no colour.
SIGNS: dict[Outcome, str] = {"pass": "pass", "fail": "FAIL", "inconclusive": "?"}

_WORST_FIRST: tuple[Outcome, ...] = ("fail", "inconclusive", "pass")

LEGEND = "pass: within its budget; FAIL: above it; ?: not decided, see below"

#: What everybody measures beside the time, and few want to see every time.
DETAILS = ("machine_seconds", "written_bytes", "used_bytes")


@dataclass(frozen=True)
class Cell:
    """One step on one stack: texts that are empty where there is nothing to say."""

    #: The median.
    figure: str = ""
    #: The throughput at the median, where the metric is the time and the step says how much it processes.
    rate: str = ""
    #: The overhead over the baseline, or the word "baseline".
    overhead: str = ""
    interval: str = ""
    outcome: Outcome | None = None
    #: The number of the note that explains why there is no figure, or not one of all rounds.
    note: int | None = None

    @property
    def sign(self) -> str:
        return SIGNS[self.outcome] if self.outcome else ""

    @property
    def mark(self) -> str:
        return f"[{self.note}]" if self.note else ""


@dataclass(frozen=True)
class Table:
    """One metric of a chain, on every stack in every step that has it."""

    metric: str
    steps: list[str]
    rows: dict[str, list[Cell]]

    @property
    def judged(self) -> bool:
        return any(cell.outcome for cells in self.rows.values() for cell in cells)


class View:
    """A chain as reports show it."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        texts = dict.fromkeys(_note(chain, step, arm) for step, arm in _places(chain) if (step, arm) in chain.notes)
        #: Footnotes, the first being number 1.
        self.notes = list(texts)

    def metrics(self, details: Iterable[str] = ()) -> list[str]:
        """The metrics worth a table: the time, those that a budget names, those of the workloads, and `details`.

        Where the scenario has tables of its own, only the judged ones are, unless there are `details`.
        """
        judged = [each.budget.metric for judgements in self.chain.judgements.values() for each in judgements]
        measured = dict.fromkeys(name for step in self.chain.steps for name in self.chain.metrics(step))
        own = [name for name in measured if name not in METRICS]
        details = tuple(details)
        if self.chain.tables and not details:
            return [name for name in dict.fromkeys(judged) if name in measured]
        chosen = dict.fromkeys(["seconds", *judged, *own, *details])
        return [name for name in chosen if name == "seconds" or name in measured]

    def table(self, metric: str) -> Table:
        """The metric in all steps where it was measured; the time in all steps, so that no step is left out."""
        steps = [step for step in self.chain.steps if metric == "seconds" or metric in self.chain.metrics(step)]
        return Table(metric, steps, {arm: [self._cell(step, arm, metric) for step in steps] for arm in self.chain.arms})

    def mark(self, step: str, arm: str) -> str:
        """The number of the note on a step on a stack, as ``[1]``; empty where there is none."""
        noted = (step, arm) in self.chain.notes
        return f"[{self.notes.index(_note(self.chain, step, arm)) + 1}]" if noted else ""

    @property
    def undecided(self) -> list[str]:
        """What would decide the budgets that the samples do not; a line for all of which the same holds."""
        budgets: dict[str, list[str]] = {}
        for step, arm in _places(self.chain):
            for each in self.chain.judgements.get((step, arm), []):
                if each.outcome == "inconclusive":
                    text = advice(each.verdict) if each.verdict else each.text
                    budgets.setdefault(text, []).append(f"{step} on {arm}, {_budget(self.chain, step, arm, each)}")
        return [
            f"{places[0]}{f' (and {len(places) - 1} more)' if len(places) > 1 else ''}: {text}"
            for text, places in budgets.items()
        ]

    def _cell(self, step: str, arm: str, metric: str) -> Cell:
        chain, median = self.chain, self.chain.median(step, arm, metric)
        note = self.notes.index(_note(chain, step, arm)) + 1 if (step, arm) in chain.notes else None
        found = chain.metric(step, arm, metric)
        if median is None or found is None:
            return Cell(note=note)
        estimate = chain.estimate(step, arm, metric)
        outcome = _worst(each.outcome for each in chain.judgements.get((step, arm), []) if each.budget.metric == metric)
        rate = chain.median(step, arm, "throughput") if metric == "seconds" else None
        return Cell(
            format_quantity(median, found.unit),
            "" if rate is None else format_quantity(rate, METRICS["throughput"].unit),
            "baseline" if arm == chain.reference(arm) else signed(estimate.overhead) if estimate else "",
            # Beside the time, only where somebody asked: these tables are for a glance.
            interval(estimate) if estimate and (metric == "seconds" or outcome) else "",
            outcome,
            note,
        )


def heading(results: Results, chain: Chain) -> dict[str, str]:
    """What the figures of a chain depend on, by name, as text; what is not known is left out."""
    machine = results.environment
    facts = {
        "device": _device(chain, machine),
        "kernel": machine.get("kernel", {}).get("release"),
        "machine": _machine(machine),
        "corpus": _corpus(machine.get("corpus")),
        "figures": _figures(chain),
        "overhead": _overhead(chain) if len(chain.arms) > 1 else None,
    }
    return {name: text for name, text in facts.items() if text}


def signed(overhead: float) -> str:
    """An overhead with its sign; a ratio, as ``x13.4``, needs none.

    >>> signed(0.123), signed(-0.03), signed(12.4), signed(0.0)
    ('+12.3 %', '-3.0 %', 'x13.4', '0.0 %')
    """
    text = percent(overhead)
    return text if text[0] in "-x" or text == "0.0 %" else f"+{text}"


def interval(estimate: Estimate) -> str:
    """Its two ends, ``10.1 to 14.0 %``, or that there are none."""
    if not isfinite(estimate.high):
        return "too few rounds"
    low, high = percent(estimate.low), percent(estimate.high)
    return f"{low.removesuffix(' %')} to {high}" if high.endswith(" %") else f"{low} to {high}"


def _places(chain: Chain) -> list[tuple[str, str]]:
    return [(step, arm) for arm in chain.arms for step in chain.steps]


def _note(chain: Chain, step: str, arm: str) -> str:
    return f"{arm}: {chain.notes[step, arm]}"


def _worst(outcomes: Iterable[Outcome]) -> Outcome | None:
    found = set(outcomes)
    return next((outcome for outcome in _WORST_FIRST if outcome in found), None)


def _device(chain: Chain, machine: dict[str, Any]) -> str:
    facts: dict[str, Any] = next((each for each in machine.get("devices", []) if each.get("spec") == chain.device), {})
    words = [
        format_size(facts["size"]) if facts.get("size") else None,
        f"in a file on {facts['filesystem']}" if facts.get("filesystem") and chain.device == "loop" else None,
        {True: "direct I/O", False: "no direct I/O"}.get(facts.get("direct_io")),  # type: ignore[arg-type]
        facts.get("model"),
        {True: "rotating", False: "not rotating"}.get(facts.get("rotational")),  # type: ignore[arg-type]
        f"scheduler {facts['scheduler']}" if facts.get("scheduler") else None,
    ]
    known = ", ".join(word for word in words if word)
    return f"{chain.device}: {known}" if known else chain.device


def _machine(machine: dict[str, Any]) -> str:
    cpu = machine.get("cpu", {})
    words = [
        f"{cpu['count']} x {cpu['model']}" if cpu.get("count") and cpu.get("model") else cpu.get("model"),
        f"governor {cpu['governor']}" if cpu.get("governor") else None,
        f"{format_size(machine['memory'])} of memory" if machine.get("memory") else None,
    ]
    return ", ".join(word for word in words if word)


def _corpus(corpus: dict[str, Any] | None) -> str | None:
    if not corpus:
        return None
    return f"{corpus['name']}: {corpus['files']:,} files, {format_size(corpus['bytes'])}"


def _figures(chain: Chain) -> str:
    most = chain.looks.rounds[-1]
    ended = f" of at most {most}" if chain.rounds < most else ""
    rounds = f"{chain.rounds}{ended} round{'s' if most > 1 else ''}"
    return f"medians of {rounds}, run in the order of --fsstack-seed={chain.seed}"


def _overhead(chain: Chain) -> str:
    looks = chain.looks
    base = "the same stack on the first kernel" if chain.against else f"{chain.baseline} in the same round"
    text = f"over {base}, with its {percent(looks.confidence)} interval"
    if chain.against and chain.boots == 1:
        text += "; from one boot of each kernel, so what differs from boot to boot is not in it"
    judged = any(chain.judgements.values())
    return f"{text}; verdicts are wrong in at most {looks.alpha * 100:g} % of sessions" if judged else text


def _budget(chain: Chain, step: str, arm: str, judgement: Judgement) -> str:
    budget, metric = judgement.budget, chain.metric(step, arm, judgement.budget.metric)
    if budget.limit is None:
        return f"{budget.metric}, budget {(budget.overhead or 0) * 100:g} %"
    limit = format_quantity(budget.limit, metric.unit if metric else "")
    return f"{budget.metric}, budget at {'least' if metric and metric.better == 'higher' else 'most'} {limit}"
