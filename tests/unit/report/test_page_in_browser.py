"""The page in a browser: everything is drawn, everybody can read and use it, and nothing complains."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import pytest
from msgspec import structs

from pytest_fsstack.command import main
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import Results, RoundKey
from pytest_fsstack.records.sample import Metric, Sample
from pytest_fsstack.report import html
from tests.install import BROWSER_PACKAGE, browser
from tests.unit.command.test_pooling import session
from tests.unit.report.results import made

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest.importorskip("axe_playwright_python", reason="needs axe-core: pip install axe-playwright-python")


pytestmark = [
    pytest.mark.skipif(browser() is None, reason=f"needs a browser: apt install {BROWSER_PACKAGE}, or chromium"),
]

WIDE = 1280
Kept = TypeVar("Kept")
STACKS = ("ext4", "luks+ext4", "ext4+gocryptfs", "absent")


def keep_some(by_stack: dict[str, Kept]) -> dict[str, Kept]:
    return {stack: by_stack[stack] for stack in by_stack if stack in STACKS}


def small() -> Results:
    """Something of all that a page may have: two devices, tools that printed, latencies, a curve, commands."""
    results = made(8, ["write", "extract"])
    (chain,) = results.chains
    chain.stacks = {name: structs.replace(chain.stacks[name], commands=[f"mkfs.ext4 {name}"]) for name in STACKS}
    chain.samples = {step: keep_some(by_stack) for step, by_stack in chain.samples.items()}
    chain.judgements = {step: keep_some(by_stack) for step, by_stack in chain.judgements.items()}
    latencies = {name: Metric(name, "s") for name in ("latency_p50", "latency_p99")}
    for stack in STACKS[:2]:
        first = chain.samples["write"][stack][0][0]
        values = {**first.values, "latency_p50": 1e-5, "latency_p99": 1e-3, "used_bytes": 1e6}
        kept = {"curve": [[0, 0], [1, 5], [2, 7]], "log": "what it printed"}
        chain.add("write", stack, Sample(values, latencies, kept), 0)
    few = structs.replace(chain, devices=["/dev/sdb1"], samples={})
    for step, stack, samples in chain.all_samples():
        few.samples.setdefault(step, {})[stack] = {
            0: {number: samples[RoundKey(0, number)] for number in (1, 2) if samples}
        }
    return structs.replace(results, chains=[chain, few])


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
        yield page, said
        chromium.close()


@pytest.fixture
def page(drawn: tuple[Page, list[str]]) -> Page:
    """As a reader finds it: wide, light, at the top."""
    page, _ = drawn
    page.emulate_media(media="screen", color_scheme="light")
    page.set_viewport_size({"width": WIDE, "height": 900})
    page.goto(page.url)
    return page


def shown(page: Page, selector: str) -> list[str]:
    """The texts of the elements that can be seen."""
    seen = "found => found.filter(each => each.checkVisibility()).map(each => each.innerText.trim())"
    texts: list[str] = page.locator(selector).evaluate_all(seen)
    return texts


def test_every_picture_is_drawn_without_the_network_or_a_complaint(drawn: tuple[Page, list[str]], text: str) -> None:
    page, said = drawn
    sizes = page.locator("svg.figure").evaluate_all("found => found.map(each => each.getBoundingClientRect().height)")
    assert len(sizes) == text.count('class="figure"') > 8
    assert all(height > 50 for height in sizes)
    assert said == []


@pytest.fixture(scope="module")
def hosts(drawn: tuple[Page, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The page of seven hosts with two kernels, one of which differs from the others and one was killed."""
    directory = tmp_path_factory.mktemp("hosts")
    for host, overhead in enumerate((0.44, 0.47, 0.48, 4.0, 0.51, 0.53, 0.55)):
        for kernel in "6.1", "6.12":
            results = session(host, overhead, 0.5)
            results.labels["kernel"], results.start = kernel, f"{results.start} {kernel}"
            results.interrupted = "killed" if host == 5 else ""
            (directory / f"host{host}-{kernel}.json").write_text(saved.dumps(results))
    file = directory / "pool.html"
    assert main(["pool", f"--html={file}", str(directory)]) == 0
    browser = drawn[0].context.browser
    assert browser is not None
    page = browser.new_page()
    page.goto(file.as_uri())
    return page


