"""Reports for benchmark stores: Bencher, github-action-benchmark, Apache Otava.

Stores compare positive figures from run to run, and lower should be better. So an overhead is written as a ratio, 1.3
for 30 %. As a fraction, a growth from 0.1 % to 0.3 % would count as three times worse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from pytest_fsstack.records.results import Results
from pytest_fsstack.report.csvfile import text_of
from pytest_fsstack.report.series import Series, series
from pytest_fsstack.units import one_line

#: The maximum length of the name of a measure in Bencher.
_LONGEST_MEASURE = 64


def bencher(results: Results) -> str:
    """Return Bencher Metric Format (https://bencher.dev/docs/reference/bencher-metric-format/).

    A benchmark is a step on a stack. Its measures are the metrics, and the ratios to the reference, such as
    ``seconds-ratio``, with the ends of the interval.
    """
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    entries = main_series(results)
    labels = several(entries)
    for entry in entries:
        name = "::".join((entry.test, entry.step, entry.stack)) + suffix(entry, labels)
        ends = {"lower_value": entry.low, "upper_value": entry.high}
        measure = {"value": entry.value, **{key: end for key, end in ends.items() if end is not None}}
        if entry.kind != "figure":
            measure = {key: 1 + value for key, value in measure.items()}
        benchmarks.setdefault(name, {})[_measure(entry)] = measure
    return json.dumps(benchmarks, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _measure(entry: Series) -> str:
    """Return the name of a measure in the form of Bencher's slugs."""
    kinds = {"figure": "", "overhead": "-ratio", "kernel_overhead": "-kernel-ratio"}
    name = re.sub(r"[^a-z0-9]+", "-", entry.metric.lower()).strip("-") or "metric"
    return name[: _LONGEST_MEASURE - len(kinds[entry.kind])] + kinds[entry.kind]


def github_benchmark(results: Results) -> str:
    """Return ``customSmallerIsBetter`` for github-action-benchmark (its README, "Custom benchmarks").

    It only has series of which less is better. A throughput is represented by its ratio.
    """
    benchmarks = []
    entries = main_series(results)
    labels = several(entries)
    for item in entries:
        if item.better != "lower":
            continue
        more = 0.0 if item.kind == "figure" else 1.0
        entry = {
            "name": item.name + suffix(item, labels),
            "unit": item.unit or ("" if item.kind == "figure" else "ratio"),
            "value": item.value + more,
        }
        if item.low is not None and item.high is not None:
            entry["range"] = f"{item.low + more:.4g} to {item.high + more:.4g}"
        where = [f"{name} {value}" for name, value in item.labels.items() if name in ("kernel", "device")]
        over = [f"over {item.reference}"] if item.reference else []
        verdict = [item.outcome] if item.outcome else []
        entry["extra"] = ", ".join([*verdict, *over, f"{item.rounds} rounds", *where])
        benchmarks.append(entry)
    return json.dumps(benchmarks, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def otava(results: Results) -> str:
    """Return the CSV of Apache Otava (its docs/CSV.md): a header, and a line with all series of this run.

    Lines of several runs with the same columns can be joined into one file. `time_column` is ``time``. The attributes
    are ``commit``, ``branch`` and the other labels.
    """
    entries = series(results)
    labels = several(entries)
    # Names of series begin with the name of a test, so they do not collide with attributes.
    attributes = {"commit": "", "branch": "", **results.labels}
    header = ["time", *attributes, *(entry.name + suffix(entry, labels) for entry in entries)]
    values = (repr(entry.value if entry.kind == "figure" else 1 + entry.value) for entry in entries)
    date = results.start or results.environment.get("date", "")
    return text_of(map(one_line, line) for line in (header, [date, *attributes.values(), *values]))


def main_series(results: Results) -> list[Series]:
    """Return the main series: times, metrics with budgets, and metrics that workloads record."""
    every = series(results)
    judged = {(entry.test, entry.step, entry.metric) for entry in every if entry.outcome}
    return [
        entry
        for entry in every
        if entry.metric == "seconds"
        or entry.reading.metric.is_recorded
        or (entry.test, entry.step, entry.metric) in judged
    ]


def several(entries: Iterable[Series]) -> list[str]:
    """Return the labels (kernel, device) that have several values in this run, and whether a CPU was emulated.

    So a store never continues a series of a real CPU with figures of an emulated one.
    """
    there = list(entries)
    names = [name for name in ("kernel", "device") if len({entry.labels.get(name) for entry in there}) > 1]
    return [*names, *(["emulated"] if any("emulated" in entry.labels for entry in there) else [])]


def suffix(entry: Series, labels: Iterable[str]) -> str:
    """Return the suffix that distinguishes series of the same name in one run, by these labels."""
    return "".join(f"@{entry.labels[name]}" for name in labels if name in entry.labels)
