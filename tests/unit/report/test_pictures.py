"""The pictures of the README: what draws them, and those that are there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from tests.install import BROWSER_PACKAGE, browser
from tests.unit.report.results import made

pytest.importorskip("rich", reason="needs rich: pip install rich")

ROOT = Path(__file__).parents[3]


def pictures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_terminal_is_drawn_as_it_shows_the_tables_and_fetches_nothing() -> None:
    svg = pictures().terminal_svg(made())
    assert re.findall(r"url\(http|@font-face|href=\"http", svg) == []
    lines = [text.replace("\xa0", " ") for text in ElementTree.fromstring(svg).itertext()]
    assert any("FAIL@6 (max x1.3)" in line for line in lines)
    assert any("[2] lossy: failed in round 2" in line for line in lines)
    assert any(re.search(r"\bsame\b.* 0\.99 .*\bext4\b", line) for line in lines)


def test_all_pictures_are_shown_and_small() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"pictures/([\w.-]+)", page.read_text())}
    assert named == {path.name for path in (ROOT / "docs" / "pictures").iterdir()}
    assert all((ROOT / "docs" / "pictures" / name).stat().st_size < 250_000 for name in named)


@pytest.mark.skipif(browser() is None, reason=f"needs a browser: apt install {BROWSER_PACKAGE}, or chromium")
def test_the_page_is_pictured_on_a_desk_in_the_dark_and_on_a_phone() -> None:
    pytest.importorskip("playwright", reason="needs playwright: pip install playwright")
    drawn, screens = pictures().page_pngs(made()), pictures().SCREENS
    kept = {path.name: path.read_bytes() for path in (ROOT / "docs" / "pictures").glob("*.png")}
    assert set(drawn) == set(kept) == set(screens)
    for name, (width, height, _) in screens.items():
        assert size_of(drawn[name]) == size_of(kept[name]) == (width, height)
    assert drawn["report.png"] != drawn["report-dark.png"]


def size_of(png: bytes) -> tuple[int, int]:
    """Return the width and the height of a picture."""
    assert png.startswith(b"\x89PNG")
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
