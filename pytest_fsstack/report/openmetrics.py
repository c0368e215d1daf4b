"""The report for Prometheus and GitLab, as OpenMetrics (https://prometheus.io/docs/specs/om/open_metrics_spec/)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pytest_fsstack.records.results import Results
from pytest_fsstack.report.series import Series, series
from pytest_fsstack.units import visible

#: Suffixes of names of metrics, by unit.
_UNITS = {"s": "seconds", "B": "bytes", "B/s": "bytes_per_second", "1/s": "per_second", "x": "ratio"}
_VERDICTS = ("pass", "fail", "inconclusive")
#: Labels that identify a series.
_KEY_LABELS = ("test", "step", "stack", "device", "kernel", "emulated")


def report(results: Results) -> str:
    """Return families of gauges: one for the medians of each metric, those for overheads with intervals, and verdicts.

    Overheads are fractions: 0.3 is 30 %. Only ``fsstack_run_info`` has the labels of the run.
    """
    entries_of_run = series(results)
    lines = [*_family("fsstack_run", "info", "", "the run that all figures are of")]
    lines.append(_sample("fsstack_run_info", {_name(key): value for key, value in results.labels.items()}, 1))
    families: dict[str, tuple[str, list[Series]]] = {}
    for entry in entries_of_run:
        if entry.kind == "figure":
            name, unit = _family_of(entry)
            families.setdefault(name, (unit, []))[1].append(entry)
    for name, (unit, entries) in families.items():
        lines += _family(name, "gauge", unit, f"median of the metric {entries[0].metric}")
        lines += [_sample(name, _labels(entry), entry.value) for entry in entries]
    lines += _overheads([entry for entry in entries_of_run if entry.kind != "figure"])
    lines += _verdicts([entry for entry in entries_of_run if entry.outcome])
    return "\n".join([*lines, "# EOF", ""])


def _overheads(entries: list[Series]) -> Iterator[str]:
    ends = {
        "fsstack_overhead_ratio": ("how much more a stack costs than its reference, as a fraction", "value"),
        "fsstack_overhead_low_ratio": ("the lower end of the interval of the overhead", "low"),
        "fsstack_overhead_high_ratio": ("the upper end of the interval of the overhead", "high"),
    }
    for name, (text, end) in ends.items():
        complete = [entry for entry in entries if getattr(entry, end) is not None]
        if complete:
            yield from _family(name, "gauge", "ratio", text)
        for entry in complete:
            yield _sample(name, _of_kind(entry), getattr(entry, end))


def _verdicts(entries: list[Series]) -> Iterator[str]:
    name = "fsstack_verdict"
    if entries:
        yield from _family(name, "stateset", "", "the worst verdict on the budgets of a metric")
    for entry in entries:
        for verdict in _VERDICTS:
            yield _sample(name, {**_of_kind(entry), name: verdict}, int(entry.outcome == verdict))


def _labels(entry: Series) -> dict[str, str]:
    labels = {"test": entry.test, "step": entry.step, "stack": entry.stack, **entry.labels}
    # The metric is a label too, because two metrics may have the same name of a family.
    return {**{name: labels[name] for name in _KEY_LABELS if labels.get(name)}, "metric": entry.metric}


def _of_kind(entry: Series) -> dict[str, str]:
    return {**_labels(entry), "kind": entry.kind, **({"over": entry.reference} if entry.reference else {})}


def _family_of(entry: Series) -> tuple[str, str]:
    """Return the name of the family, and its unit, which must be the end of the name."""
    name, unit = f"fsstack_metric_{_name(entry.metric)}", _UNITS.get(entry.unit, "")
    if entry.unit and not unit:
        unit = re.sub(r"[^a-z0-9]+", "_", entry.unit.lower().replace("%", "percent").replace("/", "_per_")).strip("_")
    if unit and not name.endswith(f"_{unit}"):
        name = f"{name}_{unit}"
    return name, unit


def _name(text: str) -> str:
    return re.sub(r"^(?=\d|$)", "_", re.sub(r"[^A-Za-z0-9_]", "_", text))


def _family(name: str, kind: str, unit: str, text: str) -> list[str]:
    return [f"# TYPE {name} {kind}", *([f"# UNIT {name} {unit}"] if unit else []), f"# HELP {name} {_escaped(text)}"]


def _sample(name: str, labels: Mapping[str, str], value: float) -> str:
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {value!r}"


def _escaped(text: str) -> str:
    return visible(text).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
