"""The sessions of several hosts: the figures in each file, and its host.

From a file of ``--fsstack-json``, only the derived figures are decoded, so that files of hundreds of hosts fit in
memory. The log of a session that was killed has none, so they are read from its samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from math import log1p, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import astuple, force_setattr, replace

from pytest_fsstack.judging.describe import NOT_ON_EMULATED, note_in_words
from pytest_fsstack.judging.readings import settle_chain
from pytest_fsstack.machine import reading
from pytest_fsstack.over_time.comparison import SeriesKey, series_key
from pytest_fsstack.records import saved
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.environment import Environment
from pytest_fsstack.records.readings import Derived, Reading
from pytest_fsstack.records.results import FORMAT, ChainResults, Results
from pytest_fsstack.records.sample import Better
from pytest_fsstack.records.verdicts import Outcome
from pytest_fsstack.units import counted


class HostReading(NamedTuple):
    """An overhead in one session, as far as hosts are pooled by it. Its rounds are those up to the first look.

    Whether later rounds run depends on the figures, so with them, the figures of all hosts would be biased alike
    (docs/pooling.md). `left_out` is their number.
    """

    #: The name of the stack that it is compared with.
    reference: str
    unit: str
    better: Better
    #: The median of the samples of the stack itself.
    median: float
    #: The worst outcome of the budgets.
    outcome: Outcome | None
    budgets: tuple[Budget, ...]
    #: The logarithm of the stack over its reference, and its standard error. None if that cannot be estimated.
    ratio: float
    error: float | None
    rounds: int
    left_out: int


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
    for chain in results.chains:
        _add(session, settle_chain(chain, {name for step in chain.steps for name in _metrics(chain, step)}))
    if not session.readings:
        reasons = "; ".join(dict.fromkeys(session.notes.values()))
        raise ValueError(": ".join(filter(None, ["no overhead was measured in this session", reasons])))
    return session


def _add(session: SessionFile, chain: ChainResults) -> None:
    """Add the readings of a chain, and why others are missing."""
    stacks = [stack for stack in chain.stacks if stack not in chain.controls and stack != chain.reference(stack)]
    emulated = {stack for stack in stacks if chain.is_emulated(stack) and not chain.judges_emulated}
    for step in chain.steps:
        is_measured = any(chain.known(step, stack).readings for stack in chain.stacks)
        metrics = _metrics(chain, step)
        for stack in stacks:
            derived, all_budgets = chain.known(step, stack), [one.budget for one in chain.judgements_of(step, stack)]
            reference = chain.stacks.get(chain.reference(stack))
            bases = chain.known(step, reference.id).readings if reference else {}
            for metric in metrics:
                reading, key = derived.readings.get(metric), series_key(session.metadata, chain, step, stack, metric)
                if reading and stack in emulated and reading.metric.is_of_time:
                    session.notes[key] = NOT_ON_EMULATED
                    continue
                budgets = tuple([budget for budget in all_budgets if budget.metric == metric])
                if (
                    derived.incomplete
                    or reading is None
                    or reference is None
                    or not _is_ratio(reading, bases.get(metric))
                ):
                    # A step without a figure on any stack only prepares. Without a budget, a stack may lack a metric.
                    lacking = "not measured" if is_measured and (budgets or metric == "seconds") else ""
                    if reading and reading.estimate and reading.estimate.missing:
                        lacking = "only it or its reference has a figure in "
                        lacking += counted(reading.estimate.missing, "round")
                    if reason := derived.incomplete or note_in_words(chain.note(step, stack)) or lacking:
                        session.notes[key] = reason
                    continue
                estimate, first = reading.estimate, reading.first_ratios
                assert estimate is not None
                if chain.paired and first is None:
                    session.notes[key] = "not measured in the rounds up to its first look"
                    continue
                # Boots of two kernels have no ratios of rounds.
                ratio, rounds = (first.typical, first.rounds) if first else (log1p(estimate.overhead), estimate.rounds)
                session.readings[key] = HostReading(
                    reference.name,
                    reading.metric.unit,
                    reading.metric.better,
                    reading.median,
                    reading.verdict,
                    budgets,
                    ratio,
                    first.deviation / sqrt(rounds) if first and first.deviation is not None else None,
                    rounds,
                    reading.ratios.rounds - rounds if reading.ratios else 0,
                )


def _is_ratio(reading: Reading, base: Reading | None) -> bool:
    """Whether there is an overhead, and the figures of a stack and its reference are more than noise."""
    if reading.estimate is None or reading.estimate.missing or reading.estimate.overhead <= -1 or base is None:
        return False
    return not reading.is_noise_beside(base)


def _metadata(results: Results) -> Results:
    chains = [
        replace(chain, samples={}, judgements={}, orders=[], conditions=[], discarded=[], derived={}, overall={})
        for chain in results.chains
    ]
    return replace(results, chains=chains, tests={})


# -- decoding less -----------------------------------------------------------------------------------------------------


class _Skipped(msgspec.Struct, frozen=True, gc=False):
    """Data that is not compared. It has no fields, so a decoder skips them."""


class _Judgement(msgspec.Struct, frozen=True, gc=False):
    """A judgement without its verdict, which the readings have."""

    budget: Budget


_Judgements = dict[str, dict[str, list[_Judgement]]]


@cache
def _decoder(metrics: frozenset[str]) -> msgspec.json.Decoder[Results]:
    """Return a decoder of results that skips samples, verdicts, tests, and the readings of all other metrics."""
    names = {f"metric{number}": metric for number, metric in enumerate(sorted(metrics))}
    optional: Any = Reading | None
    readings = msgspec.defstruct(
        "_Readings", [(name, optional, None) for name in names], rename=names, frozen=True, gc=False
    )

    def keep(derived: Any) -> None:
        by_metric = zip(names.values(), astuple(derived.readings))
        force_setattr(derived, "readings", {name: reading for name, reading in by_metric if reading is not None})

    def like(record: type, fields: dict[str, tuple[Any, Any]], **options: Any) -> Any:
        """Return a subclass of a record with other types and defaults of some fields."""
        changed = [(name, *field) for name, field in fields.items()]
        return msgspec.defstruct(f"_{record.__name__}", changed, bases=(record,), **options)

    skipped = _Skipped, _Skipped()
    derived = like(
        Derived, {"readings": (readings, readings())}, frozen=True, gc=False, namespace={"__post_init__": keep}
    )
    by_stack: Any = dict[str, dict[str, derived]]  # type: ignore[valid-type]
    chain = like(ChainResults, {"samples": skipped, "judgements": (_Judgements, {}), "derived": (by_stack, {})})
    chains: Any = list[chain]  # type: ignore[valid-type]
    session = like(Results, {"chains": (chains, []), "tests": skipped}, tag_field="format", tag=FORMAT)
    return msgspec.json.Decoder(session)


def _outline(content: bytes) -> Results | None:
    """Return results with the readings of compared metrics, without samples. None if there are none, as in a log.

    Raises ValueError for damaged files.
    """
    metrics, budgeted = frozenset[str](), frozenset(["seconds"])
    try:
        while not budgeted <= metrics:
            metrics |= budgeted
            results = _decoder(metrics).decode(content)
            budgeted = frozenset(
                name for chain in results.chains for step in chain.steps for name in _metrics(chain, step)
            )
        msgspec.convert(results.environment, Environment)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        if saved.log_lines(content):
            return None
        saved.check_format(content)
        raise ValueError(f"these results are damaged: {error}") from None
    return None if any(chain.steps and not chain.derived for chain in results.chains) else results


def _metrics(chain: ChainResults, step: str) -> list[str]:
    """Return the metrics of a step that are compared: the time, and those with budgets."""
    judged = [
        judgement.budget.metric for judgements in chain.judgements.get(step, {}).values() for judgement in judgements
    ]
    return list(dict.fromkeys(["seconds", *judged]))
