"""Formats of stores and consoles, as each consumer documents them or its own parser reads them."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st

from pytest_fsstack.records.results import Note, Results, TestOutcome
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.records.verdicts import Looks
from pytest_fsstack.report import BUILT_IN, consoles, openmetrics, stores
from pytest_fsstack.report.series import series
from pytest_fsstack.units import visible
from tests.chains import a_chain

TEST = "tests/test_mail.py::TestMail"
NAME = f"{TEST}::deliver::luks+ext4::seconds"


STACKS = ("ext4", "luks+ext4", "slow", "absent", "lossy")


def made(stacks: tuple[str, ...] = STACKS, device: str = "loop", rounds: int = 10, xfail: str | None = None) -> Results:
    """Return a session: one stack is within its budget, one far above, one not there, and one did not do the work."""
    factors = {"luks+ext4": 1.25, "slow": 4.0}
    odd = {"odd rate%": Metric("odd rate%", "mails/s", "higher"), "files": Metric("files")}

    def sample(stack: str, number: int) -> Sample | None:
        seconds = factors.get(stack, 1.0) * (1 + number % 3 / 100)
        values = {"seconds": seconds, "used_bytes": 8192.0, "throughput": 1e8 / seconds, "odd rate%": 7.0, "files": 3.0}
        return None if stack == "absent" else Sample(values, odd, incomplete="3 lost" * (stack == "lossy"))

    figures = {"deliver": {stack: partial(sample, stack) for stack in stacks}}
    missing = Note("cannot run", "needs no-such-tool: apt install # no-such-package")
    notes = {"deliver": {"absent": missing} if "absent" in stacks else {}}
    chain = a_chain(figures, rounds, Looks(), id=TEST, devices=[device], notes=notes)
    for stack in factors.keys() & set(stacks):
        chain = chain.with_budget("deliver", stack, overhead=0.3, xfail=xfail)
    labels = {"commit": "abc", "branch": 'ma"in\\', "kernel": "6.1.0"}
    return chain.results(start="2026-11-22T10:00:00+00:00", labels=labels)


# -- Bencher -----------------------------------------------------------------------------------------------------------

#: https://bencher.dev/docs/reference/bencher-metric-format/, in fewer words.
BENCHER = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": "^[a-z0-9-]{1,64}$"},
        "additionalProperties": {
            "type": "object",
            "required": ["value"],
            "properties": {name: {"type": "number"} for name in ("value", "lower_value", "upper_value")},
            "additionalProperties": False,
        },
    },
}


def test_bencher_gets_a_benchmark_a_step_and_stack_with_its_measures() -> None:
    found = json.loads(stores.bencher(made()))
    jsonschema.validate(found, BENCHER)
    assert set(found) == {f"{TEST}::deliver::{stack}" for stack in ("ext4", "luks+ext4", "slow")}
    measures = found[f"{TEST}::deliver::luks+ext4"]
    assert measures["seconds"] == {"value": pytest.approx(1.2625)}
    ratio = measures["seconds-ratio"]
    assert ratio["value"] == pytest.approx(1.25)
    assert ratio["lower_value"] <= ratio["value"] <= ratio["upper_value"]
    assert "used-bytes" not in measures, "nobody asked about them"
    assert set(found[f"{TEST}::deliver::ext4"]) == {"seconds", "odd-rate", "files"}


# -- github-action-benchmark -------------------------------------------------------------------------------------------


def test_the_github_action_gets_entries_of_which_less_is_better() -> None:
    # README of benchmark-action/github-action-benchmark, "Custom benchmarks": what each entry has.
    found = json.loads(stores.github_benchmark(made()))
    assert isinstance(found, list)
    for entry in found:
        assert {"name", "unit", "value"} <= set(entry) <= {"name", "unit", "value", "range", "extra"}
        assert all(isinstance(entry[name], str) for name in set(entry) - {"value"})
        assert entry["value"] > 0
    entries = {entry["name"]: entry for entry in found}
    assert len(entries) == len(found)
    assert entries[f"{NAME}::overhead"]["unit"] == "ratio"
    assert entries[f"{NAME}::overhead"]["value"] == pytest.approx(1.25)
    assert re.fullmatch(r"1\.\d+ to 1\.\d+", entries[f"{NAME}::overhead"]["range"])
    assert re.match(r"pass, .*\bext4, 10 .*\b6\.1\.0, .*\bloop\b", entries[f"{NAME}::overhead"]["extra"])
    assert entries[f"{TEST}::deliver::ext4::files"]["unit"] == ""
    # A rate is better if it is higher; its ratio is better if it is lower.
    rate = f"{TEST}::deliver::luks+ext4::odd rate%"
    assert rate not in entries
    assert f"{rate}::overhead" in entries


# -- Otava -------------------------------------------------------------------------------------------------------------


def test_otava_finds_its_columns_and_reads_its_figures() -> None:
    # What CsvImporter of apache-otava does with a file (otava/importer.py), column by column.
    header, line = csv.reader(io.StringIO(stores.otava(made()), newline=""), delimiter=",", quotechar='"')
    assert header[:4] == ["time", "commit", "branch", "kernel"]
    assert len(set(header)) == len(header) == len(line)
    row = dict(zip(header, line, strict=True))
    assert datetime.fromisoformat(row["time"]).utcoffset() is not None
    assert (row["commit"], row["branch"]) == ("abc", 'ma"in\\')
    assert {name: float(row[name]) for name in header[4:]}[f"{NAME}::overhead"] == pytest.approx(1.25)
    assert {each.name for each in series(made())} == set(header[4:])


# -- OpenMetrics -------------------------------------------------------------------------------------------------------


def families(text: str) -> dict[str, Any]:
    """As the parser of Prometheus's own client reads it, which is strict."""
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    read: Callable[[str], Any] = text_string_to_metric_families
    return {family.name: family for family in read(text)}


