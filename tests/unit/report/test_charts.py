"""Pictures: what the specifications hold, that Vega draws them, and the page that they stand in."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.results import ChainResults, Results, StackInfo
from pytest_fsstack.judging.sample import METRICS, Metric, Sample
from pytest_fsstack.judging.verdict import Looks
from pytest_fsstack.report import html, vega
from pytest_fsstack.report.charts import Chart, Spec, charts, families, heat_map, is_curve, overheads, samples
from pytest_fsstack.report.errors import ReportError
from pytest_fsstack.report.model import heading
from tests.unit.report.test_report import made

vl_convert = pytest.importorskip("vl_convert", reason="needs vl-convert: pip install pytest-fsstack[pictures]")


def texts(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def drawn(chart: Chart | None) -> list[str]:
    """The texts in the picture."""
    assert chart is not None
    return texts(vl_convert.vegalite_to_svg(chart.spec))


def values(chart: Chart | None) -> list[Spec]:
    assert chart is not None
    found: list[Spec] = chart.spec["data"]["values"]
    return found


def test_every_picture_of_a_chain_is_drawn_and_holds_plain_numbers_only() -> None:
    found = list(charts(made().chains[0]))
    assert len({chart.title for chart in found}) == len(found) > 5
    for chart in found:
        json.dumps(chart.spec, allow_nan=False)
        assert chart.title in drawn(chart)


def test_the_heat_map_has_each_overhead_once_with_its_verdict() -> None:
    chain = made().chains[0]
    shown = drawn(heat_map([chain]))
    # In ratios, because one of them is x4.50.
    assert shown.count("x1.50") == len(chain.steps)
    assert shown.count("x4.50 FAIL") == len(chain.steps)
    assert set(chain.steps) <= set(shown)
    assert "absent" not in shown
    assert chain.baseline not in shown


def test_the_forest_has_intervals_and_budgets() -> None:
    chain = made().chains[0]
    chart = overheads([chain], "write")
    (luks,) = [each for each in values(chart) if each["stack"] == "luks+ext4" and "overhead" in each]
    estimate = chain.estimate("write", "luks+ext4")
    assert estimate is not None
    assert (luks["overhead"], luks["low"], luks["high"]) == (estimate.overhead, estimate.low, estimate.high)
    limits = [each for each in values(chart) if "budget" in each]
    assert {(each["stack"], each["budget"], each["said"], each["verdict"]) for each in limits} == {
        ("luks+ext4", 2.0, "max x3", "pass"),
        ("same", 0.0001, "max x1.0001", "?"),
        ("ext4+gocryptfs", 0.3, "max x1.3", "FAIL"),
    }


def test_the_axis_of_the_forest_is_in_percent_unless_that_is_nothing_to_picture() -> None:
    chain = made().chains[0]
    assert {"x1", "x2"} <= set(drawn(overheads([chain], "write")))
    del chain.stacks["ext4+gocryptfs"]
    assert "+60%" in drawn(overheads([chain], "write"))
    # A budget far away is in the picture too.
    chain.judgements["write", "luks+ext4"] = [chain.judge("write", "luks+ext4", Budget(overhead=15.0))]
    assert "+60%" not in drawn(overheads([chain], "write"))


def test_too_few_rounds_have_no_interval() -> None:
    every = values(overheads([made(rounds=2).chains[0]], "write"))
    found = {each["stack"]: each for each in every if "overhead" in each}
    assert "low" not in found["same"]
    assert found["same"]["said"].endswith("(too few rounds)")


def test_samples_stand_at_the_round_in_which_they_were_measured() -> None:
    chain = made().chains[0]
    found = values(samples(chain, "write"))
    by_stack = {each["stack"]: each for each in found}
    assert len(by_stack) == len(found)
    assert by_stack["lossy"]["round"] == (1, 2)
    assert list(by_stack["luks+ext4"]["value"]) == chain.series("write", "luks+ext4", "seconds")
    assert by_stack["luks+ext4"]["said"][0] == "1.5 s"


def test_one_stack_alone_is_compared_with_nothing() -> None:
    chain = ChainResults("t.py::test_it", "loop", "ext4", Looks.fixed(1), 1, steps=["write"])
    chain.stacks["ext4"] = StackInfo("ext4", "ext4")
    chain.orders.append(["ext4"])
    chain.add("write", "ext4", Sample({"seconds": 1.0}))
    assert heat_map([chain]) is None
    assert overheads([chain], "write") is None
    assert [chart.title for chart in charts(chain)] == ["write: seconds by round"]
    with pytest.raises(ReportError, match="no stack was compared with another"):
        vega.heat_maps(Results({}, [chain]))


# -- kernels and devices -----------------------------------------------------------------------------------------------


def on_kernels(within: bool = False) -> ChainResults:
    """A comparison of two kernels: with the first one, or with the baseline on the same kernel."""
    chain = ChainResults("t.py::TestIt", "loop", "ext4:6.1", Looks.fixed(8), 1, steps=["write"])
    for kernel in ("6.1", "6.12"):
        for number, name in enumerate(("ext4", "luks")):
            stack = f"{name}:{kernel}"
            chain.stacks[stack] = StackInfo(stack, name, kernel=kernel)
            chain.against[stack] = f"ext4:{kernel}" if within else f"{name}:6.1"
            for index in range(8):
                cost = (1 + number) * (1.1 if kernel == "6.12" else 1) * (1 + index / 100)
                chain.samples.setdefault(("write", stack), {})[index] = Sample({"seconds": cost})
    chain.orders = [list(chain.stacks)] * 8
    return chain


def test_kernels_are_facets_in_which_a_stack_has_its_own_name() -> None:
    chart = heat_map([on_kernels()])
    assert [(each["facet"], each["stack"]) for each in values(chart)] == [("6.12", "ext4"), ("6.12", "luks")]
    assert {"6.12", "ext4", "luks", "+10.0 %"} <= set(drawn(chart))
    assert "What each stack costs over the same stack on the first kernel" in drawn(chart)
    forest = drawn(overheads([on_kernels(within=True)], "write"))
    assert {"6.1", "6.12", "luks"} <= set(forest)
    assert "write: seconds over ext4 on the same kernel" in forest
    assert {"6.1", "6.12"} <= set(drawn(samples(on_kernels(), "write")))


def test_the_heading_names_the_kernels_that_were_compared_and_not_that_of_their_host() -> None:
    chain = on_kernels()
    assert heading(Results({"kernel": {"release": "6.99-host"}}, [chain]), chain)["kernel"] == "6.1, 6.12"


def test_one_kernel_alone_is_no_facet() -> None:
    chain = on_kernels(within=True)
    chain.stacks = {name: stack for name, stack in chain.stacks.items() if stack.kernel == "6.1"}
    chart = heat_map([chain])
    assert [each.get("facet") for each in values(chart)] == [None]
    assert "6.1" not in drawn(chart)


def test_the_devices_of_a_test_are_facets_of_one_picture_before_its_tables() -> None:
    results = made(steps=["write"])
    (chain,) = results.chains
    results.chains = [chain, replace(chain, device="/dev/sdb1"), replace(chain, id="another")]
    assert [[each.device for each in family] for family in families(results.chains)] == [
        ["loop", "/dev/sdb1"],
        ["loop"],
    ]
    both = drawn(heat_map(results.chains[:2]))
    assert {"loop", "/dev/sdb1"} <= set(both)
    assert both.count("x4.50 FAIL") == 2
    # On the page: both together, the samples of each on their own, and the other test as ever.
    titles = [spec["title"]["text"] for spec in specifications(html.report(results))]
    heat, forest, by_round = "What each stack costs over ext4", "write: seconds over ext4", "write: seconds by round"
    assert titles == [heat, forest, by_round, by_round, heat, forest, by_round]
    assert "<h2>test_it.py::TestIt on loop, /dev/sdb1</h2>" in html.report(results)
    assert "<li>write on ext4+gocryptfs, on /dev/sdb1: seconds x4.50" in html.report(results)
    assert texts(vega.heat_maps(results)).count("x4.50 FAIL") == 3


# -- latency, space, curves --------------------------------------------------------------------------------------------


def with_latencies(rounds: int = 2, curve: list[list[float]] | None = None) -> ChainResults:
    chain = ChainResults("t.py::TestIt", "loop", "ext4", Looks.fixed(rounds), 1, steps=["delete", "fio"])
    chain.stacks = {name: StackInfo(name, name) for name in ("ext4", "xfs")}
    names = {
        "delete": ["latency_p50", "latency_p99", "latency_p999", "longest_stall"],
        "fio": ["fio_read_latency_p50", "fio_read_latency_p99_9"],
    }
    for index in range(rounds):
        chain.orders.append(list(chain.stacks))
        for step, metrics in names.items():
            for stack in chain.stacks:
                figures = {name: 1e-5 * 10**place for place, name in enumerate(metrics)}
                known = {**METRICS, **{name: Metric(name, "s") for name in metrics}}
                kept = {"operations_over_time": curve} if curve and step == "delete" else {}
                chain.add(step, stack, Sample({"seconds": 1.0 + index, "used_bytes": 4096.0, **figures}, known, kept))
    return chain


def test_percentiles_of_a_step_are_one_picture_from_the_usual_to_the_slowest() -> None:
    chain = with_latencies()
    found = {chart.title: chart for chart in charts(chain)}
    assert {"delete: latency", "fio: fio read latency"} <= set(found)
    assert not any("latency p" in title for title in found)
    (ext4, *_) = [
        [(each["at"], each["said"]) for each in values(found["delete: latency"]) if each["stack"] == stack]
        for stack in chain.stacks
    ]
    assert ext4 == [("50 %", "10 µs"), ("99 %", "100 µs"), ("99.9 %", "1 ms"), ("longest", "10 ms")]
    assert {"50 %", "99.9 %"} <= set(drawn(found["fio: fio read latency"]))


def test_a_percentile_with_a_budget_has_its_forest_as_well() -> None:
    chain = with_latencies(rounds=8)
    budget = Budget("latency_p99", overhead=0.1)
    chain.judgements["delete", "xfs"] = [chain.judge("delete", "xfs", budget)]
    assert "delete: latency p99 over ext4" in [chart.title for chart in charts(chain)]


def test_the_space_that_is_used_after_each_step_is_a_picture() -> None:
    (chart,) = [chart for chart in charts(with_latencies()) if "Space" in chart.title]
    assert {(each["stack"], each["at"], each["said"]) for each in values(chart)} == {
        (stack, step, "4.0 KiB") for stack in ("ext4", "xfs") for step in ("delete", "fio")
    }
    assert not any("Space" in chart.title for chart in charts(made().chains[0]))


def test_of_the_curves_of_many_rounds_some_are_shown_the_first_and_the_last_among_them() -> None:
    def chosen(rounds: int) -> tuple[str, list[int]]:
        chain = with_latencies(rounds, [[number, number * 5] for number in range(200)])
        (chart,) = [chart for chart in charts(chain) if "operations over time" in chart.title]
        return chart.title, list(dict.fromkeys(each["round"] for each in values(chart)))

    assert chosen(4) == ("delete: operations over time", [1, 2, 3, 4])
    assert chosen(80) == ("delete: operations over time (5 of 80 rounds)", [1, 21, 41, 60, 80])


@pytest.mark.parametrize(("draw", "titles"), [(vega.heat_maps, 1), (vega.forests, 5)])
def test_the_svg_of_a_session_holds_all_of_its_chains(draw: Any, titles: int) -> None:
    results = made()
    another = replace(results.chains[0], id="another")
    one, two = texts(draw(results)), texts(draw(Results({}, [*results.chains, another])))
    assert len(two) == 2 * len(one)
    assert sum("over ext4" in text for text in one) == titles


@pytest.mark.parametrize("value", ["text", [], [[1, 2]], [[1, 2], [3]], {"a": 1}, [[1, "x"], [2, "y"]]])
def test_what_is_no_curve_is_shown_as_text(value: Any) -> None:
    assert not is_curve(value)


# -- the page ----------------------------------------------------------------------------------------------------------


def specifications(page: str) -> list[Spec]:
    found = re.findall(r'<script type="application/json" class="chart">(.*?)</script>', page, re.DOTALL)
    return [json.loads(text) for text in found]


class Tags(HTMLParser):
    """What a page would fetch, and whether its elements are closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetched: list[str | None] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            value for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")
        ]
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_fetches_nothing_and_holds_all_pictures() -> None:
    results = made()
    page = html.report(results)
    tags = Tags(page)
    assert tags.fetched == []
    assert tags.open == []
    assert specifications(page) == json.loads(json.dumps([chart.spec for chart in charts(results.chains[0])]))
    assert page.count("</script>") == len(specifications(page)) + 2


