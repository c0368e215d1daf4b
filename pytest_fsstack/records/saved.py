"""The results of a session as JSON, for reports, the history, comparisons and later sessions.

The record types define the format. `loads` reverses `dumps`.
docs/results.md describes the fields, and `schema` defines them exactly.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from pytest_fsstack.records.environment import Environment
from pytest_fsstack.records.results import FORMAT, ChainResults, Results
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
    """Return results as the JSON of a file."""
    return f"{line(results)}\n"


def line(results: Results) -> str:
    """Return results as one line of JSON without a newline. `loads` reads it too."""
    return _as_json(results).decode()


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
    for table in (chain.samples, chain.judgements, chain.notes, chain.derived):
        for step, by_stack in table.items():
            if step not in chain.steps:
                raise ValueError(f"{chain.id}: there is no step {step}")
            if unknown := by_stack.keys() - chain.stacks.keys():
                raise ValueError(f"{chain.id}: there is no stack {min(unknown)}")
    readings = [reading for by in chain.derived.values() for one in by.values() for reading in one.readings.values()]
    referred = {*chain.overall, *(reading.reference for reading in readings if reading.reference)}
    if unknown := referred - chain.stacks.keys():
        raise ValueError(f"{chain.id}: there is no stack {min(unknown)}")
    for step, stack, samples in chain.all_samples():
        names = {name for sample in samples.values() for name in sample.values}
        if unknown := names - METRICS.keys() - chain.own_metrics.get(step, {}).keys():
            raise ValueError(f"{chain.id}: {step} on {stack} has an undefined metric: {min(unknown)}")


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
    return replace(chain, samples={}, orders=[], mixed=[], conditions=[], discarded=[])


def _of_last_round(chain: ChainResults) -> ChainResults:
    """Return the last round of a chain, with those that it was mixed with."""
    line = _without_rounds(chain)
    if chain.discarded and chain.discarded[-1].replaced_by == chain.rounds:
        line.discarded = chain.discarded[-1:]
        return line
    start = chain.rounds - 1
    if chain.mixed and start in chain.mixed[-1].numbers:
        start, line.mixed = chain.mixed[-1].start, chain.mixed[-1:]
    line.orders, line.conditions = chain.orders[start:], chain.conditions[start:]
    for step, by_stack in chain.samples.items():
        for stack, by_boot in by_stack.items():
            for boot, samples in by_boot.items():
                if last := {number: sample for number, sample in samples.items() if number >= start}:
                    line.samples.setdefault(step, {}).setdefault(stack, {})[boot] = last
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
    results, chains = Results(), dict[Hashable, ChainResults]()
    rounds = 0
    for number, text in enumerate(lines, start=1):
        line = msgspec.json.decode(text, type=LogLine)
        if line.line != number:
            raise ValueError(f"line {number} of the log has the number {line.line}")
        rounds += max((len(chain.orders) or len(chain.discarded) for chain in line.chains), default=0)
        for chain in line.chains:
            key = (chain.id, *chain.devices, chain.view)
            _add_rounds(chain, chains.pop(key, None))
            chains[key] = chain
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
    chain.mixed = before.mixed + chain.mixed
    chain.conditions = before.conditions + chain.conditions
    chain.discarded = before.discarded + chain.discarded
    for step, by_stack in chain.samples.items():
        for stack, by_boot in by_stack.items():
            for boot, samples in by_boot.items():
                before.samples.setdefault(step, {}).setdefault(stack, {}).setdefault(boot, {}).update(samples)
    chain.samples = before.samples
