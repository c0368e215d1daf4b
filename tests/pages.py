"""The pages for people, and the blocks of code in them, as Markdown has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
#: Wherever a reader finds code. The examples in docs/examples are files, with tests of their own.
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), DOCS / "examples" / "README.md"]


@dataclass(frozen=True)
class Block:
    """A block of code: where it begins, and its language; that of an indented one is empty."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def module(self) -> str:
        """A name of Python for it, which stays the same when the page grows before it."""
        before = [block for block in blocks_of(self.page) if block.language == "python" and block.line < self.line]
        page = self.page.relative_to(ROOT).with_suffix("").as_posix()
        return f"{page.replace('/', '_').replace('-', '_').lower()}_{len(before) + 1}"


@cache
def blocks_of(page: Path) -> tuple[Block, ...]:
    tokens = MarkdownIt().enable("table").parse(page.read_text())
    return tuple(
        Block(page, (token.map or [0])[0] + 1, token.info.strip(), token.content)
        for token in tokens
        if token.type in ("fence", "code_block")
    )


def blocks(*languages: str) -> list[Block]:
    """All blocks of these languages; at least one of them."""
    blocks_of_language = [block for page in PAGES for block in blocks_of(page) if block.language in languages]
    assert blocks_of_language, languages
    return blocks_of_language


#: What the code of CONTRIBUTING.md finds in the file into which it goes.
AROUND = {"CONTRIBUTING.md": "from __future__ import annotations\nfrom pytest_fsstack import *\n"}
#: Tests that are only collected, and why.
ONLY_COLLECTED = {
    "test_whole_kernel": "compiles a kernel as distributions do, for an hour",
    "test_tiny_kernel": "compiles a kernel, for minutes",
}
#: The pages all of whose tests run in a directory, without root.
ROOTLESS = [DOCS / "tutorial.md", DOCS / "without-root.md"]


def write(directory: Path, chosen: list[Block]) -> list[str]:
    """Write blocks of Python as files of a project: tests, and plugins, whose names are returned.

    A conftest that brings layers becomes a plugin, because there can be only one at the root.
    """
    plugins = []
    for block in chosen:
        plugin = "def pytest_fsstack_" in block.text
        name = f"{'layers' if plugin else 'test'}_{block.module}"
        (directory / f"{name}.py").write_text(AROUND.get(block.page.name, "") + block.text)
        plugins += [name] if plugin else []
    return plugins
