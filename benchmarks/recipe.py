"""The recipe of docs/over-time.md, followed with real sessions on a loop device.

    python -m benchmarks recipe

A directory of earlier runs fills for ten nights. Ten nights without a change follow, which must be green at least nine
times. In the night after, a layer does a fifth more work, and the gate must be red. The work is put right again. An
improvement by a quarter is accepted, and most of it is lost five nights later: the gate must be red again, although the
layer is no slower than it was at first.

The test has a budget in bytes. On a machine that others use, the time of so short a step differs too much from run to
run, which `fsstack compare --plan` says. Needs root.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tabulate import tabulate

from benchmarks.pairs import pytest_command

ROUNDS = 5
LIMIT = "10%"
#: Nights that only accept; nights without a change; nights from an improvement to its loss.
FIRST, UNCHANGED, IMPROVED = 10, 10, 5
#: How many files the layer makes: as it was, in a regression, after the improvement, and after most of that is lost.
USUAL, SLOWER, FASTER, LOST = 400, 480, 300, 360

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
    """A directory with the tool of this night, which is as slow as it is."""

    name: ClassVar = "pack"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    def create(self, below, site):
        (below.path / self.name).mkdir()
        shutil.copy(HERE / f"{self.name}.sh", below.path / self.name / "work")

    @contextlib.contextmanager
    def opened(self, below, site, depth):
        yield Directory(below.path / self.name)


class Plain(Pack):
    name: ClassVar = "plain"


def pytest_fsstack_layers():
    return [Pack, Plain]
'''

TEST = """
import pytest


@pytest.mark.fsstack("plain = ext4 | plain", "pack = ext4 | pack")
@pytest.mark.fsstack_budget("100%", metric="written_bytes")
@pytest.mark.benchmark
def test_work(fsstack, timed):
    with timed():
        timed.run("sh", fsstack.path / "work", cwd=fsstack.path)
"""

WORK = r"""
text=$(head -c 16384 /dev/zero | tr '\0' x)
i=0
while [ $i -lt {files} ]; do echo $text > file$i; i=$((i + 1)); done
"""


class Night(NamedTuple):
    """What happens in a night, how much the layer does, and whether the gate is to be red (None: there is none)."""

    what: str
    files: int
    red: bool | None


def nights() -> Iterator[Night]:
    for _ in range(FIRST):
        yield Night("accepted without a gate", USUAL, None)
    for _ in range(UNCHANGED):
        yield Night("no change", USUAL, False)
    yield Night("a fifth more work", SLOWER, True)
    for _ in range(IMPROVED):
        yield Night("improved by a quarter", FASTER, False)
    yield Night("most of that lost", LOST, True)


def run_night(top: Path, number: int, night: Night) -> bool:
    """Run a session as the recipe has it. Returns whether it is red."""
    accepted = top / "accepted"
    (top / "pack.sh").write_text(WORK.format(files=night.files))
    words = [f"--fsstack-rounds={ROUNDS}", "--fsstack-size=64M", f"--fsstack-accept={accepted / f'{number:02}.json'}"]
    if night.red is not None:
        words += [f"--fsstack-compare={accepted}", f"--fsstack-max-regression={LIMIT}"]
    done = subprocess.run(
        pytest_command(*words), cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        raise RuntimeError(f"night {number} ended with exit code {done.returncode}:\n{done.stdout}")
    rows = [line for line in done.stdout.splitlines() if line.startswith("work on pack")]
    print(f"night {number}, {night.what}: {'red' if done.returncode else 'green'}", *rows, sep="\n    ", flush=True)
    return done.returncode == 1


def plan(top: Path) -> str:
    """Return what the limit can tell, once there are enough runs."""
    command = [sys.executable, "-m", "pytest_fsstack.command", "compare", "--plan", "accepted"]
    return subprocess.run(
        [*command, f"--max-regression={LIMIT}"], cwd=top, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ).stdout


def main(_arguments: list[str]) -> int:
    """Print each night and a table. Returns 1 if the gate was not as it is to be."""
    red: dict[str, list[bool]] = {}
    with tempfile.TemporaryDirectory(prefix="fsstack-recipe-") as directory:
        top = Path(directory)
        for name, text in {"conftest.py": CONFTEST, "test_speed.py": TEST, "pytest.ini": "[pytest]\n"}.items():
            (top / name).write_text(text)
        (top / "plain.sh").write_text(WORK.format(files=USUAL))
        (top / "accepted").mkdir()
        for number, night in enumerate(nights(), 1):
            if number == FIRST + 1:
                print(plan(top))
            red.setdefault(night.what, []).append(run_night(top, number, night))
    print(tabulate([[what, len(found), sum(found)] for what, found in red.items()], ["", "nights", "red"]))
    expected = {night.what: night.red for night in nights()}
    wrong = [what for what, found in red.items() if expected[what] and not all(found)]
    return 1 if wrong or sum(red["no change"]) > 1 else 0
