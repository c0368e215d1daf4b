"""Tables in the shape in which studies are published: a scenario names them with the marker ``fsstack_table``.

To add one: write its function (a view of a chain in, grids out) and name it in `SHAPES`, or return it from the hook
`pytest_fsstack_tables`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_fsstack.report.table import View, signed
from pytest_fsstack.results import Chain
from pytest_fsstack.units import format_quantity
from pytest_fsstack.verdict import Estimate


@dataclass(frozen=True)
class Entry:
    """A cell: its text, of several lines perhaps, and whether the statistics call it good, bad, or (None) neither."""

    text: str
    good: bool | None = None


@dataclass(frozen=True)
class Grid:
    """A table: a row is as long as the headers, and its first `labels` cells say what it is about."""

    title: str
    headers: list[str]
    rows: list[list[Entry]]
    labels: int = 1


Shape = Callable[..., list[Grid]]


def grids(view: View, shapes: Mapping[str, Shape]) -> list[Grid]:
    """The tables that the chain's scenario asks for; empty where it asks for none."""
    return [grid for name, options in view.chain.tables for grid in shapes[name](view, **options)]


def times(view: View) -> list[Grid]:
    """A row a stack, a column a step, each cell real, user and system time as ``time`` prints them.

    Green is less real time than the baseline's, red is more, where the interval of the overhead leaves no doubt.
    """
    chain = view.chain

    def cell(step: str, arm: str) -> Entry:
        medians = [chain.median(step, arm, name) for name in ("seconds", "user_seconds", "system_seconds")]
        if medians[0] is None:
            return _absent(view, step, arm)
        shown = [_clock(value) if value is not None else "-" for value in medians]
        shown[0] = f"{shown[0]} {view.mark(step, arm)}".rstrip()
        return Entry("\n".join(shown), _better(chain.estimate(step, arm)))

    rows = [[Entry(arm), *(cell(step, arm) for step in chain.steps)] for arm in chain.arms]
    return [Grid("real, user, sys", ["stack", *chain.steps], rows)]


def advantage(view: View, metrics: Mapping[str, Any] | None = None) -> list[Grid]:
    """A row a step, a column a stack, and how many times better the baseline is than each other stack.

    The ratio is above 1 where the baseline is better, whether more or less of the unit is. `metrics` names the metric
    of a step, or several, where that is not the time.
    """
    chain = view.chain
    rows = []
    others = [arm for arm in chain.arms if arm != chain.reference(arm)]
    for step in chain.steps:
        for name in _metrics(chain, step, metrics):
            label = step if name == "seconds" else f"{step}: {name}"
            figures = [_figure(view, step, arm, name) for arm in chain.arms]
            ratios = [_ratio(chain.estimate(step, arm, name)) for arm in others]
            rows.append([Entry(label), *figures, *ratios])
    titles = [f"advantage of {chain.reference(arm)} over {arm}" for arm in others]
    return [Grid("advantage", ["test", *chain.arms, *titles], rows)]


def small_files(view: View) -> list[Grid]:
    """A row a file size, two columns a stack: what a file of that size takes, raw and allocated."""
    chain = view.chain
    found: list[Grid] = []
    for step in chain.steps:
        names = chain.metrics(step)
        sizes = [int(match[1]) for name in names if (match := re.fullmatch(r"raw_(\d+)", name))]
        if not sizes:
            continue
        kinds = {"raw": "raw", "allocated": "du"}
        headers = ["bytes of the file", *(f"{arm}, {title}" for arm in chain.arms for title in kinds.values())]
        rows = [
            [
                Entry(str(size)),
                *(_bytes(view, step, arm, f"{kind}_{size}") for arm in chain.arms for kind in kinds),
            ]
            for size in sorted(sizes)
        ]
        found.append(Grid(f"{step}: bytes that one file takes", headers, rows))
    return found


def change(view: View, metrics: Mapping[str, Any] | None = None) -> list[Grid]:
    """For each stack a table against what it is compared with: a row a step, both figures and the change in percent.

    The change is that of the figure itself: more throughput is a positive change, and a good one.
    """
    chain = view.chain
    found = []
    for arm in chain.arms:
        base = chain.reference(arm)
        if arm == base:
            continue
        rows = []
        for step in chain.steps:
            for name in _metrics(chain, step, metrics):
                test, _, size = step.rstrip("]").partition("[")
                pair = [_figure(view, step, of, name) for of in (base, arm)]
                label = test if name == "seconds" else f"{test}: {name}"
                rows.append([Entry(label), Entry(size), *pair, _changed(chain, step, arm, name)])
        found.append(Grid(f"{arm} against {base}", ["test", "size", base, arm, "% change"], rows, labels=2))
    return found


def matrix(view: View, metrics: Mapping[str, str] | None = None) -> list[Grid]:
    """A table for each of the metrics (by title; time, CPU and space unless said otherwise), a column a stack."""
    chain = view.chain
    wanted = metrics or {"real time": "seconds", "CPU time": "cpu_seconds", "space used": "used_bytes"}
    return [
        Grid(
            title,
            ["test", *chain.arms],
            [
                [Entry(step), *(_figure(view, step, arm, name, judged=True) for arm in chain.arms)]
                for step in chain.steps
                if name in chain.metrics(step) or name == "seconds"
            ],
        )
        for title, name in wanted.items()
    ]


