"""Kernels as a parameter, with workers on this kernel in place of guests: how they are collected, run and judged."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tests.plugin.conftest import LAYERS, Project

pytest.importorskip("xdist", reason="needs pytest-xdist: pip install pytest-fsstack[kernel]")

# Two names for the running kernel; `slow` costs twice as much, as a test may ask for by the name of its kernel.
TWO = (
    LAYERS
    + """
def pytest_cmdline_main(config):
    from pytest_fsstack.hosts import controller
    from pytest_fsstack.hosts.kernels import Kernel

    controller.resolve = lambda text, cache: Kernel(text)


@pytest.fixture
def kernel(request):
    return request.config.workerinput["fsstack"]["kernel"]
"""
)
TEST = """
import os, random
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestFirst:
    @pytest.mark.benchmark
    def test_step(self, fsstack, timed, kernel, log):
        log(f"first {kernel}")
        with timed(cold=False):
            end = random.Random().gauss(0.15, 0.002) * (2 if kernel == "slow" and fsstack.stack.id == "crypt" else 1)
            import time
            time.sleep(end)
        if kernel == "dying":
            os._exit(1)

@pytest.mark.fsstack("plain", "crypt")
class TestSecond:
    @pytest.mark.benchmark
    def test_step(self, fsstack, timed, kernel, log):
        log(f"second {kernel}")
        with timed(cold=False):
            pass
"""


@pytest.fixture
def kernels(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    project.pytester.makeconftest(
        TWO.replace("def pytest_cmdline_main", "@pytest.hookimpl(tryfirst=True)\ndef pytest_cmdline_main")
    )
    project.write(TEST)
    return project


def run(kernels: Project, *arguments: str) -> pytest.RunResult:
    return kernels.run("--fsstack-rounds=6", *arguments)


def test_the_kernel_is_in_ids_table_json_and_records(kernels: Project) -> None:
    result = run(
        kernels,
        "--fsstack-kernel=old",
        "--fsstack-kernel=new",
        "-v",
        "--fsstack-json=out.json",
        "--benchmark-json=b.json",
    )
    result.assert_outcomes(passed=8)
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "fsstack: kernels old (baseline), new",
            "*PASSED test_it.py::TestFirst::test_step?crypt:new?*",
            "plain:old *baseline*",
            "plain:new *",
        ]
    )
    data = json.loads((kernels.pytester.path / "out.json").read_text())
    assert list(data["chains"][0]["stacks"]) == ["plain:old", "plain:new", "crypt:old", "crypt:new"]
    names = {record["name"] for record in json.loads((kernels.pytester.path / "b.json").read_text())["benchmarks"]}
    assert names == {f"test_step[{stack}:{kernel}]" for stack in ("plain", "crypt") for kernel in ("old", "new")}


def test_workers_take_turns_chain_by_chain(kernels: Project) -> None:
    run(kernels, "--fsstack-kernel=old", "--fsstack-kernel=new").assert_outcomes(passed=8)
    turns = list(dict.fromkeys(" ".join(line.split()[:2]) for line in kernels.log))
    assert turns == ["first old", "first new", "second new", "second old"]
    assert [" ".join(line.split()[:2]) for line in kernels.log] == [turn for turn in turns for _ in range(12)]


def test_a_test_outside_of_a_class_is_a_chain_by_itself(kernels: Project) -> None:
    kernels.write(
        """
        import pytest

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.benchmark
        def test_first(fsstack, timed, kernel, log):
            log(f"first {kernel}")
            with timed(cold=False):
                pass

        @pytest.mark.fsstack("plain", "crypt")
        @pytest.mark.benchmark
        def test_second(fsstack, timed, kernel, log):
            log(f"second {kernel}")
            with timed(cold=False):
                pass
        """
    )
    run(kernels, "--fsstack-kernel=old", "--fsstack-kernel=new").assert_outcomes(passed=8)
    turns = list(dict.fromkeys(" ".join(line.split()[:2]) for line in kernels.log))
    assert turns == ["first old", "first new", "second new", "second old"]


def test_a_slower_kernel_fails_where_it_is_slower(kernels: Project) -> None:
    result = run(
        kernels,
        "--fsstack-kernel=old",
        "--fsstack-kernel=slow",
        "--fsstack-max-regression=40%",
        "--junitxml=j.xml",
        "-k",
        "First",
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "*step on crypt:slow costs more than its budget allows over crypt:old:*",
            "*fail *seconds: overhead *budget 40 %, 6 rounds*",
            "FAILED test_it.py::TestFirst::step on crypt:slow against crypt:old*",
        ]
    )
    result.assert_outcomes(passed=5, failed=1)
    cases = ElementTree.parse(kernels.pytester.path / "j.xml").findall(".//testcase")
    assert [case.get("name") for case in cases if case.find("failure") is not None] == [
        "step on crypt:slow against crypt:old"
    ]


def test_a_kernel_that_goes_down_fails_its_tests_and_keeps_the_others_results(kernels: Project) -> None:
    result = run(kernels, "--fsstack-kernel=old", "--fsstack-kernel=dying")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 4
    assert outcomes["failed" if "failed" in outcomes else "errors"] == 4
    result.stdout.fnmatch_lines(["*kernel dying: the worker in it went down*", "plain:old *baseline*"])


def test_the_progress_ends_at_all_tests(kernels: Project) -> None:
    kernels.pytester.makeini("[pytest]\nconsole_output_style = count")
    words = ("--fsstack-kernel=old", "--fsstack-kernel=dying", "--fsstack-max-regression=40%", "-v")
    shown = re.findall(r"\[ *(\d+)/(\d+)\]", run(kernels, *words).stdout.str())
    assert len(shown) >= 8
    assert all(int(done) <= int(total) for done, total in shown)
    assert len(set(shown[-1])) == 1


def test_with_few_boots_no_verdict_is_given(kernels: Project) -> None:
    result = run(
        kernels,
        *("--fsstack-kernel=old", "--fsstack-kernel=slow", "--fsstack-boots=2", "--fsstack-max-regression=40%"),
        "-k",
        "First",
    )
    result.stdout.fnmatch_lines(["*old (baseline), slow, 2 boots each*"])
    result.assert_outcomes(passed=8, skipped=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fsstack-kernel=a", "--fsstack-kernel=a"], "*two kernels are called a*"),
        (["--fsstack-kernel=a", "--fsstack-boots=0"], "*--fsstack-boots: give a number from 1 on, not 0*"),
        (["--fsstack-kernel=a", "--fsstack-max-regression=lots"], "*'lots' is not a percentage such as 5%*"),
        (["--fsstack-kernel=a", "-n2"], "*leave -n and --tx out*"),
        (["--fsstack-kernel=a", "-p", "no:xdist"], "*needs pytest-xdist*pip install pytest-fsstack?kernel?*"),
    ],
)
def test_mistakes_are_told(kernels: Project, arguments: list[str], message: str) -> None:
    result = run(kernels, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_file_that_is_no_kernel_is_told(project: Project) -> None:
    project.write(TEST)
    result = project.run("--fsstack-kernel=test_it.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-kernel: *test_it.py is not a kernel image*"])
