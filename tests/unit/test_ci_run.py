"""`.ci/run` fails with whatever fails in it, and runs guests unless a commit says that they passed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUESTS = "tox -e kernels -- families"


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
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    commit(tmp_path, "Start")
    return tmp_path


def commit(project: Path, message: str, *paths: str) -> None:
    for path in paths:
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_text(message)
    subprocess.run(["git", "-C", project, "add", "--all", *paths], check=True)
    subprocess.run(["git", "-C", project, "commit", "-q", "--allow-empty", "-m", message], check=True)


def run(project: Path) -> tuple[int, str]:
    """Its exit code, and the last command that it called."""
    done = subprocess.run(["sh", str(project / ".ci/run")], cwd="/")
    return done.returncode, (project / "calls").read_text().splitlines()[-1]


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
    ("later", "last"),
    [("pytest_fsstack/report/html.py", "tox -e test"), ("pytest_fsstack/volumes/lvm.py", GUESTS)],
)
def test_guests_run_again_after_a_change_to_what_they_run(project: Path, later: str, last: str) -> None:
    commit(project, "Say so\n\nGuests: passed")
    assert run(project) == (0, "tox -e test")
    commit(project, "Change", later)
    assert run(project) == (0, last)
