"""`.ci/run` fails with each of its commands, and boots guests if code for them has changed within a day."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS, GUESTS = "tox -e test", "tox -e kernels -- families"
LAYER, REPORT = "pytest_fsstack/layers/volumes/lvm.py", "pytest_fsstack/report/html.py"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the real `.ci`, and commands that only log their call; those in `FAILS` exit with 3."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    system, venv = tmp_path / "system", tmp_path / ".venv/bin"
    for command in system / "python3", venv / "pip", venv / "tox":
        command.parent.mkdir(parents=True, exist_ok=True)
        call = f"{command.name} $*"
        lines = [f'echo "{call}" >> "{tmp_path}/calls"', f'case "$FAILS" in *"<{call}>"*) exit 3;; esac']
        command.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{system}:{os.environ['PATH']}")
    monkeypatch.setenv("FAILS", "")
    for name in "AUTHOR", "COMMITTER":
        monkeypatch.setenv(f"GIT_{name}_NAME", "tester")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "tester@example.org")
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path], check=True)
    commit(tmp_path, LAYER, 1)
    return tmp_path


def git(project: Path, hour: int, *words: str) -> None:
    """Run a command of git some hours after the first commit's day began."""
    date = f"@{1_700_000_000 + hour * 3600} +0000"
    environ = {**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
    subprocess.run(["git", "-C", project, *words], check=True, env=environ)


def commit(project: Path, path: str, hour: int) -> None:
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).write_text(str(hour))
    git(project, hour, "add", ".ci", path)
    git(project, hour, "commit", "-q", "-m", path)


def run(project: Path) -> tuple[int, str]:
    """Its exit code, and the last command that it called."""
    result = subprocess.run(["sh", str(project / ".ci/run")], cwd="/")
    return result.returncode, (project / "calls").read_text().splitlines()[-1]


@pytest.mark.parametrize(
    ("fails", "status", "last"),
    [
        ("", 0, GUESTS),
        (f"<{GUESTS}>", 3, GUESTS),
        ("<tox -e test>", 3, "tox -e test"),
        ("<pip install -q tox>", 1, "pip install -q tox"),
        ("<python3 -m venv .venv>", 1, "python3 -m venv .venv"),
    ],
)
def test_ci_fails_with_whatever_fails_in_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, fails: str, status: int, last: str
) -> None:
    monkeypatch.setenv("FAILS", fails)
    assert run(project) == (status, last)


@pytest.mark.parametrize(
    ("path", "hour", "last"),
    [(REPORT, 2, GUESTS), (REPORT, 24, GUESTS), (REPORT, 26, TESTS), (LAYER, 26, GUESTS)],
)
def test_guests_boot_for_a_day_after_a_change_to_code_that_they_run(
    project: Path, path: str, hour: int, last: str
) -> None:
    commit(project, path, hour)
    assert run(project) == (0, last)


def test_a_merge_counts_as_a_change_of_its_own_day(project: Path) -> None:
    git(project, 2, "checkout", "-q", "-b", "branch")
    commit(project, LAYER, 2)
    git(project, 2, "checkout", "-q", "main")
    commit(project, REPORT, 99)
    assert run(project) == (0, TESTS)
    git(project, 100, "merge", "-q", "--no-ff", "--no-edit", "branch")
    assert run(project) == (0, GUESTS)


def test_a_shallow_clone_and_a_copy_without_history_boot_guests(project: Path) -> None:
    commit(project, REPORT, 99)
    assert run(project) == (0, TESTS)
    head = subprocess.run(["git", "-C", project, "rev-parse", "HEAD"], check=True, capture_output=True).stdout
    (project / ".git/shallow").write_bytes(head)
    assert run(project) == (0, GUESTS)
    shutil.rmtree(project / ".git")
    assert run(project) == (0, GUESTS)
