"""Reports of results that are built by hand."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from html import unescape
from typing import Any

import pytest

from pytest_fsstack.judging.judge import judge, judge_all
from pytest_fsstack.judging.readings import dumps, settle
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import FORMAT, Note, Results
from pytest_fsstack.records.sample import METRICS, Metric, Sample, metric_of_action
from pytest_fsstack.report import BUILT_IN, brief, csvfile, figures, html, markdown, terminal
from pytest_fsstack.report.model import by_chance
from pytest_fsstack.units import OverheadUnit
from tests.chains import a_chain
from tests.terminal import Reporter
from tests.unit.report.results import FACTORS, MISSING, STEPS, made, measured

ANSI = re.compile(r"\x1b\[\d*m")


def text(results: Results, **options: Any) -> str:
    return "\n".join(terminal.lines(results, results.chains[0], **options))


def answered(results: Results) -> str:
    return "\n".join(terminal.answer_lines(results))


def row(shown: str, stack: str) -> str:
    return next(line for line in shown.splitlines() if line.startswith(stack))


class TestTerminal:
    def test_shows_every_stack_and_every_step_in_160_columns(self) -> None:
        lines = text(made(), width=160).splitlines()
        header = next(number for number, line in enumerate(lines) if line.startswith("seconds"))
        assert lines[header].split() == ["seconds", *STEPS]
        assert 100 < len(lines[header + 1]) <= 160
        assert {line.split()[0] for line in lines if line.strip()} >= set(FACTORS)

    def test_says_what_the_figures_depend_on(self) -> None:
        shown = text(made())
        for fact in ("loop: 4.0 GiB", "6.1.0", "--fsstack-seed=42", "90.0 %", "5 %"):
            assert fact in shown
        assert re.search(r"\b10 \D*78\b", shown)

    def test_a_cell_has_the_median_the_overhead_its_interval_and_the_verdict(self) -> None:
        shown = text(made(steps=["extract"]))
        assert row(shown, "ext4 ").split() == ["ext4", "1.01", "s", "baseline"]
        assert re.search(r"luks\+ext4 +1\.52 s +x1\.50\n +\S+ \S+ +\(x1\.50 to x1\.50\)\n +pass@6 \(max x3\)\n", shown)
        assert re.search(r"ext4\+gocryptfs +4\.54 s +x4\.50\n.*\n +FAIL@6 \(max x1\.3\)\n", shown)
        assert re.search(r"same +1\.01 s .*\n.*\n +\? \(max x1\.0001\)\n", shown)

    def test_one_unit_a_table_and_percent_if_nothing_is_large(self) -> None:
        results = made(steps=["extract"])
        del results.chains[0].stacks["ext4+gocryptfs"]
        shown = text(results)
        assert re.search(
            r"luks\+ext4 +1\.52 s +\+50\.0 %\n +\S+ MiB/s +\(50\.0 to 50\.0 %\)\n +pass@6 \(max 200 %\)\n", shown
        )
        assert not re.search(r"\bx\d", shown)

    def test_absolute_limits_are_shown_too(self) -> None:
        results = made(steps=["extract"])
        chain = results.chains[0]
        chain.judgements.setdefault("extract", {})["luks+ext4"] = [
            judge(chain, "extract", "luks+ext4", Budget(limit=1.2)),
            judge(chain, "extract", "luks+ext4", Budget(overhead=0.7)),
        ]
        shown = text(results)
        assert re.search(r"\n +FAIL@6 \(max 1\.2 s\)\n +pass@6 \(max x1\.7\)\n", shown)

    def test_a_step_that_nobody_measured_has_no_column(self) -> None:
        results = made(steps=["extract"])
        chain = results.chains[0]
        chain.steps.append("check")
        chain.notes.setdefault("check", {})["absent"] = Note("cannot run", MISSING)
        assert "check" not in text(results)
        chain.notes.setdefault("check", {})["luks+ext4"] = Note("failed")
        assert "check" in text(results)
        assert '<th scope="col">check</th>' in html.report(results).partition("</table>")[0]

    def test_a_stack_that_could_not_run_has_a_row_and_the_reason_once_below(self) -> None:
        shown = text(made())
        assert row(shown, "absent").split() == ["absent", *["-", "[1]"] * 5]
        assert MISSING not in shown
        assert f"not measured: [1] absent: {MISSING}" in answered(made()).splitlines()

    def test_a_stack_that_was_lost_on_the_way_shows_what_there_is_and_why_not_more(self) -> None:
        shown = text(made(steps=["extract"]))
        assert "[2]" in row(shown, "lossy")
        assert OverheadUnit().interval(-1, math.inf) in shown
        assert "[2] lossy: failed in round 2" in answered(made(steps=["extract"]))

    def test_says_what_would_decide_what_is_not_decided(self) -> None:
        shown = answered(made(steps=["extract"]))
        assert re.search(r"^undecided: +extract on same, seconds, budget 0\.01 %: \S", shown, re.MULTILINE)

    def test_what_is_not_decided_stands_above_the_tables_of_bench_too(self) -> None:
        starts = [line.partition(" ")[0] for line in brief.lines(made(), width=160)]
        assert starts.index("undecided:") < starts.index("seconds")

    def test_no_sentence_of_bench_is_about_a_stack_that_failed(self) -> None:
        (sentence,) = brief.sentences(settle(made(steps=["write"])).chains[0])
        assert re.findall(r"(\S+) takes", sentence) == ["same", "luks+ext4", "ext4+gocryptfs"]

    def test_what_holds_for_many_budgets_is_said_once(self) -> None:
        (line,) = [line for line in answered(made(rounds=3)).splitlines() if line.startswith("undecided")]
        assert re.search(r"write on same, seconds, budget 0\.01 % \([^)]*\b14\b[^)]*\): 3 .*\b0\.05\b.*\b6\b", line)

    def test_colours_say_nothing_that_the_words_do_not(self) -> None:
        plain, coloured = text(made()), text(made(), coloured=True)
        assert "\x1b[31mFAIL@6 (max x1.3)\x1b[0m" in coloured
        assert "\x1b" not in plain
        assert [line.rstrip() for line in ANSI.sub("", coloured).splitlines()] == plain.splitlines()

    def test_a_narrow_terminal_gets_the_steps_in_parts(self) -> None:
        lines = text(made(), width=80).splitlines()
        headers = [line.split()[1:] for line in lines if line.startswith("seconds ")]
        assert len(headers) > 1
        assert [step for header in headers for step in header] == STEPS
        assert all(len(line) <= 80 for line in lines if line.startswith(("---", *FACTORS)))
        assert sum(line.startswith("absent") for line in lines) == len(headers) + 1  # and in the table of du_bytes

    def test_verbose_adds_what_everybody_measures(self) -> None:
        assert "machine_seconds" not in text(made())
        assert {"machine_seconds", "written_bytes", "du_bytes"} <= {
            line.split()[0] for line in text(made(), verbosity=1).splitlines() if line.strip()
        }

    def test_verbose_adds_the_parts_of_the_time_and_a_row_for_each_layer(self) -> None:
        opened = [metric_of_action("open", layer) for layer in ("", "luks", "ext4")]
        parts = {"seconds": 3.0, "work_seconds": 2.0, "sync_seconds": 1.0}
        base = {**parts, "stack_open_seconds": 0.1, "ext4_open_seconds": 0.1}
        costs = {"ext4": base, "luks+ext4": {**base, "stack_open_seconds": 0.4, "luks_open_seconds": 0.3}, "raw": parts}
        results = a_chain({"write": costs}, 6).with_metrics(*opened).results()
        assert not re.search("(work|sync|open)_seconds|^layers", text(results), re.MULTILINE)
        verbose = text(results, verbosity=1)
        assert re.search(r"^work_seconds ", verbose, re.MULTILINE)
        assert re.search(r"^sync_seconds ", verbose, re.MULTILINE)
        rows = [line.split()[:4] for line in verbose.partition("layers:\n")[2].splitlines()[2:]]
        assert rows == [
            ["ext4", "ext4", "100", "ms"],
            ["luks+ext4", "all", "400", "ms"],
            ["luks+ext4", "ext4", "100", "ms"],
            ["luks+ext4", "luks", "300", "ms"],
        ]
        assert re.search(r">luks<.*?>300 ms<", html.report(results), re.DOTALL)

    def test_a_metric_with_a_budget_or_of_the_workload_gets_a_table(self) -> None:
        results = made(steps=["write", "du"])
        chain = results.chains[0]
        judge_all(chain, "write", "luks+ext4", Budget("written_bytes", limit=1.0))
        shown = text(results)
        headers = [line.split() for line in shown.splitlines()]
        assert ["written_bytes", "write", "du"] in headers
        assert ["du_bytes", "du"] in headers
        assert re.search(r"luks\+ext4 +6\.1 KiB +~x1\.50.*\n +\(x0.* to x2.*\).*\n +FAIL@6 \(max 1 B\)", shown)

    def test_writes_a_section_for_each_chain_unless_little_is_wanted(self) -> None:
        reporter = Reporter()
        terminal.write(reporter, made(), -2)  # type: ignore[arg-type]
        assert reporter.text == ""
        terminal.write(reporter, made(), 0)  # type: ignore[arg-type]
        assert reporter.text.lstrip("\n").startswith("=== answer ===\n")
        assert "=== test_it.py::TestIt on loop ===\n" in reporter.text
        assert "FAIL" in reporter.text

    def test_nothing_measured_at_all_is_still_a_table(self) -> None:
        assert re.search(r"^a\s+-$", text(a_chain({"s": {"a": None}}, 0).results()), re.MULTILINE)


@pytest.mark.parametrize(
    ("ratios", "low", "high", "expected"),
    [
        (False, 0.101, 0.14, "(10.1 to 14.0 %)"),
        (False, -0.02, 0.01, "(-2.0 to 1.0 %)"),
        (False, 0.0002, 0.0, "(0.1 to 0.0 %)"),
        (False, -0.01, -0.0003, "(-1.0 to -0.1 %)"),
        (True, 0.001, 3.5, "(x1.01 to x4.50)"),
        (False, 0.5, 2.2, "(50.0 to 220 %)"),
        (True, -0.05, 3.5, "(x0.95 to x4.50)"),
        (True, 8.99, 150.0, "(x9.99 to x151)"),
    ],
)
def test_an_interval_has_one_unit(ratios: bool, low: float, high: float, expected: str) -> None:
    assert OverheadUnit(ratios).interval(low, high) == expected


@pytest.mark.parametrize("ratios", [False, True])
def test_an_open_interval_has_no_figures(ratios: bool) -> None:
    assert re.fullmatch(r"\([a-z ]+\)", OverheadUnit(ratios).interval(-1.0, math.inf))


@pytest.mark.parametrize(
    ("overheads", "ratios"), [([], False), ([2.99], False), ([0.1, 3.0], True), ([math.inf, 0.1], False)]
)
def test_one_large_overhead_makes_them_all_ratios(overheads: list[float], ratios: bool) -> None:
    assert OverheadUnit.fitting(overheads) == OverheadUnit(ratios)


def test_each_report_says_how_many_cells_differ_by_chance() -> None:
    costs = {f"s{number}": {"one": 2.0, "two": 1.0} for number in range(7)}
    results = settle(measured({"ext4": {"one": 1.0, "two": 1.0}, **costs}))
    sentence = by_chance(results.chains[0])
    assert re.findall(r"\d+", sentence) == ["1", "14", "7"]
    for report in text(results), markdown.report(results), html.report(results):
        assert sentence in report
    assert html.report(results).count(sentence) == 2
    assert sentence in figures.heat_maps(results)
    # A budget's own metric has an interval too, and with few cells the share is that of more.
    few = measured({"ext4": {"one": 1.0}, "s": {"one": 2.0}})
    assert re.findall(r"\d+", by_chance(settle(few).chains[0])) == ["1", "10", "1", "1"]
    assert not by_chance(settle(measured({"ext4": {"one": 1.0}, "s": {"one": 2.0}}, rounds=3)).chains[0])


@pytest.mark.parametrize(("sharing", "promise"), [(0, "each"), (30, "30")])
def test_each_report_says_for_what_the_error_rate_holds(sharing: int, promise: str) -> None:
    results = made()
    results.chains[0].budgets_sharing = sharing
    for report in (text(results), markdown.report(results), html.report(results)):
        promises = re.findall(r"\b(each|\d+) budgets?\b", unescape(" ".join(report.split())))
        assert set(promises) == {promise}


class TestMarkdown:
    def test_tables_are_valid(self) -> None:
        lines = markdown.report(made()).splitlines()
        tables = [line for line in lines if line.startswith("|")]
        for line in tables:
            assert len(re.findall(r"(?<!\\)\|", line)) in (len(STEPS) + 2, 3)
        assert len([line for line in tables if set(line) <= set("|-: ")]) == 4

    def test_shows_every_stack_with_its_verdict_and_its_reason(self) -> None:
        shown = markdown.report(made())
        assert rf"- **not measured**: [1] absent: {MISSING}" in shown
        assert "- stack luks+ext4: `luks | ext4`" in shown
        assert "| absent         | - [1] " in shown
        assert "**x4.50 (x4.50 to x4.50) FAIL@6 (max x1.3)**" in shown

    def test_names_and_units_do_not_break_the_table(self) -> None:
        results = made(steps=["write[a|b*c]", "rsync_dry_run"])
        metrics = {**METRICS, "own": Metric("own", "a|b<i>")}
        results.chains[0].add("rsync_dry_run", "ext4", Sample({"seconds": 1.0, "own": 2.0}, metrics))
        shown = markdown.report(results)
        assert r"| write[a\|b\*c] " in shown
        assert "| rsync_dry_run " in shown
        assert r"| 2 a\|b\<i\>, baseline |" in shown


class TestCsv:
    def test_reads_back_as_the_samples(self) -> None:
        results = made()
        rows = list(csv.DictReader(io.StringIO(csvfile.samples(results))))
        chain = results.chains[0]
        assert len(rows) == sum(len(each.values) for _, _, samples in chain.all_samples() for each in samples.values())
        found = {
            int(row["round"]): float(row["value"])
            for row in rows
            if (row["step"], row["stack"], row["metric"]) == ("write", "luks+ext4", "seconds")
        }
        assert [found[index + 1] for index in range(10)] == chain.series("write", "luks+ext4", "seconds")
        assert {row["unit"] for row in rows if row["metric"] == "du_bytes"} == {"B"}


class TestJson:
    def read(self, results: Results) -> Any:
        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        return json.loads(dumps(results), parse_constant=refuse)

    def test_holds_what_follows_from_the_samples_too(self) -> None:
        results = made()
        del results.chains[0].samples["write"]["luks+ext4"][0][3]
        content = self.read(results)
        assert content["format"] == FORMAT
        (chain,) = content["chains"]
        assert all(set(by_stack) == set(FACTORS) for by_stack in chain["derived"].values())
        derived = chain["derived"]["write"]
        assert derived["luks+ext4"]["readings"]["seconds"]["estimate"]["overhead"] == pytest.approx(0.5)
        assert [*chain["samples"]["write"]["luks+ext4"]["0"]] == ["0", "1", "2", "4", "5", "6", "7", "8", "9"]
        (judgement,) = chain["judgements"]["write"]["ext4+gocryptfs"]
        assert derived["ext4+gocryptfs"]["verdict"] == judgement["outcome"] == "fail"
        assert "absent" not in chain["samples"]["write"]
        assert derived["absent"] == {
            **{"samples": 0, "verdict": None, "doubts": [], "incomplete": "", "expected": ""},
            "readings": {},
        }

    def test_an_open_interval_is_null(self) -> None:
        (chain,) = self.read(made(rounds=3))["chains"]
        figures = chain["derived"][chain["steps"][0]]["luks+ext4"]["readings"]
        assert figures["seconds"]["estimate"]["high"] is None


def test_the_built_in_reports_take_results_and_give_text() -> None:
    stores = {"bencher", "github-benchmark", "otava", "openmetrics", "lava", "ktap"}
    assert set(BUILT_IN) == {"json", "markdown", "csv", "tables", "html", "heatmap", "forest"} | stores
    assert all(report(made()).endswith("\n") for report in BUILT_IN.values())


def test_no_name_of_somebody_elses_results_is_obeyed_by_a_terminal() -> None:
    figures = {"s\x9b31m": {"a": {"seconds": 1.0, "m\x1b": 2.0}}}
    chain = a_chain(figures, 1, id="c\x1b[2J", devices=["loop\x07"]).with_metrics(Metric("m\x1b", "u\x1b[31m"))
    chain = chain.with_stack("a", "ext4\x1b]0;title\x07")
    results = chain.results({"date": "\x1b"}, labels={"branch": "\x1b[1m"})
    for name, report in BUILT_IN.items():
        # What programs read, and show, keeps its characters.
        if name not in ("json", "bencher", "github-benchmark", "html", "heatmap", "forest"):
            assert not set(report(results)) & {"\x1b", "\x07", "\x9b"}, name
    assert r"ext4\x1b]0;title\x07" in markdown.report(results)
