"""Tables in the shape in which scenarios are published, and the reports that show them."""

from __future__ import annotations

import csv
import io
import re
import statistics
from functools import partial
from typing import Any

import pytest

from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.results import ChainResults, Note, Results
from pytest_fsstack.records.sample import METRICS, Metric, Sample
from pytest_fsstack.report import csvfile, html, markdown, terminal
from pytest_fsstack.report.figures import cards
from pytest_fsstack.report.layouts import BUILT_IN, grids
from pytest_fsstack.report.model import Cell, Grid, View
from tests.chains import AChain, Series, a_chain

STACKS = {"ext4": 1.0, "fast": 0.5, "slow": 3.0}
RAW = {f"{kind}_{size}": Metric(f"{kind}_{size}", "B") for kind in ("raw", "allocated") for size in (0, 1024)}


def figures(step: str, stack: str, number: int) -> Sample | None:
    """Return a sample of one of three stacks. `slow` is partly undone in `link`, and absent from `dd[64K]`."""
    if (step, stack) == ("dd[64K]", "slow"):
        return None
    seconds = 60 * STACKS[stack] * (1 + number % 5 / 100)
    values = {"seconds": seconds, "user_seconds": 0.5, "system_seconds": 1.5, "cpu_seconds": 2.0}
    values |= {"throughput": 2**30 / seconds, "used_bytes": 4096.0}
    if step == "small":
        values |= {"raw_0": 8 * STACKS[stack], "raw_1024": 1032.0, "allocated_0": 0.0, "allocated_1024": 4096.0}
    undone = "3 of 7 links failed" if (step, stack) == ("link", "slow") else ""
    curves = {"operations_over_time": [[0, 0], [seconds, 100]], "output": f"<b>{stack}</b>"}
    return Sample(values, RAW if step == "small" else {}, curves, undone)


def made(*tables: tuple[str, dict[str, Any]], rounds: int = 10) -> AChain:
    """Return a chain of four steps on three stacks."""
    steps = ("write", "dd[64K]", "link", "small")
    costs = {step: {name: partial(figures, step, name) for name in STACKS} for step in steps}
    notes = {"dd[64K]": {"slow": Note("cannot run", "this filesystem cannot do direct I/O")}}
    return a_chain(costs, rounds, id="test_it.py::TestIt", seed=42, tables=list(tables), notes=notes)


def shown(name: str, **options: Any) -> list[Grid]:
    return grids(View(made((name, options)).built), BUILT_IN)


def rows(grid: Grid) -> dict[str, list[Cell]]:
    assert all(len(row) == len(grid.headers) for row in grid.rows)
    return {row[0].text: row for row in grid.rows}


def said(cell: Cell) -> tuple[str, bool | None]:
    return cell.text, cell.good


def test_times_are_real_user_and_sys_and_coloured_by_the_interval() -> None:
    (grid,) = shown("times")
    assert grid.headers == ["stack", "write", "dd[64K]", "link", "small"]
    found = rows(grid)
    assert said(found["ext4"][1]) == ("1m01.2s\n0.50s\n1.50s", None)
    assert said(found["fast"][1]) == ("30.60s\n0.50s\n1.50s", True)
    assert found["slow"][1].good is False
    assert said(found["slow"][2]) == ("- [1]", None)


def test_a_stack_that_did_not_do_the_work_is_neither_good_nor_bad() -> None:
    (grid,) = shown("times")
    assert said(rows(grid)["slow"][3]) == ("3m03.6s [2]\n0.50s\n1.50s", None)


def test_few_rounds_colour_nothing() -> None:
    view = View(made(("times", {}), rounds=3).built)
    (grid,) = grids(view, BUILT_IN)
    assert rows(grid)
    assert all(entry.good is None for row in grid.rows for entry in row)


