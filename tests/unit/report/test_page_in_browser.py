"""The page in a browser: everything is drawn, everybody can read and use it, and nothing complains."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.sample import METRICS, Metric, Sample
from pytest_fsstack.report import html, vega
from tests.install import BROWSER_PACKAGE, browser
from tests.unit.report.test_charts import specifications
from tests.unit.report.test_report import made

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("axe_playwright_python", reason="needs axe-core: pip install axe-playwright-python")


pytestmark = [
    pytest.mark.skipif(browser() is None, reason=f"needs a browser: apt install {BROWSER_PACKAGE}, or chromium"),
    pytest.mark.skipif(bool(vega.missing()), reason=vega.MISSING),
]

WIDE = 1280
STACKS = ("ext4", "luks+ext4", "ext4+gocryptfs", "absent")


def small() -> Results:
    """Something of all that a page may have: two devices, tools that printed, latencies, a curve, commands."""
    results = made(8, ["write", "extract"])
    (chain,) = results.chains
    chain.stacks = {name: replace(chain.stacks[name], commands=[f"mkfs.ext4 {name}"]) for name in STACKS}
    chain.samples = {place: found for place, found in chain.samples.items() if place[1] in STACKS}
    chain.judgements = {place: found for place, found in chain.judgements.items() if place[1] in STACKS}
    latencies = {name: Metric(name, "s") for name in ("latency_p50", "latency_p99")}
    for stack in STACKS[:2]:
        first = chain.samples["write", stack][0]
        values = {**first.values, "latency_p50": 1e-5, "latency_p99": 1e-3, "used_bytes": 1e6}
        kept = {"curve": [[0, 0], [1, 5], [2, 7]], "log": "what it printed"}
        chain.samples["write", stack][0] = Sample(values, {**METRICS, **latencies}, kept)
    few = {place: {number: found[number] for number in (1, 2)} for place, found in chain.samples.items() if found}
    return replace(results, chains=[chain, replace(chain, device="/dev/sdb1", samples=few)])


@pytest.fixture(scope="module")
def text() -> str:
    return html.report(small())


@pytest.fixture(scope="module")
def drawn(text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Page, list[str]]]:
    """The page, drawn, in the one browser of all these tests; and what its console said."""
    from playwright.sync_api import sync_playwright

    file: Path = tmp_path_factory.mktemp("page") / "page.html"
    file.write_text(text)
    said: list[str] = []
    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=browser())
        page = chromium.new_page()
        # A busy machine is no reason to fail.
        page.set_default_timeout(120_000)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        count = len(specifications(text))
        page.wait_for_function(f"document.querySelectorAll('svg.marks').length >= {count}")
        yield page, said
        chromium.close()


@pytest.fixture
def page(drawn: tuple[Page, list[str]]) -> Page:
    """As a reader finds it: wide, light, at the top."""
    page, _ = drawn
    page.emulate_media(media="screen", color_scheme="light")
    page.set_viewport_size({"width": WIDE, "height": 900})
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    return page


def shown(page: Page, selector: str) -> list[str]:
    """The texts of the elements that can be seen."""
    seen = "found => found.filter(each => each.checkVisibility()).map(each => each.innerText.trim())"
    texts: list[str] = page.locator(selector).evaluate_all(seen)
    return texts


def tooltip(page: Page) -> dict[str, str]:
    page.wait_for_selector("#vg-tooltip-element.visible")
    keys, values = (page.locator(f"#vg-tooltip-element td.{name}").all_inner_texts() for name in ("key", "value"))
    return dict(zip(keys, values))


def test_every_picture_is_drawn_without_the_network_or_a_complaint(drawn: tuple[Page, list[str]], text: str) -> None:
    page, said = drawn
    assert page.locator("svg.marks").count() == len(specifications(text)) > 8
    assert "x4.50 FAIL" in page.locator("svg.marks text").all_text_contents()
    assert said == []


@pytest.mark.parametrize("width", [WIDE, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_and_nothing_is_wider_than_the_screen(
    page: Page, scheme: Literal["light", "dark"], width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    # Colours do not depend on the width, and are most of the work.
    rules = {"color-contrast": {"enabled": width == WIDE}}
    found = Axe().run(page, options={"resultTypes": ["violations"], "rules": rules})
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = false")
    assert found.violations_count == 0, found.generate_report()
    assert len(found.response["passes"]) > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_picture_has_the_colours_of_the_page_around_it(page: Page) -> None:
    fill = "getComputedStyle(document.querySelector('svg.marks .role-axis-label text')).fill"
    assert page.evaluate(fill) == "rgb(0, 0, 0)"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(fill) == "rgb(255, 255, 255)"


def test_the_keyboard_skips_to_the_tables_and_sorts_them_in_both_directions(page: Page) -> None:
    skip = page.locator(".skip")
    assert not skip.evaluate("link => link.getBoundingClientRect().bottom > 0")
    page.keyboard.press("Tab")
    assert skip.evaluate("link => link === document.activeElement && link.getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    # The table, then its first heading and the second.
    for _ in range(3):
        page.keyboard.press("Tab")
    heading = page.locator("#tables thead th").nth(1)
    button = heading.locator("button")
    assert button.evaluate("button => button === document.activeElement")
    assert button.evaluate("button => getComputedStyle(button).outlineStyle") == "solid"
    labels = page.locator("#tables section.table").first.locator("tbody th")
    assert labels.all_inner_texts() == list(STACKS)
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    # By the number, and not by its text: what was not measured comes last.
    assert labels.all_inner_texts() == list(STACKS)
    page.keyboard.press("Space")
    assert heading.get_attribute("aria-sort") == "descending"
    assert labels.all_inner_texts() == list(STACKS)[::-1]


def test_the_tables_show_only_the_stacks_or_steps_that_are_typed_and_how_many_rows_that_are(page: Page) -> None:
    said = page.locator("#shown")
    count = sum(text == "luks+ext4" for text in shown(page, "section.table tbody th"))
    rows = len(shown(page, "section.table tbody tr"))
    page.get_by_label("In the tables, only").focus()
    page.keyboard.type("LUKS")
    assert set(shown(page, "section.table tbody th")) == {"luks+ext4"}
    assert said.get_attribute("aria-live") == "polite"
    # With those in parts that are closed.
    told = said.inner_text()
    assert told.endswith(" rows")
    assert int(told.split()[0]) >= count
    page.keyboard.type(" extr")
    assert shown(page, "#tables section.table:first-of-type thead th") == ["seconds", "extract"]
    page.keyboard.type("xyz")
    assert shown(page, "section.table") == []
    assert said.inner_text().startswith("0 of ")
    page.get_by_label("In the tables, only").fill("")
    assert len(shown(page, "section.table tbody tr")) == rows
    assert said.inner_text() == ""


def test_what_is_pointed_at_says_its_figures(page: Page) -> None:
    pictures = page.locator("figure")
    pictures.filter(has_text="What each stack costs").locator("svg.marks text", has_text="x4.50 FAIL").first.hover()
    assert tooltip(page) == {
        "stack": "ext4+gocryptfs",
        "step": "write",
        "cost": "x4.50 FAIL",
        "interval": "(x4.50 to x4.50)",
    }
    by_round = pictures.filter(has_text="write: seconds by round").first
    by_round.locator(".mark-symbol.role-mark path").nth(1).hover()
    assert tooltip(page) == {"stack": "ext4", "round": "2", "seconds": "1.01 s"}


def test_on_paper_everything_is_open_and_there_is_nothing_to_press(page: Page) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    assert shown(page, ".skip, .filter, nav") == []
    assert page.locator("pre", has_text="what it printed").first.is_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate(
        "addEventListener('beforeprint', () => { window.opened = document.querySelectorAll('details[open]').length; })"
    )
    assert page.pdf().startswith(b"%PDF")
    assert page.evaluate("window.opened") == page.locator("details").count() > 4
    assert page.locator("details[open]").count() == 0