def test_names_cannot_end_the_script_that_they_stand_in() -> None:
    results = made(steps=["</script><b>"])
    assert "</script><b>" not in html.report(results)
    assert any("</script><b>" in spec["title"]["text"] for spec in specifications(html.report(results)))


def test_the_first_thing_on_the_page_is_the_verdict_with_what_failed() -> None:
    results = made()
    assert html.verdict(results) == "15 budgets: 5 broken, 5 not decided"
    page = html.report(results)
    first = page.index("write on ext4+gocryptfs: seconds x4.50")
    assert page.index("<h1>15 budgets") < first < page.index("<h2>")


def test_the_words_of_the_verdict() -> None:
    results = made()
    (chain,) = results.chains
    chain.judgements = {}
    assert html.verdict(results) == "Figures without budgets"
    chain.judgements["write", "luks+ext4"] = [chain.judge("write", "luks+ext4", Budget(overhead=2.0))]
    assert html.verdict(results) == "1 budget, and all are kept"


def test_without_vl_convert_the_page_says_how_to_get_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    vega.script.cache_clear()
    monkeypatch.setattr(vega, "missing", lambda: vega.MISSING)
    page = html.report(made())
    vega.script.cache_clear()
    assert specifications(page) == []
    assert "pip install" in page
    assert "<td" in page
    with pytest.raises(ReportError, match="heatmap: not written: pictures need vl-convert"):
        vega.heat_maps(made())


