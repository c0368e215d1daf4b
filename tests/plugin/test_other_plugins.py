"""Other plugins beside chains: each of them knows what became of every test."""

from __future__ import annotations

import html
import itertools
import json
import re

import pytest

from tests.plugin.conftest import Project

TESTS = """
import time

import pytest

@pytest.mark.fsstack("plain", "crypt", "dear = crypt(cost=300)")
class TestChain:
    @pytest.mark.fsstack_budget("30%", metric="cost")
    def test_first(self, fsstack, timed, cost):
        with timed(cold=False):
            pass
        timed.record("cost", cost, unit="coins")

    @pytest.mark.benchmark
    def test_second(self, fsstack, timed):
        with timed(cold=False):
            assert fsstack.stack.id != "crypt", "this disk is full"
            time.sleep(0.005)

    @pytest.mark.skip(reason="not today")
    def test_third(self, fsstack, timed):
        pass

    @pytest.mark.benchmark
    def test_fourth(self, fsstack, timed):
        with timed(cold=False):
            pass

def test_beside():
    pass
"""
#: By test: what becomes of it on plain, crypt and dear.
STATUS = {
    # Of the one round on crypt, before its second step failed, nothing can be said.
    "test_first": ["passed", "skipped", "failed"],
    "test_second": ["passed", "failed", "passed"],
    "test_third": ["skipped"] * 3,
    "test_fourth": ["passed", "skipped", "passed"],
}
EXPECTED = {
    f"{test}[{stack}]": status
    for test, found in STATUS.items()
    for stack, status in zip(("plain", "crypt", "dear"), found)
} | {"test_beside": "passed"}


def run(project: Project, *arguments: str) -> pytest.RunResult:
    """Run the tests with nothing loaded but this plugin and the given ones."""
    for name in (word for flag, word in itertools.pairwise(arguments) if flag == "-p"):
        pytest.importorskip(name.partition(".")[0], reason="needs other plugins: pip install pytest-fsstack[plugins]")
    project.write(TESTS)
    result = project.run("--fsstack-rounds=8", *arguments)
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    return result


def test_json_report_has_the_outcome_of_every_test(project: Project) -> None:
    run(project, "-p", "pytest_jsonreport.plugin", "-p", "pytest_metadata.plugin", "--json-report")
    found = json.loads((project.pytester.path / ".report.json").read_text())
    assert {test["nodeid"].rpartition("::")[2]: test["outcome"] for test in found["tests"]} == EXPECTED


def test_allure_has_a_status_for_every_test(project: Project) -> None:
    run(project, "-p", "allure_pytest.plugin", "--alluredir=allure")
    results = [json.loads(path.read_text()) for path in (project.pytester.path / "allure").glob("*-result.json")]
    assert all(found.get("status") for found in results)
    # The rounds of a test are its retries there, and the last one that ended is its result.
    last = {found["name"]: found["status"] for found in sorted(results, key=lambda found: found["stop"])}
    assert last == EXPECTED
    # A test's duration is that of its eight rounds, in milliseconds, not that of its report.
    final = max((test for test in results if test["name"] == "test_second[plain]"), key=lambda test: test["stop"])
    assert final["stop"] - final["start"] >= 8 * 5


def test_the_html_page_shows_every_test_once(project: Project) -> None:
    run(project, "-p", "pytest_html.plugin", "-p", "pytest_metadata.plugin", "--html=page.html")
    page = (project.pytester.path / "page.html").read_text()
    blob = re.search(r'data-jsonblob="(.*?)"', page)
    assert blob
    found = json.loads(html.unescape(blob[1]))["tests"]
    outcomes = {name.rpartition("::")[2]: [test["result"].lower() for test in tests] for name, tests in found.items()}
    assert outcomes == {name: [status] for name, status in EXPECTED.items()}


@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "pytest_timeout", "--timeout=250"],
        ["-p", "pytest_rerunfailures", "--reruns=2"],
        ["-p", "pytest_sugar"],
    ],
    ids=lambda arguments: arguments[1],
)
def test_the_outcomes_are_the_same_beside(project: Project, arguments: list[str]) -> None:
    result = run(project, *arguments)
    result.assert_outcomes(passed=6, failed=2, skipped=5)
    if "--reruns=2" in arguments:
        result.stdout.fnmatch_lines(["fsstack: --reruns: *"])


def test_every_repetition_has_an_outcome(project: Project) -> None:
    result = run(project, "-p", "pytest_repeat", "--count=2")
    assert sum(result.parseoutcomes().get(outcome, 0) for outcome in ("passed", "failed", "skipped")) == 26


def test_shuffled_tests_have_an_outcome_each(project: Project) -> None:
    result = run(project, "-p", "pytest_randomly")
    assert sum(result.parseoutcomes().get(outcome, 0) for outcome in ("passed", "failed", "skipped")) == 13


