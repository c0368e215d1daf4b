"""The torture's own tools: commands that go wrong as they are told, inputs that watch themselves, the table."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.torture import __main__ as torture
from tests.torture.tools import FAULTS, Faulty, Noting


def run(path: str, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, errors="replace", env={**os.environ, "PATH": path})


@pytest.mark.parametrize(
    ("fault", "code", "stdout"),
    [
        ("failing", 1, ""),
        ("failing after its work", 1, "work\n"),
        ("killed after its work", -9, "work\n"),
        ("printing garbage", 0, "rubbish"),
        ("printing garbage after its work", 0, "rubbish"),
        ("printing nothing", 0, ""),
        ("saying what is no text", 3, ""),
        ("vanished", 0, "work\n"),
    ],
)
def test_the_second_call_goes_wrong_and_no_other(tmp_path: Path, fault: str, code: int, stdout: str) -> None:
    faulty = Faulty(tmp_path, "expr", 2, fault, b"rubbish")
    calls = [run(faulty.path, "expr", "work") for _ in range(3)]
    assert [call.returncode for call in calls] == [0, code, 0]
    assert [call.stdout for call in calls] == ["work\n", stdout, "work\n"]
    assert faulty.fired
    assert (tmp_path / "faulty" / "expr").exists() == (fault != "vanished")
    faulty.remove()


def test_each_fault_is_of_a_command_that_is_there(tmp_path: Path) -> None:
    for number, fault in enumerate(FAULTS):
        directory = tmp_path / str(number)
        directory.mkdir()
        faulty = Faulty(directory, "expr", 2, fault, b"")
        assert run(faulty.path, "expr", "first").stdout == "first\n"
        assert not faulty.fired
        subprocess.run(["sh", "-n", faulty.directory / "expr"], check=True)


def test_what_is_run_is_noted_with_its_words_and_its_environment(tmp_path: Path) -> None:
    noting = Noting(tmp_path, environment=True, names=["expr", "env"])
    run(noting.path, "expr", "a b", "=", "c")
    run(noting.path, "env", "MARK=of it", "expr", "x")
    assert noting.calls()[:2] == [["expr", "a b", "=", "c"], ["env", "MARK=of it", "expr", "x"]]
    assert noting.counts() == {"expr": 1, "env": 1}
    assert b"PATH=" in noting.environments.read_bytes()


def test_hostile_inputs_do_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.torture.hostile", "a seed", "150"]
    result = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=True)
    counts = json.loads(result.stdout)
    assert sum(counts["cases"].values()) == 150
    assert counts["wrong"] == []


def test_it_would_be_seen_if_they_did_something(tmp_path: Path) -> None:
    code = """
import os, subprocess, sys
from pathlib import Path
from tests.torture import hostile
hostile.watch(Path(sys.argv[1]))
subprocess.run(["true"])
open(sys.argv[2] + "/made", "w").close()
os.rename(sys.argv[2] + "/made", sys.argv[2] + "/moved")
print(*hostile._seen, sep="\\n")
"""
    (tmp_path / "inside").mkdir()
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "inside", tmp_path], capture_output=True, text=True, check=True
    )
    command, opened, renamed = result.stdout.splitlines()
    assert "['true']" in command
    assert f"{tmp_path}/made" in opened
    assert re.search(rf"os\.rename .*{tmp_path}/made", renamed)


def test_the_table_sums_up_and_what_must_not_be_counts() -> None:
    fine = {"faults": Counter({"tries": 3, "not needed": 2}), "SIGKILL": Counter({"tries": 1, "unproved": 1})}
    assert torture.wrong(fine) == 0
    broken = {**fine, "exchanged": Counter({"tries": 1, "loops": 1, "mounts": 2, "bytes written": 512})}
    assert torture.wrong(broken) == 515
    lines = {words[0]: words[1:] for words in (line.split() for line in torture.table(broken).splitlines()[1:])}
    assert lines["tries"] == ["3", "1", "1", "5"]
    assert lines["left"] == ["0", "0", "3", "3"]
