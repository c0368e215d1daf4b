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
from pytest_fsstack.judging.series import Series, series
from pytest_fsstack.report.model import one_line

#: What Bencher allows for a measure.
_LONGEST_MEASURE = 64


def bencher(results: Results) -> str:
    """Bencher Metric Format (https://bencher.dev/docs/reference/bencher-metric-format/).

    A benchmark is a step on a stack. Its measures are the metrics, and the ratios to the reference, such as
    ``seconds-ratio``, with the ends of the interval.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    entries = main_series(results)
    labels = several(entries)
    for each in entries:
        name = "::".join((each.test, each.step, each.stack)) + suffix(each, labels)
        ends = {"lower_value": each.low, "upper_value": each.high}
        measure = {"value": each.value, **{key: end for key, end in ends.items() if end is not None}}
        if each.kind != "figure":
            measure = {key: 1 + value for key, value in measure.items()}
        found.setdefault(name, {})[_measure(each)] = measure
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _measure(each: Series) -> str:
    """As Bencher's slugs are; it would make one of any other name."""
    kinds = {"figure": "", "overhead": "-ratio", "kernel_overhead": "-kernel-ratio"}
    name = re.sub(r"[^a-z0-9]+", "-", each.metric.lower()).strip("-") or "metric"
    return name[: _LONGEST_MEASURE - len(kinds[each.kind])] + kinds[each.kind]


def github_benchmark(results: Results) -> str:
    """``customSmallerIsBetter`` of github-action-benchmark (its README, "Custom benchmarks").

    Only series of which less is better: of a throughput there is the ratio.
    """
    found = []
    entries = main_series(results)
    labels = several(entries)
    for each in entries:
        if each.better != "lower":
            continue
        more = 0.0 if each.kind == "figure" else 1.0
        entry = {
            "name": each.name + suffix(each, labels),
            "unit": each.unit or "ratio",
            "value": each.value + more,
        }
        if each.low is not None and each.high is not None:
            entry["range"] = f"{each.low + more:.4g} to {each.high + more:.4g}"
        where = [f"{name} {value}" for name, value in each.labels.items() if name in ("kernel", "device")]
        over = [f"over {each.reference}"] if each.reference else []
        verdict = [each.outcome] if each.outcome else []
        entry["extra"] = ", ".join([*verdict, *over, f"{each.rounds} rounds", *where])
        found.append(entry)
    return json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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
    lines.writerow(map(one_line, ["time", *attributes, *(each.name + suffix(each, labels) for each in entries)]))
    values = (repr(each.value if each.kind == "figure" else 1 + each.value) for each in entries)
    date = results.start or results.environment.get("date", "")
    lines.writerow(map(one_line, [date, *attributes.values(), *values]))
    return text.getvalue()


def main_series(results: Results) -> list[Series]:
    """The series that people look at: of the time, of what has a budget, and of what workloads record themselves."""
    found = series(results)
    judged = {(each.test, each.step, each.metric) for each in found if each.outcome}
    return [
        each
        for each in found
        if each.metric == "seconds" or each.metric not in METRICS or (each.test, each.step, each.metric) in judged
    ]


def several(entries: Iterable[Series]) -> list[str]:
    """The labels that are not in names, and of which this run has more than one: kernels, devices."""
    there = list(entries)
    return [name for name in ("kernel", "device") if len({each.labels.get(name) for each in there}) > 1]


def suffix(each: Series, labels: Iterable[str]) -> str:
    """What tells a series from another one of its name in the same run, by these labels."""
    return "".join(f"@{each.labels[name]}" for name in labels if name in each.labels)
