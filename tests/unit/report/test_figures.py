"""Pictures: what they show, on which axes, and the page that they stand in."""

from __future__ import annotations

import re
from functools import partial
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec import structs
from msgspec.structs import replace

from pytest_fsstack.judging.judge import judge_all
from pytest_fsstack.judging.readings import settle
from pytest_fsstack.records.budget import Budget
from pytest_fsstack.records.results import ChainResults, Results
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.report import ReportError, draw, figures, html
from pytest_fsstack.report.figures import Card, Heat, cards, families, interval_rows, metric_title
from pytest_fsstack.report.model import heading
from tests.chains import AChain, a_chain
from tests.unit.report.results import made, measured, on_kernels


def settled(results: Results) -> tuple[Results, list[ChainResults]]:
    """Return results with their readings, and the chains."""
    results = settle(results)
    return results, results.chains


def elements(svg: str, name: str) -> list[ElementTree.Element]:
    """Return the elements of a picture by name, whether it is a document of its own or a part of a page."""
    return [part for part in ElementTree.fromstring(svg).iter() if part.tag.rpartition("}")[2] == name]


def texts(svg: str) -> list[str]:
    return ["".join(part.itertext()) for part in elements(svg, "text")]


def card_of(results: Results, title: str) -> Card:
    (card,) = [card for card in cards(*settled(results)) if card.title == title]
    return card


