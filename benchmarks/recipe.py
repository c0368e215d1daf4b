"""The recipe of docs/over-time.md, followed with real strict sessions on a loop device.

    python -m benchmarks recipe [METRIC]

Ten nights only save their results. Then `fsstack compare --plan --strict` names the limit. Of the next ten nights,
which have no change, at least nine must be green. In the night after, a layer does 15 % more work, and the gate must be
red. The work returns to normal. An improvement by a quarter is accepted. Five nights later the layer does 15 % more
work than that, and the gate must be red again, although the layer is faster than at the beginning.

The test only computes. It is judged by METRIC: `cpu_seconds` (the default), on which the load of a machine has little
effect, or `seconds` on a machine that does nothing else. Needs root.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from math import ceil, inf
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from benchmarks.pairs import pytest_command
from pytest_fsstack.over_time import comparison
from pytest_fsstack.over_time.plugin import earlier_runs
from pytest_fsstack.over_time.text import plan_lines

ROUNDS = 8
#: The additional work of a regression, as a fraction. The plan must name a limit below it.
REGRESSION = 0.15
#: Nights that only save, nights without a change, and nights from an improvement to its loss.
FIRST, UNCHANGED, IMPROVED = 10, 10, 5
#: The work of the layer, in loops: usually, in a regression, after the improvement, and in a regression after that.
USUAL, SLOWER, FASTER, LOST = 150_000, 172_500, 112_500, 129_375

CONFTEST = '''
import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack import Directory, Layer

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Pack(Layer):
    """A directory with the tool of this night."""

    name: ClassVar = "pack"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    def create(self, below, context):
        (below.path / self.name).mkdir()
        shutil.copy(HERE / f"{self.name}.sh", below.path / self.name / "work")

    @contextlib.contextmanager
    def opened(self, below, context):
        yield Directory(below.path / self.name)


class Plain(Pack):
    name: ClassVar = "plain"


def pytest_fsstack_layers():
    return [Pack, Plain]
'''

TEST = """
import pytest


@pytest.mark.fsstack("plain = ext4 | plain", "pack = ext4 | pack")
@pytest.mark.fsstack_budget("900%", metric="{metric}")
@pytest.mark.benchmark
def test_work(fsstack, timed):
    with timed():
        timed.run("sh", fsstack.path / "work", cwd=fsstack.path)
"""

WORK = """
i=0
while [ $i -lt {count} ]; do i=$((i + 1)); done
"""


class Night(NamedTuple):
    """A night: its event, the loops of the layer, and whether the gate should be red (None without a gate)."""

    what: str
    loops: int
    red: bool | None


def nights() -> Iterator[Night]:
    for _ in range(FIRST):
        yield Night("accepted without a gate", USUAL, None)
    for _ in range(UNCHANGED):
        yield Night("no change", USUAL, False)
    yield Night("15 % more work", SLOWER, True)
    for _ in range(IMPROVED):
        yield Night("improved by a quarter", FASTER, False)
    yield Night("15 % more work than that", LOST, True)


def run_night(top: Path, number: int, night: Night, limit: str) -> bool:
    """Run the session of a night as the recipe does. Return whether it is red."""
    accepted = top / "accepted"
    (top / "pack.sh").write_text(WORK.format(count=night.loops))
    words = [f"--fsstack-rounds={ROUNDS}", "--fsstack-size=64M"]
    words += [f"--fsstack-save-reference={accepted / f'{number:02}.json'}"]
    if night.red is not None:
        words += [f"--fsstack-compare={accepted}", f"--fsstack-max-regression={limit}", "--fsstack-strict"]
    process = subprocess.run(
        pytest_command(*words), cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    if process.returncode not in (0, 1):
        raise RuntimeError(f"night {number} ended with exit code {process.returncode}:\n{process.stdout}")
    rows = [line for line in process.stdout.splitlines() if line.startswith(("work on pack", "FAILED"))]
    print(f"night {number}, {night.what}: {'red' if process.returncode else 'green'}", *rows, sep="\n    ", flush=True)
    return process.returncode == 1


def planned_limit(top: Path) -> float:
    """Print the plan of the runs so far. Return its limit, rounded up to whole percents."""
    earlier = list(earlier_runs(top / "accepted").values())
    plans = comparison.outlook(earlier, REGRESSION, session=True)
    print(*plan_lines(plans, REGRESSION), sep="\n", flush=True)
    return max(ceil(100 * plan.power.smallest) / 100 if plan.power else inf for plan in plans)


def main(arguments: list[str]) -> int:
    """Print each night and a table. Return 1 if the gate was wrong."""
    (metric,) = arguments or ["cpu_seconds"]
    red: dict[str, list[bool]] = {}
    limit = 0.0
    with tempfile.TemporaryDirectory(prefix="fsstack-recipe-") as directory:
        top = Path(directory)
        files = {"conftest.py": CONFTEST, "test_speed.py": TEST.format(metric=metric), "pytest.ini": "[pytest]\n"}
        for name, text in files.items():
            (top / name).write_text(text)
        (top / "plain.sh").write_text(WORK.format(count=USUAL))
        (top / "accepted").mkdir()
        for number, night in enumerate(nights(), 1):
            if number == FIRST + 1 and (limit := planned_limit(top)) > REGRESSION:
                print(f"{metric} differs too much from run to run here: the limit would be {limit:.0%}")
                return 1
            red.setdefault(night.what, []).append(run_night(top, number, night, f"{limit:.0%}"))
    print(f"limit {limit:.0%} on {metric}\n")
    print(tabulate([[event, len(results), sum(results)] for event, results in red.items()], ["", "nights", "red"]))
    expected = {night.what: night.red for night in nights()}
    wrong = [event for event, results in red.items() if expected[event] and not all(results)]
    return 1 if wrong or sum(red["no change"]) > 1 else 0
