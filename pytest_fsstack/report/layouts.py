"""Layouts of published tables. A scenario selects them with the marker ``fsstack_table``.

To add one, write a function from a view of a chain to grids, and name it in `BUILT_IN`, or return it from the hook
`pytest_fsstack_tables`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_fsstack.judging.overall import of_step
from pytest_fsstack.judging.quantiles import student_quantile
from pytest_fsstack.records.results import ChainResults
from pytest_fsstack.report.model import Cell, Figure, Grid, View
from pytest_fsstack.units import OverheadUnit, first_names, format_quantity

Layout = Callable[..., list[Grid]]


def grids(view: View, layouts: Mapping[str, Layout]) -> list[Grid]:
    """Return the tables that the scenario of a chain selects, without empty columns."""
    tables = [grid for name, options in view.chain.tables for grid in layouts[name](view, **options)]
    return [grid.without_empty_columns() for grid in tables]


def times(view: View) -> list[Grid]:
    """Return real, user and system times in the form of ``time``: a row for each stack, a column for each step.

    Green is significantly less real time than the baseline, red significantly more, by the interval of the overhead.
    """
    chain = view.chain

    def cell(step: str, stack: str) -> Cell:
        medians = [chain.median(step, stack, name) for name in ("seconds", "user_seconds", "system_seconds")]
        if medians[0] is None:
            return view.figure(step, stack).plain_cell()
        texts = [_clock(value) if value is not None else "-" for value in medians]
        texts[0] = f"{texts[0]} {view.mark(step, stack)}".rstrip()
        numbers = {f"{name} (s)": value for name, value in zip(("real", "user", "sys"), medians) if value is not None}
        return Cell("\n".join(texts), view.figure(step, stack).good, numbers=numbers)

    rows = [[Cell(info.label), *(cell(step, info.id) for step in chain.steps)] for info in chain.stacks.values()]
    return [Grid("real, user, sys", ["stack", *chain.steps], rows)]


def advantage(view: View, metrics: Mapping[str, Any] | None = None) -> list[Grid]:
    """Return the ratios of the baseline's advantage: a row for each step, a column for each stack.

    The ratio is above 1 if the baseline is better, whether higher or lower figures are better. `metrics` names one or
    several metrics of a step, if it is not the time.
    """
    chain = view.chain
    rows = []
    compared = [stack for stack in chain.stacks if stack != chain.reference(stack)]
    for step in chain.steps:
        for name in _metrics(chain, step, metrics):
            label = step if name == "seconds" else f"{step}: {name}"
            figures = [view.figure(step, stack, name).plain_cell() for stack in chain.stacks]
            ratios = [_ratio(view.figure(step, stack, name)) for stack in compared]
            rows.append([Cell(label), *figures, *ratios])
    labels = _labels(chain)
    titles = [f"advantage of {labels[chain.reference(stack)]} over {labels[stack]}" for stack in compared]
    return [Grid("advantage", ["test", *labels.values(), *titles], rows)]


def small_files(view: View) -> list[Grid]:
    """Return the space of a file, raw and allocated: a row for each file size, two columns for each stack."""
    chain = view.chain
    tables: list[Grid] = []
    for step in chain.steps:
        names = chain.metrics(step)
        sizes = [int(match[1]) for name in names if (match := re.fullmatch(r"raw_(\d+)", name))]
        if not sizes:
            continue
        kinds = {"raw": "raw", "allocated": "du"}
        headers = [
            "bytes of the file",
            *(f"{label}, {title}" for label in _labels(chain).values() for title in kinds.values()),
        ]
        rows = [
            [
                Cell(str(size)),
                *(_bytes(view, step, stack, f"{kind}_{size}") for stack in chain.stacks for kind in kinds),
            ]
            for size in sorted(sizes)
        ]
        tables.append(Grid(f"{step}: bytes that one file takes", headers, rows))
    return tables


def change(view: View, metrics: Mapping[str, Any] | None = None) -> list[Grid]:
    """Return a table for each stack and its reference: a row for each step, with both figures and the change.

    The change is that of the figure itself. More throughput is a positive change, and good.
    """
    chain, labels = view.chain, _labels(view.chain)
    tables = []
    for stack in chain.stacks:
        base = chain.reference(stack)
        if stack == base:
            continue
        rows = []
        for step in chain.steps:
            for name in _metrics(chain, step, metrics):
                test, _, size = step.rstrip("]").partition("[")
                pair = [view.figure(step, of, name) for of in (base, stack)]
                label = test if name == "seconds" else f"{test}: {name}"
                rows.append([Cell(label), Cell(size), *(one.plain_cell() for one in pair), _changed(pair[1])])
        headers = ["test", "size", labels[base], labels[stack], "% change"]
        tables.append(Grid(f"{labels[stack]} against {labels[base]}", headers, rows, labels=2))
    return tables


def matrix(view: View, metrics: Mapping[str, str] | None = None) -> list[Grid]:
    """Return a table for each metric, with a column for each stack. By default: time, CPU time and space.

    `metrics` are names of metrics by title.
    """
    chain = view.chain
    titles = metrics or {"real time": "seconds", "CPU time": "cpu_seconds", "space used": "used_bytes"}
    return [
        Grid(
            title,
            ["test", *_labels(chain).values()],
            [
                [Cell(step), *(view.figure(step, stack, name).plain_cell(coloured=True) for stack in chain.stacks)]
                for step in chain.steps
                if name in chain.metrics(step) or name == "seconds"
            ],
        )
        for title, name in titles.items()
    ]


def summary(view: View, metric: str = "seconds", level: float = 0.95) -> list[Grid]:
    """Return the statistics of each stack: a column for each step, with the interval of the mean in the last rows.

    The interval is that of Student's t, as published: mean ± t(n - 1) s / sqrt(n). It assumes independent samples.
    """
    chain = view.chain
    labels = [label.format(f"{level * 100:g} %") for label in _STATISTICS]
    return [
        Grid(
            chain.stacks[stack].label,
            ["time" if metric == "seconds" else metric, *chain.steps],
            [
                [Cell(label), *(Cell(column.get(label, "-")) for column in columns)]
                for label in labels
                if label == "samples" or any(column.get(label) for column in columns)
            ],
        )
        for stack in chain.stacks
        if (columns := [_statistics(view, step, stack, metric, level) for step in chain.steps])
    ]


def counts(view: View, columns: Mapping[str, str] | None = None) -> list[Grid]:
    """Return a table for each step: a row for each stack, a column for each of the `columns`, summed over rounds.

    A column is ``metric``, ``metric of metric`` (such as ``18 of 20``), or ``kept name``, which shows each text that
    the step kept under that name. Green is the best possible count: all if more is better, none if less is better. Red
    is any other count.
    """
    chain = view.chain
    tables = []
    for step in chain.steps:
        recorded = {name: name for name, metric in chain.metrics(step).items() if metric.is_recorded}
        titles = columns or recorded
        rows = [
            [Cell(info.label), *(_count(view, step, info.id, what) for what in titles.values())]
            for info in chain.stacks.values()
        ]
        tables.append(Grid(step, [step, *titles], rows, colours=_ALL_OR_NONE))
    return tables


def fio(view: View, metrics: Mapping[str, str] | None = None) -> list[Grid]:
    """Return the figures of the sections of a file of fio jobs: a row for each stack, a column for each section.

    `metrics` names the metric by which the answer compares the steps.
    """
    tables = []
    for step in view.chain.steps:
        for figure in "iops", "latency mean", "latency p99":
            names = {name: _SECTION.fullmatch(name) for name in view.chain.metrics(step)}
            columns = {
                f"{match[1]} {match[2]}": name
                for name, match in names.items()
                if match and match[3] == figure.replace(" ", "_")
            }
            if columns:
                tables.append(view.grid_of_step(figure, step, columns))
        if not any(map(_SECTION.fullmatch, view.chain.metrics(step))):
            tables.append(view.grid_of_step("seconds", step, {step: "seconds"}))
    return tables


def coverage(view: View, kept: str = "met") -> list[Grid]:
    """Return which calls met which conditions, on all stacks together: a row for each condition.

    `kept` is the name under which steps kept the counts, by call and condition. Zeros show what was not met.
    """
    calls: set[str] = set()
    met: dict[str, Counter[str]] = {}
    samples = [
        sample
        for step in view.chain.steps
        for stack in view.chain.stacks
        for sample in view.chain.of(step, stack).values()
    ]
    for sample in samples:
        for call, conditions in sample.kept.get(kept, {}).items():
            calls.add(call)
            for condition, number in conditions.items():
                met.setdefault(condition, Counter()).update({call: number} if number else {})
    rows = [
        [
            condition,
            f"{counter.total():,}",
            f"{len(counter)} of {len(calls)}",
            (first_names(sorted(calls - {*counter})) or "-") if counter else "all: not met",
        ]
        for condition, counter in sorted(met.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    headers = ["condition", "met", "kinds of calls", "never by"]
    return [Grid("conditions that calls met", headers, [[*map(Cell, row)] for row in rows])] if rows else []


def findings(view: View) -> list[Grid]:
    """Return a line for each kind of finding, the worst first, with its counterexample.

    Findings of one known fault share a line, and so do the refused calls of a stack that limits would permit.
    """
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for stack in view.chain.stacks:
        samples = [sample for step in view.chain.steps for sample in view.chain.of(step, stack).values()]
        kept = [finding for sample in samples for finding in sample.kept.get("findings", ())]
        for finding in sorted(kept, key=_order):
            shared = finding["fault"] or (_REFUSED if finding["limits"] else finding["kind"])
            lines.setdefault((stack, shared), []).append(finding)
    rows = [[stack, _finding(shared, found)] for (stack, shared), found in lines.items()]
    return [Grid("findings", ["stack", "finding"], [[*map(Cell, row)] for row in rows])] if rows else []


_REFUSED = "refused calls"


def _order(finding: Mapping[str, Any]) -> tuple[bool, bool, int]:
    return bool(finding["fault"]), bool(finding["limits"]), finding["weight"]


def _finding(shared: str, found: Sequence[Mapping[str, Any]]) -> str:
    """Return the line of findings that share a fault, a declaration or a kind."""
    first, kinds = found[0], "; ".join(dict.fromkeys(finding["kind"] for finding in found))
    if shared == _REFUSED:
        # One of the limits permits each call. The first is the plainest.
        limits = dict.fromkeys(f"Limit.{finding['limits'][0]}" for finding in found)
        return f"{_REFUSED}: {kinds}; if this is by design, declare {', '.join(limits)}"
    if first["fault"]:
        return f"known: {shared}: {kinds}"
    return f"NEW: {first['text']}{'; script: ' if first['script'] else ''}{first['script']}"


_SECTION = re.compile(r"fio_(.+)_(read|write|trim)_(iops|latency_mean|latency_p99)")
_ALL_OR_NONE = "Bold: all of what should be, or none of what should not; \N{BLACK UP-POINTING TRIANGLE}: anything else."


#: The layouts by name.
BUILT_IN: dict[str, Layout] = {
    "times": times,
    "advantage": advantage,
    "small_files": small_files,
    "change": change,
    "matrix": matrix,
    "summary": summary,
    "counts": counts,
    "fio": fio,
    "coverage": coverage,
    "findings": findings,
}

#: Rows of a summary. ``{0}`` is the confidence level.
_STATISTICS = (
    *("samples", "average", "min", "max", "stddev", "stddev %", "average ± {0}", "average ± %", "{0} from", "{0} to"),
    "not comparable",
)


def _statistics(view: View, step: str, stack: str, name: str, level: float) -> dict[str, str]:
    chain, metric = view.chain, view.chain.metric(step, stack, name)
    series = chain.series(step, stack, name)
    if not series or metric is None:
        return {"samples": f"0 {view.mark(step, stack)}".rstrip()}

    def shown(value: float) -> str:
        return format_quantity(value, metric.unit)

    mean = statistics.fmean(series)
    columns = {
        "samples": str(len(series)),
        "average": shown(mean),
        "min": shown(min(series)),
        "max": shown(max(series)),
        "not comparable": view.mark(step, stack) if chain.incomplete(step, stack) else "",
    }
    if len(series) > 1:
        deviation = statistics.stdev(series)
        share = f"{level * 100:g} %"
        half = student_quantile((1 + level) / 2, len(series) - 1) * deviation / math.sqrt(len(series))
        columns |= {
            "stddev": shown(deviation),
            f"average ± {share}": shown(half),
            f"{share} from": shown(mean - half),
            f"{share} to": shown(mean + half),
        }
        if mean:
            columns |= {"stddev %": f"{100 * deviation / mean:.1f} %", "average ± %": f"{100 * half / mean:.1f} %"}
    return columns


def _labels(chain: ChainResults) -> dict[str, str]:
    """Return how tables show each stack."""
    return {stack: info.label for stack, info in chain.stacks.items()}


def _metrics(chain: ChainResults, step: str, metrics: Mapping[str, Any] | None) -> Iterator[str]:
    """Return the metrics of a step in `metrics`, which has its name with or without parameters."""
    names = of_step(metrics or {}, step, "seconds")
    for name in [names] if isinstance(names, str) else names:
        if name in chain.metrics(step) or name == "seconds":
            yield name


def _bytes(view: View, step: str, stack: str, name: str) -> Cell:
    figure = view.figure(step, stack, name)
    if figure.reading is None:
        return figure.plain_cell()
    return Cell(f"{figure.reading.median:.0f}", numbers={"(B)": figure.reading.median})


def _count(view: View, step: str, stack: str, what: str) -> Cell:
    chain = view.chain
    if what.startswith("kept "):
        samples = list(chain.of(step, stack).values())
        lists = [sample.kept.get(what.removeprefix("kept "), []) for sample in samples]
        texts = [str(text) for items in lists for text in (items if isinstance(items, list) else [items])]
        return Cell(first_names(list(dict.fromkeys(texts))) if texts else "-")
    name, _, total = what.partition(" of ")
    metric, series = chain.metric(step, stack, name), chain.series(step, stack, name)
    if metric is None or not series:
        # This stack may lack the metric while others have it.
        return Cell("-") if chain.measures(step, stack) else view.figure(step, stack, name).plain_cell()
    count, whole = sum(series), sum(chain.series(step, stack, total)) if total else None
    text = f"{count:,.0f}" if whole is None else f"{count:,.0f} of {whole:,.0f}"
    good = (count == 0 if metric.better == "lower" else count == whole) if whole != 0 else None
    if metric.better == "higher" and whole is None:
        good = None
    mark = view.mark(step, stack)
    return Cell(f"{text} {mark}".rstrip(), good, numbers={"": count, **({} if whole is None else {"of": whole})})


def _ratio(figure: Figure) -> Cell:
    if figure.estimate is None:
        return Cell("-")
    ratio, low, high = figure.estimate.ratios
    interval = "too few rounds" if low is None or high is None else f"{_times(low)} to {_times(high)}"
    ends = {name: end for name, end in (("low", low), ("high", high), ("ratio", ratio)) if end is not None}
    # Good for the baseline, so the sign is reversed.
    return Cell(f"{_times(ratio)} ({interval})", None if figure.good is None else not figure.good, numbers=ends)


def _times(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio < 100 else f"{ratio:.0f}"


def _changed(figure: Figure) -> Cell:
    reading, estimate = figure.reading, figure.estimate
    if reading is None or estimate is None:
        return Cell("-")

    def turned(overhead: float) -> float:
        # More overhead is always worse. The figure itself moves the other way if higher is better.
        return overhead if reading.metric.better == "lower" else 1 / (1 + overhead) - 1

    limits, unit, change = list(map(turned, figure.limits)), OverheadUnit(), turned(estimate.overhead)
    low, high = sorted(map(turned, (estimate.low, estimate.high))) if estimate.has_interval else (-1.0, math.inf)
    ends = {"low": low, "high": high} if estimate.has_interval else {}
    text = f"{unit.signed(change, limits)} {unit.interval(low, high, limits)}"
    return Cell(text, figure.good, numbers={"change": change, **ends})


def _clock(seconds: float) -> str:
    """Format seconds like ``time``.

    >>> _clock(3.7), _clock(331.0), _clock(0.0123), _clock(119.97)
    ('3.70s', '5m31.0s', '0.01s', '2m00.0s')
    """
    minutes, remainder = divmod(round(seconds, 1 if seconds >= 60 else 2), 60)
    return f"{minutes:.0f}m{remainder:04.1f}s" if minutes else f"{remainder:.2f}s"
