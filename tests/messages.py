"""The messages of errors: those that docs/errors.md has, and those in the plugin's source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pytest_fsstack"

#: What is raised, or called, with a message for people. Those of `OSError` have a name of their own for each errno.
_SAYING = re.compile(
    r"(\w+Error|Refused|Gone|Unproved|fail|fail\.Exception|UsageError|refused|mistakes\.add)$",
)
#: A message of somebody else behind where it is from: it has a place of its own, or is a tool's.
_PASSED_ON = re.compile(r"((--[\w-]+|\w+)?[ =…]*: )*[ …]*")
#: Modules whose functions return the reasons with which others raise.
_RETURNING = ("machine/guard/",)


@dataclass(frozen=True)
class Site:
    """A place in the source that has a message: `text` with … for what differs each time."""

    module: str
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.module} {self.function}: {self.text}"


def of_page(page: str) -> list[str]:
    """The messages in the first cells of the tables of a Markdown page."""
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    firsts = [re.split(r"(?<!\\)\|", row)[1] for row in rows]
    spans = [match for first in firsts for match in re.findall(r"(`+)(.+?)(?<!`)\1(?!`)", first)]
    return [text.strip().replace("\\|", "|") for _, text in spans]


def pattern(message: str) -> re.Pattern[str]:
    """What is that message, perhaps behind a prefix that says where; its … stand for anything.

    How a command ended stands in brackets behind it, and so does the file that an `OSError` is about.
    """
    words = ".*".join(map(re.escape, message.split("…")))
    return re.compile(rf"(?:.*: |`.*` failed \()?{words}(?: \(.*)?\)?", re.DOTALL)


def in_source() -> Iterator[Site]:
    """All places that have a message; not those that pass one on, and not those that make it in another function."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from of_module(path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text()))


def of_module(module: str, tree: ast.AST) -> Iterator[Site]:
    """The same of one module, by its path in the package."""

    def walk(node: ast.AST, inside: str) -> Iterator[Site]:
        for child in ast.iter_child_nodes(node):
            name = f"{inside}.{child.name}".lstrip(".") if isinstance(child, _SCOPES) else inside
            found: list[ast.expr] = []
            if isinstance(child, ast.Call) and _SAYING.search(ast.unparse(child.func)):
                found = child.args
            elif isinstance(child, ast.Return) and module.startswith(_RETURNING) and child.value is not None:
                found = [child.value]
            for each in found:
                yield from (
                    Site(module, name, text) for text in texts(each) if " " in text and not _PASSED_ON.fullmatch(text)
                )
            yield from walk(child, name)

    yield from walk(tree, "")


_SCOPES = (ast.FunctionDef, ast.ClassDef)


def texts(node: ast.expr) -> list[str]:
    """What an expression may read, with … for what is not literal; empty if nothing of it is."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
        text = "".join(parts).replace("\n", " ")
        return [text] if re.search(r"[^…\W]", text) else []
    if isinstance(node, ast.IfExp):
        return texts(node.body) + texts(node.orelse)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = texts(node.left) or ["…"], texts(node.right) or ["…"]
        return [one + other for one in left for other in right]
    return []
