"""Runs now against runs then, for people."""

from __future__ import annotations

from collections.abc import Sequence
from math import expm1, isfinite

from pytest_fsstack.judging.past import Change, Comparison, Entry, Outlook
from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.spread import FEWEST_EARLIER
from pytest_fsstack.judging.verdict import percent
from pytest_fsstack.report.model import SIGNS, visible
from pytest_fsstack.units import OverheadUnit, format_quantity

CORRELATED = (
    "earlier runs follow each other (lag-1 correlation {:.2f}), so a false verdict is likelier than stated; "
    "fsstack trend shows whether it grows"
)
#: What a run without labels of its own is told by.
_TOLD_BY = ("branch", "commit", "kernel")


def lines(found: Comparison, now: Sequence[Results], then: Sequence[Results]) -> list[str]:
    """A section: what is compared, what differs, a row a series, and what is on one side only."""
    limit = "" if found.limit is None else f"at most {found.limit * 100:g} % more"
    facts = {"now": _side(now), "then": _side(then), "limit": limit}
    shown = [f"{name:<9} {text}" for name, text in facts.items() if text]
    shown += [f"{'differs':<9} {text}" for text in found.differences]
    shown += ["", *table(found)] if found.changes else []
    hows = dict.fromkeys(change.how for change in found.changes if change.how)
    remarks = [*hows, *(text for _, text in warnings(found))]
    shown += ["", *(f"* {text}" for text in remarks)] if remarks else []
    for places, when in (found.only_now, "now"), (found.only_then, "then"):
        shown += [f"* only {when}: {place}" for place in places]
    return list(map(visible, shown))


def warnings(found: Comparison) -> list[tuple[Change, str]]:
    """What no verdict says: references that moved, and runs that follow each other; with the series."""
    shown = []
    for change in found.moved:
        place, (then, now) = change.place, (Change.figure(side) for side in (change.then, change.now))
        figures = " -> ".join(format_quantity(value, change.unit) for value in (then, now))
        text = f"{place.stack} itself: {place.step} {figures}, {_more(change)}; no limit judges that"
        shown.append((change, text))
    for change in found.changes:
        if change.correlation:
            shown.append((change, f"{change.place}: {CORRELATED.format(change.correlation)}"))
    return shown


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
    metric = f"own {change.place.metric}" if change.is_reference else change.place.metric
    return (
        f"{change.place.stack}: {metric} {_more(change)} over {len(change.then)} earlier "
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
        if not change.is_reference:
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
    more = _more(change)
    if change.is_reference:
        more = f"{more} itself" if change.moved or change.outcome else ""
    return [str(change.place), _figures(change, change.then), _figures(change, change.now), more, verdict]


def _figures(change: Change, entries: Sequence[Entry]) -> str:
    figure, overhead = format_quantity(Change.figure(entries), change.unit), Change.overhead(entries)
    return figure if overhead is None else f"{figure}, {OverheadUnit.fitting([overhead]).signed(overhead)}"


def _more(change: Change) -> str:
    found = change.estimate
    shift = found.overhead if found else change.shift
    if shift is None:
        return ""
    unit = OverheadUnit.fitting([shift])
    interval = unit.interval(found.low, found.high) if found and isfinite(found.high) else ""
    return f"{unit.signed(shift)} {interval}".rstrip()


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


# -- before a session --------------------------------------------------------------------------------------------------


def plan_lines(series: Sequence[Outlook], limit: float) -> list[str]:
    """Return a table of what a limit can tell of one more run of each series."""
    from tabulate import tabulate

    headers = ["", "earlier runs", "differ by", f"undecided at {percent(limit)}", "decides from", "rounds for it"]
    text = tabulate(map(_plan_row, series), headers, tablefmt="simple", disable_numparse=True)
    return [visible(line.rstrip()) for line in text.splitlines()]


def _plan_row(series: Outlook) -> list[str]:
    if series.power is None:
        return [str(series.place), str(series.runs), "-", f"always: it takes {FEWEST_EARLIER} runs", "-", "-"]
    power = series.power
    rounds = "no number" if power.rounds is None else str(power.rounds)
    undecided = percent(1 - power.decided)
    return [
        str(series.place),
        str(series.runs),
        percent(expm1(power.spread.deviation)),
        undecided,
        percent(power.smallest),
        rounds,
    ]


def plan_in_short(series: Sequence[Outlook], limit: float) -> str:
    """Return a line on the series for which a limit decides the least; empty if it decides all of them."""
    undecided = [each for each in series if not each.decides]
    if not undecided:
        return "" if series else "no earlier run of this machine, so nothing is judged"
    worst = min(undecided, key=lambda each: each.power.decided if each.power else -1.0)
    more = f" (and {len(undecided) - 1} more)" if len(undecided) > 1 else ""
    if worst.power is None:
        runs = f"{worst.runs} accepted run{'' if worst.runs == 1 else 's'} of this machine"
        return f"{percent(limit)} cannot be judged for {worst.place}{more}: {runs}, it takes {FEWEST_EARLIER}"
    power = worst.power
    rounds = "no number of rounds is enough" if power.rounds is None else f"it takes {power.rounds} rounds"
    return (
        f"{percent(limit)} stays undecided in {percent(1 - power.decided)} of unchanged runs for {worst.place}{more}: "
        f"runs differ by {percent(expm1(power.spread.deviation))}; {rounds}, or a limit of {percent(power.smallest)}"
    )
