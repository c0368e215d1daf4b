"""The results of a session as JSON, for reports, the history, comparisons and later sessions.

The record types define the format. `loads` reverses `dumps`, except for facts that `dumps` derives for other programs.
docs/results.md describes the fields, and `schema` defines them exactly.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator
from math import isfinite, sqrt
from typing import Any

import msgspec
from msgspec.structs import replace

from pytest_fsstack.judging.names import kind_of, name_of
from pytest_fsstack.judging.results import (
    EMULATED,
    FORMAT,
    ROUNDS_OF_A_BOOT,
    ChainResults,
    Derived,
    Figure,
    Overhead,
    Results,
)
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.environment import Environment
from pytest_fsstack.records.sample import METRICS, Sample


class FormatError(ValueError):
    """Invalid results, or results of an unknown version."""


class LogLine(Results):
    """A line of a log: the additions of one round, or without samples the end of the session."""

    #: The number of the line, from 1.
    line: int = 0


class _Header(msgspec.Struct):
    format: int
    #: Of a line of a log.
    line: int = 0


def schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of what `dumps` writes."""
    _, definitions = msgspec.json.schema_components([Results])
    for name, definition in definitions.items():
        if "properties" in definition and name != Sample.__name__:
            # Fields with defaults are always written.
            definition["required"] = list(definition["properties"])
    top = definitions.pop(Results.__name__)
    (environment,), parts = msgspec.json.schema_components([Environment])
    top["properties"]["environment"] = environment
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": {**definitions, **parts}}


def dumps(results: Results) -> str:
    """Return results as indented JSON, with derived facts about each step on a stack."""
    return msgspec.json.format(_encode(results), indent=2).decode() + "\n"


def line(results: Results) -> str:
    """Return results as one line of JSON without a newline. `loads` reads it too."""
    return _encode(results).decode()


def loads(text: str | bytes) -> Results:
    """Read the output of `dumps` or `line`, or a log. Raises `FormatError`.

    A log is read up to its last complete line.
    """
    content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    lines = log_lines(content)
    check_format(lines[0] if lines else content)
    try:
        results = _merged(lines) if lines else msgspec.json.decode(content, type=Results)
        msgspec.convert(results.environment, Environment)
        for chain in results.chains:
            _check(chain)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise FormatError(f"these results are damaged: {error}") from None
    return results