@pytest.mark.parametrize(
    ("name", "scheme", "width"),
    [*(("page", scheme, width) for scheme in ("light", "dark") for width in (WIDE, 390)), ("hosts", "dark", WIDE)],
)
def test_axe_finds_no_violation_and_nothing_is_wider_than_the_screen(
    request: pytest.FixtureRequest, name: str, scheme: Literal["light", "dark"], width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page: Page = request.getfixturevalue(name)
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    # Colours do not depend on the width, and are most of the work.
    rules = {"color-contrast": {"enabled": width == WIDE}}
    found = Axe().run(page, options={"resultTypes": ["violations"], "rules": rules})
    page.evaluate("for (const part of document.querySelectorAll('details')) part.open = false")
    assert found.violations_count == 0, found.generate_report()
    assert len(found.response["passes"]) > 15
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_picture_has_the_colours_of_the_page_around_it(page: Page) -> None:
    fill = "getComputedStyle(document.querySelector('svg.figure .facet')).fill"
    light = page.evaluate(fill)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(fill) == page.evaluate("getComputedStyle(document.documentElement).color") != light


def test_the_table_of_costs_folds_on_a_phone_and_cuts_nothing(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    widths = page.locator(".costs .scroll").evaluate_all(
        "found => found.map(each => each.scrollWidth - each.clientWidth)"
    )
    assert widths == [0, 0]
    right = "found => found.filter(each => each.getBoundingClientRect().right > 390).map(each => each.textContent)"
    assert page.locator(".costs td, .costs tbody th, svg.figure, .card").evaluate_all(right) == []


def test_a_stack_that_is_chosen_in_the_legend_stands_out(page: Page) -> None:
    button = page.locator(".legend button", has_text="luks+ext4")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    opacity = "found => new Set(found.map(each => `${each.dataset.stack} ${getComputedStyle(each).opacity}`))"
    seen = page.locator(".figure g[data-stack]").evaluate_all(f"found => [...({opacity})(found)]")
    assert {"luks+ext4 1", "ext4+gocryptfs 0.18"} <= set(seen)
    button.click()
    seen = page.locator(".figure g[data-stack]").evaluate_all(f"found => [...({opacity})(found)]")
    assert all(text.endswith(" 1") for text in seen)


def test_the_keyboard_skips_to_the_tables_and_sorts_them_in_both_directions(page: Page) -> None:
    skip = page.locator(".skip")
    assert not skip.evaluate("link => link.getBoundingClientRect().bottom > 0")
    page.keyboard.press("Tab")
    assert skip.evaluate("link => link === document.activeElement && link.getBoundingClientRect().top >= 0")
    page.keyboard.press("Enter")
    # The table, then its first heading and the second.
    for _ in range(3):
        page.keyboard.press("Tab")
    heading = page.locator(".costs thead th").nth(1)
    button = heading.locator("button")
    assert button.evaluate("button => button === document.activeElement")
    assert button.evaluate("button => getComputedStyle(button).outlineStyle") == "solid"
    labels = page.locator(".costs").first.locator("tbody th")
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
    page.locator(".bar input").focus()
    page.keyboard.type("LUKS")
    assert set(shown(page, "section.table tbody th")) == {"luks+ext4"}
    assert said.get_attribute("aria-live") == "polite"
    # With those in parts that are closed.
    told = said.inner_text()
    assert int(told.split()[0]) >= count
    page.keyboard.type(" extr")
    assert shown(page, ".costs thead button") == ["stack", "extract"] * 2
    page.keyboard.type("xyz")
    assert shown(page, "section.table") == []
    assert said.inner_text().split()[0] == "0"
    page.locator(".bar input").fill("")
    assert len(shown(page, "section.table tbody tr")) == rows
    assert said.inner_text() == ""


def test_what_is_pointed_at_says_its_figures(page: Page) -> None:
    tip, card = page.locator("#tip"), page.locator(".card", has=page.locator(".dots")).first
    card.locator("g[data-tip]", has_text="ext4+gocryptfs").first.hover()
    assert tip.inner_text().startswith("ext4+gocryptfs: 4.54 s, x4.50 (x4.50 to x4.50)")
    line = card.locator("g[data-tips] .dots").first
    box = line.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    assert tip.inner_text() == "ext4, round 1: 1 s"
    page.mouse.move(2, 2)
    assert not tip.is_visible()


def test_on_paper_are_the_answer_and_the_pictures_and_what_was_opened(page: Page) -> None:
    page.emulate_media(media="print", color_scheme="dark")
    assert shown(page, ".skip, .bar input, nav") == []
    assert shown(page, "details") == []
    assert len(shown(page, ".card")) == page.locator(".card").count()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    page.evaluate("document.querySelector('details').open = true")
    assert len(shown(page, "details")) == 1
    page.evaluate("document.querySelector('details').open = false")


def test_the_default_comparison_prints_on_at_most_five_sheets(drawn: tuple[Page, list[str]], tmp_path: Path) -> None:
    browser = drawn[0].context.browser
    assert browser is not None
    page = browser.new_page()
    file = tmp_path / "default.html"
    file.write_text(html.report(made(16)))
    page.goto(file.as_uri())
    sheets = page.pdf(format="A4")
    page.close()
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", sheets)) <= 5