# -- axes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        *([0.7, 1.0, 14.0], [1e-6, 5.0], [1.0, 1.0], [0.0, 3.0], [0.0], [99.5, 100.5], []),
        *([5e-324, 1.0], [1.0, 1e308], [5e-324, 1e308], [-1e308, 1e308]),
    ],
)
def test_a_scale_has_a_place_for_each_value_and_ticks_between_its_ends(values: list[float]) -> None:
    scale = draw.Scale.covering(values, 10, 110)
    places = [scale.at(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(10 <= place <= 110 for place in places)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 7
    assert all(scale.low <= tick <= scale.high for tick in ticks)


def test_figures_that_are_far_apart_have_a_logarithmic_axis() -> None:
    assert draw.Scale.covering([1, 50], 0, 100).logarithmic
    assert not draw.Scale.covering([1, 2], 0, 100).logarithmic
    assert draw.Scale(1, 100, 0, 100, True).at(10) == pytest.approx(50)


def test_the_heat_covers_all_costs_and_is_the_same_for_a_factor_and_its_reciprocal() -> None:
    heat = Heat([15.0, 0.0, -0.5])
    assert heat.share(15.0) == 1
    assert heat.share(0.0) == 0
    assert heat.share(1.0) == heat.share(-0.5) == 0.25
    assert heat.ends == "x1/16.0 to x16.0"


# -- stacks and steps --------------------------------------------------------------------------------------------------


def test_the_heat_map_has_each_overhead_once_and_a_mark_for_what_was_not_measured() -> None:
    results = made()
    (chain,) = results.chains
    shown = texts(figures.heat_maps(results))
    assert shown.count("x1.50") == shown.count("x4.50") == len(chain.steps)
    assert shown.count("x1.20 *") == shown.count("-") == len(chain.steps)
    assert any("*: incomplete" in text for text in shown)
    assert set(chain.steps) <= set(shown)
    assert "absent" in shown
    assert chain.baseline not in shown


def test_a_step_shows_each_ratio_with_its_interval_its_limit_and_those_that_were_not_measured() -> None:
    results = made()
    by_name = {row.name: row for row in interval_rows(*settled(results), "write")}
    assert set(by_name) == {"same", "luks+ext4", "ext4+gocryptfs", "absent", "lossy"}
    luks = by_name["luks+ext4"]
    assert luks.estimate
    assert luks.estimate.ratios == pytest.approx((1.5, 1.5, 1.5))
    assert re.fullmatch(r"luks\+ext4: 1\.52 s, \+50\.0 % \(50\.0 to 50\.0 %\); .*\bx3: pass", luks.tip)
    assert [(mark.at, mark.outcome) for mark in by_name["ext4+gocryptfs"].limits] == [(1.3, "fail")]
    # Two rounds give no interval.
    assert by_name["lossy"].estimate
    assert not by_name["lossy"].estimate.has_interval
    assert by_name["absent"].estimate is None
    assert "needs no-such-tool" in by_name["absent"].tip


def test_sanity_limits_are_in_no_picture() -> None:
    results = made(steps=["write"])
    (chain,) = results.chains
    chain.judgements = {"write": {"xfs": []}}
    judge_all(chain, "write", "luks+ext4", Budget(overhead=20.0, sanity=True))
    assert all(not row.limits for row in interval_rows(*settled(results), "write"))


def test_every_sample_is_a_point_with_its_round() -> None:
    results = made(steps=["write"])
    (chain,) = results.chains
    (_, (caption, picture)) = card_of(results, "write").pictures
    assert "seconds" in caption
    by_stack = {line.get("data-stack"): line for line in elements(picture, "g")}
    assert "absent" not in by_stack
    tips = (by_stack["luks+ext4"].get("data-tips") or "").split("|")
    assert len(tips) == len(chain.of("write", "luks+ext4"))
    assert tips[0] == "round 1: 1.5 s"
    assert len((by_stack["lossy"].get("data-tips") or "").split("|")) == 2


def test_a_stack_has_the_same_colour_in_all_pictures_and_each_has_its_own() -> None:
    results = made()
    classes: dict[str, set[str]] = {}
    for card in cards(*settled(results)):
        for _, picture in card.pictures:
            for part in elements(picture, "g"):
                classes.setdefault(part.get("data-stack", ""), set()).add(part.get("class", ""))
    assert all(len(found) == 1 for found in classes.values())
    assert len({tuple(found) for found in classes.values()}) == len(classes) == 6


def test_a_card_has_the_sentence_on_what_the_step_does() -> None:
    results = made(steps=["write"])
    results.chains[0].summaries["write"] = "Write one file with dd"
    assert card_of(results, "write").summary == "Write one file with dd."
    assert html.report(results).count("Write one file with dd.") == 2


def test_the_name_of_a_step_is_not_repeated_in_that_of_its_metric() -> None:
    assert metric_title("du_bytes", "du") == "bytes"
    assert metric_title("du_bytes", "write") == "du bytes"


def test_the_legend_has_stacks_that_were_not_measured() -> None:
    page = html.report(made(steps=["write"]))
    assert '<button type="button" aria-pressed="false" data-stack="absent">' in page


def test_one_stack_alone_is_compared_with_nothing() -> None:
    results = measured({"ext4": {"write": 1.0}}, rounds=2)
    (chain,) = results.chains
    assert figures.overview(results, settle(results).chains[0]) == ""
    (caption,) = [caption for card in cards(*settled(replace(results, chains=[chain]))) for caption, _ in card.pictures]
    assert "seconds" in caption
    with pytest.raises(ReportError, match="heatmap"):
        figures.heat_maps(results)


@pytest.mark.parametrize("palette", [draw.LIGHT, draw.DARK])
@pytest.mark.parametrize("kind", ["all", "protan", "deutan"])
def test_the_colour_blind_tell_the_first_colours_apart(palette: tuple[str, ...], kind: str) -> None:
    seen = [_seen(colour, kind) for colour in palette[:8]]
    for number, one in enumerate(seen):
        for other in seen[:number]:
            assert sum((a - b) ** 2 for a, b in zip(one, other)) ** 0.5 > 0.1


#: What is left of linear red, green and blue (Viénot, Brettel & Mollon, Color Research & Application 24 (1999) 243).
_BLINDNESS = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.112, 0.888, 0), (0.112, 0.888, 0), (0.004, -0.004, 1)),
    "deutan": ((0.293, 0.707, 0), (0.293, 0.707, 0), (-0.021, 0.021, 1)),
}


def _seen(colour: str, kind: str) -> list[float]:
    """Return a colour as it is seen, in steps that look about equal."""
    linear = [(int(colour[at : at + 2], 16) / 255) ** 2.2 for at in (1, 3, 5)]
    left = [sum(weight * value for weight, value in zip(row, linear)) for row in _BLINDNESS[kind]]
    return [max(value, 0.0) ** (1 / 2.2) for value in left]


# -- kernels and devices -----------------------------------------------------------------------------------------------


def test_kernels_are_facets_in_which_a_stack_has_its_own_name() -> None:
    results = on_kernels().results()
    shown = list(interval_rows(*settled(results), "write"))
    assert [(row.facet, row.name) for row in shown] == [("6.12", "ext4"), ("6.12", "luks")]
    assert [row.estimate.ratios[0] for row in shown if row.estimate] == pytest.approx([1.1, 1.1])
    within = on_kernels("within").results()
    overheads, *by_round = [caption for caption, _ in card_of(within, "write").pictures]
    assert "ext4" in overheads
    assert [re.findall(r"seconds|\d[\d.]*", caption) for caption in by_round] == [
        ["seconds", "6.1"],
        ["seconds", "6.12"],
    ]
    assert {"6.1", "6.12"} <= set(texts(card_of(within, "write").pictures[0][1]))


