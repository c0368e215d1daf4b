"""`--fsstack-dry-run`: what a session would run, without root and without a trace."""

from __future__ import annotations

import re

import pytest

from tests.plugin.conftest import Project

TEST = """
import pytest

@pytest.mark.fsstack("plain", "crypt | plain", "dear = absent")
class TestChain:
    def test_fill(self, fsstack, log):
        log("fill")

    @pytest.mark.fsstack_budget({"crypt*": 0.3}, metric="cost")
    def test_read(self, fsstack, timed, cost, log):
        log("read")
        with timed(cold=False):
            pass
        timed.record("cost", cost, unit="coins")

def test_other():
    raise AssertionError("it runs")
"""


def files(project: Project) -> set[str]:
    """What is in the project, but for what Python, pytester and pytest-benchmark keep there themselves."""
    others = ("__pycache__", "runpytest-", "stdout", "stderr", ".benchmarks")
    found = {str(path.relative_to(project.pytester.path)) for path in project.pytester.path.rglob("*")}
    return {name for name in found if not name.startswith(others)}


def test_it_shows_what_would_run_and_leaves_no_trace(project: Project) -> None:
    project.write(TEST)
    before = files(project)
    reports = ["--fsstack-report=json=out.json", "--fsstack-save-reference=accepted.json", "--fsstack-history=."]
    result = project.run("--fsstack-dry-run", "--fsstack-strict", "--fsstack-if-unavailable=fail", *reports)
    assert result.ret == 0
    assert files(project) == before
    device = f"dir:{project.device}"
    result.stdout.fnmatch_lines(
        [
            "fsstack: dry run: *",
            f"test_it.py::TestChain *{device}",
            f"  device: {device}",
            "  steps: fill, read",
            "  stacks: plain (baseline), crypt+plain, dear",
            "  rounds: 6 *78*",
            "  missing *no-such-tool*(dear)",
            # Only one has a budget that runs for longer, and its baseline with it.
            "  time: *plain, crypt+plain, dear*18 *162 runs*",
            "  plain (baseline):",
            "    ## build",
            "    mkdir *device/fsstack-XXXXXXXX/data/plain",
            "1 *test*",
        ]
    )
    result.stdout.no_fnmatch_line("*budget*")
    result.stdout.no_fnmatch_line("*json*")


def test_what_is_deselected_is_not_shown_and_kernels_are_not_booted(project: Project) -> None:
    project.write(TEST)
    kernels = ["--fsstack-kernel=host", "--fsstack-kernel=./no-such-bzImage", "--fsstack-boots=2"]
    result = project.run("--fsstack-dry-run", "-k", "fill and not dear", "--fsstack-rounds=5", *kernels)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "  stacks: plain (baseline), crypt+plain",
            "  rounds: 5",
            "  kernels: host (baseline), ./no-such-bzImage; 2 boots*",
            # The running kernel does not boot again.
            "  turns: * 6 *",
            "  time: *30 runs*",
        ]
    )
    result.stdout.no_fnmatch_line("*dear*")


def test_the_rounds_are_those_of_the_marker(project: Project) -> None:
    project.write(TEST.replace("class", "@pytest.mark.fsstack_rounds(2)\nclass"))
    result = project.run("--fsstack-dry-run", "-k", "fill and not dear")
    result.stdout.fnmatch_lines(["  rounds: 2", "  time: * 4 runs*"])


@pytest.mark.parametrize(
    ("words", "boots"),
    [
        ([], "1 boot"),
        (["--fsstack-max-regression=5%"], "3 boots"),
        (["--fsstack-max-regression=5%", "--fsstack-boots=1"], "1 boot"),
        (["--fsstack-max-regression=5%", "--fsstack-judge-one-boot"], "1 boot"),
    ],
)
def test_kernels_that_are_judged_boot_three_times_unless_told_otherwise(
    project: Project, words: list[str], boots: str
) -> None:
    project.write(TEST)
    result = project.run("--fsstack-dry-run", "--fsstack-kernel=host", "--fsstack-kernel=./no-such-bzImage", *words)
    result.stdout.fnmatch_lines([f"  kernels: *; {boots} *"])


def test_the_time_is_that_of_an_earlier_run(project: Project) -> None:
    project.write(TEST.replace(', "dear = absent"', ""))
    options = ["-k", "TestChain", "--fsstack-rounds=8"]
    project.run(*options, "--fsstack-report=json=run.json", "-q").assert_outcomes(passed=3, failed=1)
    result = project.run(*options, "--fsstack-dry-run", "--fsstack-compare=run.json")
    assert result.ret == 0
    (line,) = [line for line in result.outlines if line.startswith("  time: ")]
    assert re.fullmatch(r"  time: \D*0:00:\d\d\b\D*\b16 runs\b\D*", line)


@pytest.mark.root
def test_a_device_that_would_be_refused_is_shown_and_ends_nothing(project: Project) -> None:
    import subprocess

    image = project.pytester.path / "image"
    image.write_bytes(b"somebody's data" * 1_200_000)
    project.write(TEST)
    loop = subprocess.run(["losetup", "--show", "-f", image], check=True, capture_output=True, text=True).stdout.strip()
    try:
        words = ["--fsstack-dry-run", f"--fsstack-device={loop}", "--fsstack-stacks=ext4", "-p", "no:cacheprovider"]
        words.append("--fsstack-rounds=1")
        result = project.pytester.runpytest_subprocess(*words)
    finally:
        subprocess.run(["losetup", "-d", loop], check=True)
    assert result.ret == 0
    assert image.read_bytes() == b"somebody's data" * 1_200_000
    result.stdout.fnmatch_lines(
        [
            f"fsstack: {loop}; 1 round; --fsstack-seed=*",
            f"  device: *refused*{loop}*",
        ]
    )