def test_the_page_has_the_environment_and_the_commands_that_built_each_stack() -> None:
    results = made(steps=["write"])
    results.labels, results.scale = {"commit": "c0ffee"}, "small"
    results.environment |= {"memory": 2**33, "cpu": {"aes_instructions": True, "mitigations": {"mds": "<none>"}}}
    (chain,) = results.chains
    chain.stacks["ext4"] = replace(chain.stacks["ext4"], commands=["mkfs.ext4 -q /dev/loop0", "mount /dev/loop0 'a b'"])
    page = html.report(results)
    for name, value in (
        ("label commit", "c0ffee"),
        ("scale", "small"),
        ("memory", "8.0 GiB"),
        ("cpu aes_instructions", "yes"),
        ("cpu mitigations mds", "&lt;none&gt;"),
        ("kernel release", "6.1.0"),
        ("devices 1 size", "4.0 GiB"),
    ):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in page
    assert "mkfs.ext4 -q /dev/loop0\nmount /dev/loop0 &#39;a b&#39;\n# ext4 /dev/loop0 rw,ext4</pre>" in page
    assert "Commands that built" not in html.report(made(steps=["write"]))


def test_a_large_page_is_below_three_megabytes() -> None:
    chain = ChainResults(
        "t.py::TestIt", "loop", "s0", Looks.fixed(80), 1, steps=[f"step{number}" for number in range(8)]
    )
    chain.stacks = {f"s{number}": StackInfo(f"s{number}", f"s{number}") for number in range(12)}
    curve = [[number / 7, number * 1234] for number in range(200)]
    for index in range(80):
        chain.orders.append(list(chain.stacks))
        for step in chain.steps:
            for number, stack in enumerate(chain.stacks):
                seconds = 1 + number / 7 + index % 7 / 90
                kept: dict[str, Any] = {"fio": {"lines": ["a line of its output"] * 50}}
                kept |= {"curve": curve} if step == "step0" else {}
                chain.add(step, stack, Sample({"seconds": seconds, "used_bytes": 1e9}, METRICS, kept))
    page = html.report(Results({}, [chain]))
    assert len(specifications(page)) == 1 + 2 * 8 + 1 + 1
    assert len(page.encode()) < 3 << 20
    # What there is no room for is said, and what there is room for is of the first rounds.
    assert "step7 on s11, round 1: fio" in page
    assert "step0 on s0, round 80: fio" not in page
    assert re.search(r"There is no room on this page for \d{4} more", page)