def test_the_heading_names_the_kernels_that_were_compared_and_not_that_of_their_host() -> None:
    results = on_kernels().results({"kernel": {"release": "6.99-host"}})
    assert heading(results, results.chains[0])["kernel"] == "6.1, 6.12"


def test_one_kernel_alone_is_no_facet() -> None:
    chain = on_kernels("within").built
    chain.stacks = {name: stack for name, stack in chain.stacks.items() if stack.kernel == "6.1"}
    assert {row.facet for row in interval_rows(*settled(Results({}, [chain])), "write")} == {""}


def test_the_devices_of_a_test_are_facets_of_one_picture_and_have_a_table_each() -> None:
    results = made(steps=["write"])
    (chain,) = results.chains
    results.chains = [chain, replace(chain, devices=["/dev/sdb1"]), replace(chain, id="another")]
    assert [[member.device for member in family] for family in families(results.chains)] == [
        ["loop", "/dev/sdb1"],
        ["loop"],
    ]
    (card,) = cards(*settled(replace(results, chains=results.chains[:2])))
    by_round = [caption for caption, _ in card.pictures][1:]
    assert [re.findall("seconds|loop|/dev/sdb1", caption) for caption in by_round] == [
        ["seconds", "loop"],
        ["seconds", "/dev/sdb1"],
    ]
    assert {"loop", "/dev/sdb1"} <= set(texts(card.pictures[0][1]))
    page = html.report(results)
    assert page.count('<section class="table costs">') == 3
    assert page.count('class="figure"') == 3 + 3 + 2
    assert re.search(r"write on ext4\+gocryptfs[^<]* /dev/sdb1: seconds x4\.50", page)


# -- latency, space, curves --------------------------------------------------------------------------------------------


def with_latencies(rounds: int = 2, curve: list[list[float]] | None = None) -> AChain:
    names = {
        "delete": ["latency_p50", "latency_p99", "latency_p999", "longest_stall"],
        "fio": ["fio_read_latency_p50", "fio_read_latency_p99_9"],
    }

    def sample(step: str, number: int) -> Sample:
        figures = {name: 1e-5 * 10**place for place, name in enumerate(names[step])}
        values = {"seconds": 1.0 + number, "used_bytes": 4096.0, **figures}
        curves = {"operations_over_time": curve} if curve and step == "delete" else {}
        return Sample(values, {name: Metric(name, "s") for name in figures}, curves)

    return a_chain({step: dict.fromkeys(("ext4", "xfs"), partial(sample, step)) for step in names}, rounds)


def test_percentiles_of_a_step_are_one_picture_from_the_usual_to_the_slowest() -> None:
    results = with_latencies().results()
    titles = [card.title for card in cards(*settled(results))]
    assert not any("latency p" in title for title in titles)
    (caption, picture) = card_of(results, "delete: latency").pictures[0]
    assert "lower" in caption
    (ext4, _) = elements(picture, "g")
    assert ext4.get("data-tips") == "50 %: 10 µs|99 %: 100 µs|99.9 %: 1 ms|longest: 10 ms"
    assert {"50 %", "99.9 %"} <= set(texts(card_of(results, "fio: fio read latency").pictures[0][1]))


def test_a_percentile_with_a_budget_has_its_own_card_as_well() -> None:
    results = with_latencies(rounds=8).with_budget("delete", "xfs", metric="latency_p99", overhead=0.1).results()
    assert "delete: latency p99" in [card.title for card in cards(*settled(results))]


def test_the_space_that_is_used_after_each_step_is_a_picture() -> None:
    results = with_latencies().results()
    (card,) = [card for card in cards(*settled(results)) if "Space" in card.title]
    ((_, picture),) = card.pictures
    tips = {line.get("data-stack"): line.get("data-tips") for line in elements(picture, "g")}
    assert tips == dict.fromkeys(("ext4", "xfs"), "delete: 4.0 KiB|fio: 4.0 KiB")
    assert list(card.key) == ["ext4", "xfs"]
    assert not any("Space" in card.title for card in cards(*settled(made())))


def test_of_the_curves_of_many_rounds_some_are_shown_the_first_and_the_last_among_them() -> None:
    def chosen(rounds: int) -> tuple[str, list[str]]:
        results = with_latencies(rounds, [[number, number * 5] for number in range(200)]).results()
        ((caption, picture),) = card_of(results, "delete: operations over time").pictures
        tips = [(line.get("data-tips") or "").partition(",")[0] for line in elements(picture, "g")]
        return caption, list(dict.fromkeys(tips))

    assert chosen(4)[1] == [f"round {number}" for number in (1, 2, 3, 4)]
    caption, rounds = chosen(80)
    assert re.findall(r"\d+", caption) == ["5", "80"]
    assert rounds == [f"round {number}" for number in (1, 21, 41, 60, 80)]


