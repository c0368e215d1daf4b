"""Tables in the shape in which studies are published, and the reports that show them."""

from __future__ import annotations

import csv
import io
import re
import statistics
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_fsstack.measure import METRICS, Metric, Sample
from pytest_fsstack.report import html, markdown, tablesfile, terminal
from pytest_fsstack.report.published import SHAPES, Entry, Grid, grids
from pytest_fsstack.report.table import View
from pytest_fsstack.results import ArmInfo, Chain, Results, dump, load
from pytest_fsstack.verdict import Looks

STACKS = {"ext4": 1.0, "fast": 0.5, "slow": 3.0}
RAW = {f"{kind}_{size}": Metric(f"{kind}_{size}", "B") for kind in ("raw", "allocated") for size in (0, 1024)}


def made(*tables: tuple[str, dict[str, Any]], rounds: int = 10) -> Chain:
    """Four steps on three stacks; `slow` is partly undone in the step `link`, and absent from `dd[64K]`."""
    chain = Chain("test_it.py::TestIt", "loop", "ext4", Looks.fixed(rounds, 0.05), 42, tables=list(tables))
    chain.steps = ["write", "dd[64K]", "link", "small"]
    for name in STACKS:
        chain.arms[name] = ArmInfo(name, name)
    for index in range(rounds):
        chain.orders.append(list(STACKS))
        for step in chain.steps:
            for name, factor in STACKS.items():
                if (step, name) == ("dd[64K]", "slow"):
                    chain.notes[step, name] = "this filesystem cannot do direct I/O"
                    continue
                seconds = 60 * factor * (1 + index % 5 / 100)
                values = {"seconds": seconds, "user_seconds": 0.5, "system_seconds": 1.5, "cpu_seconds": 2.0}
                values |= {"throughput": 2**30 / seconds, "used_bytes": 4096.0}
                metrics = METRICS
                if step == "small":
                    values |= {"raw_0": 8 * factor, "raw_1024": 1032.0, "allocated_0": 0.0, "allocated_1024": 4096.0}
                    metrics = {**METRICS, **RAW}
                undone = "3 of 7 links failed" if (step, name) == ("link", "slow") else ""
                kept = {"operations_over_time": [[0, 0], [seconds, 100]], "output": f"<b>{name}</b>"}
                chain.add(step, name, Sample(values, metrics, kept, undone))
    return chain


def shown(name: str, **options: Any) -> list[Grid]:
    return grids(View(made((name, options))), SHAPES)


def rows(grid: Grid) -> dict[str, list[Entry]]:
    assert all(len(row) == len(grid.headers) for row in grid.rows)
    return {row[0].text: row for row in grid.rows}


def test_times_are_real_user_and_sys_and_coloured_by_the_interval() -> None:
    (grid,) = shown("times")
    assert grid.headers == ["stack", "write", "dd[64K]", "link", "small"]
    found = rows(grid)
    assert found["ext4"][1] == Entry("1m01.2s\n0.50s\n1.50s", None)
    assert found["fast"][1] == Entry("30.60s\n0.50s\n1.50s", True)
    assert found["slow"][1].good is False
    assert found["slow"][2] == Entry("- [1]")


def test_a_stack_that_did_not_do_the_work_is_neither_good_nor_bad() -> None:
    (grid,) = shown("times")
    assert rows(grid)["slow"][3] == Entry("3m03.6s [2]\n0.50s\n1.50s", None)


def test_few_rounds_colour_nothing() -> None:
    view = View(made(("times", {}), rounds=3))
    (grid,) = grids(view, SHAPES)
    assert all(entry.good is None for row in grid.rows for entry in row)


def test_an_advantage_is_above_1_where_the_baseline_is_better_whatever_the_unit() -> None:
    (grid,) = shown("advantage", metrics={"write": ["seconds", "throughput"], "dd": "throughput"})
    assert grid.headers[1:] == [*STACKS, "advantage of ext4 over fast", "advantage of ext4 over slow"]
    found = rows(grid)
    for label in "write", "write: throughput":
        assert found[label][4] == Entry("0.5 (0.5 to 0.5)", False)
        assert found[label][5] == Entry("3 (3 to 3)", True)
    assert "MiB/s" in found["dd[64K]: throughput"][1].text
    assert found["link"][5] == Entry("-")


