"""Pages for people: each is on the site, each block has a language, and quoted things exist."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.fleet.laboratory import settings
from tests.pages import DOCS, PAGES, ROOT, Block, blocks, blocks_of

#: Languages whose blocks are tested: here, in tests/plugin/test_blocks.py, or where the reason says.
TESTED = {"python", "sh", "console", "ini", "toml"}
#: What nobody can run or parse, and why that is enough.
ONLY_LOOKED_AT = {
    "text": "what a session prints: figures differ from run to run",
    "mermaid": "a picture; the table below it says the same, and tests/unit/machine/test_signals.py reads that",
    "diff": "tests/unit/test_contributing.py applies it",
    "{toctree}": "Sphinx reads it, and so does a test below",
    "{include}": "Sphinx reads it, and stops at a file that is not there",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_block_says_its_language(page: Path) -> None:
    for block in blocks_of(page):
        language = block.language.split()[0] if block.language else ""
        assert language in TESTED | ONLY_LOOKED_AT.keys(), f"{block.id}: {language or 'indented'}"


def test_each_page_is_in_one_place_of_the_site() -> None:
    entries = [
        line for block in blocks_of(DOCS / "index.md") for line in block.text.splitlines() if line[:1] not in ":"
    ]
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")} - {"index"}
    assert sorted(filter(None, entries)) == sorted(pages)


def test_the_first_page_leads_to_each_other_one() -> None:
    text = (DOCS / "index.md").read_text()
    links = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]*)\)", text)}
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert links == pages - {"index.md", "changelog.md", "contributing.md"}


@pytest.mark.parametrize("block", blocks("sh"), ids=lambda block: block.id)
def test_the_shell_can_read_its_blocks(block: Block) -> None:
    shell = shutil.which("sh")
    assert shell
    result = subprocess.run([shell, "-n"], input=block.text, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_toml_is_an_entry_point() -> None:
    # pytest brings the second one for Python 3.10.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    for block in (block for block in blocks("toml") if "project" in block.text):
        (group,) = toml.loads(block.text)["project"]["entry-points"]
        assert group == "pytest11", block.id


def test_messages_that_are_explained_are_those_of_the_code() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    quoted = [text for bold in re.findall(r"\*\*(.+?)\*\*", page, re.DOTALL) for text in re.findall(r"`([^`]+)`", bold)]
    assert len(quoted) > 10
    code = "".join(path.read_text() for path in (ROOT / "pytest_fsstack").rglob("*.py"))
    # As one text, where a line ends a literal and the next one goes on.
    code = re.sub(r'"\s*f?"', "", code)
    theirs = {"Input/output error", "target is busy"}
    for text in quoted:
        for part in text.split("…"):
            assert part.strip() in code or part in theirs or text.startswith("--"), text


#: Made by docs/generate.py.
GENERATED = {
    *("layers.md", "options.md", "command.md"),
    *("pytest-reference.md", "workload-reference.md", "results-types.md"),
}


def handwritten(page: Path) -> str:
    """The text of a page; without the tables of the statistics, which `python -m benchmarks verdict` prints."""
    lines = page.read_text().splitlines()
    return "\n".join(line for line in lines if page.name != "statistics.md" or not line.startswith("|"))


def test_handwritten_docs_have_at_most_38000_words() -> None:
    words = {page: len(handwritten(page).split()) for page in DOCS.rglob("*.md") if page.name not in GENERATED}
    longest = sorted(words.items(), key=lambda item: -item[1])[:5]
    assert sum(words.values()) <= 38_000, [f"{page.relative_to(ROOT)} {count}" for page, count in longest]


@pytest.mark.parametrize(("name", "most"), [("README.md", 8_000), ("CHANGELOG.md", 2_500)])
def test_the_first_pages_are_short(name: str, most: int) -> None:
    assert len((ROOT / name).read_bytes()) <= most


def test_figures_that_are_quoted_are_those_of_the_statistics() -> None:
    figure = r"([\d.]+ ± [\d.]+ %)"
    own, *others = re.findall(rf"^\| .* \| {figure} \| {figure} \|$", (DOCS / "why.md").read_text(), re.MULTILINE)
    assert len(others) == 3
    rows = re.findall(r"^\| outliers, drift .*$", (DOCS / "statistics.md").read_text(), re.MULTILINE)
    (cells,) = [row.split(" | ") for row in rows if " / " in row]
    assert all(f"{false} / {missed}" in cells for false, missed in others)
    assert any(own == (row.split(" | ")[1], row.split(" | ")[4]) for row in rows)


def test_a_laboratory_is_one(tmp_path: Path) -> None:
    shown = [block for block in blocks("toml") if "[laboratory]" in block.text]
    assert shown
    for block in shown:
        for name in re.findall(r'"([\w.-]+\.(?:py|deb))"', block.text):
            (tmp_path / name).touch()
        hosts = "" if "[[hosts]]" in block.text else '\n[[hosts]]\nname = "node1"\ndisk = "loop"\n'
        (tmp_path / "LAB.toml").write_text(block.text + hosts)
        assert settings.load(tmp_path / "LAB.toml").hosts, block.id
