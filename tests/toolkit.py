"""Helpers that several folders of tests share: a stack and a clock for workloads, without root.

The fixtures are not named `timed` and `fsstack`, because the plugin runs every test with those on real stacks.
"""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.journal import Journal, Leftover, _journals
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Completed, Timed
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import ChainResults
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext, Directory


def chains_of(path: Path) -> list[ChainResults]:
    """Return the chains in a file of --fsstack-json."""
    return saved.loads(path.read_text()).chains


DATA = Path(__file__).parent / "recorded"


def block(
    *,
    bytes: int | None = None,
    files: int | None = None,
    direction: str = "write",
    cold: bool = True,
    preload: Sequence[str | os.PathLike[str]] = (),
) -> dict[str, Any]:
    """Record the arguments of a timed block."""
    return {"bytes": bytes, "files": files, "direction": direction, "cold": cold, "preload": list(preload)}


def leftovers(directory: Path) -> list[Leftover]:
    """Return the journals of sessions that ended without closing them."""
    return [book for book in _journals(directory) if isinstance(book, Leftover) and book.session.alive is False]


class NotedJournal(Journal):
    """A journal in memory."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull), RealMachine())
        self.lines: list[Mapping[str, Any]] = []

    def _write(self, line: Mapping[str, object]) -> None:
        self.lines.append(line)

    @property
    def entries(self) -> list[tuple[str, object]]:
        """Return the kind of each entry, and its name if it has one."""
        return [(line["kind"], line["facts"].get("name")) for line in self.lines if "entry" in line]


class NotedStack(Built):
    """A directory that acts as a real stack. `broken` is called at a remount, to damage files."""

    def __init__(self, directory: Path) -> None:
        stack, context = Stack.parse("directory", BUILT_IN), BuildContext(directory, NotedJournal())
        super().__init__(stack, DirectoryDevice(directory), Directory(directory), context)
        self._add(stack.layers[0], fresh=True)
        self.remounts = 0
        self.broken: Callable[[], object] = lambda: None

    def remount(self) -> None:
        super().remount()
        self.remounts += 1
        self.broken()


class NotedTimed(Timed):
    """The real `Timed`, which also records its arguments. Tests can replace its commands.

    It never starts cold, which would need root, and would drop the caches of the whole machine.
    """

    def __init__(self, stack: Built, repeated: str = "") -> None:
        super().__init__(stack, repeated)
        self.blocks: list[dict[str, Any]] = []
        self.inside: list[tuple[str, ...]] = []
        #: Changes stdout and stderr of a command before the workload gets them.
        self.altered: Callable[[str], str] = str
        #: Changes a command's result before the workload gets it.
        self.spoiled: Callable[[Completed], Completed] = lambda done: done
        #: Runs instead of the command. If it returns a text, that is the output.
        self.instead: Callable[[], object] | None = None
        self._running = False

    def another(self) -> NotedTimed:
        """Prepare for a second step, because each step has one block. Records continue."""
        self._entered, self._sample = False, None
        return self

    @contextlib.contextmanager
    def __call__(self, **words: Any) -> Iterator[NotedTimed]:
        self.blocks.append(block(**words))
        with super().__call__(**words | {"cold": False}):
            self._running = True
            try:
                yield self
            finally:
                self._running = False

    def run(self, *argv: str | os.PathLike[str], **options: Any) -> Completed:
        assert self._running, "a command outside of the block is not measured"
        words = tuple(os.fspath(word) for word in argv)
        self.inside.append(words)
        if self.instead:
            return Completed(words, 0, str(self.instead() or ""), "")
        done = super().run(*argv, **options)
        return self.spoiled(Completed(words, done.returncode, self.altered(done.stdout), self.altered(done.stderr)))

    @property
    def recorded(self) -> dict[str, tuple[float, str, str]]:
        """Return each figure with its unit and its better direction."""
        return {name: (value, metric.unit, metric.better) for name, (metric, value) in self._extra.items()}

    @property
    def resolutions(self) -> dict[str, float]:
        """Return the resolutions of figures that have one."""
        return {name: metric.resolution for name, (metric, _) in self._extra.items() if metric.resolution}

    @property
    def kept(self) -> dict[str, Any]:
        return self._kept

    @property
    def reason(self) -> str:
        """Return why the stack did not do its work."""
        return self._incomplete


_KILLED = """
import os, pathlib, signal
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext, Directory
directory, below = pathlib.Path({directory!r}), Directory(pathlib.Path({below!r}))
context = BuildContext(directory, Journal(directory / "dead", RealMachine()))
(layer,) = Stack.parse({text!r}, BUILT_IN).layers
layer.create(below, context)
with layer.opened(below, context) as place:
    (place.path / "secret-name").write_text("content")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill_session(text: str, below: Path, directory: Path) -> None:
    """Open a layer on a directory in a process of its own, write a file and kill the process.

    Its journal is in `directory / "dead"`.
    """
    code = _KILLED.format(text=text, below=os.fspath(below), directory=os.fspath(directory))
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL


def flip(path: Path, offset: int) -> None:
    """Change one byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))


def imported(source: str) -> list[tuple[str, str]]:
    """Return the modules of the package that a source imports, with the names that it imports from them."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_fsstack"):
            names += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [(alias.name, "*") for alias in node.names if alias.name.startswith("pytest_fsstack")]
    return names
