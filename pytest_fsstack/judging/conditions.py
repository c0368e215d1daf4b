"""Conditions of the machine around a round, and rules, fixed beforehand, that discard rounds by them.

A round is discarded whole, for all stacks alike. What is looked at must not depend on which stack ran when, or the
verdicts would be those of chosen rounds: so of load and pressure only what was there before the round counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.units import counted

#: What the conditions of a round are called, in docs/results.md too.
Conditions = Mapping[str, float]

#: What a rule may be about; a share is written in percent.
_SHARES = ("steal", "psi_cpu", "psi_io", "psi_memory")
NAMES = ("load", *_SHARES, "throttled")

_RULE = re.compile(r"(?P<name>[a-z_]+)\s*(?:>\s*(?P<most>\d+(?:\.\d+)?)\s*(?P<percent>%)?)?")

_HOW = "write 'load>2', 'steal>5%', 'psi_io>20%' (or psi_cpu, psi_memory) or 'throttled', with commas between"


@dataclass(frozen=True)
class Rule:
    """A round is discarded if the condition of this name is above `most`: a share, a load or a number of events."""

    name: str
    most: float = 0.0

    def __str__(self) -> str:
        if self.name == "throttled":
            return self.name
        return f"{self.name}>{f'{self.most * 100:.6g}%' if self.name in _SHARES else f'{self.most:g}'}"

    def broken(self, conditions: Conditions) -> bool:
        """Whether the rule discards a round under these conditions."""
        return conditions.get(self.name, 0.0) > self.most


class Discarded(msgspec.Struct, frozen=True):
    """A round that a rule discarded: it is kept, and never judged. `place` is the round that took its place, from 0."""

    place: int
    rule: str
    order: list[str]
    conditions: Conditions
    #: By step, then by stack.
    samples: Mapping[str, Mapping[str, Sample]] = {}


def parse(text: str) -> tuple[Rule, ...]:
    """Read ``load>2, steal>5%, psi_io>20%, throttled``. Raises `ValueError`."""
    return tuple(_rule(word.strip()) for word in text.split(","))


def _rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if not match or match["name"] not in NAMES:
        raise ValueError(f"{text!r} is no rule; {_HOW}")
    name, limit = match["name"], match["most"]
    if (limit is None) != (name == "throttled") or bool(match["percent"]) != (name in _SHARES):
        raise ValueError(f"{text!r} is no rule; {_HOW}")
    return Rule(name, float(limit or 0) / (100 if name in _SHARES else 1))


def first_broken(rules: Iterable[Rule], conditions: Conditions) -> Rule | None:
    """The first of the rules that discards a round; None if it is kept."""
    return next((rule for rule in rules if rule.broken(conditions)), None)


def summary(discarded: Sequence[Discarded]) -> str:
    """Return the number of discarded rounds and the reasons: ``3 discarded: load>2 (2), throttled (1)``."""
    rules = [item.rule for item in discarded]
    reasons = ", ".join(f"{rule} ({rules.count(rule)})" for rule in dict.fromkeys(rules))
    return f"{len(rules)} discarded: {reasons}" if rules else ""


def given_up(discarded: Sequence[Discarded]) -> str:
    """Return the message when as many rounds were discarded as were planned."""
    return f"{summary(discarded)}; no more were run in their place, because these are as many as were planned"


def unrest(rounds: Sequence[Conditions]) -> str:
    """Return the conspicuous conditions of rounds in a few words, empty if there are none."""
    stolen = [conditions["steal"] for conditions in rounds if conditions.get("steal", 0) > 0.02]
    throttled = sum(conditions.get("throttled", 0) > 0 for conditions in rounds)
    loads = [conditions["load"] for conditions in rounds if conditions.get("load", 0) > conditions.get("cpus", 1) + 1]
    frequencies = [conditions["frequency"] for conditions in rounds if conditions.get("frequency")]
    words = [
        f"up to {max(stolen):.0%} of the CPU time was stolen in {counted(len(stolen), 'round')}" if stolen else "",
        f"CPUs were throttled in {counted(throttled, 'round')}" if throttled else "",
        f"the load was up to {max(loads):.1f} before {counted(len(loads), 'round')}, the tests' own included"
        if loads
        else "",
        f"CPUs ran at {min(frequencies):.0f} to {max(frequencies):.0f} MHz"
        if frequencies and max(frequencies) > 1.25 * min(frequencies)
        else "",
    ]
    return ", ".join(filter(None, words))