GIVEN = """
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

@pytest.mark.fsstack("plain", "crypt")
class TestChain:
    # Each round has an instance of the class of its own.
    @settings(max_examples=3, database=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(size=st.integers(0, 9))
    def test_any(self, fsstack, size):
        (fsstack.path / str(size)).touch()

    def test_measured(self, fsstack, timed{more}):
        with timed(cold=False):
            assert any(fsstack.path.iterdir())
"""


def test_hypothesis_draws_inputs_in_a_step_that_measures_nothing(project: Project) -> None:
    project.write(GIVEN.format(more=""))
    project.run("--fsstack-rounds=2", "-p", "hypothesispytest").assert_outcomes(passed=4)


def test_hypothesis_is_refused_around_a_measurement(project: Project) -> None:
    given = "    @given(size=st.integers(0, 9))\n    def test_measured"
    project.write(GIVEN.format(more=", size").replace("    def test_measured", given))
    result = project.run("--fsstack-rounds=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: test_it.py::TestChain::test_measured: @given *fsstack_seed*"])


SUBTESTS = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
def test_it(fsstack, timed, subtests):
    with timed(cold=False):
        pass
    with subtests.test("a directory"):
        assert fsstack.path.is_dir()
    with subtests.test("a name"):
        assert fsstack.stack.id != "crypt"
"""


@pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="pytest 9 brings subtests")
@pytest.mark.parametrize("words", [[], ["--fsstack-kernel=host", "-p", "xdist"]], ids=["loop", "controller"])
@pytest.mark.plugins("xdist")
def test_a_subtest_that_fails_fails_its_own_test_alone_and_ends_it_in_round_1(
    project: Project, words: list[str]
) -> None:
    project.write(SUBTESTS)
    result = project.run("--fsstack-rounds=3", "-rf", *words)
    result.assert_outcomes(failed=2, passed=1)
    assert all("[crypt" in line for line in result.outlines if line.startswith(("FAILED", "SUBFAILED")))


@pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="pytest 9 brings subtests")
def test_a_subtest_of_an_expected_failure_is_not_the_outcome_of_its_test(project: Project) -> None:
    marks = '@pytest.mark.xfail(raises=KeyError)\n@pytest.mark.fsstack_budget("900%")\n'
    project.write(SUBTESTS.replace("@pytest", f"{marks}@pytest", 1).replace('!= "crypt"', '!= "other"'))
    file = project.pytester.path / "results.json"
    project.run("--fsstack-rounds=2", f"--fsstack-json={file}")
    # pytest reports the subtests as passed unexpectedly. Two rounds do not decide about the budget.
    tests = json.loads(file.read_text())["tests"]
    assert {test["stack"]: test["outcome"] for test in tests.values()} == {"plain": "xpassed", "crypt": "skipped"}


UNTIMED = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
def test_it(fsstack):
    pass
"""


@pytest.mark.plugins("xdist")
def test_the_reason_of_a_workers_failure_does_not_name_the_worker(project: Project) -> None:
    xfail = "@pytest.mark.xfail(strict=True, reason='this disk is full')\n@pytest"
    project.write(UNTIMED.replace("@pytest", xfail))
    file = project.pytester.path / "results.json"
    assert project.run("-n2", f"--fsstack-json={file}").ret == 1
    assert {test["text"] for test in json.loads(file.read_text())["tests"].values()} == {
        "[XPASS(strict)] this disk is full"
    }


STEPS = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestIt:
    def test_first(self, fsstack, timed):
        with timed(cold=False):
            pass

    def test_second(self, fsstack, timed, subtests):
        with timed(cold=False):
            pass
        with subtests.test("a name"):
            assert fsstack.stack.id != "crypt"

    def test_third(self, fsstack, timed):
        with timed(cold=False):
            pass
"""


@pytest.mark.skipif(pytest.version_tuple < (9, 0), reason="pytest 9 brings subtests")
@pytest.mark.parametrize("option", ["-x", "--maxfail=2", "--sw"])
def test_a_subtest_that_fails_ends_the_session_at_its_own_test(project: Project, option: str) -> None:
    project.write(STEPS)
    words = (f"--fsstack-device=dir:{project.device}", "--fsstack-seed=1", "--fsstack-rounds=2", option, "-v")
    result = project.pytester.runpytest_subprocess(*words)
    # Those of plain, and the first of crypt, in front of the one that failed; its subtest counts beside it.
    assert {name: result.parseoutcomes()[name] for name in ("passed", "failed")} == {"passed": 4, "failed": 2}
    # A subtest has one line for all rounds.
    assert sum("SUBPASS" in line for line in result.outlines if "test_second[plain]" in line) == 1
    if option == "--sw":
        again = project.pytester.runpytest_subprocess(*words)
        assert again.parseoutcomes()["deselected"] == 4
        assert again.parseoutcomes()["failed"] == 2
