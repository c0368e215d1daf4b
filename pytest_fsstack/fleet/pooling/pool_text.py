"""The text of pooled hosts: facts, a table of all series, a table of kernels and hosts, and remarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from pytest_fsstack.fleet.pooling.pool import HostFigure, Pool, Pooled
from pytest_fsstack.records.verdicts import Estimate
from pytest_fsstack.report import markdown, terminal
from pytest_fsstack.report.model import Cell, Grid
from pytest_fsstack.report.wording import SIGNS
from pytest_fsstack.units import OverheadUnit, counted, first_names, visible

#: The p value of Cochran's Q below which a report says that hosts differ. All series share it.
HETEROGENEITY_LEVEL = 0.01
LEGEND = (
    "over hosts: the typical overhead of a host, with its interval, and the exact signed-rank test against the budget. "
    "next host: where one more host will be. I2: how much of the variance between hosts is not noise of their rounds. "
    "pass/FAIL/?: the number of hosts with that verdict of their own."
)
#: The maximum number of hosts in a table of text.
_MAX_HOSTS = 8


class Section(NamedTuple):
    """The text of a report: facts by name, tables, and remarks."""

    facts: list[tuple[str, str]]
    grids: list[Grid]
    remarks: list[str]


def section(pool: Pool) -> Section:
    """Return the facts, tables and remarks, which are the same in all reports."""
    facts = [
        ("hosts", f"{len(pool.hosts)}: {first_names([host.name for host in pool.hosts])}"),
        ("sessions", str(sum(len(host.files) for host in pool.hosts))),
        ("kernels", first_names(list(dict.fromkeys(name for host in pool.hosts for name in host.kernels)))),
        ("devices", first_names(list(dict.fromkeys(name for host in pool.hosts for name in host.devices)))),
        ("verdicts", f"at alpha {pool.alpha:.3g}, by the exact signed-rank test over hosts"),
    ]
    grids = [_overview(pool.series), *grids_of_hosts(pool)]
    return Section([fact for fact in facts if fact[1]], grids, remarks(pool))


def answer(pool: Pool) -> list[str]:
    """Return the main results over all hosts: a headline, then sentences."""
    number = f"{len(pool.hosts)} host{'' if len(pool.hosts) == 1 else 's'}"
    judged = pool.judged
    broken = [entry for entry in judged if entry.outcome == "fail"]
    undecided = [entry for entry in judged if entry.outcome == "inconclusive"]
    if not judged:
        why = f": {pool.budgeted[0].why_no_verdict}" if pool.budgeted else ""
        return [f"{number}, no verdict over hosts{why}"]
    kept = len(judged) - len(broken) - len(undecided)
    sentences = [f"{number}: {kept} of {len(judged)} budgets kept, {len(broken)} broken, {len(undecided)} undecided"]
    if broken:
        worst = max(broken, key=lambda entry: entry.estimate.overhead - (entry.budget or 0.0))
        sentences.append(f"Farthest above its budget: {worst.label}, {in_short(worst)}")
    return sentences


def _overview(series: Iterable[Pooled]) -> Grid:
    headers = ["series", "verdict", "over hosts", "next host", "I2", "hosts", "pass/FAIL/?"]
    return Grid("hosts together", headers, [_row(entry) for entry in series])


def _row(entry: Pooled) -> list[Cell]:
    own = [sum(host.outcome == outcome for host in entry.hosts) for outcome in ("pass", "fail", "inconclusive")]
    spread = entry.heterogeneity
    return [
        Cell(entry.label),
        Cell(verdict_text(entry), outcome=entry.outcome),
        Cell(" ".join(filter(None, [_overhead(entry), interval_text(entry.estimate)]))),
        Cell(interval_text(entry.prediction) or "-"),
        Cell(f"{spread.i_squared:.0%}" if spread else "-"),
        Cell(str(len(entry.hosts)) + (f" of {len(entry.hosts) + len(entry.missing)}" if entry.missing else "")),
        Cell("/".join(map(str, own)) if any(own) else "-"),
    ]


def verdict_text(entry: Pooled) -> str:
    """Return the verdict over hosts with its budget, or ``-``."""
    if entry.budget is None or entry.outcome is None:
        return "-"
    expected = ", expected" if entry.expected and entry.outcome != "pass" else ""
    return f"{SIGNS[entry.outcome]} ({OverheadUnit(entry.budget >= 3).limit(entry.budget)}{expected})"


def _overhead(entry: Pooled) -> str:
    budgets = [entry.budget] if entry.budget is not None else []
    return OverheadUnit.fitting([entry.estimate.overhead]).signed(entry.estimate.overhead, budgets)


def interval_text(estimate: Estimate | None) -> str:
    """Return an interval in parentheses, or an empty text."""
    if estimate is None or not estimate.has_interval:
        return ""
    return OverheadUnit.fitting([estimate.low, estimate.high]).interval(estimate.low, estimate.high)


def grids_of_hosts(pool: Pool, max_hosts: int = _MAX_HOSTS) -> list[Grid]:
    """Return a grid for each series, with a row for each kernel and a column for each host.

    With one kernel, a single grid has all series. With more than `max_hosts` hosts, there are no grids.
    """
    names = [host.name for host in pool.hosts]
    if len(names) > max_hosts:
        return []
    if not any(entry.kernel for entry in pool.series):
        rows = [[Cell(entry.label), *_cells(entry, names)] for entry in pool.series]
        return [Grid("each host", ["series", *names], rows)]
    tests: dict[str, list[Pooled]] = {}
    for entry in pool.series:
        tests.setdefault(entry.title(), []).append(entry)
    return [
        Grid(title, ["kernel", *names], [[Cell(entry.kernel), *_cells(entry, names)] for entry in entries])
        for title, entries in tests.items()
    ]


def _cells(entry: Pooled, names: Sequence[str]) -> list[Cell]:
    figures = {figure.host: figure for figure in entry.hosts}
    return [host_cell(figures[name]) if name in figures else Cell("-") for name in names]


def host_cell(figure: HostFigure) -> Cell:
    """Return the overhead of a host with the verdict of its own sessions."""
    return Cell(
        _signed(figure.estimate.overhead),
        beside=SIGNS[figure.outcome] if figure.outcome else "",
        outcome=figure.outcome,
    )


# -- remarks -----------------------------------------------------------------------------------------------------------


def remarks(pool: Pool) -> list[str]:
    """Return the problems of files and hosts, the hosts that differ, and the reasons for missing verdicts."""
    lines = [f"{file}: {reason}" for file, reason in pool.unreadable.items()]
    lines += [f"{host.name}: {problem}" for host in pool.hosts for problem in host.problems]
    missing = ((entry.label, name, note) for entry in pool.series for name, note in entry.missing.items())
    lines += _grouped((f"{name} has no figure ({note})", label) for label, name, note in missing)
    lines += _grouped((f"no host has a figure ({note})", label) for label, note in pool.unmeasured.items())
    different = {entry.differs for entry in pool.series}
    lines += [_differing(host.name, pool) for host in pool.hosts if host.name in different]
    lines += _grouped((entry.why_no_verdict, entry.label) for entry in pool.series if entry.why_no_verdict)
    spread = [
        entry
        for entry in pool.series
        if entry.heterogeneity and entry.heterogeneity.p < HETEROGENEITY_LEVEL / len(pool.series)
    ]
    lines += [_spread(entry) for entry in spread[:3]]
    stopped = {figure.host for entry in pool.series for figure in entry.hosts if figure.left_out}
    if stopped:
        lines.append(
            f"rounds after the first look are left out ({counted(len(stopped), 'host')}), because verdicts decide "
            "whether they run: with --fsstack-rounds=16, all rounds count"
        )
    return lines


def _grouped(facts: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each text, with the first of its series."""
    groups: dict[str, list[str]] = {}
    for text, label in facts:
        groups.setdefault(text, []).append(label)
    return [f"{text}: {first_names(labels)}" for text, labels in groups.items()]