def test_prometheus_reads_the_figures_and_their_labels() -> None:
    found = families(openmetrics.report(made()))
    seconds = found["fsstack_metric_seconds"]
    assert (seconds.type, seconds.unit) == ("gauge", "seconds")
    labels = {"test": TEST, "step": "deliver", "device": "loop", "kernel": "6.1.0", "metric": "seconds"}
    assert {sample.labels["stack"] for sample in seconds.samples} == {"ext4", "luks+ext4", "slow"}
    assert seconds.samples[0].labels == {**labels, "stack": "ext4"}
    overhead = next(
        sample
        for sample in found["fsstack_overhead_ratio"].samples
        if sample.labels["stack"] == "luks+ext4" and sample.labels["metric"] == "seconds"
    )
    assert overhead.value == pytest.approx(0.25)
    assert overhead.labels == {**labels, "stack": "luks+ext4", "kind": "overhead", "over": "ext4"}
    assert {"fsstack_overhead_low_ratio", "fsstack_overhead_high_ratio"} <= set(found)
    verdicts = {
        sample.labels["stack"]: sample.labels["fsstack_verdict"]
        for sample in found["fsstack_verdict"].samples
        if sample.value == 1
    }
    assert verdicts == {"luks+ext4": "pass", "slow": "fail"}
    (run,) = found["fsstack_run"].samples
    assert run.labels == {"commit": "abc", "branch": 'ma"in\\', "kernel": "6.1.0"}
    assert found["fsstack_metric_throughput_bytes_per_second"].unit == "bytes_per_second"
    assert found["fsstack_metric_odd_rate__mails_per_s"].samples[0].value == 7.0


@settings(max_examples=30)
@given(st.lists(st.tuples(st.text(min_size=1), st.text()), min_size=1, max_size=3, unique_by=lambda each: each[0]))
def test_no_name_or_unit_of_a_metric_is_too_odd(found: list[tuple[str, str]]) -> None:
    metrics = {name: Metric(name, unit) for name, unit in found}
    sample = Sample(dict.fromkeys(metrics, 1.5), metrics)
    chain = a_chain({"s,{}=": {"a": sample}}, 1, id='t\n"x\\', devices=["dir:/ä"])
    results = chain.results(labels={"x": '\\"\n'})
    read = families(openmetrics.report(results))
    values = [sample for family in read.values() if family.type == "gauge" for sample in family.samples]
    assert {sample.labels["metric"] for sample in values} == set(map(visible, metrics))
    for name in "bencher", "github-benchmark", "otava", "lava", "ktap":
        assert BUILT_IN[name](results)


# -- LAVA --------------------------------------------------------------------------------------------------------------


