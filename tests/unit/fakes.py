"""A stack and a clock for workloads, without root.

They are not named `timed` and `fsstack`: the plugin runs every test that takes those on real stacks.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_fsstack import host

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Completed:
    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


def block(
    *,
    bytes: int | None = None,
    files: int | None = None,
    direction: str = "write",
    cold: bool = True,
    preload: Sequence[Path] = (),
) -> dict[str, Any]:
    """What `FakeTimed` notes of a block."""
    return {"bytes": bytes, "files": files, "direction": direction, "cold": cold, "preload": list(preload)}


class FakeTimed:
    """What `Timed` does, without a clock; notes what runs inside and outside of the block."""

    def __init__(self) -> None:
        self.blocks: list[dict[str, Any]] = []
        self.inside: list[tuple[str, ...]] = []
        self.recorded: dict[str, tuple[float, str, str]] = {}
        self.kept: dict[str, Any] = {}
        self.reason = ""
        #: Stands between a command and what the workload sees of its output.
        self.altered: Callable[[str], str] = str
        self.altered_stderr: Callable[[str], str] = str
        #: Runs before each command.
        self.before: Callable[[], object] = lambda: None
        #: Runs in place of the command, and gives its output where it gives a text.
        self.instead: Callable[[], object] | None = None
        self._running = False

    @contextlib.contextmanager
    def __call__(self, **how: Any) -> Iterator[FakeTimed]:
        self.blocks.append(block(**how))
        self._running = True
        yield self
        self._running = False

    def run(
        self,
        *argv: str | os.PathLike[str],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | None = None,
        check: bool = True,
    ) -> Completed:
        assert self._running
        words = tuple(os.fspath(word) for word in argv)
        self.inside.append(words)
        self.before()
        if self.instead:
            return Completed(words, 0, self.altered(str(self.instead() or "")), "")
        done = subprocess.run(
            words,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": host.search_path(), "LC_ALL": "C", **(env or {})},
            check=False,
        )
        if check and done.returncode:
            raise host.CommandError(words, done.returncode, done.stderr)
        return Completed(words, done.returncode, self.altered(done.stdout), self.altered_stderr(done.stderr))

    def record(self, name: str, value: float, unit: str = "", better: str = "lower", resolution: float = 0.0) -> None:
        self.recorded[name] = value, unit, better

    def keep(self, name: str, value: Any) -> None:
        self.kept[name] = value

    def incomplete(self, reason: str) -> None:
        self.reason = reason


class FakeStack:
    """A directory; `broken` is what goes wrong by the time of the remount."""

    def __init__(self, path: Path) -> None:
        self.path = self.stored = path
        self.remounts = 0
        self.broken: Callable[[], object] = lambda: None

    def remount(self) -> None:
        self.remounts += 1
        self.broken()

    def sync(self) -> None:
        os.sync()

    def check(self) -> None:
        raise AssertionError("this stack has no device to write to")

    def drop_daemon_caches(self) -> None:
        """There is no daemon."""


def flip(path: Path, offset: int) -> None:
    """Alter one byte of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
