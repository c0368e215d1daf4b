"""Records of other programs: the facts about a test in pytest-benchmark's files and in JUnit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from pytest_fsstack.judging.describe import EMULATED, describe_shortly, doubt_in_words, note_in_words
from pytest_fsstack.judging.readings import Readings
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.readings import Reading


class Figures(msgspec.Struct, frozen=True):
    """The figures of a test for other programs: facts, times in seconds, a group, and named values."""

    facts: Mapping[str, Any]
    seconds: tuple[float, ...]
    group: str
    properties: tuple[tuple[str, Any], ...]


def figures(readings: Readings, step: str, stack: str, *, full: bool) -> Figures | None:
    """Return a test's figures for other programs, or None if nothing was measured."""
    chain = readings.chain
    if not (of_test := facts(readings, step, stack)):
        return None
    text = describe_shortly(readings, step, stack)
    summary = ("summary", f"{chain.worst(step, stack)}: {text}" if text else "")
    pairs = (*properties(readings, step, stack, full=full), summary)
    return Figures(of_test, tuple(chain.series(step, stack, "seconds")), chain.groups.get(step, step), pairs)


def facts(readings: Readings, step: str, stack: str) -> dict[str, Any]:
    """Return the facts about a step on a stack, for records of other programs. Empty if nothing was measured."""
    chain, samples, whole = readings.chain, readings.chain.of(step, stack), readings.derived(step, stack)
    if not chain.measures(step, stack):
        return {}
    facts: dict[str, Any] = msgspec.to_builtins(
        {
            "stack": chain.stacks[stack].spec,
            "device": chain.device,
            "baseline": chain.baseline,
            "seed": chain.seed,
            "rounds": [key.number for key in samples],
            "samples": {name: chain.series(step, stack, name) for name in whole.readings},
            "judgements": chain.judgements_of(step, stack),
            "derived": whole,
            "note": note_in_words(chain.note(step, stack)),
            "emulated": chain.is_emulated(stack),
        }
    )
    return facts


def properties(readings: Readings, step: str, stack: str, *, full: bool = True) -> list[tuple[str, object]]:
    """Return the properties for JUnit. Empty if nothing was measured.

    If not `full`: the verdict, the rounds, the seconds, and the overheads that have a budget.
    """
    chain, whole = readings.chain, readings.derived(step, stack)
    judgements = chain.judgements_of(step, stack)
    if not whole.samples:
        return []
    pairs: list[tuple[str, object]] = [("emulated", EMULATED)] if chain.is_emulated(stack) else []
    if full:
        pairs += [("stack", chain.stacks[stack].spec), ("device", chain.device)]
        pairs += [("baseline", chain.baseline), ("seed", chain.seed)]
    pairs += [("doubt", doubt_in_words(whole.doubts)), ("verdict", whole.verdict), ("incomplete", whole.incomplete)]
    pairs.append(("rounds", whole.samples))
    judged = {judgement.budget.metric for judgement in judgements} or {"seconds"}
    for name, reading in whole.readings.items():
        pairs += _of_reading(name, reading, full, name in judged)
    for judgement in judgements:
        pairs += _of_budget(judgement.budget)
    return [(name, value) for name, value in pairs if value not in (None, "")]


def _of_reading(name: str, reading: Reading, full: bool, judged: bool) -> Iterator[tuple[str, object]]:
    if full or judged or name == "seconds":
        yield name, reading.median
    if full:
        yield f"{name}_unit", reading.metric.unit
    if reading.estimate and (full or judged):
        yield f"{name}_estimate", reading.estimate.overhead
        yield f"{name}_low", reading.estimate.low
        yield f"{name}_high", reading.estimate.high if reading.estimate.has_interval else None
        yield f"{name}_confidence", reading.estimate.confidence if full else None


def _of_budget(budget: Budget) -> Iterator[tuple[str, object]]:
    yield f"{budget.metric}_budget", budget.overhead
    yield f"{budget.metric}_limit", budget.limit