def signals(text: str) -> dict[str, dict[str, str]]:
    """As lava-dispatcher reads them: the signal's name, then KEY=VALUE with blanks between, up to the bracket."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"<LAVA_SIGNAL_TESTCASE ([^>]+)>", line)
        assert match, line
        values = dict(word.split("=", 1) for word in match[1].split())
        assert set(values) <= {"TEST_CASE_ID", "RESULT", "MEASUREMENT", "UNITS"}
        assert values["RESULT"] in ("pass", "fail", "skip", "unknown")
        assert ("MEASUREMENT" in values) >= ("UNITS" in values)
        # docs.lavasoftware.org: none of $&"'`()<>/\|; and no blanks.
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", values["TEST_CASE_ID"])
        assert values.pop("TEST_CASE_ID") not in found, "each once"
        found[line.split("TEST_CASE_ID=")[1].split()[0].rstrip(">")] = values
    return found


def test_lava_gets_a_test_case_for_each_series() -> None:
    found = signals(consoles.lava(made()))
    case = "tests-test_mail.py.TestMail.deliver"
    assert found[f"{case}.luks-ext4.seconds"] == {"RESULT": "pass", "MEASUREMENT": "1.262500000", "UNITS": "s"}
    assert found[f"{case}.luks-ext4.seconds.overhead"]["RESULT"] == "pass"
    slow = found[f"{case}.slow.seconds.overhead"]
    assert float(slow.pop("MEASUREMENT")) == pytest.approx(4.0)
    assert slow == {"RESULT": "fail", "UNITS": "ratio"}
    assert found[f"{case}.absent"] == {"RESULT": "skip"}
    assert found[f"{case}.lossy"] == {"RESULT": "fail"}


def test_a_test_that_fails_on_one_device_fails_no_measurement_on_another_for_lava() -> None:
    results = made(("ext4", "luks+ext4"))
    results.chains += made(("ext4", "luks+ext4"), "dir:/srv").chains
    results.tests["t"] = TestOutcome("t", "failed", chain=TEST, device="dir:/srv", step="deliver", stack="luks+ext4")
    found = signals(consoles.lava(results))
    case = "tests-test_mail.py.TestMail.deliver.luks-ext4.seconds"
    assert (found[f"{case}-loop"]["RESULT"], found[f"{case}-dir-srv"]["RESULT"]) == ("pass", "fail")


def undecided() -> Results:
    results = made(("ext4", "luks+ext4"), rounds=2)
    chain = results.chains[0]
    assert chain.worst("deliver", "luks+ext4") == "inconclusive"
    return results


def test_what_is_not_decided_is_unknown_to_lava() -> None:
    found = signals(consoles.lava(undecided()))
    assert found["tests-test_mail.py.TestMail.deliver.luks-ext4.seconds.overhead"]["RESULT"] == "unknown"


# -- KTAP --------------------------------------------------------------------------------------------------------------


def parsed(text: str, indent: str = "") -> list[tuple[str, str, str, list[Any]]]:
    """Result, description, directive and subtests of each test, by the rules of docs.kernel.org/dev-tools/ktap.html."""
    lines = text.splitlines()
    assert lines.pop(0) == f"{indent}KTAP version 1"
    plan = re.fullmatch(rf"{indent}1\.\.(\d+)", lines.pop(0))
    assert plan
    found: list[tuple[str, str, str, list[Any]]] = []
    inner: list[str] = []
    for line in lines:
        if line.startswith(f"{indent}  "):
            inner.append(line)
        elif not line.startswith(f"{indent}# "):
            match = re.fullmatch(
                rf"{indent}(ok|not ok) (\d+) ([^#]+?)(?: # (SKIP|TODO|XFAIL|TIMEOUT|ERROR)\b ?(.*))?", line
            )
            assert match, line
            assert int(match[2]) == len(found) + 1
            subtests = parsed("\n".join(inner), f"{indent}  ") if inner else []
            found.append((match[1], match[3], f"{match[4] or ''} {match[5] or ''}".strip(), subtests))
            inner = []
    assert inner == []
    assert len(found) == int(plan[1])
    return found


def test_ktap_has_a_subtest_for_each_step_on_a_stack() -> None:
    ((result, name, directive, cases),) = parsed(consoles.ktap(made()))
    assert (result, name, directive) == ("not ok", f"{TEST} on loop", "")
    assert [case[:3] for case in cases] == [
        ("ok", "deliver on ext4", ""),
        ("ok", "deliver on luks+ext4", ""),
        ("not ok", "deliver on slow", ""),
        ("ok", "deliver on absent", "SKIP needs no-such-tool: apt install # no-such-package"),
        ("not ok", "deliver on lossy", ""),
    ]
    text = consoles.ktap(made())
    assert re.search(r"^  # deliver on luks\+ext4: seconds: 1\.26 s, \+25\.0 % .*\bext4$", text, re.MULTILINE)
    assert re.search("^  # deliver on lossy: .*3 lost$", text, re.MULTILINE)


def test_ktap_skips_what_is_not_decided_and_passes_a_failure_that_was_expected() -> None:
    ((result, _, directive, cases),) = parsed(consoles.ktap(undecided()))
    assert (result, directive) == ("ok", "")
    assert cases[1][2] == "SKIP inconclusive"
    assert parsed(consoles.ktap(made(("ext4", "slow"), xfail="BUG-1")))[0][0] == "ok"


# -- several kernels or devices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", [stores.bencher, stores.github_benchmark, stores.otava, consoles.lava])
def test_names_stay_apart_if_a_run_has_several_devices(write: Callable[[Results], str]) -> None:
    results = made(("ext4", "slow"))
    alone = write(results)
    assert "@" not in alone
    results.chains += made(("ext4", "slow"), "dir:/srv").chains
    both = write(results)
    assert "slow" in both
    if write is consoles.lava:
        assert len(signals(both)) == 2 * len(signals(alone))
    else:
        assert "@loop" in both
        assert "@dir:/srv" in both


def test_without_figures_there_is_still_a_form() -> None:
    empty = Results()
    assert json.loads(stores.bencher(empty)) == {}
    assert json.loads(stores.github_benchmark(empty)) == []
    assert families(openmetrics.report(empty)).keys() == {"fsstack_run"}
    assert consoles.lava(empty) == ""
    assert parsed(consoles.ktap(empty)) == []