def check_format(content: bytes) -> None:
    """Raise `FormatError` unless the content is in the current version of the format."""
    try:
        header = msgspec.json.decode(content, type=_Header)
    except msgspec.ValidationError as error:
        raise FormatError(f"these are not results of pytest-fsstack: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise FormatError(f"these are not results of pytest-fsstack: no JSON: {error}") from None
    if header.format != FORMAT:
        which = "a newer" if header.format > FORMAT else "an older"
        raise FormatError(
            f"these results are of {which} pytest-fsstack: their format is {header.format}, this one's {FORMAT}"
        )


def _check(chain: ChainResults) -> None:
    """Raise ValueError if a chain refers to a step, stack or round that it does not have."""
    for table in (chain.samples, chain.judgements, chain.notes):
        for step, by_stack in table.items():
            if step not in chain.steps:
                raise ValueError(f"{chain.id}: there is no step {step}")
            if unknown := by_stack.keys() - chain.stacks.keys():
                raise ValueError(f"{chain.id}: there is no stack {min(unknown)}")
    for step, stack, samples in chain.all_samples():
        names = {name for sample in samples.values() for name in sample.values}
        if unknown := names - METRICS.keys() - chain.own_metrics.get(step, {}).keys():
            raise ValueError(f"{chain.id}: {step} on {stack} has an undefined metric: {min(unknown)}")


def _encode(results: Results) -> bytes:
    return _as_json(replace(results, chains=[replace(chain, derived=_derived(chain)) for chain in results.chains]))


def _as_json(results: Results) -> bytes:
    try:
        return msgspec.json.encode(results)
    except UnicodeEncodeError:
        return msgspec.json.encode(_printable(msgspec.to_builtins(results)))


def _printable(value: Any) -> Any:
    """Make a value fit for JSON: bytes that are not UTF-8 become escapes."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(inner) for key, inner in value.items()}
    return [_printable(inner) for inner in value] if isinstance(value, (list, tuple)) else value


# -- the log: a line a round -------------------------------------------------------------------------------------------


def log_line(results: Results, number: int, chains: Iterable[ChainResults] = ()) -> bytes:
    """Return a line of a log, with a newline: the additions of the last round to some views of a chain.

    Without chains, return the last line of a session: everything but the samples.
    """
    added = [_of_last_round(chain) for chain in chains]
    stop = "" if added else results.stop
    added = added or [_without_rounds(chain) for chain in results.chains]
    return _as_json(LogLine(**{**_fields(results), "chains": added, "stop": stop}, line=number)) + b"\n"


def _fields(results: Results) -> dict[str, Any]:
    return {name: getattr(results, name) for name in Results.__struct_fields__}


def _without_rounds(chain: ChainResults) -> ChainResults:
    return replace(chain, samples={}, orders=[], conditions=[], discarded=[])


def _of_last_round(chain: ChainResults) -> ChainResults:
    line = _without_rounds(chain)
    if chain.discarded and chain.discarded[-1].replaced_by == chain.rounds:
        line.discarded = chain.discarded[-1:]
        return line
    line.orders, line.conditions = chain.orders[-1:], chain.conditions[-1:]
    for step, stack, samples in chain.all_samples():
        for number, sample in samples.items():
            if number % ROUNDS_OF_A_BOOT == chain.rounds - 1:
                line.samples.setdefault(step, {}).setdefault(stack, {})[number] = sample
    return line


def log_lines(content: bytes) -> list[bytes]:
    """Return the whole lines of a log; empty if the content is none."""
    end = content.find(b"\n")
    if not _is_log_line(content if end < 0 else content[:end]):
        return []
    lines = content.split(b"\n")
    # An incomplete line is never valid JSON.
    return lines if _is_log_line(lines[-1]) else lines[:-1]


def _is_log_line(text: bytes) -> bool:
    try:
        return msgspec.json.decode(text, type=_Header).line > 0
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def _merged(lines: Iterable[bytes]) -> Results:
    """Merge the lines of a log into results. Raises ValueError if a line is missing."""
    results, chains = Results(), dict[tuple[str, str], ChainResults]()
    rounds = 0
    for number, text in enumerate(lines, start=1):
        line = msgspec.json.decode(text, type=LogLine)
        if line.line != number:
            raise ValueError(f"line {number} of the log has the number {line.line}")
        rounds += any(chain.orders or chain.discarded for chain in line.chains)
        for chain in line.chains:
            _add_rounds(chain, chains.pop((chain.id, chain.device), None))
            chains[chain.id, chain.device] = chain
        results = Results(**{**_fields(line), "tests": {**results.tests, **line.tests}})
    results.chains = list(chains.values())
    if not results.stop:
        results.interrupted = f"the log ends after {rounds} rounds: the session was killed, or it still runs"
    return results


def _add_rounds(chain: ChainResults, before: ChainResults | None) -> None:
    """Prepend the rounds that earlier lines have to a chain of a line."""
    if before is None:
        return
    chain.orders = before.orders + chain.orders
    chain.conditions = before.conditions + chain.conditions
    chain.discarded = before.discarded + chain.discarded
    for step, stack, samples in chain.all_samples():
        before.samples.setdefault(step, {}).setdefault(stack, {}).update(samples)
    chain.samples = before.samples


# -- what follows from the samples ------------------------------------------------------------------------------------


def _derived(chain: ChainResults) -> dict[str, dict[str, Derived]]:
    return {step: {stack: derive(chain, step, stack) for stack in chain.stacks} for step in chain.steps}


def derive(chain: ChainResults, step: str, stack: str, only: Collection[str] | None = None) -> Derived:
    """Derive the facts about a step on a stack, for all metrics or only these."""
    metrics = dict.fromkeys(name for _, sample in sorted(chain.of(step, stack).items()) for name in sample.values)
    return Derived(
        chain.worst(step, stack),
        chain.doubt(step, stack),
        chain.incomplete(step, stack),
        {name: _figure(chain, step, stack, name) for name in metrics if only is None or name in only},
    )


def _figure(chain: ChainResults, step: str, stack: str, name: str) -> Figure:
    metric = chain.metric(step, stack, name)
    assert metric is not None
    return Figure(
        name_of(chain, step, stack, name),
        metric.unit,
        metric.better,
        metric.resolution,
        statistics.median(chain.series(step, stack, name)),
        _overhead(chain, step, stack, name),
    )


def _overhead(chain: ChainResults, step: str, stack: str, name: str) -> Overhead | None:
    estimate = chain.estimate(step, stack, name)
    if estimate is None:
        return None
    ratios = list(chain.log_ratios(step, stack, name).values()) if chain.paired else []
    return Overhead(
        name_of(chain, step, stack, name, kind_of(chain, stack)),
        chain.reference(stack),
        estimate.overhead,
        estimate.low,
        estimate.high if isfinite(estimate.high) else None,
        estimate.confidence,
        estimate.rounds,
        statistics.stdev(ratios) / sqrt(len(ratios)) if len(ratios) > 1 else None,
    )


# -- records of other programs -----------------------------------------------------------------------------------------


def facts(chain: ChainResults, step: str, stack: str) -> dict[str, Any]:
    """Return the facts about a step on a stack, for records of other programs. Empty if nothing was measured."""
    samples = chain.of(step, stack)
    if not samples:
        return {}
    whole = derive(chain, step, stack)
    facts: dict[str, Any] = msgspec.to_builtins(
        {
            "stack": chain.stacks[stack].spec,
            "device": chain.device,
            "baseline": chain.baseline,
            "seed": chain.seed,
            "rounds": sorted(samples),
            "samples": {name: chain.series(step, stack, name) for name in whole.figures},
            "judgements": chain.judgements_of(step, stack),
            "derived": whole,
            "note": chain.note(step, stack),
            "emulated": chain.is_emulated(stack),
        }
    )
    return facts


def properties(chain: ChainResults, step: str, stack: str, *, full: bool = True) -> list[tuple[str, object]]:
    """Return the properties for JUnit. Empty if nothing was measured.

    If not `full`: the verdict, the rounds, the seconds, and the overheads that have a budget.
    """
    if not chain.of(step, stack):
        return []
    whole, judgements = derive(chain, step, stack), chain.judgements_of(step, stack)
    pairs: list[tuple[str, object]] = [("emulated", EMULATED)] if chain.is_emulated(stack) else []
    if full:
        pairs += [("stack", chain.stacks[stack].spec), ("device", chain.device)]
        pairs += [("baseline", chain.baseline), ("seed", chain.seed)]
    pairs += [("doubt", whole.doubt), ("verdict", whole.verdict), ("incomplete", whole.incomplete)]
    pairs.append(("rounds", len(chain.of(step, stack))))
    judged = {judgement.budget.metric for judgement in judgements} or {"seconds"}
    for name, figure in whole.figures.items():
        pairs += _of_figure(name, figure, full, name in judged)
    for judgement in judgements:
        pairs += _of_budget(judgement.budget)
    return [(name, value) for name, value in pairs if value not in (None, "")]


def _of_figure(name: str, figure: Figure, full: bool, judged: bool) -> Iterator[tuple[str, object]]:
    if full or judged or name == "seconds":
        yield name, figure.median
    if full:
        yield f"{name}_unit", figure.unit
    if figure.overhead and (full or judged):
        yield f"{name}_estimate", figure.overhead.estimate
        yield f"{name}_low", figure.overhead.low
        yield f"{name}_high", figure.overhead.high
        yield f"{name}_confidence", figure.overhead.confidence if full else None


def _of_budget(budget: Budget) -> Iterator[tuple[str, object]]:
    yield f"{budget.metric}_budget", budget.overhead
    yield f"{budget.metric}_limit", budget.limit
