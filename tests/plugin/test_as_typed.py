"""Facts that a user sees by the command line alone: versions, plans, refusals and commands in the stack's directory."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_fsstack
from pytest_fsstack.machine.needs import Tool, require
from tests.plugin.conftest import Project

CHECKOUT = Path(pytest_fsstack.__file__).parents[1]
SH = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
def test_it(fsstack, timed):
    fsstack.sh.touch("file")
    with timed(cold=False):
        assert fsstack.sh.ls().split() == ["file"]
    assert (fsstack.path / "file").exists()
"""


def words_of(result: pytest.RunResult) -> str:
    return result.stdout.str() + result.stderr.str()


def test_commands_of_sh_run_in_the_directory_of_the_stack(project: Project) -> None:
    project.write(SH)
    project.run("--fsstack-rounds=2").assert_outcomes(passed=2)


@pytest.mark.skipif(not (CHECKOUT / ".git").exists() or not shutil.which("git"), reason="needs a checkout and git")
def test_the_version_of_a_checkout_has_its_commit() -> None:
    commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True)
    words = [sys.executable, "-m", "pytest_fsstack.command", "--version"]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    # A tagged commit is a release.
    described = subprocess.run(["git", "describe", "--exact-match", "--match=v*"], cwd=CHECKOUT, capture_output=True)
    assert commit.stdout.strip() in shown or described.returncode == 0


def test_without_a_budget_the_rounds_that_run_are_those_that_are_planned(project: Project) -> None:
    words = ["--fsstack-stacks=plain", "--fsstack-stacks=crypt", "--fsstack-command=true"]
    result = project.run(*words)
    rounds = re.findall(r"round(?:s \d+ to)? (\d+) of (?:at most )?(\d+)", words_of(result))
    assert {(number, planned) for number, planned in rounds if number == rounds[-1][0]} == {("6", "6")}
    assert "78" not in re.findall(r"(\d+) rounds", words_of(result))


def test_sections_that_fio_reports_as_one_are_refused_before_anything_runs(project: Project) -> None:
    require(Tool("fio", "fio"))
    Path("jobs.fio").write_text("[global]\ngroup_reporting\nsize=64k\n[bank-a]\nrw=read\n[bank-b]\nrw=write\n")
    result = project.run("--fsstack-stacks=plain", "--fsstack-fio=jobs.fio", "--fsstack-rounds=1")
    assert result.ret != pytest.ExitCode.OK
    assert "bank" not in words_of(result)
    assert re.search(r"jobs\.fio:6:\d+: .*group_reporting", words_of(result))
    assert not list(project.device.rglob("*bank*"))


@pytest.mark.parametrize("pattern", ["trim", "randtrim", "trimwrite"])
def test_trims_on_a_directory_are_refused_before_anything_runs(project: Project, pattern: str) -> None:
    Path("jobs.fio").write_text(f"[reads]\nrw=read\nsize=64k\n[trims]\nrw={pattern}\nsize=64k\n")
    result = project.run("--fsstack-stacks=plain", "--fsstack-fio=jobs.fio", "--fsstack-rounds=1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = [line for line in result.errlines if "jobs.fio" in line]
    assert re.search(r"\bjobs\.fio:4:2: .*block device.*\bplain\b", line)
    assert "JobFileError" not in words_of(result)
    assert not list(project.device.iterdir())


@pytest.mark.parametrize(("value", "env"), [("1", True), ("$(date)", False), ("`date`", False), ("$HOME", False)])
def test_env_is_advised_only_for_values_that_need_no_shell(project: Project, value: str, env: bool) -> None:
    result = project.run("--fsstack-stacks=plain", f"--fsstack-command=step=x={value} true")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--shell" in words_of(result)
    assert ("env x=" in words_of(result)) is env


UNKNOWN = """
from pytest_fsstack.machine.needs import KernelFilesystem

@dataclass(frozen=True)
class Unknown(Plain):
    name: ClassVar = "unknown"

    def needs(self):
        return [KernelFilesystem("nosuchfs")]

def pytest_fsstack_layers():
    return [Plain, Crypt, Absent, Broken, Unknown]
"""
STEPS = """
import pytest
from pytest_fsstack.workloads.latency import create_files

@pytest.mark.fsstack("plain", "unknown")
class TestTree:
    def test_create(self, fsstack, timed):
        create_files(timed, fsstack, count=7)
"""


@pytest.fixture
def steps(project: Project) -> Project:
    with (project.pytester.path / "conftest.py").open("a") as file:
        file.write(UNKNOWN)
    project.write(STEPS)
    return project


def test_a_stack_that_this_kernel_lacks_comes_with_a_command_of_minutes(steps: Project) -> None:
    result = steps.run("--fsstack-rounds=1")
    words = shlex.split(next(line for line in reversed(result.outlines) if "--fsstack-kernel=" in line))
    assert {"--fsstack-scale=smoke", "--fsstack-rounds=1"} <= {*words}
    assert words[-2:] == ["-k", "unknown"]


def test_the_description_of_a_step_has_the_values_of_its_workload(steps: Project) -> None:
    steps.run("--fsstack-rounds=1", "--fsstack-report=html=page.html")
    page = Path("page.html").read_text()
    assert "7 files" in page
    assert "count files" not in page
