"""Labels of a run: from the command line, before git, before CI."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from pytest_fsstack.options import labels


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"NAME": "N", "EMAIL": "n@example.org"}.items():
        monkeypatch.setenv(f"GIT_AUTHOR_{name}", value)
        monkeypatch.setenv(f"GIT_COMMITTER_{name}", value)
    git(tmp_path, "init", "-q", "-b", "topic")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    return tmp_path


def git(directory: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", directory, *words], check=True, capture_output=True, encoding="utf-8"
    ).stdout.strip()


def test_git_says_commit_and_branch(checkout: Path) -> None:
    (checkout / "inside").mkdir()
    commit = git(checkout, "rev-parse", "HEAD")
    assert labels.of_git(checkout / "inside") == {"commit": commit, "branch": "topic"}
    git(checkout, "checkout", "-q", "--detach")
    assert labels.of_git(checkout) == {"commit": commit}


def test_what_a_hook_of_git_points_to_is_not_asked(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    git(elsewhere, "init", "-q")
    labels_of_git = labels.of_git(checkout, {"GIT_DIR": str(elsewhere / ".git"), "PATH": "/usr/bin:/bin"})
    assert labels_of_git == {"commit": git(checkout, "rev-parse", "HEAD"), "branch": "topic"}


def test_nothing_is_said_without_a_checkout_a_commit_or_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ceiling = {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PATH": "/usr/bin:/bin"}
    assert labels.of_git(tmp_path, ceiling) == {}
    git(tmp_path, "init", "-q")
    assert labels.of_git(tmp_path, ceiling) == {}
    monkeypatch.setattr(commands, "which", lambda name: None)
    assert labels.of_git(tmp_path) == {}


def test_a_git_that_hangs_costs_no_more_than_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(commands, "which", lambda name: str(slow))
    monkeypatch.setattr(labels, "_PATIENCE", 0.2)
    assert labels.of_git(tmp_path) == {}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (
            {
                "GITHUB_ACTIONS": "true",
                "GITHUB_SHA": "abc",
                "GITHUB_HEAD_REF": "",
                "GITHUB_REF_NAME": "main",
                "GITHUB_RUN_ID": "7",
            },
            {"ci": "github", "commit": "abc", "branch": "main", "ci_run": "7"},
        ),
        (
            {"GITHUB_ACTIONS": "true", "GITHUB_HEAD_REF": "topic", "GITHUB_REF_NAME": "12/merge"},
            {"ci": "github", "branch": "topic"},
        ),
        (
            {"GITLAB_CI": "true", "CI_COMMIT_SHA": "abc", "CI_COMMIT_REF_NAME": "main", "CI_PIPELINE_ID": "8"},
            {"ci": "gitlab", "commit": "abc", "branch": "main", "ci_run": "8"},
        ),
        (
            {"GITLAB_CI": "true", "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": "topic", "CI_COMMIT_REF_NAME": "x"},
            {"ci": "gitlab", "branch": "topic"},
        ),
        (
            {"JENKINS_URL": "http://j", "GIT_COMMIT": "abc", "GIT_BRANCH": "origin/main", "BUILD_TAG": "t-9"},
            {"ci": "jenkins", "commit": "abc", "branch": "origin/main", "ci_run": "t-9"},
        ),
        ({"CI": "true", "GIT_COMMIT": "abc"}, {}),
    ],
)
def test_each_ci_says_it_in_its_own_variables(environ: dict[str, str], expected: dict[str, str]) -> None:
    assert labels.of_ci(environ) == expected


def test_what_is_given_wins_over_git_and_git_over_ci(checkout: Path) -> None:
    ci = {"GITLAB_CI": "true", "CI_COMMIT_SHA": "of ci", "CI_PIPELINE_ID": "8", "PATH": "/usr/bin:/bin"}
    collected = labels.collect([("branch", "mine"), ("team", "a")], checkout, kernel="6.1", environ=ci)
    assert collected == {
        "ci": "gitlab",
        "ci_run": "8",
        "commit": git(checkout, "rev-parse", "HEAD"),
        "branch": "mine",
        "kernel": "6.1",
        "team": "a",
    }


@pytest.mark.parametrize("text", ["", "x", "=x", "x=", "x= ", "a b=c", "1a=c", "ä=c"])
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="KEY=VALUE"):
        labels.parse(text)


def test_a_value_may_hold_anything() -> None:
    assert labels.parse("note=a = b") == ("note", "a = b")
