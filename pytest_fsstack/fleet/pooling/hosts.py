"""The sessions of several hosts: the figures in each file, and its host.

From a file of ``--fsstack-json``, only the derived figures are decoded, so that files of hundreds of hosts fit in
memory. The log of a session that was killed has none, so they are read from its samples.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import log1p, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from pytest_fsstack.judging.describe import NOT_ON_EMULATED
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.machine import reading
from pytest_fsstack.over_time.comparison import SeriesKey, series_key
from pytest_fsstack.records import saved
from pytest_fsstack.records.environment import Environment
from pytest_fsstack.records.readings import Derived, Reading
from pytest_fsstack.records.results import (
    FORMAT,
    ChainResults,
    Judgement,
    Results,
    StackInfo,
    View,
)
from pytest_fsstack.records.verdicts import Looks


class HostReading(NamedTuple):
    """A reading of one session, the name of its reference there, and its judgements."""

    reading: Reading
    reference: str
    judgements: tuple[Judgement, ...]

    @property
    def ratio(self) -> float:
        """Return the logarithm of the stack over its reference."""
        assert self.reading.estimate is not None
        return log1p(self.reading.estimate.overhead)

    @property
    def rounds(self) -> int:
        """Return the number of rounds that are in the ratio."""
        assert self.reading.estimate is not None
        return self.reading.estimate.rounds

    @property
    def error(self) -> float | None:
        """Return the standard error of the ratio, or None if it cannot be estimated."""
        ratios = self.reading.ratios
        return ratios.deviation / sqrt(ratios.rounds) if ratios and ratios.deviation is not None else None


@dataclass(frozen=True)
class SessionFile:
    """The session in one file. `metadata` has its environment and its work, without figures."""

    path: Path
    metadata: Results
    readings: dict[SeriesKey, HostReading] = field(default_factory=dict)
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
    results = _outline(content) or saved.loads(content)
    session = SessionFile(path, _metadata(results))
    for readings in map(Readings, results.chains):
        for step, stack in _compared(readings.chain):
            for metric in _metrics(readings.chain, step):
                _add(session, readings, step, stack, metric)
    if not session.readings:
        raise ValueError("no overhead was measured in this session")
    return session


def _compared(chain: ChainResults) -> Iterator[tuple[str, str]]:
    for step in chain.steps:
        for stack in chain.stacks:
            if stack not in chain.controls and stack != chain.reference(stack):
                yield step, stack


def _add(session: SessionFile, readings: Readings, step: str, stack: str, metric: str) -> None:
    chain, reading = readings.chain, readings.of(step, stack, metric)
    key = series_key(session.metadata, chain, step, stack, metric)
    if reading and reading.metric.is_of_time and chain.is_emulated(stack) and not chain.judges_emulated:
        session.notes[key] = NOT_ON_EMULATED
        return
    judgements = tuple(item for item in chain.judgements_of(step, stack) if item.budget.metric == metric)
    incomplete, reference = chain.incomplete(step, stack), chain.stacks.get(chain.reference(stack))
    base = readings.of(step, reference.id, metric) if reference else None
    if incomplete or reading is None or reference is None or not _is_ratio(reading, base):
        # A step without a figure on any stack only prepares. Without a budget, a stack may lack a metric.
        lacking = "not measured" if chain.metrics(step) and (judgements or metric == "seconds") else ""
        if reason := incomplete or chain.note(step, stack) or lacking:
            session.notes[key] = reason
        return
    session.readings[key] = HostReading(reading, reference.name, judgements)


def _is_ratio(reading: Reading, base: Reading | None) -> bool:
    """Whether there is an overhead, and the figures of a stack and its reference are more than noise."""
    if reading.estimate is None or reading.estimate.overhead <= -1 or base is None:
        return False
    return min(reading.median, base.median) > reading.metric.resolution


def _metadata(results: Results) -> Results:
    chains = [
        replace(chain, samples={}, judgements={}, orders=[], conditions=[], discarded=[], derived={})
        for chain in results.chains
    ]
    return replace(results, chains=chains, tests={})


# -- decoding less -----------------------------------------------------------------------------------------------------


class _Derived(msgspec.Struct):
    """The fields of `Derived` that are compared."""

    samples: int = 0
    incomplete: str = ""
    readings: dict[str, msgspec.Raw] = {}


class _Chain(msgspec.Struct):
    """The fields of `ChainResults` that are compared."""

    id: str
    devices: list[str]
    baseline: str
    looks: Looks
    seed: int
    steps: list[str] = []
    stacks: dict[str, StackInfo] = {}
    judgements: dict[str, dict[str, list[Judgement]]] = {}
    notes: dict[str, dict[str, str]] = {}
    work: dict[str, Mapping[str, Any]] = {}
    controls: list[str] = []
    view: View = "within"
    against: dict[str, str] = {}
    judges_emulated: bool = False
    paired: bool = True
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
    """Return results with the readings of compared metrics, without samples. None if there are none, as in a log.

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
    if any(slim.steps and not slim.derived for slim in session.chains):
        return None
    chains = []
    for slim in session.chains:
        chain = ChainResults(**{**asdict(slim), "derived": {}})
        for step, by_stack in slim.derived.items():
            metrics = _metrics(chain, step)
            chain.derived[step] = {stack: _decoded(derived, metrics) for stack, derived in by_stack.items()}
        chains.append(chain)
    return Results(**{**asdict(session), "chains": chains})


def _decoded(derived: _Derived, metrics: Collection[str]) -> Derived:
    readings = {
        name: msgspec.json.decode(derived.readings[name], type=Reading) for name in metrics if name in derived.readings
    }
    return Derived(derived.samples, incomplete=derived.incomplete, readings=readings)


def _metrics(chain: ChainResults, step: str) -> list[str]:
    """Return the metrics of a step that are compared: the time, and those with budgets."""
    judged = [
        judgement.budget.metric for judgements in chain.judgements.get(step, {}).values() for judgement in judgements
    ]
    return list(dict.fromkeys(["seconds", *judged]))
