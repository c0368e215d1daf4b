"""The pictures of the README: what draws them, and those that are there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_fsstack.report import vega
from pytest_fsstack.report.errors import ReportError
from tests.unit.report.test_report import made

pytest.importorskip("rich", reason="needs rich: pip install rich")

ROOT = Path(__file__).parents[3]


def test_the_terminal_is_drawn_as_it_shows_the_tables_and_fetches_nothing() -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    svg = pictures.terminal_svg(made())
    assert re.findall(r"url\(http|@font-face|href=\"http", svg) == []
    lines = [text.replace("\xa0", " ") for text in ElementTree.fromstring(svg).itertext()]
    assert any("FAIL@8 (max x1.3)" in line for line in lines)
    assert any("[2] lossy: failed in round 2" in line for line in lines)


def test_the_readme_shows_pictures_that_are_there_and_small() -> None:
    named = re.findall(r"!\[[^\]]+\]\((docs/pictures/[^)]+)\)", (ROOT / "README.md").read_text())
    assert len(named) == len(set(named)) > 1
    assert {ROOT / name for name in named} == set((ROOT / "docs" / "pictures").iterdir())
    assert all((ROOT / name).stat().st_size < 200_000 for name in named)


def test_a_panic_of_what_draws_is_an_error_of_this_report_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})

    def convert(content: object) -> str:
        raise panic("Too many open files")

    with pytest.raises(ReportError, match="vl-convert: not written: Too many open files"):
        vega._converted(convert, {})
