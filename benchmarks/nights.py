"""Thirty nights of a gate, as a distribution would have it: real sessions on a loop device, with two changes injected.

    python -m benchmarks nights

A repository holds two layers and the gate of docs/over-time.md. In the night of one commit a layer becomes slower by a
third, in that of another one the other layer faster by a quarter. Wanted: the gate is red on the night of the first and
on no other, and `fsstack trend` shows these two changes, at these commits, and no other. After the red night the
regression is accepted, as the docs say: by a new directory, which is compared with from its sixth run on. Needs root,
and Apache Otava (the extra `trend`).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tabulate import tabulate

from benchmarks.pairs import pytest_command, run

NIGHTS = 30
ROUNDS = 12
LIMIT = "10%"
#: In which night which layer changes, and how much work it does from then on.
SLOWER, FASTER = 11, 21
USUAL = 3000
AFTER = {SLOWER: ("pack", USUAL * 4 // 3), FASTER: ("seal", USUAL * 3 // 4)}
#: Runs that must be there before one is judged.
ENOUGH = 5

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
    """A directory with the tool of this commit, which is as slow as it is."""

    name: ClassVar = "pack"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    def create(self, below, site):
        (below.path / self.name).mkdir()
        shutil.copy(HERE / f"{self.name}.sh", below.path / self.name / "work")

    @contextlib.contextmanager
    def opened(self, below, site, depth):
        yield Directory(below.path / self.name)


class Seal(Pack):
    name: ClassVar = "seal"


class Plain(Pack):
    name: ClassVar = "plain"


def pytest_fsstack_layers():
    return [Pack, Seal, Plain]
'''

TEST = """
import pytest


@pytest.mark.fsstack("plain = ext4 | plain", "pack = ext4 | pack", "seal = ext4 | seal")
@pytest.mark.benchmark
def test_work(fsstack, timed):
    with timed():
        timed.run("sh", fsstack.path / "work", cwd=fsstack.path)
"""

WORK = "i=0; while [ $i -lt {count} ]; do echo $i > file$i; i=$((i + 1)); done\n"


def _git(repository: Path, *words: str) -> str:
    identity = ("-c", "user.name=A distribution", "-c", "user.email=qa@example.org", "-c", "commit.gpgsign=false")
    return run("git", *identity, *words, cwd=repository).strip()


def _commit(repository: Path, night: int) -> str:
    """What the distribution does that day."""
    work = (
        {"plain": USUAL, "pack": USUAL, "seal": USUAL} if night == 1 else dict([AFTER[night]] if night in AFTER else [])
    )
    for layer, count in work.items():
        (repository / f"{layer}.sh").write_text(WORK.format(count=count))
    (repository / "CHANGES").write_text(f"day {night}\n")
    _git(repository, "add", ".")
    _git(repository, "commit", "-q", "-m", f"day {night}")
    return _git(repository, "rev-parse", "--short=12", "HEAD")


def _night(repository: Path, night: int, accepted: Path) -> int:
    """The exit code of the gate."""
    gate = [f"--fsstack-rounds={ROUNDS}", "--fsstack-size=64M", f"--fsstack-history={repository.parent / 'history'}"]
    there = len(list(accepted.glob("*.json")))
    if there >= ENOUGH:
        gate += [f"--fsstack-compare={accepted}", f"--fsstack-max-regression={LIMIT}"]
    command = pytest_command(*gate, f"--fsstack-accept={accepted / f'{night:02}.json'}")
    done = subprocess.run(
        command, cwd=repository, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"night {night} ended with exit code {done.returncode}:\n{done.stdout}")
    return done.returncode


def nights(top: Path) -> tuple[list[list[str]], dict[str, str], str]:
    """A row for each night, the commits that change a layer by the layer's name, and what `fsstack trend` says."""
    repository = top / "distribution"
    repository.mkdir()
    _git(repository, "init", "-q")
    (repository / "conftest.py").write_text(CONFTEST)
    (repository / "test_speed.py").write_text(TEST)
    (repository / "pytest.ini").write_text("[pytest]\n")
    (repository / ".gitignore").write_text("__pycache__/\n")
    accepted, rows, changes = top / "accepted-1", [], {}
    for directory in accepted, top / "history":
        directory.mkdir()
    for night in range(1, NIGHTS + 1):
        commit = _commit(repository, night)
        if night in AFTER:
            changes[AFTER[night][0]] = commit
        judged = len(list(accepted.glob("*.json"))) >= ENOUGH
        red = _night(repository, night, accepted) == 1
        rows.append([str(night), commit, "red" if red else "green" if judged else "not judged yet"])
        print(*rows[-1], flush=True)
        if red:
            # Looked at, and accepted: it is to stay.
            accepted = top / f"accepted-{night}"
            accepted.mkdir()
    return rows, changes, run(sys.executable, "-m", "pytest_fsstack.command", "trend", str(top / "history"), cwd=top)


def main(_arguments: list[str]) -> int:
    """Print what was found. Returns 1 if it is not what was injected."""
    with tempfile.TemporaryDirectory(prefix="fsstack-nights-") as directory:
        rows, changes, trend = nights(Path(directory))
    print(trend)
    red = [int(night) for night, _, said in rows if said == "red"]
    found = re.findall(r"^(\S+) on (\S+):|since \S+, commit (\w+)", trend, re.M)
    series, told = "", []
    for _, stack, commit in found:
        series = stack or series
        told += [(series, commit)] if commit else []
    table = [
        ["red nights", str([SLOWER]), str(red)],
        ["changes shown", str(sorted(changes.items())), str(sorted(told))],
    ]
    print(tabulate(table, ["", "injected", "found"], disable_numparse=True))
    return 0 if all(injected == shown for _, injected, shown in table) else 1
