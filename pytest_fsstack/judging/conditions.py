"""Conditions of the machine around a round, and rules that discard rounds. Rules are fixed before the session.

A round is discarded for all stacks. A condition must not depend on the order of the stacks, or rules would select
rounds that favour some stacks. So load and pressure count only as they were before the round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_fsstack.records.conditions import Conditions
from pytest_fsstack.records.notices import Unrest

#: Conditions for rules. Shares are written in percent.
_SHARES = ("steal", "psi_cpu", "psi_io", "psi_memory")
NAMES = ("load", *_SHARES, "throttled")

_RULE = re.compile(r"(?P<name>[a-z_]+)\s*(?:>\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<percent>%)?)?")

_HOW = "write 'load>2', 'steal>5%', 'psi_io>20%' (or psi_cpu, psi_memory) or 'throttled', with commas between"


@dataclass(frozen=True)
class Rule:
    """A rule that discards a round if the named condition exceeds `limit`: a share, a load or a number of events."""

    name: str
    limit: float = 0.0

    def __str__(self) -> str:
        if self.name == "throttled":
            return self.name
        return f"{self.name}>{f'{self.limit * 100:.6g}%' if self.name in _SHARES else f'{self.limit:g}'}"

    def broken(self, conditions: Conditions) -> bool:
        """Whether these conditions break the rule."""
        return conditions.get(self.name, 0.0) > self.limit


def parse(text: str) -> tuple[Rule, ...]:
    """Parse rules such as ``load>2, steal>5%, psi_io>20%, throttled``. Raise `ValueError`."""
    return tuple(_rule(word.strip()) for word in text.split(","))


def _rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if not match or match["name"] not in NAMES:
        raise ValueError(f"{text!r} is not a valid rule; {_HOW}")
    name, limit = match["name"], match["limit"]
    if (limit is None) != (name == "throttled") or bool(match["percent"]) != (name in _SHARES):
        raise ValueError(f"{text!r} is not a valid rule; {_HOW}")
    return Rule(name, float(limit or 0) / (100 if name in _SHARES else 1))


def first_broken(rules: Iterable[Rule], conditions: Conditions) -> Rule | None:
    """Return the first rule that discards a round, or None to keep the round."""
    return next((rule for rule in rules if rule.broken(conditions)), None)


def summary(rules: Sequence[str]) -> str:
    """Return the number of discarded rounds and the rules: ``3 discarded: load>2 (2), throttled (1)``."""
    reasons = ", ".join(f"{rule} ({rules.count(rule)})" for rule in dict.fromkeys(rules))
    return f"{len(rules)} discarded: {reasons}" if rules else ""


def unrest(rounds: Sequence[Conditions]) -> Unrest | None:
    """Return the unusual conditions of some rounds, or None."""
    stolen = [conditions["steal"] for conditions in rounds if conditions.get("steal", 0) > 0.02]
    loads = [conditions["load"] for conditions in rounds if conditions.get("load", 0) > conditions.get("cpus", 1) + 1]
    frequencies = [conditions["frequency"] for conditions in rounds if conditions.get("frequency")]
    low, high = min(frequencies, default=0.0), max(frequencies, default=0.0)
    notice = Unrest(
        len(stolen),
        max(stolen, default=0.0),
        sum(conditions.get("throttled", 0) > 0 for conditions in rounds),
        len(loads),
        max(loads, default=0.0),
        (low, high) if high > 1.25 * low else None,
    )
    return notice if notice != Unrest() else None
