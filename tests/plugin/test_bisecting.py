"""`git bisect run` finds the commit that makes a stack slower, also if some commits cannot be built."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

COMMITS = 16
#: The first commit with the slower script; none of the third ones, so that it is found exactly.
CULPRIT = 11

#: A layer whose directory holds the script of the repository; what runs there is as slow as that is.
CONFTEST = '''
import contextlib
import os
import shutil
from pathlib import Path
from typing import ClassVar
from dataclasses import dataclass

from pytest_fsstack import Directory, Layer


@dataclass(frozen=True)
class Script(Layer):
    """A directory with the script of this commit."""

    name: ClassVar = "script"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    source: ClassVar = "tool.sh"

    def create(self, below, context):
        (below.path / self.name).mkdir()
        shutil.copy(Path(os.environ["REPOSITORY"], self.source), below.path / self.name / "work")

    @contextlib.contextmanager
    def opened(self, below, context):
        yield Directory(below.path / self.name)


class Reference(Script):
    name: ClassVar = "reference"
    source: ClassVar = "reference.sh"


def pytest_fsstack_layers():
    return [Script, Reference]
'''

TEST = """
import pytest


@pytest.mark.fsstack("reference", "script")
@pytest.mark.fsstack_budget("150%", metric="steps")
def test_work(fsstack, timed):
    with timed(cold=False):
        done = timed.run("sh", fsstack.path / "work")
    # Not its seconds: how busy the machine is must not decide what is found.
    timed.record("steps", done.stdout.count("step"))
"""


def git(repository: Path, *words: str, check: bool = True) -> str:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, "-C", str(repository), *words],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(repository), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"},
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def project(pytester: pytest.Pytester) -> Path:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_speed=TEST)
    pytester.mkdir("device")
    return pytester.path


def repository(path: Path) -> Path:
    """Make commits 1 to 16. From the culprit on the script does more. Every third one cannot be built."""
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    for number in range(1, COMMITS + 1):
        (path / "reference.sh").write_text("echo step\n")
        (path / "tool.sh").write_text(f"# {number}\n" + "echo step\n" * (5 if number >= CULPRIT else 2))
        (path / "build.sh").write_text(f"exit {int(number % 3 == 0)}\n")
        git(path, "add", ".")
        git(path, "commit", "-q", "-m", f"commit {number}")
    return path


def test_the_commit_is_found_among_some_that_cannot_be_built(project: Path) -> None:
    there = repository(project / "repository")
    run = project / "run.sh"
    arguments = f"--fsstack-device=dir:{project}/device --fsstack-rounds=5 --fsstack-exit=bisect -p no:cacheprovider"
    environment = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTEST_PLUGINS=pytest_benchmark.plugin,pytest_fsstack.plugin"
    run.write_text(
        f"sh build.sh || exit 125\nexport REPOSITORY={there}\ncd {project}\n"
        f"{environment} exec {shlex.quote(sys.executable)} -m pytest -q test_speed.py {arguments}\n"
    )
    git(there, "bisect", "start", "main", f"main~{COMMITS - 1}")
    said = git(there, "bisect", "run", "sh", str(run))
    (found,) = re.findall(r"^(\w+) is the first bad commit$", said, re.MULTILINE)
    assert git(there, "log", "-1", "--format=%s", found).strip() == f"commit {CULPRIT}"
    assert "bisect skip" in git(there, "bisect", "log") or "# skip:" in git(there, "bisect", "log")


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    device = "--fsstack-device=dir:device"
    return pytester.runpytest_subprocess("--fsstack-exit=bisect", device, "-p", "no:cacheprovider", *words)


@pytest.mark.parametrize(
    ("conftest", "test", "words"),
    [
        pytest.param("import no_such_module", TEST, [], id="a conftest that cannot be imported"),
        pytest.param(CONFTEST, "import no_such_module", [], id="a test that cannot be imported"),
        pytest.param(CONFTEST, TEST, ["--fsstack-size=much"], id="a wrong option"),
        pytest.param(CONFTEST, TEST, ["--of-a-later-conftest=1"], id="an option that is not known"),
        pytest.param(CONFTEST, TEST, ["--fsstack-stacks=unheard"], id="a stack that is not known"),
        pytest.param(CONFTEST, "def test_it(): assert False", [], id="a failure without a budget"),
        pytest.param(CONFTEST, "def test_it(): pass", [], id="nothing to judge"),
    ],
)
def test_what_is_no_verdict_makes_no_commit_bad(
    pytester: pytest.Pytester, conftest: str, test: str, words: list[str]
) -> None:
    pytester.makeconftest(conftest)
    pytester.makepyfile(test_it=test)
    pytester.mkdir("device")
    result = run(pytester, *words)
    assert result.ret == 125
    both = result.stdout.str() + result.stderr.str()
    assert re.search(r"^fsstack: .*\bbisect\b.*\bskip\b.*\b125\b", both, re.MULTILINE)
    assert "INTERNALERROR" not in both


def test_pytest_keeps_its_exit_codes_unless_asked(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it="def test_it(): assert False")
    assert pytester.runpytest_subprocess("--fsstack-exit=pytest").ret == 1
    assert run(pytester, "--fsstack-doctor").ret == 4
    assert run(pytester, "--fsstack-cleanup").ret == 0