def test_an_advantage_is_above_1_where_the_baseline_is_better_whatever_the_unit() -> None:
    (grid,) = shown("advantage", metrics={"write": ["seconds", "throughput"], "dd": "throughput"})
    assert grid.headers[1:4] == [*STACKS]
    assert [re.findall("|".join(STACKS), header) for header in grid.headers[4:]] == [["ext4", "fast"], ["ext4", "slow"]]
    found = rows(grid)
    for label in "write", "write: throughput":
        assert said(found[label][4]) == ("0.5 (0.5 to 0.5)", False)
        assert said(found[label][5]) == ("3 (3 to 3)", True)
    assert "MiB/s" in found["dd[64K]: throughput"][1].text
    assert said(found["link"][5]) == ("-", None)


def test_a_change_is_that_of_the_figure_with_its_interval() -> None:
    fast, slow = shown("change", metrics={"dd": "throughput"})
    assert fast.headers == ["test", "size", "ext4", "fast", "% change"]
    assert said(rows(fast)["write"][4]) == ("-50.0 % (-50.0 to -50.0 %)", True)
    assert [entry.text for entry in rows(fast)["dd: throughput"][:2]] == ["dd: throughput", "64K"]
    assert said(rows(fast)["dd: throughput"][4]) == ("+100 % (100 to 100 %)", True)
    assert rows(slow)["write"][4].good is False


@pytest.mark.parametrize(
    ("metric", "budget", "text"),
    [("seconds", 2.0, "+201 % (201 to 201 %)"), ("throughput", 1 / 0.333 - 1, "-66.8 % (-66.8 to -66.8 %)")],
)
def test_no_figure_of_a_change_is_rounded_to_the_budget_that_it_breaks(
    monkeypatch: pytest.MonkeyPatch, metric: str, budget: float, text: str
) -> None:
    monkeypatch.setitem(STACKS, "slow", 3.004)
    unjudged = made(("change", {"metrics": {"write": metric}}))
    chain = unjudged.with_budget("write", "slow", overhead=budget, metric=metric).built
    assert chain.worst("write", "slow") == "fail"
    _, slow = grids(View(chain), BUILT_IN)
    (cell,) = [row[4] for row in slow.rows if row[0].text.startswith("write")]
    assert cell.text == text


def test_a_matrix_has_a_table_for_time_cpu_and_space() -> None:
    time, cpu, space = shown("matrix")
    assert all(word in grid.title for word, grid in (("real", time), ("CPU", cpu), ("space", space)))
    assert [entry.text for entry in rows(cpu)["write"]] == ["write", "2 s", "2 s", "2 s"]
    assert rows(space)["write"][1].text == "4.0 KiB"
    assert [entry.good for entry in rows(time)["write"]] == [None, None, True, False]


def test_a_summary_has_the_statistics_of_every_stack() -> None:
    ext4, _, slow = shown("summary")
    series = [60 * (1 + index % 5 / 100) for index in range(10)]
    found = {label: row[1].text for label, row in rows(ext4).items()}
    assert found["samples"] == "10"
    assert found["average"] == f"{statistics.fmean(series):.3g} s"
    assert found["stddev %"] == f"{100 * statistics.stdev(series) / statistics.fmean(series):.1f} %"
    # t(0.975; 9) = 2.262, any table of Student's distribution.
    half = 2.262 * statistics.stdev(series) / 10**0.5
    assert found["average ± %"] == f"{100 * half / statistics.fmean(series):.1f} %"
    assert "95 % from" in found
    assert {"50 % from", "50 % to", "average ± 50 %"} <= rows(shown("summary", level=0.5)[0]).keys()
    (undone,) = [row for label, row in rows(slow).items() if "comparable" in label]
    assert undone[3].text == "[2]"
    assert rows(slow)["samples"][2].text == "0 [1]"


def test_small_files_have_a_row_a_size_and_two_columns_a_stack() -> None:
    (grid,) = shown("small_files")
    assert "bytes" in grid.headers[0]
    assert grid.headers[1:3] == ["ext4, raw", "ext4, du"]
    assert [entry.text for entry in rows(grid)["1024"]] == ["1024", *["1032", "4096"] * 3]
    assert [entry.text for entry in rows(grid)["0"]] == ["0", "8", "0", "4", "0", "24", "0"]


