"""Pictures: what the specifications hold, that Vega draws them, and the page that they stand in."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

from pytest_fsstack.judging.budget import Budget
from pytest_fsstack.judging.results import ChainResults, Results, StackInfo
from pytest_fsstack.judging.sample import Sample
from pytest_fsstack.judging.verdict import Looks
from pytest_fsstack.report import html, vega
from pytest_fsstack.report.charts import Chart, Spec, charts, heat_map, is_curve, overheads, samples
from pytest_fsstack.report.files import ReportError
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
    shown = drawn(heat_map(chain))
    # In ratios, because one of them is x4.50.
    assert shown.count("x1.50") == len(chain.steps)
    assert shown.count("x4.50 FAIL") == len(chain.steps)
    assert set(chain.steps) <= set(shown)
    assert "absent" not in shown
    assert chain.baseline not in shown


def test_the_forest_has_intervals_and_budgets() -> None:
    chain = made().chains[0]
    chart = overheads(chain, "write")
    (luks,) = [each for each in values(chart) if each["stack"] == "luks+ext4"]
    estimate = chain.estimate("write", "luks+ext4")
    assert estimate is not None
    assert (luks["overhead"], luks["low"], luks["high"]) == (estimate.overhead, estimate.low, estimate.high)
    assert chart is not None
    (limits,) = [layer["data"]["values"] for layer in chart.spec["layer"] if "tick" in str(layer["mark"])]
    assert {(each["stack"], each["budget"], each["verdict"]) for each in limits} == {
        ("luks+ext4", 2.0, "pass"),
        ("same", 0.0001, "?"),
        ("ext4+gocryptfs", 0.3, "FAIL"),
    }


def test_too_few_rounds_have_no_interval() -> None:
    found = {each["stack"]: each for each in values(overheads(made(rounds=2).chains[0], "write"))}
    assert "low" not in found["same"]
    assert found["same"]["said"].endswith("(too few rounds)")


def test_samples_stand_at_the_round_in_which_they_were_measured() -> None:
    chain = made().chains[0]
    found = values(samples(chain, "write"))
    assert [each["round"] for each in found if each["stack"] == "lossy"] == [1, 2]
    assert [each["value"] for each in found if each["stack"] == "luks+ext4"] == chain.series(
        "write", "luks+ext4", "seconds"
    )


def test_one_stack_alone_is_compared_with_nothing() -> None:
    chain = ChainResults("t.py::test_it", "loop", "ext4", Looks.fixed(1), 1, steps=["write"])
    chain.stacks["ext4"] = StackInfo("ext4", "ext4")
    chain.orders.append(["ext4"])
    chain.add("write", "ext4", Sample({"seconds": 1.0}))
    assert heat_map(chain) is None
    assert overheads(chain, "write") is None
    assert [chart.title for chart in charts(chain)] == ["write: seconds by round"]
    with pytest.raises(ReportError, match="no stack was compared with another"):
        vega.heat_maps(Results({}, [chain]))


@pytest.mark.parametrize(("draw", "titles"), [(vega.heat_maps, 1), (vega.forests, 5)])
def test_the_svg_of_a_session_holds_all_of_its_chains(draw: Any, titles: int) -> None:
    results = made()
    one, two = texts(draw(results)), texts(draw(Results({}, results.chains * 2)))
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
        self.fetched += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_fetches_nothing_and_holds_all_pictures() -> None:
    results = made()
    page = html.report(results)
    tags = Tags(page)
    assert tags.fetched == []
    assert tags.open == []
    assert specifications(page) == [chart.spec for chart in charts(results.chains[0])]
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


def test_a_large_page_is_below_three_megabytes() -> None:
    chain = ChainResults(
        "t.py::TestIt", "loop", "s0", Looks.fixed(80), 1, steps=[f"step{number}" for number in range(8)]
    )
    chain.stacks = {f"s{number}": StackInfo(f"s{number}", f"s{number}") for number in range(12)}
    for index in range(80):
        chain.orders.append(list(chain.stacks))
        for step in chain.steps:
            for number, stack in enumerate(chain.stacks):
                chain.add(step, stack, Sample({"seconds": 1 + number / 7 + index % 7 / 90}))
    page = html.report(Results({}, [chain]))
    assert len(specifications(page)) == 1 + 2 * 8
    assert len(page.encode()) < 3 << 20
