"""The overhead of `timed.run`: ``true``, against the fastest way to start a process.

python -m benchmarks run_overhead [pairs]
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pairs import Finding, difference_finding, interleaved
from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.machine import commands
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built, build
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext

PAIRS = 500


@contextlib.contextmanager
def stack() -> Iterator[Built]:
    """Yield a stack that is a directory."""
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        directory = Path(name)
        context = BuildContext(directory, Journal(directory / "journal", RealMachine()))
        with build(Stack(()), DirectoryDevice(directory), context) as built:
            yield built


def measure(pairs: int = PAIRS) -> Finding:
    path = commands.which("true")
    assert path is not None
    with stack() as built:
        timed = Timed(built)

        def plugin() -> float:
            start = time.perf_counter()
            timed.run("true")
            return time.perf_counter() - start

        def spawn() -> float:
            start = time.perf_counter()
            os.waitpid(os.posix_spawn(path, ["true"], os.environ), 0)
            return time.perf_counter() - start

        measured = interleaved(plugin, spawn, pairs, warmup=10)
    return difference_finding("timed.run(true)", measured.milliseconds_more, most=2.0, details=[str(measured)])
