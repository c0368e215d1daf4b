"""Results as stores of benchmarks take them: Bencher, github-action-benchmark, Apache Otava.

What stores compare from run to run should be above zero and lower if it is better. An overhead is therefore written as
a ratio, 1.3 for 30 %: an overhead that grows from 0.1 % to 0.3 % would be called three times worse.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable

from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.sample import METRICS
from pytest_fsstack.report.model import one_line
from pytest_fsstack.report.series import Series, series

#: What Bencher allows for a measure.
_LONGEST_MEASURE = 64


def bencher(results: Results) -> str:
    """Bencher Metric Format (https://bencher.dev/docs/reference/bencher-metric-format/).

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
    """Return a name in the form of Bencher's slugs, which it would otherwise make itself."""
    kinds = {"figure": "", "overhead": "-ratio", "kernel_overhead": "-kernel-ratio"}
    name = re.sub(r"[^a-z0-9]+", "-", entry.metric.lower()).strip("-") or "metric"
    return name[: _LONGEST_MEASURE - len(kinds[entry.kind])] + kinds[entry.kind]


def github_benchmark(results: Results) -> str:
    """``customSmallerIsBetter`` of github-action-benchmark (its README, "Custom benchmarks").

    Only series of which less is better: of a throughput there is the ratio.
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
            "unit": item.unit or "ratio",
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
    """Apache Otava's CSV: a column a series, below the header one line, that of this run (its docs/CSV.md).

    Lines of several runs make a file if they have the same columns. `time_column` is ``time``; what is known of
    ``commit``, ``branch`` and the other labels are attributes.
    """
    entries = series(results)
    labels = several(entries)
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    # The series begin with the name of a test.
    attributes = {"commit": "", "branch": "", **results.labels}
    lines.writerow(map(one_line, ["time", *attributes, *(entry.name + suffix(entry, labels) for entry in entries)]))
    values = (repr(entry.value if entry.kind == "figure" else 1 + entry.value) for entry in entries)
    date = results.start or results.environment.get("date", "")
    lines.writerow(map(one_line, [date, *attributes.values(), *values]))
    return text.getvalue()


def main_series(results: Results) -> list[Series]:
    """The series that people look at: of the time, of what has a budget, and of what workloads record themselves."""
    every = series(results)
    judged = {(entry.test, entry.step, entry.metric) for entry in every if entry.outcome}
    return [
        entry
        for entry in every
        if entry.metric == "seconds" or entry.metric not in METRICS or (entry.test, entry.step, entry.metric) in judged
    ]


def several(entries: Iterable[Series]) -> list[str]:
    """The labels that are not in names, and of which this run has more than one: kernels, devices."""
    there = list(entries)
    return [name for name in ("kernel", "device") if len({entry.labels.get(name) for entry in there}) > 1]


def suffix(entry: Series, labels: Iterable[str]) -> str:
    """Return the suffix that distinguishes series of the same name in one run, by these labels."""
    return "".join(f"@{entry.labels[name]}" for name in labels if name in entry.labels)
