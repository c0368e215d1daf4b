"""Parsers of budgets in marks, the ini and the command line, and the choice of budgets for a stack."""

from __future__ import annotations

import difflib
import fnmatch
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.sample import METRICS

_WRITTEN = re.compile(
    r"(?:(?P<pattern>.+):)?\s*(?:(?P<metric>[A-Za-z_]\w*)\s*)?"
    r"(?P<limit><=|>=)?\s*(?P<value>[-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*(?P<percent>%)?\s*"
)


@dataclass(frozen=True)
class Rule:
    """A budget for the stacks whose id matches a shell pattern."""

    pattern: str
    budget: Budget
    #: A second pattern that must match. Empty: none.
    within: str = ""
    #: The origin of the text, such as ``--fsstack-budget``. Empty for a mark.
    origin: str = ""

    def matches(self, stack: str) -> bool:
        patterns = filter(None, (self.pattern, self.within))
        return all(fnmatch.fnmatchcase(stack, pattern) for pattern in patterns)


class BudgetError(ValueError):
    """Invalid syntax of a budget. The message shows the valid syntax."""


def rules(*positional: object, **keywords: object) -> list[Rule]:
    """Return the rules of an ``fsstack_budget`` marker: one number for all stacks, or numbers by pattern.

    The syntax is ``fsstack_budget(overhead, metric="seconds", limit=None, xfail={}, sanity=False)``. `xfail` maps
    patterns to the reason why the budget is expected to be broken. `sanity` marks a limit that any healthy machine
    keeps. Raises `BudgetError`.
    """
    if len(positional) > 1:
        raise BudgetError("only overhead can be given without its name; write metric= and limit=")
    if positional:
        if "overhead" in keywords:
            raise BudgetError("overhead is given twice")
        keywords["overhead"] = positional[0]
    allowed = ("overhead", "metric", "limit", "xfail", "sanity")
    if unknown := next((name for name in keywords if name not in allowed), None):
        near = difflib.get_close_matches(unknown, allowed, n=1)
        hint = f"did you mean {near[0]}=?" if near else "it takes overhead=, metric=, limit=, xfail= and sanity="
        raise BudgetError(f"it has no argument {unknown!r}; {hint}")
    metric = keywords.get("metric", "seconds")
    if not isinstance(metric, str) or not metric:
        raise BudgetError(f"metric must be the name of one metric, such as 'seconds' (got {metric!r})")
    overhead, limit = keywords.get("overhead"), keywords.get("limit")
    if (overhead is None) == (limit is None):
        raise BudgetError("a budget has either overhead='30%' (over the baseline) or limit=... (in the metric's unit)")
    kind, amounts = ("overhead", overhead) if limit is None else ("limit", limit)
    values = amounts if isinstance(amounts, Mapping) else {"*": amounts}
    if wrong := next((pattern for pattern in values if not isinstance(pattern, str)), None):
        raise BudgetError(f"a pattern must be text, such as 'luks*' (got {wrong!r})")
    sanity = keywords.get("sanity", False)
    if not isinstance(sanity, bool):
        raise BudgetError(f"sanity must be True or False (got {sanity!r})")
    budgets = {pattern: replace(_budget(metric, kind, value), sanity=sanity) for pattern, value in values.items()}
    parsed = [Rule(pattern, budget) for pattern, budget in budgets.items()]
    expected = keywords.get("xfail", {})
    if not isinstance(expected, Mapping) or not all(map(_is_text, [*expected, *expected.values()])):
        raise BudgetError(f"xfail must give reasons by stack, such as {{'xfs': 'BUG-1'}} (got {expected!r})")
    exceptions = [
        Rule(pattern, replace(rule.budget, xfail=reason), rule.pattern)
        for pattern, reason in expected.items()
        for rule in parsed
    ]
    return parsed + exceptions


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def doubts(*positional: object, **keywords: object) -> list[str]:
    """Return warnings about a valid mark: an overhead that may have been meant in percent."""
    overheads = positional[0] if positional else keywords.get("overhead")
    values = overheads.values() if isinstance(overheads, Mapping) else [overheads]
    return [
        f"overhead={value:g} allows {value * 100:g} %; write '{value:g}%' or, if it is meant, '{value * 100:g}%'"
        for value in values
        if isinstance(value, (int, float)) and value > 10
    ]


def percentage(text: str) -> float:
    """Parse ``30%`` to 0.3. Raises `BudgetError`."""
    match = re.fullmatch(r"\s*([-+]?\d+(?:\.\d+)?)\s*%\s*", text)
    if not match:
        raise BudgetError(f"must be a percentage such as 5% (got {text!r})")
    share = float(match[1]) / 100
    if not -1 < share < math.inf:
        raise BudgetError(f"a budget of {text.strip()} is impossible: nothing can cost less than nothing")
    return share


def parse(text: str, origin: str = "") -> Rule:
    """Parse ``30%``, ``luks*: 30%``, ``luks*: written_bytes 50%`` or ``ext4: seconds <= 2.5``. Raises `BudgetError`."""
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
    if match["percent"]:
        return Rule(pattern, _budget(metric, "overhead", value / 100), origin=origin)
    budget = replace(_budget(metric, "limit", value), better="lower" if match["limit"] == "<=" else "higher")
    if metric in METRICS and (mistake := budget.wrong_sign(METRICS[metric].better)):
        raise BudgetError(mistake)
    return Rule(pattern, budget, origin=origin)


def applying(marked: Iterable[Rule], commanded: Iterable[Rule], stack: str) -> list[Budget]:
    """Return the budgets of a stack: for each metric and kind, the last rule that matches its id.

    Rules of the command line and the ini come after those of markers, so they can add exceptions.
    """
    budgets: dict[tuple[str, bool], Budget] = {}
    for rule in [*marked, *commanded]:
        if rule.matches(stack):
            budgets[rule.budget.metric, rule.budget.limit is None] = rule.budget
    return list(budgets.values())


def unmatched(rules: Iterable[Rule], stacks: Iterable[str], possible: Iterable[str] = ()) -> str:
    """Return an error about the first rule that matches no stack, with the closest name. Empty if all match.

    A pattern with one of the `possible` layers may apply to stacks of other sessions.
    """
    names, layers = list(stacks), list(possible)
    for rule in rules:
        words = re.findall(r"[\w-]+", rule.pattern)
        elsewhere = any(layer in words or rule.matches(layer) for layer in layers)
        if not any(map(rule.matches, names)) and not elsewhere:
            near = difflib.get_close_matches(rule.pattern, names, 1, 0)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            there = f"(there are: {', '.join(names)})"
            return f"no measured stack is called {rule.pattern!r}, so its budget is never judged{hint} {there}"
    return ""


def uncompared(rules: Iterable[Rule], stacks: Iterable[str]) -> str:
    """Return an error about the first overhead for baselines only. Empty if there is none.

    `stacks` are those that are compared with a baseline. A budget for all stacks is never wrong.
    """
    names = list(stacks)
    for rule in rules:
        if rule.budget.overhead is not None and rule.pattern != "*" and not any(map(rule.matches, names)):
            return (
                f"{rule.pattern!r} matches only the baseline, which is compared with nothing, so this budget is never "
                "judged; give a limit instead, or name another stack"
            )
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
    if value < 0:
        raise BudgetError(f"a budget's limit must be 0 or more (got {value:g})")
    return Budget(metric, limit=float(value))
