"""Two versions of a tool as two stacks of one session: what is run when, and what is said of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

#: A layer that a tool makes, which notes how it was called.
TOOLED = """
import contextlib
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.stack.places import Directory
from pytest_fsstack.stack.program import ToolLayer


@dataclass(frozen=True)
class Made(ToolLayer):
    name: ClassVar = "made"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    tool: ClassVar = Tool("mktree", "tree-tools")

    def needs(self):
        return [self.program]

    def create(self, below, context):
        commands.run(self.program.command, below.path / "tree")

    @contextlib.contextmanager
    def opened(self, below, context):
        yield Directory(below.path / "tree")


def pytest_fsstack_layers():
    return [Made]
"""

TEST = """
import pytest

@pytest.mark.fsstack("old = made(binary='{0}/mktree-1.9/mktree')", "made(binary='{0}/mktree-2.4/bin/mktree')")
def test_step(fsstack, timed):
    with timed(cold=False):
        (fsstack.path / "file").touch()
"""


@pytest.fixture
def versions(project: Project) -> Path:
    """Where the two are: scripts that stand for them."""
    (project.pytester.path / "conftest.py").write_text(TOOLED)
    for name, version in (("mktree-1.9", "1.9"), ("mktree-2.4/bin", "2.4.1")):
        script = project.pytester.path / name / "mktree"
        script.parent.mkdir(parents=True)
        log = project.pytester.path / "log"
        script.write_text(
            f'#!/bin/sh\necho "{version} $1" >> {log}\n'
            f'if [ "$1" = --version ]; then echo "mktree {version}"; else exec mkdir "$1"; fi\n'
        )
        script.chmod(0o755)
    project.write(TEST.format(project.pytester.path))
    return project.pytester.path


def test_two_versions_are_compared_and_told_apart(project: Project, versions: Path) -> None:
    result = project.run(
        "-v",
        "--fsstack-rounds=8",
        "--fsstack-json=run.json",
        "--fsstack-report=markdown=run.md",
        "--fsstack-report=html=run.html",
    )
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_step[[]old[]] PASSED*", "*test_step[[]made-2.4[]] PASSED*"])
    (chain,) = json.loads((versions / "run.json").read_text())["chains"]
    old, new = f"{versions}/mktree-1.9/mktree", f"{versions}/mktree-2.4/bin/mktree"
    assert {name: stack["tools"] for name, stack in chain["stacks"].items()} == {
        "old": {old: "mktree 1.9"},
        "made-2.4": {new: "mktree 2.4.1"},
    }
    for file in "run.md", "run.html":
        assert f"{new}: mktree 2.4.1" in (versions / file).read_text()
    words = [line.split() for line in project.log]
    # Each is asked once, at the same time, and makes its stack in each round and no other.
    assert sorted(version for version, word in words if word == "--version") == ["1.9", "2.4.1"]
    made = [version for version, word in words if word != "--version"]
    assert made.count("1.9") == made.count("2.4.1") == 8


def test_collecting_runs_neither(project: Project, versions: Path) -> None:
    result = project.run("--collect-only", "-q", "-k", "made-2.4")
    result.stdout.fnmatch_lines(["test_it.py::test_step[[]made-2.4[]]"])
    result = project.run("--fsstack-doctor")
    assert result.ret == 0
    assert not (versions / "log").exists()


def test_the_doctor_and_the_session_name_what_is_missing(project: Project, versions: Path) -> None:
    gone = versions / "mktree-2.4/bin/mktree"
    gone.chmod(0o644)
    missing = f" {gone}, *`binary` *"
    result = project.run("--fsstack-doctor")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"  made-2.4: *{missing}"])
    # What no package has is nothing to install.
    result.stdout.no_fnmatch_line("*tree-tools*")
    result = project.run("-rs", "--fsstack-rounds=8", "-W", "ignore")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED*{missing}"])


def test_paths_that_give_the_same_id_are_refused_until_one_has_a_name(project: Project, versions: Path) -> None:
    os.renames(versions / "mktree-1.9", versions / "other" / "mktree-2.4")
    stacks = [f"made(binary='{versions}/{path}/mktree')" for path in ("other/mktree-2.4", "mktree-2.4/bin")]
    result = project.run(*(f"--fsstack-stacks={stack}" for stack in stacks))
    result.stderr.fnmatch_lines([f"ERROR: *'made-2.4': *'other = {stacks[0]}'*"])
    named = [f"--fsstack-stacks={name}{stack}" for name, stack in zip(("other = ", ""), stacks, strict=True)]
    project.run("--fsstack-rounds=8", *named).assert_outcomes(passed=2)