def results(*tables: str) -> Results:
    return with_tables(made(*((name, {}) for name in tables)).built)


def with_tables(chain: ChainResults) -> Results:
    results = Results({}, [chain])
    results.table_layouts = BUILT_IN
    return results


def test_the_terminal_shows_them_above_the_time_and_leaves_details_to_v() -> None:
    found = results("times", "small_files")
    text = "\n".join(terminal.lines(found, found.chains[0], width=200))
    assert re.search(r"real, user, sys:\nstack +write", text)
    assert re.search(r"fast +30\.60s", text)
    assert "\nraw_0" not in text
    assert "\nraw_0" in "\n".join(terminal.lines(found, found.chains[0], width=200, verbosity=1))


def test_a_table_that_is_too_wide_goes_on_below_with_its_labels() -> None:
    found = results("times")
    lines = terminal.lines(found, found.chains[0], width=32)
    headers = [line.split() for line in lines if line.startswith("stack ")]
    assert [name for header in headers for name in header if name != "stack"] == made().built.steps
    assert len(headers) > 1


def test_markdown_marks_good_and_bad_without_colours() -> None:
    text = markdown.report(results("matrix"))
    assert re.search("^### .*CPU", text, re.MULTILINE)
    assert re.search(r"\| write +\| 61.2 s +\| \*\*30.6 s\*\* +\| 184 s ▲ +\|", text)


def test_tables_as_csv_read_back() -> None:
    lines = list(csv.reader(io.StringIO(csvfile.tables(results("times")))))
    assert lines[0] == ["test_it.py::TestIt", "loop", "real, user, sys"]
    assert lines[1][:4] == ["stack", "write real (s)", "write user (s)", "write sys (s)"]
    assert lines[3][0] == "fast"
    assert [float(cell) for cell in lines[3][1:]] == pytest.approx([30.6, 0.5, 1.5] * 4)
    assert lines[-1][0] == "[2]"


def test_without_tables_of_its_own_the_csv_has_those_of_the_terminal() -> None:
    lines = list(csv.reader(io.StringIO(csvfile.tables(results()))))
    assert lines[0][2] == "seconds"
    assert any(line[:1] == ["used_bytes"] or line[2:] == ["raw_0"] for line in lines)


def test_html_has_tables_curves_and_what_tools_said() -> None:
    found = results("matrix")
    page = html.report(found)
    assert re.search(r'<td class="better"[^>]*><span>30.6 s</span></td>', page)
    assert "&lt;b&gt;ext4&lt;/b&gt;" in page
    assert "<b>ext4</b>" not in page
    found = settle(found)
    curves = [card for card in cards(found, found.chains) if card.title.endswith(": operations over time")]
    assert len(curves) == len(made().built.steps)
    assert curves[0].pictures[0][1].count("data-tips") == 10 * len(STACKS)


def test_html_shows_a_broken_budget_though_the_scenario_has_tables_of_its_own() -> None:
    judged = made(("matrix", {})).with_budget("write", "slow", overhead=0.3).built
    shown, details, _ = html.report(with_tables(judged)).partition("<details>")
    assert details
    assert re.search(r'<span class="verdict bad">[^<]* x1\.3 BROKEN</span></td>', shown)


def test_reports_say_when_and_that_a_session_ended_early() -> None:
    found = results("matrix")
    found.environment["date"] = "2026-01-02T03:04:05+00:00"
    found.interrupted = "stopping after 1 failures"
    for text in (html.report(found), markdown.report(found), "\n".join(terminal.lines(found, found.chains[0]))):
        assert "2026-01-02T03:04:05" in text
        assert "stopping after 1 failures" in text


