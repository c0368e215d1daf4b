"""The sessions of several hosts: the figures in each file, and its host.

From a file of ``--fsstack-json``, only the derived figures are decoded, so that files of hundreds of hosts fit in
memory. A log has none, so they are derived from its samples, for the metrics that are compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import log1p
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from pytest_fsstack.judging import saved
from pytest_fsstack.judging.results import (
    FORMAT,
    NOT_ON_EMULATED,
    ChainResults,
    Derived,
    Figure,
    Judgement,
    Results,
    StackInfo,
)
from pytest_fsstack.machine import reading
from pytest_fsstack.over_time.comparison import SeriesKey, series_key
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.environment import Environment
from pytest_fsstack.records.sample import Better
from pytest_fsstack.records.verdicts import Looks, Outcome


class JudgedBudget(NamedTuple):
    """A budget of a session, and its verdict there."""

    budget: Budget
    outcome: Outcome


class Reading(NamedTuple):
    """The figures of one session for a series.

    `figure` is the median in the metric's unit. `ratio` is the logarithm of the stack over its reference, with the
    standard error `error` (None if it cannot be estimated).
    """

    unit: str
    better: Better
    reference: str
    figure: float
    ratio: float
    error: float | None
    rounds: int
    judged: tuple[JudgedBudget, ...]


@dataclass(frozen=True)
class SessionFile:
    """The session in one file. `metadata` has its environment and its work, without figures."""

    path: Path
    metadata: Results
    readings: dict[SeriesKey, Reading] = field(default_factory=dict)
    #: Reasons why a series was not measured.
    notes: dict[SeriesKey, str] = field(default_factory=dict)

    @property
    def machine(self) -> str:
        """Return the id of the machine. All machines without an id count as one host."""
        return str(self.metadata.environment.get("machine_id") or "")

    @property
    def name(self) -> str:
        """Return the label ``host``, or else the name of the file."""
        return self.metadata.labels.get("host") or self.path.stem


def read(path: Path) -> SessionFile:
    """Read the session in a file: the time, and metrics with budgets. Raises ValueError."""
    try:
        content = reading.read_bytes(path, reading.RESULTS)
    except OSError as error:
        raise ValueError(error.strerror) from None
    results = _outline(content) or _derive(saved.loads(content))
    session = SessionFile(path, _metadata(results))
    for chain in results.chains:
        for step, stack in _compared(chain):
            for metric in _metrics(chain, step):
                _add(session, chain, step, stack, metric)
    if not session.readings:
        raise ValueError("no overhead was measured in this session")
    return session


def _compared(chain: ChainResults) -> Iterator[tuple[str, str]]:
    for step in chain.steps:
        for stack in chain.stacks:
            if stack not in chain.controls and stack != chain.reference(stack):
                yield step, stack


def _add(session: SessionFile, chain: ChainResults, step: str, stack: str, metric: str) -> None:
    derived = chain.derived.get(step, {}).get(stack, Derived())
    key = series_key(session.metadata, chain, step, stack, metric)
    figure = derived.figures.get(metric)
    if figure and figure.is_of_time and chain.is_emulated(stack) and not chain.judges_emulated:
        session.notes[key] = NOT_ON_EMULATED
        return
    overhead = figure.overhead if figure and _is_ratio(chain, step, stack, metric) else None
    judged = tuple(
        JudgedBudget(judgement.budget, judgement.outcome)
        for judgement in chain.judgements_of(step, stack)
        if judgement.budget.metric == metric
    )
    if derived.incomplete or figure is None or overhead is None or overhead.estimate <= -1:
        # A step without a figure on any stack only prepares. Without a budget, a stack may lack a metric.
        measures = any(other.figures for other in chain.derived.get(step, {}).values())
        lacking = "not measured" if measures and (judged or metric == "seconds") else ""
        if reason := derived.incomplete or chain.note(step, stack) or lacking:
            session.notes[key] = reason
        return
    session.readings[key] = Reading(
        figure.unit,
        figure.better,
        chain.stacks[chain.reference(stack)].name,
        figure.median,
        log1p(overhead.estimate),
        overhead.error,
        overhead.rounds,
        judged,
    )


def _is_ratio(chain: ChainResults, step: str, stack: str, metric: str) -> bool:
    """Whether the figures of a stack and its reference are more than noise."""
    by_stack = chain.derived[step]
    names = [name for name in (stack, chain.reference(stack)) if name in by_stack and name in chain.stacks]
    figures = [by_stack[name].figures.get(metric) for name in names]
    return len(figures) == 2 and all(figure is not None and figure.median > figure.resolution for figure in figures)


def _metadata(results: Results) -> Results:
    chains = [
        replace(chain, samples={}, judgements={}, orders=[], conditions=[], discarded=[], derived={})
        for chain in results.chains
    ]
    return replace(results, chains=chains, tests={})


# -- decoding less -----------------------------------------------------------------------------------------------------


class _Derived(msgspec.Struct):
    incomplete: str = ""
    figures: dict[str, msgspec.Raw] = {}


class _Chain(msgspec.Struct):
    """The fields of `ChainResults` that are compared."""

    id: str
    device: str
    baseline: str
    looks: Looks
    seed: int
    steps: list[str] = []
    stacks: dict[str, StackInfo] = {}
    judgements: dict[str, dict[str, list[Judgement]]] = {}
    notes: dict[str, dict[str, str]] = {}
    work: dict[str, Mapping[str, Any]] = {}
    controls: list[str] = []
    against: dict[str, str] = {}
    judges_emulated: bool = False
    derived: dict[str, dict[str, _Derived]] = {}


class _Session(msgspec.Struct, tag_field="format", tag=FORMAT):
    """The fields of `Results` that are compared."""

    environment: dict[str, Any] = {}
    chains: list[_Chain] = []
    interrupted: str = ""
    start: str = ""
    scale: str = ""
    labels: dict[str, str] = {}


def _outline(content: bytes) -> Results | None:
    """Return results with the derived figures of compared metrics, without samples. None for a log.

    Raises ValueError for damaged files.
    """
    if saved.log_lines(content):
        return None
    try:
        session = msgspec.json.decode(content, type=_Session)
        msgspec.convert(session.environment, Environment)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        saved.check_format(content)
        raise ValueError(f"these results are damaged: {error}") from None
    chains = []
    for slim in session.chains:
        chain = ChainResults(**{**asdict(slim), "derived": {}})
        for step, by_stack in slim.derived.items():
            metrics = _metrics(chain, step)
            chain.derived[step] = {stack: _decoded(derived, metrics) for stack, derived in by_stack.items()}
        chains.append(chain)
    return Results(**{**asdict(session), "chains": chains})


def _decoded(derived: _Derived, metrics: Collection[str]) -> Derived:
    figures = {
        name: msgspec.json.decode(derived.figures[name], type=Figure) for name in metrics if name in derived.figures
    }
    return Derived(incomplete=derived.incomplete, figures=figures)


def _derive(results: Results) -> Results:
    """Derive the figures of compared metrics from the samples."""
    for chain in results.chains:
        chain.derived = {
            step: {stack: saved.derive(chain, step, stack, _metrics(chain, step)) for stack in chain.stacks}
            for step in chain.steps
        }
    return results


def _metrics(chain: ChainResults, step: str) -> list[str]:
    """Return the metrics of a step that are compared: the time, and those with budgets."""
    judged = [
        judgement.budget.metric for judgements in chain.judgements.get(step, {}).values() for judgement in judgements
    ]
    return list(dict.fromkeys(["seconds", *judged]))
