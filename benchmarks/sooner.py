"""The time until all budgets are decided, beside that of an earlier build of the project.

    python -m benchmarks sooner [pairs [scale]]

Each build is a wheel in a virtual environment of its own. In turns, they compare encryption by the ready-made scenario
with its own plan, at scale smoke and at small, or only at the named one. Stacks that cannot be built here are left out
by both. The widths of intervals are compared over as many rounds as both have run. The CPU time beside the wall time,
and the load before each session, show how much other programs disturbed them. Needs root, and an hour on two cores.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tabulate import tabulate

from benchmarks.earlier import COMMIT, ROOT, earlier_tree
from benchmarks.pairs import Pairs, cpu_seconds_of, interleaved, pytest_command, run
from pytest_fsstack.judging.verdict import judge, log_ratios
from pytest_fsstack.measuring import load
from pytest_fsstack.records.verdicts import Looks

PAIRS = 3
#: The largest share of the wall time of the earlier build, by scale.
SHARES = {"smoke": 0.60, "small": 0.75}
#: The largest width of an interval, as a share of that of the earlier build.
WIDTH = 1.1
SCENARIO = "pytest_fsstack.scenarios.test_encryption_overhead"


@dataclass(frozen=True)
class Session:
    """A session that has ended: its CPU time in seconds, the load of the machine before it, and its results."""

    cpu: float
    load: float
    results: dict[str, Any]

    @property
    def chain(self) -> dict[str, Any]:
        (chain,) = self.results["chains"]
        return dict(chain)

    @property
    def rounds(self) -> int:
        return len(self.chain["orders"])

    def outcomes(self) -> dict[str, str]:
        """Return the outcome of each budget by step, stack and number."""
        return {
            f"{step} on {stack}, {number}": judgement["outcome"]
            for step, by_stack in self.chain["judgements"].items()
            for stack, judgements in by_stack.items()
            for number, judgement in enumerate(judgements)
        }

    def seconds(self, step: str, stack: str) -> dict[int, float]:
        """Return the seconds of a step on a stack by round."""
        samples = self.chain["samples"].get(step, {}).get(stack, {})
        # Since format 5, samples are by boot of a kernel.
        by_round = samples if self.results["format"] < 5 else samples.get("0", {})
        return {int(number): sample["values"]["seconds"] for number, sample in by_round.items()}

    def width(self, step: str, stack: str, rounds: int) -> float | None:
        """Return the width of the interval of an overhead over the first rounds, as a log ratio. None if it is open."""
        own, base = self.seconds(step, stack), self.seconds(step, self.chain["baseline"])
        common = sorted(own.keys() & base.keys())[:rounds]
        if len(common) < rounds:
            return None
        ratios = log_ratios([own[number] for number in common], [base[number] for number in common])
        estimate = judge(dict(enumerate(ratios)), 0.0, Looks.fixed(rounds)).estimate
        return math.log((1 + estimate.high) / (1 + estimate.low)) if estimate.has_interval else None


def main(words: Sequence[str]) -> int:
    """Print a table of both builds for each scale. Return 1 if a target is missed."""
    pairs, scales = int(words[0]) if words else PAIRS, words[1:2] or list(SHARES)
    with _builds() as (now, earlier):
        return max([_compare(scale, now, earlier, pairs) for scale in scales])


@contextmanager
def _builds() -> Iterator[tuple[str, str]]:
    """Install both builds, and yield the Python of each: that of this checkout, and that of the earlier one."""
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name, earlier_tree() as tree:
        directory = Path(name)
        versions = {package.metadata["Name"]: package.version for package in metadata.distributions()}
        del versions["pytest-fsstack"]
        # Both get the same versions of what they need.
        lines = (f"{package}=={version}" for package, version in versions.items())
        (directory / "versions").write_text("\n".join(lines))
        now = _installed(_copy_of_checkout(directory / "source"), directory / "now")
        yield now, _installed(tree, directory / "earlier")


def _copy_of_checkout(directory: Path) -> Path:
    """Copy the files of this checkout that git knows. Building a wheel leaves files beside them."""
    files = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, stdout=subprocess.PIPE, text=True).stdout
    directory.mkdir()
    run("cp", "--parents", "-t", str(directory), *files.split(), cwd=ROOT)
    return directory


def _installed(tree: Path, environment: Path) -> str:
    """Build a wheel of a tree, and install it in a virtual environment. Return its Python."""
    run(sys.executable, "-m", "venv", str(environment), cwd=tree)
    python = str(environment / "bin/python")
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*install, "-c", str(environment.parent / "versions"), str(tree), cwd=environment)
    return python


def _compare(scale: str, now: str, earlier: str, pairs: int) -> int:
    """Print the times, verdicts and widths of both builds at a scale. Return 1 if a target is missed."""
    sessions: dict[str, list[Session]] = {now: [], earlier: []}
    with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as name:
        directory = Path(name)

        def run_session(python: str, *options: str) -> Session:
            saved, before = directory / "run.json", load.read().load or 0.0
            places = (f"--basetemp={directory}/temporary", f"--fsstack-json={saved}")
            _, *words = pytest_command("--pyargs", SCENARIO, f"--fsstack-scale={scale}", *places, *options)
            cpu = cpu_seconds_of(python, *words, cwd=directory)
            return Session(cpu, before, json.loads(saved.read_text()))

        def seconds(python: str) -> float:
            start = time.perf_counter()
            sessions[python].append(run_session(python))
            return time.perf_counter() - start

        for python in sessions:
            # This makes the data of the scenario, which is kept for the other sessions.
            run_session(python, "--fsstack-rounds=1")
        measured = interleaved(lambda: seconds(now), lambda: seconds(earlier), pairs, warmup=0)
    return _show(scale, measured, sessions[now], sessions[earlier])


def _show(scale: str, measured: Pairs, now: Sequence[Session], earlier: Sequence[Session]) -> int:
    """Print what the sessions of both builds took and found. Return 1 if a target is missed."""
    rows = []
    for build, sessions, walls in (("now", now, measured.candidate), (COMMIT, earlier, measured.reference)):
        outcomes = Counter(outcome for session in sessions for outcome in session.outcomes().values())
        rows.append(
            (
                build,
                " ".join(f"{seconds:.1f}" for seconds in walls),
                " ".join(f"{session.cpu:.1f}" for session in sessions),
                " ".join(f"{session.results['timed_share']:.0%}" for session in sessions),
                " ".join(str(session.rounds) for session in sessions),
                ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()),
                " ".join(f"{session.load:.1f}" for session in sessions),
            )
        )
    columns = ["build", "wall time (s)", "CPU time (s)", "timed", "rounds", "verdicts", "load before"]
    print(tabulate(rows, columns, disable_numparse=True))
    share = statistics.median(a / b for a, b in zip(measured.candidate, measured.reference, strict=True))
    of_cpu = statistics.median(one.cpu / other.cpu for one, other in zip(now, earlier, strict=True))
    differing = [
        budget
        for one, other in zip(now, earlier, strict=True)
        for budget, outcome in other.outcomes().items()
        if one.outcomes().get(budget) != outcome
    ]
    widths = [width for one, other in zip(now, earlier, strict=True) for width in _relative_widths(one, other)]
    width = statistics.median(widths) if widths else math.nan
    print(f"{scale}: {share:.2f} of the wall time (median of {len(now)} pairs), at most {SHARES[scale]:.2f} wanted")
    print(f"{of_cpu:.2f} of the CPU time; intervals at equal rounds {width:.2f} times as wide, at most {WIDTH} wanted")
    for budget in differing:
        print(f"another verdict: {budget}")
    print(flush=True)
    return int(share > SHARES[scale] or bool(differing) or not width <= WIDTH)


def _relative_widths(one: Session, other: Session) -> Iterator[float]:
    """Return the widths of all intervals of a session as shares of those of another, over equally many rounds."""
    rounds = min(one.rounds, other.rounds)
    for step, by_stack in other.chain["samples"].items():
        for stack in by_stack:
            widths = one.width(step, stack, rounds), other.width(step, stack, rounds)
            if widths[0] is not None and widths[1]:
                yield widths[0] / widths[1]
