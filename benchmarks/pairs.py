"""Two ways of doing the same thing, measured in turns, and what is said of them."""

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

from pytest_fsstack.judging.verdict import Estimate, Looks, estimate, log_ratios

Way = Callable[[], float]

#: Of the intervals that are printed, one-sided: 95 % intervals.
_LEVEL = 0.025


@dataclass(frozen=True)
class Pairs:
    """Seconds of our way and of the reference; those with the same index were measured one after the other."""

    ours: Sequence[float]
    reference: Sequence[float]

    @property
    def ratio_of_medians(self) -> float:
        return statistics.median(self.ours) / statistics.median(self.reference)

    @property
    def overhead(self) -> Estimate:
        """From the ratio of each pair, which a machine that changes its speed meanwhile cannot spoil."""
        ratios = dict(enumerate(log_ratios(self.ours, self.reference)))
        return estimate(ratios, Looks.fixed(len(ratios), _LEVEL))

    @property
    def milliseconds_more(self) -> tuple[float, float, float]:
        """The median difference of a pair, and its 95 % interval, whatever the distribution is."""
        return milliseconds([ours - theirs for ours, theirs in zip(self.ours, self.reference, strict=True)])

    def __str__(self) -> str:
        found = self.overhead
        return (
            f"medians {statistics.median(self.ours):.4g} s against {statistics.median(self.reference):.4g} s: ratio "
            f"{self.ratio_of_medians:.3f}; of {len(self.ours)} pairs: ratio {1 + found.overhead:.3f}, 95 % interval "
            f"{1 + found.low:.3f} to {1 + found.high:.3f}"
        )


def milliseconds(seconds: Sequence[float]) -> tuple[float, float, float]:
    """Return the median in milliseconds, and its 95 % interval, whatever the distribution is."""
    ordered = sorted(seconds)
    outside = max(0, math.floor((len(ordered) - 1.96 * math.sqrt(len(ordered))) / 2))
    return 1000 * statistics.median(ordered), 1000 * ordered[outside], 1000 * ordered[-1 - outside]


@dataclass(frozen=True)
class Finding:
    """What a benchmark says: one row of the table, and what explains it."""

    what: str
    measured: str
    target: str
    met: bool
    details: Sequence[str]


def interleaved(ours: Way, reference: Way, pairs: int, *, warmup: int = 1) -> Pairs:
    """Measure both ways in turns, which of them first being decided by chance; `warmup` pairs are not counted."""
    rng = random.Random(1)
    times: dict[Way, list[float]] = {ours: [], reference: []}
    for number in range(-warmup, pairs):
        for way in rng.sample([ours, reference], 2):
            seconds = way()
            if number >= 0:
                times[way].append(seconds)
        _progress(f"pair {number + 1} of {pairs}")
    _progress("")
    return Pairs(times[ours], times[reference])


def ratio_finding(
    what: str, pairs: Pairs, *, target: str, least: float = 0.0, most: float, details: Sequence[str] = ()
) -> Finding:
    """Judge the ratio of pairs, which must lie between `least` and `most`."""
    ratio = 1 + pairs.overhead.overhead
    return Finding(what, f"{ratio:.3f}", target, least <= ratio <= most, [str(pairs), *details])


def difference_finding(
    what: str, more: tuple[float, float, float], *, most: float, details: Sequence[str] = ()
) -> Finding:
    """Judge how many milliseconds ours takes more. The whole interval must be at most `most`."""
    middle, low, high = more
    measured = f"{middle:+.2f} ms ({low:+.2f} to {high:+.2f})"
    return Finding(what, measured, f"at most {most:g} ms more", high <= most, details)


def run(*argv: str, cwd: Path, expected: int = 0, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return what it wrote. Raises RuntimeError, with that, for another exit code than expected."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**_environment(), **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != expected:
        raise RuntimeError(f"{argv} ended with exit code {done.returncode}:\n{done.stdout}")
    return done.stdout


def seconds_of(*argv: str, cwd: Path, expected: int = 0, env: Mapping[str, str] | None = None) -> float:
    """Wall time of a command."""
    start = time.perf_counter()
    run(*argv, cwd=cwd, expected=expected, env=env)
    return time.perf_counter() - start


def cpu_seconds_of(*argv: str, cwd: Path, expected: int = 0, env: Mapping[str, str] | None = None) -> float:
    """CPU time of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*argv, cwd=cwd, expected=expected, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@functools.cache
def _bytecode() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fsstack-bytecode-")


def _environment() -> dict[str, str]:
    # Whoever starts pytest a second time has everything compiled already; here it stays out of the checkout.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": _bytecode().name, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def pytest_command(*arguments: str, plugin: bool = True) -> tuple[str, ...]:
    """Words that start pytest with the Python that runs this, with no plugins but pytest-benchmark and this one.

    All others that happen to be installed take many times what is measured.
    """
    own = ("-p", "fsstack") if plugin else ()
    return (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "benchmark", *own, *arguments)


def show(findings: Sequence[Finding]) -> int:
    """Print a table of findings and their details; return the exit code."""
    rows = [(each.what, each.measured, each.target, "ok" if each.met else "NOT MET") for each in findings]
    print(tabulate(rows, ["", "measured", "target", "verdict"], disable_numparse=True))
    for each in findings:
        print(f"\n{each.what}:")
        for line in each.details:
            print(f"  {line}")
    return 0 if all(each.met for each in findings) else 1


def main(measure: Callable[[int], Finding], pairs: int) -> int:
    """Run one benchmark, with the number of pairs from the command line."""
    return show([measure(int(sys.argv[1]) if len(sys.argv) > 1 else pairs)])


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<30}\r{text}", end="", file=sys.stderr, flush=True)