@pytest.mark.parametrize(("render", "titles"), [(figures.heat_maps, 1), (figures.forests, 5)])
def test_the_svg_of_a_session_holds_all_of_its_chains(render: Any, titles: int) -> None:
    results = made()
    another = replace(results.chains[0], id="another")
    one, two = texts(render(results)), texts(render(Results({}, [*results.chains, another])))
    assert len(two) == 2 * len(one)
    assert sum(bool(re.search(r"(?<![+\w])ext4(?![+\w])", text)) for text in one) == titles


@pytest.mark.parametrize("name", ["own", "sweeps"])
@pytest.mark.parametrize("value", ["text", [[1, 2]], [[1, 2], [3]], {"a": 1}, [[1, "x"], [2, "y"]]])
def test_what_is_no_curve_is_shown_as_text(name: str, value: Any) -> None:
    results = measured({"ext4": {"write": 1.0}}, rounds=1)
    results.chains[0].add("write", "ext4", Sample({"seconds": 1.0}, kept={name: value}))
    assert f"write on ext4, round 1: {name}</summary>" in html.report(results)


# -- the page ----------------------------------------------------------------------------------------------------------


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

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_fetches_nothing_and_holds_all_pictures() -> None:
    results = made()
    page = html.report(results)
    tags = Tags(page)
    assert tags.fetched == []
    assert tags.open == []
    pictures = sum(len(card.pictures) for card in cards(*settled(results)))
    assert page.count('class="figure"') == pictures + 1 > 10
    assert page.count("</script>") == 1


def test_names_cannot_end_what_they_stand_in() -> None:
    page = html.report(made(steps=["</script><b>"]))
    assert "</script><b>" not in page
    assert Tags(page).open == []
    assert "&lt;/script&gt;&lt;b&gt;" in page


def test_a_colour_is_a_verdict_only_where_the_user_set_a_limit() -> None:
    results = made(steps=["write"])
    (chain,) = results.chains
    assert html.report(results).count('class="verdict bad"') == 1
    for step, stack, judgements in list(chain.all_judgements()):
        chain.judgements[step][stack] = [
            structs.replace(judgement, budget=structs.replace(judgement.budget, sanity=True))
            for judgement in judgements
        ]
    page = html.report(results)
    # One that is not kept is worth a colour all the same.
    assert page.count('class="verdict') == len(re.findall(r'class="verdict[^<]*sanity[^<]* x1\.3 BROKEN', page)) == 1


def test_the_default_comparison_is_a_page_of_at_most_400_kilobytes() -> None:
    assert len(html.report(made(80)).encode()) < 400_000


def test_the_page_has_the_environment_and_the_commands_that_built_each_stack() -> None:
    results = made(steps=["write"])
    results.labels, results.scale = {"commit": "c0ffee"}, "small"
    results.environment |= {"memory": 2**33, "cpu": {"aes_instructions": True, "mitigations": {"mds": "<none>"}}}
    (chain,) = results.chains
    chain.stacks["ext4"] = structs.replace(
        chain.stacks["ext4"], commands=["mkfs.ext4 -q /dev/loop0", "mount /dev/loop0 'a b'"]
    )
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


def test_a_large_page_is_below_three_megabytes() -> None:
    curve = [[number / 7, number * 1234] for number in range(200)]

    def sample(step: int, stack: int, number: int) -> Sample:
        outputs = {"fio": {"lines": ["a line of its output"] * 50}, **({} if step else {"curve": curve})}
        return Sample({"seconds": 1 + stack / 7 + number % 7 / 90, "used_bytes": 1e9}, kept=outputs)

    figures = {f"step{step}": {f"s{stack}": partial(sample, step, stack) for stack in range(12)} for step in range(8)}
    page = html.report(a_chain(figures, 80).results())
    assert page.count('class="figure"') == 1 + 2 * 8 + 1 + 1
    assert len(page.encode()) < 3 << 20
    # What there is no room for is said, and what there is room for is of the first rounds.
    assert "step7 on s11, round 1: fio" in page
    assert "step0 on s0, round 80: fio" not in page
    shown = page.count(": fio</summary>")
    assert re.search(rf"<p>[^<]* {80 * 8 * 12 - shown} [^<]*--fsstack-json", page)