def summary(view: View, metric: str = "seconds", level: float = 0.95) -> list[Grid]:
    """For each stack the statistics of its samples: a column a step, and the interval of the mean in the last rows.

    The interval is Student's: mean ± t(n - 1) s / sqrt(n), as published, which takes the samples as independent.
    """
    chain = view.chain
    return [
        Grid(
            arm,
            [_name_of(metric), *chain.steps],
            [
                [Entry(label), *(Entry(column.get(label, "-")) for column in columns)]
                for label in ("samples", "average", *_SPREAD)
                if label == "samples" or any(column.get(label) for column in columns)
            ],
        )
        for arm in chain.arms
        if (columns := [_statistics(view, step, arm, metric, level) for step in chain.steps])
    ]


SHAPES: dict[str, Shape] = {
    "times": times,
    "advantage": advantage,
    "small_files": small_files,
    "change": change,
    "matrix": matrix,
    "summary": summary,
}

_SPREAD = (
    *("min", "max", "stddev", "stddev %", "average ± 95 %", "average ± %", "95 % from", "95 % to"),
    "not comparable",
)


def _statistics(view: View, step: str, arm: str, name: str, level: float) -> dict[str, str]:
    chain, metric = view.chain, view.chain.metric(step, arm, name)
    series = chain.series(step, arm, name)
    if not series or metric is None:
        return {"samples": f"0 {view.mark(step, arm)}".rstrip()}

    def shown(value: float) -> str:
        return format_quantity(value, metric.unit)

    mean = statistics.fmean(series)
    found = {
        "samples": str(len(series)),
        "average": shown(mean),
        "min": shown(min(series)),
        "max": shown(max(series)),
        "not comparable": view.mark(step, arm) if chain.incomplete(step, arm) else "",
    }
    if len(series) > 1:
        from scipy.stats import t

        deviation = statistics.stdev(series)
        half = float(t.ppf((1 + level) / 2, len(series) - 1)) * deviation / math.sqrt(len(series))
        found |= {
            "stddev": shown(deviation),
            "average ± 95 %": shown(half),
            "95 % from": shown(mean - half),
            "95 % to": shown(mean + half),
        }
        if mean:
            found |= {"stddev %": f"{100 * deviation / mean:.1f} %", "average ± %": f"{100 * half / mean:.1f} %"}
    return found


def _metrics(chain: Chain, step: str, chosen: Mapping[str, Any] | None) -> Iterator[str]:
    """What a row shows of a step: its chosen metrics, by the step's name with or without its parameters."""
    given = (chosen or {}).get(step, (chosen or {}).get(step.partition("[")[0], "seconds"))
    for name in [given] if isinstance(given, str) else given:
        if name in chain.metrics(step) or name == "seconds":
            yield name


def _name_of(metric: str) -> str:
    return "time" if metric == "seconds" else metric


def _figure(view: View, step: str, arm: str, name: str, *, judged: bool = False) -> Entry:
    chain = view.chain
    median, metric = chain.median(step, arm, name), chain.metric(step, arm, name)
    if median is None or metric is None:
        return _absent(view, step, arm)
    text = f"{format_quantity(median, metric.unit)} {view.mark(step, arm)}".rstrip()
    return Entry(text, _better(chain.estimate(step, arm, name)) if judged else None)


def _bytes(view: View, step: str, arm: str, name: str) -> Entry:
    median = view.chain.median(step, arm, name)
    return _absent(view, step, arm) if median is None else Entry(f"{median:.0f}")


def _absent(view: View, step: str, arm: str) -> Entry:
    return Entry(f"- {view.mark(step, arm)}".rstrip())


def _ratio(estimate: Estimate | None) -> Entry:
    if estimate is None:
        return Entry("-")
    low, high = 1 + estimate.low, 1 + estimate.high
    interval = f"{_times(low)} to {_times(high)}" if math.isfinite(high) else "too few rounds"
    # Better for the baseline, which is what the column speaks of.
    better = _better(estimate)
    return Entry(f"{_times(1 + estimate.overhead)} ({interval})", None if better is None else not better)


def _times(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio < 100 else f"{ratio:.0f}"


def _changed(chain: Chain, step: str, arm: str, name: str) -> Entry:
    estimate, metric = chain.estimate(step, arm, name), chain.metric(step, arm, name)
    if estimate is None or metric is None:
        return Entry("-")

    def turned(overhead: float) -> float:
        # An overhead is oriented; the figure itself goes the other way where more is better.
        return overhead if metric.better == "lower" else 1 / (1 + overhead) - 1

    interval = "too few rounds"
    if math.isfinite(estimate.high):
        ends = sorted((turned(estimate.low), turned(estimate.high)))
        interval = f"{signed(ends[0])} to {signed(ends[1])}"
    return Entry(f"{signed(turned(estimate.overhead))} ({interval})", _better(estimate))


#: A difference that nobody would call one, however certain: space differs by some blocks in every round.
_NOTHING = 0.01


def _better(estimate: Estimate | None) -> bool | None:
    """Whether a stack is better than its baseline; None where the interval does not tell, or it is by less than 1 %."""
    if estimate is None or not math.isfinite(estimate.high):
        return None
    if estimate.high < -_NOTHING:
        return True
    return False if estimate.low > _NOTHING else None


def _clock(seconds: float) -> str:
    """As ``time`` prints it.

    >>> _clock(3.7), _clock(331.0), _clock(0.0123)
    ('3.70s', '5m31.0s', '0.01s')
    """
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:.0f}m{rest:04.1f}s" if minutes else f"{rest:.2f}s"
