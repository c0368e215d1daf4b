"""What may not be exceeded: budgets as people write them, and which of them hold for a stack."""

from __future__ import annotations

import difflib
import fnmatch
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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
    #: Why it is expected to be broken, if it is.
    xfail: str | None = None


@dataclass(frozen=True)
class Rule:
    """A budget for the stacks whose id matches a shell pattern."""

    pattern: str
    budget: Budget
    #: A further pattern that must match; empty if there is none.
    within: str = ""

    def matches(self, stack: str) -> bool:
        patterns = filter(None, (self.pattern, self.within))
        return all(fnmatch.fnmatchcase(stack, pattern) for pattern in patterns)


class BudgetError(ValueError):
    """A budget is written wrongly; the message says how it is written."""


def rules(*positional: object, **named: object) -> list[Rule]:
    """The rules of one ``fsstack_budget`` marker: one number for all stacks, or numbers by pattern, for one metric.

    It is written ``fsstack_budget(overhead, metric="seconds", limit=None, xfail={})``. `xfail` gives for some patterns
    the reason why the budget is expected to be broken there. Raises `BudgetError`.
    """
    if len(positional) > 1:
        raise BudgetError("only overhead is given without its name; metric= and limit= are given by name")
    if positional:
        if "overhead" in named:
            raise BudgetError("overhead is given twice")
        named["overhead"] = positional[0]
    known = ("overhead", "metric", "limit", "xfail")
    if unknown := next((name for name in named if name not in known), None):
        near = difflib.get_close_matches(unknown, known, n=1)
        hint = f"did you mean {near[0]}=?" if near else "it takes overhead=, metric=, limit= and xfail="
        raise BudgetError(f"it has no argument {unknown!r}; {hint}")
    metric = named.get("metric", "seconds")
    if not isinstance(metric, str) or not metric:
        raise BudgetError(f"metric must be the name of one metric, such as 'seconds' (got {metric!r})")
    overhead, limit = named.get("overhead"), named.get("limit")
    if (overhead is None) == (limit is None):
        raise BudgetError("a budget has either overhead='30%' (over the baseline) or limit=... (in the metric's unit)")
    kind, given = ("overhead", overhead) if limit is None else ("limit", limit)
    values = given if isinstance(given, Mapping) else {"*": given}
    if wrong := next((pattern for pattern in values if not isinstance(pattern, str)), None):
        raise BudgetError(f"a pattern must be text, such as 'luks*' (got {wrong!r})")
    found = [Rule(pattern, _budget(metric, kind, value)) for pattern, value in values.items()]
    expected = named.get("xfail", {})
    if not isinstance(expected, Mapping):
        raise BudgetError(f"xfail must give reasons by stack, such as {{'xfs': 'BUG-1'}} (got {expected!r})")
    for pattern, reason in expected.items():
        if not isinstance(pattern, str) or not isinstance(reason, str) or not reason:
            raise BudgetError(f"xfail must give reasons by stack, such as {{'xfs': 'BUG-1'}} (got {expected!r})")
        found += [Rule(pattern, replace(rule.budget, xfail=reason), rule.pattern) for rule in found if not rule.within]
    return found


def doubts(*positional: object, **named: object) -> list[str]:
    """What is odd about a marker that `rules` accepts: an overhead that may have been meant in percent."""
    given = positional[0] if positional else named.get("overhead")
    values = given.values() if isinstance(given, Mapping) else [given]
    return [
        f"overhead={value:g} allows {value * 100:g} %; write '{value:g}%' or, if it is meant, '{value * 100:g}%'"
        for value in values
        if isinstance(value, (int, float)) and value > 10
    ]


def percentage(text: str) -> float:
    """Read ``30%`` as 0.3. Raises `BudgetError`."""
    match = re.fullmatch(r"\s*([-+]?\d+(?:\.\d+)?)\s*%\s*", text)
    if not match:
        raise BudgetError(f"must be a percentage such as 5% (got {text!r})")
    share = float(match[1]) / 100
    if not -1 < share < math.inf:
        raise BudgetError(f"a budget of {text.strip()} is impossible: nothing can cost less than nothing")
    return share


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
    """The budgets of a stack: for each metric and kind the last rule that matches its id.

    The rules of the command line and the ini come after those of the markers, so that one can add exceptions there.
    """
    chosen: dict[tuple[str, bool], Budget] = {}
    for rule in [*marked, *commanded]:
        if rule.matches(stack):
            chosen[rule.budget.metric, rule.budget.limit is None] = rule.budget
    return list(chosen.values())


def unmatched(rules: Iterable[Rule], stacks: Iterable[str], possible: Iterable[str] = ()) -> str:
    """What is wrong with the first rule that holds for none of the stacks, with the nearest name; empty if none is.

    A rule whose pattern names one of the `possible` layers may hold for a stack that there is elsewhere.
    """
    names, layers = list(stacks), list(possible)
    for rule in rules:
        words = re.findall(r"[\w-]+", rule.pattern)
        elsewhere = any(layer in words or rule.matches(layer) for layer in layers)
        if not any(map(rule.matches, names)) and not elsewhere:
            near = difflib.get_close_matches(rule.pattern, names, 1, 0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            known = ", ".join(names)
            return f"no stack is called {rule.pattern!r}, so its budget is never judged{hint} (there are: {known})"
    return ""


def _budget(metric: str, kind: str, value: object) -> Budget:
    if kind == "overhead" and isinstance(value, str):
        value = percentage(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BudgetError(f"a budget's {kind} must be a number (got {value!r})")
    if kind == "overhead":
        if value <= -1:
            raise BudgetError(f"a budget of {value * 100:g} % is impossible: nothing can cost less than nothing")
        return Budget(metric, overhead=float(value))
    if value <= 0:
        raise BudgetError(f"a budget's limit must be above zero (got {value:g})")
    return Budget(metric, limit=float(value))
