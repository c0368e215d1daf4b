"""What may not be exceeded: budgets as people write them, and which of them hold for a stack."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_WRITTEN = re.compile(
    r"(?:(?P<pattern>.+):)?\s*(?:(?P<metric>[A-Za-z_]\w*)\s*)?(?P<limit><=|>=)?\s*(?P<value>[-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(?P<percent>%)?\s*"
)


@dataclass(frozen=True)
class Budget:
    """For one metric, the overhead over the baseline that is allowed (0.3 is 30 %), or an absolute limit in its unit.

    `limit` is the most where less is better, the least where more is better. Exactly one of the two is given.
    """

    metric: str = "seconds"
    overhead: float | None = None
    limit: float | None = None


@dataclass(frozen=True)
class Rule:
    """A budget for the stacks whose id matches a shell pattern."""

    pattern: str
    budget: Budget

    def matches(self, stack: str) -> bool:
        return fnmatch.fnmatchcase(stack, self.pattern)


class BudgetError(ValueError):
    """A budget is written wrongly; the message says how it is written."""


def rules(overhead: object = None, *, metric: str = "seconds", limit: object = None) -> list[Rule]:
    """The rules of one ``fsstack_budget`` marker: a number for all stacks, or numbers by pattern, for one metric.

    Raises `BudgetError`.
    """
    if (overhead is None) == (limit is None):
        raise BudgetError("a budget has either overhead=0.30 (over the baseline) or limit=... (in the metric's unit)")
    kind, given = ("overhead", overhead) if limit is None else ("limit", limit)
    values = given if isinstance(given, Mapping) else {"*": given}
    return [Rule(str(pattern), _budget(metric, kind, value)) for pattern, value in values.items()]


def parse(text: str) -> Rule:
    """Read ``30%``, ``luks*: 30%``, ``luks*: written_bytes 50%`` or ``ext4: seconds <= 2.5``. Raises `BudgetError`."""
    match = _WRITTEN.fullmatch(text.strip())
    if not match or bool(match["limit"]) == bool(match["percent"]):
        raise BudgetError(
            f"{text!r} is not a budget; write 'luks*: 30%', 'luks*: written_bytes 50%' or 'ext4: seconds <= 2.5'"
        )
    pattern, metric = (match["pattern"] or "*").strip(), match["metric"] or "seconds"
    try:
        value = float(match["value"])
    except ValueError:
        raise BudgetError(f"{match['value']!r} in the budget {text!r} is not a number") from None
    return Rule(
        pattern, _budget(metric, "limit", value) if match["limit"] else _budget(metric, "overhead", value / 100)
    )


def applying(marked: Iterable[Rule], commanded: Iterable[Rule], stack: str) -> list[Budget]:
    """The budgets of a stack: for each metric and kind the first marker's rule that matches its id.

    Rules from the command line or the ini come first, and the last of those that match wins, so that one can add
    exceptions at the end.
    """
    chosen: dict[tuple[str, bool], Budget] = {}
    for rule in [*reversed(list(commanded)), *marked]:
        if rule.matches(stack):
            chosen.setdefault((rule.budget.metric, rule.budget.limit is None), rule.budget)
    return list(chosen.values())


def _budget(metric: str, kind: str, value: object) -> Budget:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BudgetError(f"a budget's {kind} must be a number, not {value!r}")
    if kind == "overhead":
        if value <= -1:
            raise BudgetError(f"a budget of {value * 100:g} % is impossible: nothing can cost less than nothing")
        return Budget(metric, overhead=float(value))
    if value <= 0:
        raise BudgetError(f"a budget's limit must be above zero, not {value:g}")
    return Budget(metric, limit=float(value))
