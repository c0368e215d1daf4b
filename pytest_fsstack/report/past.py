"""Runs now against runs then, for people."""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, isfinite

from pytest_fsstack.judging.past import Change, Comparison, Entry
from pytest_fsstack.judging.results import Results
from pytest_fsstack.report.model import SIGNS, visible
from pytest_fsstack.units import OverheadUnit, format_quantity

#: What a run without labels of its own is told by.
_TOLD_BY = ("branch", "commit", "kernel")


def lines(found: Comparison, now: Sequence[Results], then: Sequence[Results]) -> list[str]:
    """A section: what is compared, what differs, a row a series, and what is on one side only."""
    limit = "" if found.limit is None else f"at most {found.limit * 100:g} % more"
    facts = {"now": _side(now), "then": _side(then), "limit": limit}
    shown = [f"{name:<9} {text}" for name, text in facts.items() if text]
    shown += [f"{'differs':<9} {text}" for text in found.differences]
    shown += ["", *table(found)] if found.changes else []
    hows = dict.fromkeys(change.how for change in found.compared if change.how)
    shown += ["", *(f"* {how}" for how in hows)] if hows else []
    for places, when in (found.only_now, "now"), (found.only_then, "then"):
        shown += [f"* only {when}: {place}" for place in places]
    return list(map(visible, shown))


def table(found: Comparison) -> list[str]:
    """A row a series: its figure and its overhead on both sides, and the change of the overhead with its verdict."""
    from tabulate import tabulate

    rows = [_row(change) for change in found.changes]
    headers = ["", "then", "now", "more over its reference", "verdict"]
    text = tabulate(rows, headers, tablefmt="simple", disable_numparse=True)
    return [line.rstrip() for line in text.splitlines()]


def in_short(change: Change, limit: float) -> str:
    """A change with its limit, for what shows only the first line of a failure."""
    assert change.estimate is not None
    unit = OverheadUnit.fitting([change.estimate.overhead])
    return (
        f"{change.place.stack}: {change.place.metric} {_more(change)} over {len(change.then)} earlier "
        f"run{'' if len(change.then) == 1 else 's'}, limit {unit.limit(limit)}"
    )


def describe(change: Change, found: Comparison) -> str:
    """What was judged or not: all of it in the first line, then the figures of all runs."""
    assert found.limit is not None
    said = in_short(change, found.limit) if change.estimate else f"{change.place.stack}: {change.how}"
    if change.outcome != "fail":
        said = f"inconclusive: {said}"
    rows = [(when, entries) for when, entries in (("then", change.then), ("now", change.now))]
    text = [said, "", f"  series:  {change.place.name}", f"  verdict: {change.how}"]
    for when, entries in rows:
        overheads = ["-" if each.ratio is None else _percent(each.ratio) for each in entries]
        text.append(f"  {when + ':':<8} over {change.reference}: {' '.join(overheads)}")
        text.append(f"  {'':<8} {change.unit or 'figure'}: {' '.join(f'{each.figure:.4g}' for each in entries)}")
    text += [f"  differs: {each}" for each in found.differences]
    if change.outcome == "fail":
        text += [
            "",
            f"A stack that costs no more than that is called slower in at most {found.alpha * 100:g} % of cases.",
        ]
    return "\n".join(text)


def _percent(ratio: float) -> str:
    return OverheadUnit().signed(expm1(ratio)).replace(" ", "")


def _row(change: Change) -> list[str]:
    verdict = SIGNS[change.outcome] if change.outcome else "" if change.shift is None else "-"
    return [str(change.place), _figures(change, change.then), _figures(change, change.now), _more(change), verdict]


def _figures(change: Change, entries: Sequence[Entry]) -> str:
    figure, overhead = format_quantity(Change.figure(entries), change.unit), Change.overhead(entries)
    return figure if overhead is None else f"{figure}, {OverheadUnit.fitting([overhead]).signed(overhead)}"


def _more(change: Change) -> str:
    if change.shift is None:
        return ""
    unit, found = OverheadUnit.fitting([change.shift]), change.estimate
    interval = unit.interval(found.low, found.high) if found and isfinite(found.high) else ""
    return f"{unit.signed(change.shift)} {interval}".rstrip()


def _side(runs: Sequence[Results]) -> str:
    """How many runs, of which time, and what they were told by."""
    times = sorted(results.start for results in runs if results.start)
    words = [f"{len(runs)} run{'' if len(runs) == 1 else 's'}"]
    if times:
        words.append(times[0] if len(set(times)) == 1 else f"{times[0]} to {times[-1]}")
    for name in _TOLD_BY:
        values = dict.fromkeys(results.labels[name] for results in runs if name in results.labels)
        if values:
            shown = [value[:12] if name == "commit" else value for value in values]
            words.append(f"{name} {', '.join(shown[:3])}{f' and {len(shown) - 3} more' if len(shown) > 3 else ''}")
    return "; ".join(words)
