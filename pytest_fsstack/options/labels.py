"""Labels of a run in the history: commit, branch and CI run."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_fsstack.machine import commands

#: For each CI system: a variable that identifies it, and for each label the variables to try in order.
CI: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    # HEAD_REF is the branch of a pull request, and otherwise empty. Forgejo and Gitea set the same variables.
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
#: These would redirect git to another directory, for example inside a git hook.
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
#: Seconds. A busy machine needs some to start a command.
_PATIENCE = 15.0


def parse(text: str) -> tuple[str, str]:
    """Parse ``KEY=VALUE``. Raises `ValueError`."""
    key, equals, value = text.partition("=")
    if not _KEY.fullmatch(key) or not equals or not value.strip():
        raise ValueError(f"must be KEY=VALUE, the key of letters, digits and _ (got {text!r})")
    return key, value.strip()


def collect(
    pairs: Iterable[tuple[str, str]], directory: Path, *, kernel: str = "", environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return all labels of a run. Given `pairs` take precedence over git, and git over CI.

    During a bisection, the checkout differs from the commit that CI was started for. `kernel` is the running kernel's
    release, or empty if kernels are compared.
    """
    derived = {**of_ci(environ), **of_git(directory, environ)}
    return {**derived, **({"kernel": kernel} if kernel else {}), **dict(pairs)}


def of_ci(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``ci``, ``commit``, ``branch`` and ``ci_run``, as far as `CI` knows the environment."""
    for name, (sign, variables) in CI.items():
        if environ.get(sign):
            values = {
                label: next((environ[each] for each in names if environ.get(each)), "")
                for label, names in variables.items()
            }
            return {"ci": name, **{label: value for label, value in values.items() if value}}
    return {}


def of_git(directory: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return ``commit`` and ``branch`` of the checkout that contains a directory.

    Empty without a checkout, without git, or if git does not answer in 15 seconds. No branch if HEAD is detached.
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
