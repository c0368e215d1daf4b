"""Which module imports which, read from the syntax tree, and whether that keeps to the order of the rooms.

Imports for the type checker count too: who reads the code follows them as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

#: A room imports from floors that stand before its own, and from its neighbours on the same floor if that makes no
#: circle. A room is a folder of the package, or a module beside them; "" is the package's own `__init__`.
FLOORS = (
    ("units",),
    ("machine",),
    ("guard",),
    ("stack",),
    ("devices", "volumes", "layers", "data"),
    ("judging",),
    ("measuring",),
    ("workloads",),
    ("correctness", "damage"),
    ("report",),
    ("hooks", "options"),
    ("rounds",),
    ("session",),
    ("over_time",),
    ("kernels",),
    ("preflight", "ci"),
    ("plugin",),
    ("",),
    ("laboratory",),
    ("command",),
)

#: Rooms that keep to less than what stands before them.
ONLY = {"judging": ("units",), "report": ("judging", "units")}


@dataclass(frozen=True)
class Imports:
    """Who imports whom in a package, and what from outside."""

    package: str
    own: Mapping[str, frozenset[str]] = field(default_factory=dict)
    foreign: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def room(self, module: str) -> str:
        return module.removeprefix(self.package).lstrip(".").partition(".")[0]

    def rooms(self) -> dict[str, set[str]]:
        rooms: dict[str, set[str]] = {}
        for module, imported in self.own.items():
            others = {self.room(name) for name in imported} - {self.room(module)}
            rooms.setdefault(self.room(module), set()).update(others)
        return rooms


def read(package: Path) -> Imports:
    """Of all modules of the package in this folder, those inside of functions included."""
    paths = {".".join((package.name, *_parts(path.relative_to(package)))): path for path in package.rglob("*.py")}
    own: dict[str, frozenset[str]] = {}
    foreign: dict[str, frozenset[str]] = {}
    for module, path in paths.items():
        here = module if path.name == "__init__.py" else module.rpartition(".")[0]
        source = path.read_text()
        own[module] = frozenset({_longest(name, paths) for name in imported(source, here, types=True)} - {"", module})
        foreign[module] = frozenset(name.partition(".")[0] for name in imported(source, here)) - {package.name}
    return Imports(package.name, own, foreign)


def imported(source: str, package: str, *, types: bool = False) -> Iterator[str]:
    """Yield the full names of what a module in `package` imports, wherever in it the import stands.

    With `types`, what it imports for the type checker only is included.
    """
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and not types and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            nodes += node.body if isinstance(node.test, ast.UnaryOp) else node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("import_module", "importlib.import_module"):
            yield from (str(word.value) for word in node.args[:1] if isinstance(word, ast.Constant))


def violations(imports: Imports, floors: Iterable[Iterable[str]] = FLOORS) -> set[str]:
    """``module -> module`` for each import that points back, or to more than its room may know."""
    level = {room: number for number, rooms in enumerate(floors) for room in rooms}
    found = set()
    for module, names in imports.own.items():
        room = imports.room(module)
        for name in names:
            other = imports.room(name)
            if other == room:
                continue
            unknown = {room, other} - level.keys()
            if unknown or level[other] > level[room] or other not in ONLY.get(room, (other,)):
                found.add(f"{module} -> {name}")
    return found


def circles(graph: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Sets of nodes each of which leads to all others of its set."""
    reached = {node: _reached(node, graph) for node in graph}
    found: list[set[str]] = []
    for node in graph:
        circle = {other for other in reached[node] if node in reached.get(other, ())}
        if circle and circle not in found:
            found.append(circle)
    return found


def _reached(start: str, graph: Mapping[str, Iterable[str]]) -> set[str]:
    reached: set[str] = set()
    todo = [start]
    while todo:
        new = set(graph.get(todo.pop(), ())) - reached
        reached |= new
        todo += new
    return reached


def _parts(path: Path) -> tuple[str, ...]:
    parts = path.with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def _longest(name: str, modules: Iterable[str]) -> str:
    """The module that a name is in or is; empty for what is none of ours."""
    return max((module for module in modules if f"{name}.".startswith(f"{module}.")), key=len, default="")
