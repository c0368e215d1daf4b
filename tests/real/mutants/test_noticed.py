"""Bugs that `contents` must notice in a run of a few seconds: rare conditions, the order of findings, known faults."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.machine.needs import FUSE, LOOP_DEVICES, Root, Tool, require
from tests.real.mutants.campaign import ROOT
from tests.toolkit import chains_of

pytestmark = pytest.mark.root

#: They show only beyond 8 GiB on a stack of 384 MiB, for names that differ in case, and for a time that is set alone.
RARE = ("write-33", "case-folded", "utime-one")
#: The contents of a file, and its mode, which fewer calls show.
SEVERAL = ("truncate-stale", "mkdir-mode")

#: A layer like `mutant`, whose author knows of another bug.
FAULTY = """
from tests.real.mutants.layer import Mutant

class Faulty(Mutant):
    name = "faulty"

def pytest_fsstack_layers():
    return [Faulty]

def pytest_fsstack_faults():
    from pytest_fsstack import Fault
    return {"faulty": [Fault("contents", ("fsync: ENOENT (unlinked*",), "fsync after unlink fails", ("Linux 1.0",))]}
"""


def contents(directory: Path, stack: str, *words: str, plugin: str = "tests.real.mutants.layer") -> tuple[int, str]:
    """Run the calls of `contents` on a stack, and return the exit code and the output."""
    require(Root("mounting"), LOOP_DEVICES, FUSE, Tool("gcc", "gcc"))
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        plugin,
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:randomly",
    ]
    argv += ["--fsstack-scenario=contents", "--fsstack-scale=smoke", "--fsstack-rounds=1", "--fsstack-seed=1"]
    argv += [f"--fsstack-stacks=wrong = ext4 | {stack}", "-k", "wrong and test_calls"]
    argv += [f"--fsstack-json={directory / 'results.json'}", *words]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=800)
    return result.returncode, result.stdout + result.stderr


def mutants(names: tuple[str, ...]) -> str:
    return " | ".join(f"mutant(bug={name!r})" for name in names)


def test_rare_conditions_are_met_in_each_run(tmp_path: Path) -> None:
    code, output = contents(tmp_path, mutants(RARE))
    assert code == 1, output
    (chain,) = chains_of(tmp_path / "results.json")
    note = chain.incomplete("calls", "wrong")
    # Each of the bugs has a call that shows it.
    for call in r"\bpwrite\(", r"\baccess\(|\bopen\(|\bmkdir\(", r"\butime_one\(":
        assert re.search(call, output + note), output
    assert (chain.median("calls", "wrong", "contents_differences") or 0) >= len(RARE)


def test_lost_data_is_the_first_of_several_findings(tmp_path: Path) -> None:
    code, output = contents(tmp_path, mutants(SEVERAL))
    assert code == 1, output
    (line,) = re.findall(r"^failed: .*", output, re.M)
    (chain,) = chains_of(tmp_path / "results.json")
    assert (chain.median("calls", "wrong", "contents_differences") or 0) >= 2
    reason = chain.incomplete("calls", "wrong")
    assert re.search(r"\bcontent\b", reason[:200]), reason
    assert "mkdir" not in reason[:100], reason
    assert len(line) < 1000, line


def test_a_declared_fault_excuses_no_other_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "faulty_layer.py").write_text(FAULTY)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    code, output = contents(tmp_path, "faulty(bug='chmod-special')", plugin="faulty_layer")
    assert code == 1, output
    assert " 1 failed" in output
