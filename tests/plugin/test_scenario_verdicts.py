"""A finding fails a scenario, unless it is of the kind of a known fault. A fault must show after enough attempts."""

from __future__ import annotations

import json
import platform
import subprocess
import sys

import pytest

from tests.plugin.conftest import Project

TEST = """
import pytest
from pytest_fsstack.truth.correctness import verdict
from pytest_fsstack.records.findings import Finding

@pytest.mark.fsstack("plain", "crypt")
def test_promise(request, fsstack, timed):
    {begin}
    with timed(cold=False):
        (fsstack.path / "file").write_text("x")
    findings = [Finding(kind, f"text of {{kind}}") for kind in {kinds!r} if fsstack.stack.id == "crypt"]
    verdict.conclude(request.node, timed, fsstack, findings, enough={enough})
"""
FAULTS = """
from pytest_fsstack import Fault

def pytest_fsstack_faults():
    return {{"crypt": [Fault({scenario!r}, ("fsync: *", "close: content"), "its issue 7", ({seen_in!r},))]}}
"""
HERE = f"Linux {platform.release().partition('-')[0]}"
SECOND = 'assert not request.node.get_closest_marker("xfail"), "in the second round"'
PASSED = {"passed": 2}
FAILED, XFAILED, XPASSED = ({name: 1, "passed": 1} for name in ("failed", "xfailed", "xpassed"))


def written(
    project: Project, kinds: list[str], scenario: str, seen_in: str = HERE, *, enough: bool = True, begin: str = "pass"
) -> None:
    text = TEST.format(begin=begin, kinds=kinds, enough=enough)
    project.pytester.makepyfile(test_scenario=text)
    if scenario:
        with (project.pytester.path / "conftest.py").open("a") as file:
            file.write(FAULTS.format(scenario=scenario, seen_in=seen_in))


@pytest.mark.parametrize(
    ("scenario", "kinds", "outcomes"),
    [
        ("", ["fsync: ENOENT"], FAILED),
        ("", [], PASSED),
        ("scenario", ["fsync: ENOENT"], XFAILED),
        ("scenario", ["fsync: ENOENT", "close: content"], XFAILED),
        ("scenario::test_promise", ["fsync: ENOENT"], XFAILED),
        ("scenario::test_other", ["fsync: ENOENT"], FAILED),
        ("other", ["fsync: ENOENT"], FAILED),
        # A known fault excuses nothing else.
        ("scenario", ["close: ENOENT"], FAILED),
        ("scenario", ["fsync: ENOENT", "write: content"], FAILED),
        # It was mended.
        ("scenario", [], FAILED),
    ],
)
def test_a_finding_fails_unless_it_is_of_the_kind_of_a_known_fault(
    project: Project, scenario: str, kinds: list[str], outcomes: dict[str, int]
) -> None:
    written(project, kinds, scenario)
    result = project.run("--fsstack-rounds=2")
    result.assert_outcomes(**outcomes)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if "failed" in outcomes else pytest.ExitCode.OK)


def test_a_fault_need_not_show_after_few_attempts(project: Project) -> None:
    written(project, [], "scenario", enough=False)
    project.run("--fsstack-rounds=2").assert_outcomes(**XPASSED)


def test_another_error_is_not_the_known_fault(project: Project) -> None:
    written(project, ["fsync: ENOENT"], "scenario", begin=SECOND)
    project.run("--fsstack-rounds=2").assert_outcomes(**FAILED)


@pytest.mark.parametrize(
    ("kinds", "outcomes", "counts"),
    [
        ([], XPASSED, r"1 of 1\b"),
        (["fsync: ENOENT"], XFAILED, r"0 of 1\b"),
        (["read: names"], FAILED, "1 .* new"),
    ],
)
def test_another_version_is_named_and_need_not_have_the_fault(
    project: Project, kinds: list[str], outcomes: dict[str, int], counts: str
) -> None:
    written(project, kinds, "scenario", "Linux 0.7")
    result = project.run("--fsstack-rounds=2", "-rxX")
    result.assert_outcomes(**outcomes)
    result.stdout.re_match_lines([rf".*\bLinux 0\.7\b.*\b{platform.release()}\b.*{counts}"])


def test_the_worst_new_finding_is_named_first_and_all_are_kept(project: Project) -> None:
    written(project, ["write: content", "fsync: ENOENT", "read: names"], "scenario")
    results = project.pytester.path / "results.json"
    result = project.run("--fsstack-rounds=1", f"--fsstack-json={results}")
    result.stdout.re_match_lines([r".*\b3 findings\b.*text of write: content.*\b1 \D*known.*its issue 7"])
    text = json.dumps(json.loads(results.read_text()))
    assert text.index('"kind": "write: content"') < text.index('"kind": "read: names"') < text.index('"kind": "fsync')


SCRIPTS = """
import pytest
from pytest_fsstack.truth.correctness import verdict
from pytest_fsstack.truth.correctness.contents import DifferentError, Weight
from pytest_fsstack.truth.correctness.drawing import Call
from pytest_fsstack.truth.correctness.exploring import Difference
from pytest_fsstack.options.settings import Settings

@pytest.mark.fsstack("plain")
@pytest.mark.fsstack_table("findings")
def test_promise(request, fsstack, timed):
    with timed(cold=False):
        (fsstack.path / "file").write_text("x")
    differences = [
        Difference(None, DifferentError("words", "answer", Weight.NAMES), [Call("mkdir", ("a", 0o755)), *last], ["EIO"])
        for last in ([], [Call("rmdir", ("a",))])
    ]
    findings = [difference.finding(fsstack.stack.id) for difference in differences]
    verdict.conclude(request.node, timed, fsstack, findings, scripts=Settings.of(request.config).counterexamples)
"""


@pytest.mark.parametrize("exists", [False, True])
def test_a_script_of_each_finding_is_written_and_named(project: Project, exists: bool) -> None:
    directory = project.pytester.path / "scripts"
    if exists:
        directory.mkdir()
    project.pytester.makepyfile(test_scenario=SCRIPTS)
    result = project.run("--fsstack-rounds=1", f"--fsstack-counterexamples={directory}")
    result.assert_outcomes(failed=1)
    scripts = sorted(directory.glob("*.py"))
    assert len(scripts) == len({*directory.glob("*.c")}) == 2
    for script in scripts:
        assert str(script) in result.stdout.str()
        code = subprocess.run(
            [sys.executable, "-I", script, project.pytester.path, "true"], capture_output=True
        ).returncode
        assert code == 1, "mkdir succeeds here"


def test_scripts_that_cannot_be_written_fail_the_session(project: Project) -> None:
    (project.pytester.path / "scripts").touch()
    project.pytester.makepyfile(test_scenario=SCRIPTS)
    assert project.run("--fsstack-counterexamples=scripts").ret == pytest.ExitCode.USAGE_ERROR
    assert (
        project.run("--fsstack-rounds=1", "--fsstack-counterexamples=none/scripts").ret == pytest.ExitCode.TESTS_FAILED
    )
