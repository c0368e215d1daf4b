"""Two ways of doing the same thing, measured in turns, and the table of the results."""

from __future__ import annotations

import functools
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from pytest_fsstack.judging.verdict import judge, log_ratios
from pytest_fsstack.records.verdicts import Estimate, Looks

Way = Callable[[], float]

#: The one-sided level of the printed 95 % intervals.
_LEVEL = 0.025


@dataclass(frozen=True)
class Pairs:
    """Seconds of a candidate and of its reference. Two with the same index were measured one after the other."""

    candidate: Sequence[float]
    reference: Sequence[float]

    @property
    def ratio_of_medians(self) -> float:
        return statistics.median(self.candidate) / statistics.median(self.reference)

    @property
    def overhead(self) -> Estimate:
        """Estimate the ratio from those of the pairs, on which drift of the machine has no effect."""
        ratios = dict(enumerate(log_ratios(self.candidate, self.reference)))
        return judge(ratios, 0.0, Looks.fixed(len(ratios), _LEVEL)).estimate

    @property
    def milliseconds_more(self) -> tuple[float, float, float]:
        """Return the median difference of a pair with its 95 % interval, for any distribution."""
        return milliseconds([seconds - base for seconds, base in zip(self.candidate, self.reference, strict=True)])

    def __str__(self) -> str:
        overhead, medians = self.overhead, [statistics.median(times) for times in (self.candidate, self.reference)]
        return (
            f"medians {medians[0]:.4g} s against {medians[1]:.4g} s: ratio {self.ratio_of_medians:.3f}; "
            f"of {len(self.candidate)} pairs: ratio {1 + overhead.overhead:.3f}, 95 % interval "
            f"{1 + overhead.low:.3f} to {1 + overhead.high:.3f}"
        )


def milliseconds(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return the median in milliseconds with its 95 % interval, for any distribution."""
    ordered = sorted(seconds)
    outside = max(0, math.floor((len(ordered) - 1.96 * math.sqrt(len(ordered))) / 2))
    return 1000 * statistics.median(ordered), 1000 * ordered[outside], 1000 * ordered[-1 - outside]


@dataclass(frozen=True)
class Finding:
    """The result of a benchmark: a row of the table, and lines with details."""

    what: str
    measured: str
    target: str
    met: bool
    details: Sequence[str]


def interleaved(candidate: Way, reference: Way, pairs: int, *, warmup: int = 1) -> Pairs:
    """Measure both ways in turns, in random order. The `warmup` pairs do not count."""
    rng = random.Random(1)
    times: dict[Way, list[float]] = {candidate: [], reference: []}
    for number in range(-warmup, pairs):
        for way in rng.sample([candidate, reference], 2):
            seconds = way()
            if number >= 0:
                times[way].append(seconds)
        _progress(f"pair {number + 1} of {pairs}")
    _progress("")
    return Pairs(times[candidate], times[reference])


def ratio_finding(
    what: str, pairs: Pairs, *, target: str, least: float = 0.0, most: float, details: Sequence[str] = ()
) -> Finding:
    """Judge the ratio of pairs. It must be between `least` and `most`."""
    ratio = 1 + pairs.overhead.overhead
    return Finding(what, f"{ratio:.3f}", target, least <= ratio <= most, [str(pairs), *details])


def difference_finding(
    what: str, more: tuple[float, float, float], *, most: float, details: Sequence[str] = ()
) -> Finding:
    """Judge the additional milliseconds. The whole interval must be at most `most`."""
    middle, low, high = more
    measured = f"{middle:+.2f} ms ({low:+.2f} to {high:+.2f})"
    return Finding(what, measured, f"at most {most:g} ms more", high <= most, details)


def run(*argv: str, cwd: Path, expected: int = 0, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. Raises RuntimeError with the output if the exit code is not `expected`."""
    process = subprocess.run(
        argv,
        cwd=cwd,
        env={**_environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if process.returncode != expected:
        raise RuntimeError(f"{argv} ended with exit code {process.returncode}:\n{process.stdout}")
    return process.stdout


def seconds_of(*argv: str, cwd: Path, expected: int = 0, env: Mapping[str, str] | None = None) -> float:
    """Return the wall time of a command."""
    start = time.perf_counter()
    run(*argv, cwd=cwd, expected=expected, env=env)
    return time.perf_counter() - start


def cpu_seconds_of(*argv: str, cwd: Path, expected: int = 0, env: Mapping[str, str] | None = None) -> float:
    """Return the CPU time of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*argv, cwd=cwd, expected=expected, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@functools.cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fsstack-bytecode-")


def _environment() -> dict[str, str]:
    # From the second start on, Python's files are compiled. They are kept outside of the checkout.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPYCACHEPREFIX": _bytecode().name, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def pytest_command(*arguments: str, plugin: bool = True) -> tuple[str, ...]:
    """Return the command that starts pytest with pytest-benchmark and this plugin only.

    Other installed plugins may take many times as long as the measured difference.
    """
    own = ("-p", "fsstack") if plugin else ()
    return (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "benchmark", *own, *arguments)


def show(findings: Sequence[Finding]) -> int:
    """Print a table of findings and their details. Return the exit code."""
    rows = [(row.what, row.measured, row.target, "ok" if row.met else "NOT MET") for row in findings]
    print(tabulate(rows, ["", "measured", "target", "verdict"], disable_numparse=True))
    for finding in findings:
        print(f"\n{finding.what}:")
        for line in finding.details:
            print(f"  {line}")
    return 0 if all(finding.met for finding in findings) else 1


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<30}\r{text}", end="", file=sys.stderr, flush=True)