def test_a_change_is_that_of_the_figure_with_its_interval() -> None:
    fast, slow = shown("change", metrics={"dd": "throughput"})
    assert fast.headers == ["test", "size", "ext4", "fast", "% change"]
    assert rows(fast)["write"][4] == Entry("-50.0 % (-50.0 % to -50.0 %)", True)
    assert [entry.text for entry in rows(fast)["dd: throughput"][:2]] == ["dd: throughput", "64K"]
    assert rows(fast)["dd: throughput"][4] == Entry("+100.0 % (+100.0 % to +100.0 %)", True)
    assert rows(slow)["write"][4].good is False


def test_a_matrix_has_a_table_for_time_cpu_and_space() -> None:
    time, cpu, space = shown("matrix")
    assert [grid.title for grid in (time, cpu, space)] == ["real time", "CPU time", "space used"]
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
    assert rows(slow)["not comparable"][3].text == "[2]"
    assert rows(slow)["samples"][2].text == "0 [1]"


def test_small_files_have_a_row_a_size_and_two_columns_a_stack() -> None:
    (grid,) = shown("small_files")
    assert grid.headers[:3] == ["bytes of the file", "ext4, raw", "ext4, du"]
    assert [entry.text for entry in rows(grid)["1024"]] == ["1024", *["1032", "4096"] * 3]
    assert [entry.text for entry in rows(grid)["0"]] == ["0", "8", "0", "4", "0", "24", "0"]


def test_tables_survive_the_way_to_another_process() -> None:
    chain = made(("advantage", {"metrics": {"write": "throughput"}}))
    again = load(dump(chain))
    assert again.tables == chain.tables
    assert again.of("link", "slow")[0].incomplete == "3 of 7 links failed"
    assert again.of("write", "ext4")[0].kept["output"] == "<b>ext4</b>"
    assert View(again).notes == View(chain).notes


def results(*tables: str) -> Results:
    return Results({}, [made(*((name, {}) for name in tables))], shapes=SHAPES)


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
    assert [name for header in headers for name in header if name != "stack"] == made().steps
    assert len(headers) > 1


def test_markdown_marks_good_and_bad_without_colours() -> None:
    text = markdown.report(results("matrix"))
    assert "### CPU time" in text
    assert re.search(r"\| write +\| 61.2 s +\| \*\*30.6 s\*\* +\| 184 s ▲ +\|", text)


def test_tables_as_csv_read_back() -> None:
    lines = list(csv.reader(io.StringIO(tablesfile.report(results("times")))))
    assert lines[0] == ["test_it.py::TestIt", "loop", "real, user, sys"]
    assert lines[3] == ["fast", *["30.60s / 0.50s / 1.50s"] * 4]
    assert lines[-1][0] == "[2]"


def test_without_tables_of_its_own_the_csv_has_those_of_the_terminal() -> None:
    lines = list(csv.reader(io.StringIO(tablesfile.report(results()))))
    assert lines[0][2] == "seconds"
    assert any(line[:1] == ["used_bytes"] or line[2:] == ["raw_0"] for line in lines)


def test_html_has_tables_curves_and_what_tools_said() -> None:
    page = html.report(results("matrix"))
    assert '<td class="good">30.6 s</td>' in page
    assert "&lt;b&gt;ext4&lt;/b&gt;" in page
    assert "<b>ext4</b>" not in page
    plots = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    assert len(plots) == len(made().steps)
    lines = plots[0].findall("polyline")
    assert len(lines) == 10 * len(STACKS)
    for line in lines:
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= html.WIDTH
            assert 0 <= y <= html.HEIGHT


@pytest.mark.parametrize("value", ["text", [], [[1, 2]], [[1, 2], [3]], {"a": 1}, [[1, "x"], [2, "y"]]])
def test_what_is_no_curve_is_shown_as_text(value: Any) -> None:
    assert not html.is_curve(value)
