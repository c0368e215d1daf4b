"""A clock and a stack for workloads that keep what tools say, and that run them in a directory of their own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_fsstack import host
from tests.unit.test_workloads import Completed, FakeStack, FakeTimed

DATA = Path(__file__).parent / "data"


class Clock(FakeTimed):
    """As `Timed`, without a clock; `blocks` has what the workload said of its block."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, Any] = {}
        #: Runs before each command.
        self.before: Callable[[], object] = lambda: None

    @contextlib.contextmanager
    def __call__(self, **said: Any) -> Iterator[None]:  # type: ignore[override]
        self.blocks.append(said)
        self._running = True
        yield
        self._running = False

    def run(  # type: ignore[override]
        self, *argv: str | os.PathLike[str], cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Completed:
        assert self._running
        words = tuple(os.fspath(word) for word in argv)
        self.inside.append(words)
        self.before()
        if self.instead:
            return Completed(words, 0, self.altered(str(self.instead() or "")), "")
        environment = {**os.environ, "PATH": host.search_path(), "LC_ALL": "C", **(env or {})}
        done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=cwd, check=False)
        if done.returncode:
            raise host.CommandError(words, done.returncode, done.stderr)
        return Completed(words, 0, self.altered(done.stdout), self.altered(done.stderr))

    def record(  # type: ignore[override]
        self, name: str, value: float, unit: str = "", better: str = "lower", resolution: float = 0.0
    ) -> None:
        self.recorded[name] = value, unit, better

    def keep(self, name: str, value: Any) -> None:
        self.kept[name] = value


class Directory(FakeStack):
    """A directory as a stack."""

    def check(self) -> None:
        raise AssertionError("this stack has no device to write to")
