"""Which changes make CI run all guests again, in repositories made for it; and that a failure of CI is one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import guests

ROOT = Path(__file__).parents[2]


class Checkout:
    """A repository with two files, whose guests passed on its first commit."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q")
        self.write("pytest_fsstack/layers/lvm.py", "docs/safety.md")
        self.commit()

    def git(self, *words: str) -> str:
        author = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {**os.environ, **author, "GIT_CONFIG_GLOBAL": "/dev/null"}
        argv = ["git", "-C", str(self.root), *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, env=env).stdout.strip()

    def write(self, *names: str, text: str = "1\n") -> None:
        for name in names:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")

    def pass_(self) -> None:
        assert guests.note(self.root, guests.contents(self.root)).startswith("noted in .ci/kernels-passed")
        self.commit()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize("text", [None, "", "0" * 40, "{"])
def test_where_nothing_is_known_they_run(checkout: Checkout, text: str | None) -> None:
    if text is not None:
        (checkout.root / ".ci").mkdir()
        (checkout.root / guests.PASSED).write_text(text)
    assert "nothing says with what they passed" in guests.due(checkout.root)


def test_after_they_passed_they_do_not_run(checkout: Checkout) -> None:
    checkout.pass_()
    assert guests.due(checkout.root) == ""


def test_what_no_guest_exercises_may_change(checkout: Checkout) -> None:
    checkout.pass_()
    checkout.write("docs/safety.md", "tests/unit/test_new.py", "pytest_fsstack/report/html.py", text="2\n")
    checkout.commit()
    checkout.write("README.md")
    assert guests.due(checkout.root) == ""


@pytest.mark.parametrize(
    "path",
    [
        *(f"pytest_fsstack/{room}/any.py" for room in ("layers", "machine", "kernels", "stack", "measuring", "data")),
        *(f"pytest_fsstack/{name}.py" for name in ("rounds", "chains", "session", "plugin", "options", "units")),
        *("scenarios/test_filesystems.py", "tests/kernel/boot.py", "tests/conftest.py", "setup.cfg", "conftest.py"),
        *("a room that is made tomorrow/größe.py", "READMEs"),
    ],
)
@pytest.mark.parametrize("committed", [True, False], ids=["committed", "not committed"])
def test_whatever_a_guest_may_exercise_runs_them(checkout: Checkout, path: str, committed: bool) -> None:
    checkout.pass_()
    checkout.write(path, text="2\n")
    if committed:
        checkout.commit()
    assert guests.due(checkout.root).endswith(f": {path}")


def test_what_is_of_no_concern_any_more_does_not_run_them(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout.pass_()
    checkout.write("pytest_fsstack/layers/lvm.py", text="2\n")
    monkeypatch.setattr(guests, "OF_NO_CONCERN", (*guests.OF_NO_CONCERN, "pytest_fsstack/layers/"))
    assert guests.due(checkout.root) == ""


def test_what_was_moved_away_or_deleted_runs_them(checkout: Checkout) -> None:
    checkout.pass_()
    checkout.git("mv", "pytest_fsstack/layers/lvm.py", "docs/lvm.py")
    checkout.commit()
    assert guests.due(checkout.root).endswith(": pytest_fsstack/layers/lvm.py")


def test_a_clone_of_any_history_with_the_same_contents_knows(
    checkout: Checkout, tmp_path_factory: pytest.TempPathFactory
) -> None:
    checkout.pass_()
    clone = tmp_path_factory.mktemp("clone")
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{checkout.root}", str(clone)], check=True)
    assert guests.due(clone) == ""


def test_without_git_they_run(checkout: Checkout) -> None:
    checkout.pass_()
    shutil.rmtree(checkout.root / ".git")
    assert "git cannot tell what is in" in guests.due(checkout.root)


def test_what_changed_while_they_ran_is_not_noted(checkout: Checkout) -> None:
    before = guests.contents(checkout.root)
    checkout.write("pytest_fsstack/layers/lvm.py", text="2\n")
    assert guests.note(checkout.root, before).endswith("files were changed meanwhile")
    assert not (checkout.root / guests.PASSED).exists()


def test_every_path_of_no_concern_is_there() -> None:
    assert [path for path in guests.OF_NO_CONCERN if not (ROOT / path).exists()] == []


@pytest.fixture
def ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the real `.ci/run`, and commands that only note that they ran; those in `FAILS` exit with 3."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/run").write_text((ROOT / ".ci/run").read_text())
    system, venv = tmp_path / "system", tmp_path / ".venv/bin"
    for command in system / "python3", venv / "pip", venv / "tox", venv / "python":
        command.parent.mkdir(parents=True, exist_ok=True)
        said = f"{command.name} $*"
        lines = [f'echo "{said}" >> "{tmp_path}/ran"', f'case "$FAILS" in *"<{said}>"*) exit 3;; esac']
        command.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{system}:{os.environ['PATH']}")
    return tmp_path


@pytest.mark.parametrize(
    ("fails", "status", "last"),
    [
        ("", 0, "python -m tests.guests"),
        ("<python -m tests.guests>", 0, "tox -e kernels"),
        ("<python -m tests.guests><tox -e kernels>", 3, "tox -e kernels"),
        ("<tox -e test>", 3, "tox -e test"),
        ("<pip install -q tox>", 1, "pip install -q tox"),
        ("<python3 -m venv .venv>", 1, "python3 -m venv .venv"),
    ],
)
def test_ci_fails_with_whatever_fails_in_it(
    ci: Path, monkeypatch: pytest.MonkeyPatch, fails: str, status: int, last: str
) -> None:
    monkeypatch.setenv("FAILS", fails)
    assert subprocess.run(["sh", str(ci / ".ci/run")], cwd="/").returncode == status
    assert (ci / "ran").read_text().splitlines()[-1] == last