def _differing(host: str, pool: Pool) -> str:
    """Describe in which series a host differs from the others, with the overheads without it."""
    series = [entry for entry in pool.series if entry.differs == host]
    texts = []
    for entry in series:
        figure = next(figure for figure in entry.hosts if figure.host == host)
        without = next((f", {_signed(other.overhead)} without it" for other in entry.without if other.host == host), "")
        texts.append(f"{entry.label} ({_signed(figure.estimate.overhead)}{without})")
    return f"{host} differs from the other hosts: {first_names(texts)}"


def _spread(entry: Pooled) -> str:
    assert entry.heterogeneity is not None
    q, freedom, p = entry.heterogeneity.q, entry.heterogeneity.freedom, entry.heterogeneity.p
    low, high = (pick(figure.estimate.overhead for figure in entry.hosts) for pick in (min, max))
    return (
        f"hosts differ by more than their rounds explain: {entry.label}, from {_signed(low)} to {_signed(high)} "
        f"(Q {q:.3g}, {freedom} degrees of freedom, p {p:.2g})"
    )


def _signed(overhead: float) -> str:
    return OverheadUnit.fitting([overhead]).signed(overhead)


def problems(pool: Pool) -> list[str]:
    """Return the failures of a strict gate that are no verdicts: incomplete sessions, and missing figures."""
    lines = [f"{file}: {reason}" for file, reason in pool.unreadable.items()]
    lines += [f"{host.name}: {problem}" for host in pool.hosts for problem in host.problems]
    lines += [
        f"{entry.label}: no figure of {first_names(list(entry.missing))}" for entry in pool.series if entry.missing
    ]
    return lines + [f"{label}: no host has a figure ({note})" for label, note in pool.unmeasured.items()]


