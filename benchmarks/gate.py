"""The error rates of a gate on this machine, by real sessions on a loop device with a known truth.

    python -m benchmarks gate [sessions]

Both stacks are ext4, with a budget of 5 %. In half of the sessions they do the same work. In the others the second one
does 1.05 x 1.10 = 1.155 times as much, which is 10 % more than its budget allows. The work is a number of small files,
each written through to the device, so the time is proportional to it. pytest-benchmark's ``--benchmark-compare-fail``
and asv's rule judge the same samples. Needs root.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from benchmarks import rules
from benchmarks.pairs import pytest_command
from pytest_fsstack.records import saved

SESSIONS = 60
BUDGET = 0.05
FILES = 200
#: The work of the second stack, in the work of the first.
WORK = {"the same work": 1.0, "10 % above the budget": (1 + BUDGET) * 1.10}

TEST = """
import os
import pytest

@pytest.mark.fsstack("ext4", "second = ext4")
@pytest.mark.benchmark
def test_write(fsstack, timed):
    files = round({files} * ({work} if fsstack.stack.id == "second" else 1))
    with timed():
        for number in range(files):
            fd = os.open(fsstack.path / str(number), os.O_CREAT | os.O_WRONLY | os.O_DSYNC)
            os.write(fd, bytes(4096))
            os.close(fd)
"""


class SessionError(Exception):
    """A session that measured nothing. The message has its output."""


@dataclass(frozen=True)
class Session:
    """A session: its verdict (pass, fail, inconclusive) and its samples in seconds."""

    verdict: str
    baseline: list[float]
    second: list[float]

    @property
    def rounds(self) -> int:
        return len(self.second)


def sessions(count: int, work: float, directory: Path) -> Iterator[Session]:
    """Run sessions, each with its own seed. Raises `SessionError`."""
    (directory / "test_gate.py").write_text(TEST.format(files=FILES, work=work))
    for seed in range(1, count + 1):
        options = (f"--fsstack-seed={seed}", f"--fsstack-budget=second: {BUDGET:.0%}", "--fsstack-size=64M")
        command = pytest_command(*options, "--fsstack-json=out.json", "test_gate.py")
        env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        process = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True)
        try:
            (chain,) = saved.loads((directory / "out.json").read_text()).chains
            (step,) = chain.steps
        except (OSError, ValueError) as error:
            raise SessionError(f"{error}: {process.stdout}{process.stderr}") from None
        (directory / "out.json").unlink()
        samples = [chain.series(step, name, "seconds") for name in ("ext4", "second")]
        yield Session(chain.worst(step, "second") or "", *samples)


def rows(count: int) -> list[list[str]]:
    """Return a row for each truth."""
    rows = []
    other_rules = {name: rule for name, rule in rules.by_tool().items() if name in ("compare-fail mean", "asv")}
    for name, work in WORK.items():
        with tempfile.TemporaryDirectory(prefix="fsstack-benchmark-") as directory:
            ran = list(sessions(count, work, Path(directory)))
        verdicts = [session.verdict for session in ran]
        row = [name, str(count), *(str(verdicts.count(verdict)) for verdict in ("fail", "inconclusive", "pass"))]
        row.append(f"{statistics.fmean(session.rounds for session in ran):.1f}")
        row.append(f"{100 * statistics.fmean(_cv(session.baseline) for session in ran):.0f} %")
        for rule in other_rules.values():
            row.append(str(sum(rule(session.baseline, session.second, BUDGET) for session in ran)))
        rows.append(row)
    return rows


def _cv(samples: list[float]) -> float:
    return statistics.stdev(samples) / statistics.fmean(samples)


HEADERS = [
    *("truth", "sessions", "fail", "inconclusive", "pass", "rounds", "CV of the baseline"),
    *("compare-fail mean: slower", "asv: slower"),
]


def main(arguments: list[str]) -> int:
    """Print the table as Markdown. Return 1 if a session measured nothing."""
    try:
        table = rows(int(arguments[0]) if arguments else SESSIONS)
    except SessionError as error:
        print(error, file=sys.stderr)
        return 1
    print(tabulate(table, HEADERS, tablefmt="github", disable_numparse=True))
    return 0