def counted() -> AChain:
    """Return two rounds in which 10 flips each were made. `bad` returned wrong data, `absent` could not be built."""
    columns = {"seen": "reported of flips", "wrong": "wrong", "where": "kept places", "own": "only_bad"}
    higher = [Metric(name, better="higher") for name in ("reported", "only_bad")]
    metrics = {metric.name: metric for metric in (Metric("flips"), Metric("wrong"), *higher)}
    good = {"seconds": 1.0, "flips": 10.0, "reported": 10.0, "wrong": 0.0}
    bad = {"seconds": 1.0, "flips": 10.0, "reported": 4.0, "wrong": 3.0, "only_bad": 1.0}
    places = [{"places": ["a file", f"byte {number}"]} for number in range(2)]
    figures: dict[str, Series] = {
        "good": Sample(good, metrics),
        "bad": [Sample(bad, metrics, kept) for kept in places],
        "absent": None,
    }
    notes = {"data": {"absent": Note("cannot run", "needs device-mapper")}}
    return a_chain({"data": figures}, 2, tables=[("counts", {"columns": columns})], notes=notes)


def test_counts_are_summed_over_rounds_and_coloured_by_all_or_none() -> None:
    (grid,) = grids(View(counted().built), BUILT_IN)
    assert grid.headers == ["data", "seen", "wrong", "where", "own"]
    assert {name: [said(cell) for cell in row[1:]] for name, row in rows(grid).items()} == {
        "good": [("20 of 20", True), ("0", True), ("-", None), ("-", None)],
        "bad": [("8 of 20", False), ("6", False), ("a file, byte 0, byte 1", None), ("2", None)],
        "absent": [("- [1]", None), ("- [1]", None), ("-", None), ("- [1]", None)],
    }


def test_counts_without_columns_have_all_that_was_recorded() -> None:
    (grid,) = BUILT_IN["counts"](View(counted().built))
    assert grid.headers == ["data", "flips", "reported", "wrong", "only_bad"]


def test_coverage_names_the_calls_that_never_met_a_condition() -> None:
    chain = counted().built
    for stack, matrix in {
        "good": {"open": {"made": 2, "full": 1}},
        "bad": {"open": {"made": 1}, "write": {"made": 4}},
    }.items():
        chain.add("calls", stack, Sample({"seconds": 1.0}, METRICS, {"met": matrix}))
    chain.steps.append("calls")
    (grid,) = BUILT_IN["coverage"](View(chain), kept="met")
    assert rows(grid) == {
        "made": [Cell("made"), Cell("7"), Cell("2 of 2"), Cell("-")],
        "full": [Cell("full"), Cell("1"), Cell("1 of 2"), Cell("write")],
    }
    assert BUILT_IN["coverage"](View(chain), kept="other") == []


def test_markdown_says_of_counts_what_its_marks_are() -> None:
    text = markdown.report(with_tables(counted().built))
    assert "| bad" in text
    assert "8 of 20 ▲" in text
    assert "**20 of 20**" in text
    legends = [
        [line for line in shown.splitlines() if "\N{BLACK UP-POINTING TRIANGLE}" in line and not line.startswith("|")]
        for shown in (text, markdown.report(results("matrix")))
    ]
    assert [len(legend) for legend in legends] == [1, 1]
    assert legends[0] != legends[1]


def test_of_a_chain_that_only_counts_no_report_says_how_long_it_took() -> None:
    chain = counted().built
    results = with_tables(chain)
    assert list(cards(results, [chain, chain])) == []
    for text in markdown.report(results), "\n".join(terminal.lines(results, chain, verbosity=1)), html.report(results):
        assert re.search(r"\bsums .*\b2 rounds", text)
        assert "8 of 20" in text
        assert "seconds" not in text.replace("_seconds", "").partition("<script")[0]
        assert "overhead" not in text.partition("<script")[0]


def test_counts_so_far_are_shown_without_times() -> None:
    lines = terminal.lines_so_far(counted().built, width=160)
    assert "bad 8 of 20 6 a file, byte 0, byte 1 2" in [" ".join(line.split()) for line in lines]
    assert not any("seconds" in line or line.startswith("absent") for line in lines)