def in_short(entry: Pooled) -> str:
    """Describe the overhead over hosts with its budget, or why there is no verdict."""
    if entry.outcome is None or entry.budget is None:
        return entry.why_no_verdict
    unit = OverheadUnit.fitting([entry.estimate.overhead])
    return (
        f"{_overhead(entry)} {interval_text(entry.estimate)} over {len(entry.hosts)} hosts, "
        f"budget {unit.limit(entry.budget)}: {entry.outcome}"
    )


def host_line(figure: HostFigure) -> str:
    """Describe the overhead of a host with its own verdict."""
    return f"{_signed(figure.estimate.overhead)} on {figure.host}: {figure.outcome or 'not judged'}"


# -- reports -----------------------------------------------------------------------------------------------------------


def lines(pool: Pool, width: int = 160) -> list[str]:
    """Return the report for a terminal of so many columns."""
    text = section(pool)
    report = [*answer(pool), "", *(f"{name:<9} {fact}" for name, fact in text.facts)]
    for grid in text.grids:
        report += ["", *terminal.table(grid, width)]
    report += ["", LEGEND, *([""] if text.remarks else []), *(f"* {remark}" for remark in text.remarks)]
    return [visible(line) for line in report]


def json(pool: Pool) -> str:
    """Return the pool as JSON."""
    return msgspec.json.format(msgspec.json.encode(pool), indent=2).decode() + "\n"


def markdown_report(pool: Pool) -> str:
    """Return the report as GitHub Markdown."""
    text, (headline, *sentences) = section(pool), answer(pool)
    report = [
        f"**{markdown.plain(headline)}**",
        "",
        *(part for line in sentences for part in (markdown.plain(line), "")),
    ]
    report += [f"- {name}: {markdown.plain(fact)}" for name, fact in text.facts]
    report += ["", "## What needs attention", ""] if text.remarks else []
    report += [f"- {markdown.plain(remark)}" for remark in text.remarks]
    for grid in text.grids:
        report += ["", f"## {markdown.plain(grid.title.capitalize())}", "", markdown.table(grid)]
    return visible("\n".join([*report, "", markdown.plain(LEGEND), ""]))
