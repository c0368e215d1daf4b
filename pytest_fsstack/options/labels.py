"""Labels of a run in a history: its commit and branch, and its run of CI."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_fsstack.machine import commands

#: For each CI: the variable that tells that it is this one, and those that each label is in, the first that is set.
CI: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    # A pull request has its own branch in HEAD_REF, which is empty otherwise. Forgejo and Gitea set the same names.
    "github": (
        "GITHUB_ACTIONS",
        {
            "commit": ("GITHUB_SHA",),
            "branch": ("GITHUB_HEAD_REF", "GITHUB_REF_NAME"),
            "ci_run": ("GITHUB_RUN_ID",),
        },
    ),
    "gitlab": (
        "GITLAB_CI",
        {
            "commit": ("CI_COMMIT_SHA",),
            "branch": ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_REF_NAME"),
            "ci_run": ("CI_PIPELINE_ID",),
        },
    ),
    "jenkins": (
        "JENKINS_URL",
        {"commit": ("GIT_COMMIT",), "branch": ("BRANCH_NAME", "GIT_BRANCH"), "ci_run": ("BUILD_TAG",)},
    ),
}

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: They would lead git away from the directory that it is asked about, as in a hook of git's.
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
#: Seconds, since a busy machine takes some to start a command.
_PATIENCE = 15.0


def parse(text: str) -> tuple[str, str]:
    """Read ``KEY=VALUE``. Raises `ValueError`."""
    key, equals, value = text.partition("=")
    if not _KEY.fullmatch(key) or not equals or not value.strip():
        raise ValueError(f"must be KEY=VALUE, the key of letters, digits and _ (got {text!r})")
    return key, value.strip()


def collect(
    pairs: Iterable[tuple[str, str]], directory: Path, *, kernel: str = "", environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """All labels of a run: those `given`, before what git says of the directory, before what CI says.

    What is checked out there wins over what CI was started for, as they differ while somebody bisects. `kernel` is the
    release of the running one; empty if kernels are compared, each of which has its own.
    """
    derived = {**of_ci(environ), **of_git(directory, environ)}
    return {**derived, **({"kernel": kernel} if kernel else {}), **dict(pairs)}


def of_ci(environ: Mapping[str, str]) -> dict[str, str]:
    """``ci``, ``commit``, ``branch`` and ``ci_run``, as far as the environment is one of `CI`; else nothing."""
    for name, (sign, variables) in CI.items():
        if environ.get(sign):
            values = {
                label: next((environ[each] for each in names if environ.get(each)), "")
                for label, names in variables.items()
            }
            return {"ci": name, **{label: value for label, value in values.items() if value}}
    return {}


def of_git(directory: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """``commit`` and ``branch`` of the checkout that holds a directory.

    Nothing if there is none, or no git, or if git does not answer in 15 seconds; no branch if none is checked
    out.
    """
    git = commands.which("git")
    if git is None:
        return {}
    quiet = {name: value for name, value in environ.items() if name not in _ELSEWHERE}
    try:
        result = subprocess.run(
            [git, "-C", str(directory), "rev-parse", "HEAD", "--abbrev-ref", "HEAD"],
            env={**quiet, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = result.stdout.decode(errors="backslashreplace").split("\n")
    if result.returncode or len(lines) < 2:
        return {}
    return {"commit": lines[0], **({"branch": lines[1]} if lines[1] != "HEAD" else {})}
