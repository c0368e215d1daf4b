"""The text of comparisons with earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, expm1
from typing import NamedTuple

from pytest_fsstack.judging.describe import EMULATED, change_in_words, notice_in_words
from pytest_fsstack.over_time.comparison import Change, Comparison, Outlook, RunFigure, row_names
from pytest_fsstack.over_time.spread import MIN_EARLIER_RUNS
from pytest_fsstack.records.notices import Notice, ReferenceMoved, RunsCorrelated
from pytest_fsstack.records.results import Results
from pytest_fsstack.report.answer import emulation
from pytest_fsstack.report.model import Cell, Grid
from pytest_fsstack.report.terminal import tabulated
from pytest_fsstack.report.wording import SIGNS
from pytest_fsstack.units import LARGEST, OverheadUnit, counted, format_quantity, percent, visible

#: The columns of a comparison after the name of the series.
_HEADERS = ("then", "now", "change of the cost", "verdict")
#: The labels that identify a run in reports.
_IDENTIFYING_LABELS = ("branch", "commit", "kernel")


class Section(NamedTuple):
    """The section of a report on earlier runs: facts about both sides, a row for each series, and remarks."""

    title: str
    facts: list[tuple[str, str]]
    grid: Grid
    remarks: list[str]


def section(comparison: Comparison, now: Sequence[Results], then: Sequence[Results]) -> Section:
    """Return the section about a comparison, which is the same in all reports."""
    limit = "" if comparison.limit is None else f"at most {comparison.limit * 100:g} % more"
    emulated = any(emulation(results) for results in (*now, *then))
    facts = [("emulated", EMULATED if emulated else ""), ("now", _side(now)), ("then", _side(then)), ("limit", limit)]
    facts += [("differs", text) for text in comparison.differences]
    remarks = [*dict.fromkeys(change.explanation for change in comparison.changes if change.explanation)]
    remarks += [notice_in_words(notice) for _, notice in warnings(comparison)]
    for places, when in (comparison.only_now, "now"), (comparison.only_then, "then"):
        remarks += [f"only {when}: {place}" for place in places]
    title = f"against {counted(len(then), 'earlier run')}"
    return Section(title, [fact for fact in facts if fact[1]], _grid(comparison), remarks)


def _grid(comparison: Comparison) -> Grid:
    rows = [
        [*map(Cell, texts), Cell(verdict, outcome=change.outcome)]
        for change, (*texts, verdict) in zip(comparison.changes, _rows(comparison))
    ]
    return Grid("earlier runs", ["series", *_HEADERS], rows)


def lines(comparison: Comparison, now: Sequence[Results], then: Sequence[Results]) -> list[str]:
    """Return the section as lines for a terminal."""
    part = section(comparison, now, then)
    text = [f"{name:<9} {fact}" for name, fact in part.facts]
    text += ["", *table(comparison)] if comparison.changes else []
    text += ["", *(f"* {remark}" for remark in part.remarks)] if part.remarks else []
    return list(map(visible, text))


def warnings(comparison: Comparison) -> list[tuple[Change, Notice]]:
    """Return warnings without a verdict, by series: references that moved, and correlated runs."""
    notices: list[tuple[Change, Notice]] = []
    for change in comparison.moved:
        key, (then, now) = change.key, (Change.figure(side) for side in (change.then, change.now))
        notices.append((change, ReferenceMoved(key.step, key.stack, change.unit, then, now, change.estimate)))
    for change in comparison.changes:
        if change.correlation:
            notices.append((change, RunsCorrelated(str(change.key), change.correlation)))
    return notices


def table(comparison: Comparison) -> list[str]:
    """Return a row for each series: figure and overhead on both sides, and the change with its verdict."""
    return tabulated(_rows(comparison), ["", *_HEADERS])


def in_short(change: Change, limit: float) -> str:
    """Describe a change with its limit in one line."""
    assert change.estimate is not None
    unit = OverheadUnit.fitting([change.estimate.overhead])
    metric = f"own {change.key.metric}" if change.is_reference else change.key.metric
    return (
        f"{change.key.stack}: {metric} {_more(change)} over "
        f"{counted(len(change.then), 'earlier run')}, limit {unit.limit(limit)}"
    )


def describe(change: Change, comparison: Comparison) -> str:
    """Describe a verdict on a change: in short in the first line, then with the figures of all runs."""
    assert comparison.limit is not None
    summary = in_short(change, comparison.limit) if change.estimate else f"{change.key.stack}: {change.explanation}"
    if change.outcome != "fail":
        summary = f"inconclusive: {summary}"
    text = [summary, "", f"  series:  {change.key.name}", f"  verdict: {change.explanation}"]
    for when, runs in (("then", change.then), ("now", change.now)):
        overheads = ["-" if run.ratio is None else _percent(run.ratio) for run in runs]
        if not change.is_reference:
            text.append(f"  {when + ':':<8} over {change.reference}: {' '.join(overheads)}")
        text.append(f"  {'':<8} {change.unit or 'figure'}: {' '.join(f'{run.reading.median:.4g}' for run in runs)}")
    text += [f"  differs: {entry}" for entry in comparison.differences]
    if change.outcome == "fail":
        text += [
            "",
            f"If the change is within the limit, this verdict has at most a {comparison.alpha * 100:g} % chance.",
        ]
    return "\n".join(text)


def _percent(ratio: float) -> str:
    return OverheadUnit().signed(expm1(ratio)).replace(" ", "")


def _rows(comparison: Comparison) -> list[list[str]]:
    names = row_names([change.key for change in comparison.changes])
    return [[name, *_cells(change)] for name, change in zip(names, comparison.changes)]


def _cells(change: Change) -> list[str]:
    verdict = SIGNS[change.outcome] if change.outcome else "" if change.shift is None else "-"
    more = _more(change)
    if change.is_reference:
        more = f"{more} itself" if change.moved or change.outcome else ""
    return [_figures(change, change.then), _figures(change, change.now), more, verdict]


def _figures(change: Change, runs: Sequence[RunFigure]) -> str:
    figure, overhead = format_quantity(Change.figure(runs), change.unit), Change.overhead(runs)
    return figure if overhead is None else f"{figure}, {OverheadUnit.fitting([overhead]).signed(overhead)}"


def _more(change: Change) -> str:
    if change.estimate or change.shift is None:
        return change_in_words(change.estimate)
    return OverheadUnit.fitting([change.shift]).signed(change.shift)


def _side(runs: Sequence[Results]) -> str:
    """Return the number of runs, their time, and their labels."""
    times = sorted(results.start for results in runs if results.start)
    words = [counted(len(runs), "run")]
    if times:
        words.append(times[0] if len(set(times)) == 1 else f"{times[0]} to {times[-1]}")
    for name in _IDENTIFYING_LABELS:
        values = dict.fromkeys(results.labels[name] for results in runs if name in results.labels)
        if values:
            labels = [value[:12] if name == "commit" else value for value in values]
            words.append(f"{name} {', '.join(labels[:3])}{f' and {len(labels) - 3} more' if len(labels) > 3 else ''}")
    return "; ".join(words)


# -- before a session --------------------------------------------------------------------------------------------------


def plan_lines(series: Sequence[Outlook], limit: float) -> list[str]:
    """Return a table of the power of a limit for one more run, by series."""
    headers = ["", "earlier runs", "differ by", f"undecided at {percent(limit)}", "decides from", "rounds for it"]
    names = row_names([outlook.key for outlook in series])
    return list(map(visible, tabulated([[name, *_plan_cells(row)] for name, row in zip(names, series)], headers)))


def _plan_cells(series: Outlook) -> list[str]:
    if series.power is None:
        return [str(series.runs), "-", f"always: it takes {MIN_EARLIER_RUNS} runs", "-", "-"]
    power = series.power
    rounds = "no number" if power.rounds is None else str(power.rounds)
    undecided = percent(1 - power.decided)
    return [
        str(series.runs),
        percent(expm1(power.spread.deviation)),
        undecided,
        _typed(power.smallest),
        rounds,
    ]


def plan_in_short(series: Sequence[Outlook], limit: float) -> str:
    """Describe the series for which a limit decides the least. Empty if it decides all of them."""
    undecided = [outlook for outlook in series if not outlook.decides]
    if not undecided:
        return "" if series else "no earlier run of these tests on this machine, so nothing is judged"
    worst = min(undecided, key=lambda outlook: outlook.power.decided if outlook.power else -1.0)
    more = f" (and {len(undecided) - 1} more)" if len(undecided) > 1 else ""
    if worst.power is None:
        runs = f"{counted(worst.runs, 'earlier run')} of this machine"
        return f"{percent(limit)} cannot be judged for {worst.key}{more}: {runs}, but it takes {MIN_EARLIER_RUNS}"
    power = worst.power
    rounds = [] if power.rounds is None else [f"{power.rounds} rounds"]
    limits = [f"a limit of {_typed(power.smallest)}"] if power.smallest < LARGEST else []
    return (
        f"{percent(limit)} stays undecided in {percent(1 - power.decided)} of unchanged runs for {worst.key}{more}: "
        f"runs differ by {percent(expm1(power.spread.deviation))}; "
        f"to decide, it takes {', or '.join([*rounds, *limits]) or 'runs that differ less'}"
    )


def _typed(limit: float) -> str:
    """Return a limit as it can be given to an option, or ``none`` if no figure would be above it."""
    return "none" if limit >= LARGEST else f"{ceil(limit * 1000) / 10:.1f} %"
