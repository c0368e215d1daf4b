"""The answer of a session: in the summary, in JUnit, in GitHub's summary and on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_fsstack import options
from pytest_fsstack.records.saved import loads
from tests.plugin.conftest import LAYERS, Project

TEST = """
import time
import pytest

@pytest.mark.fsstack("plain", "a = crypt(cost=600)", "b = crypt(cost=2000)", "absent", baseline="plain")
class TestIt:
    def test_write(self, timed, cost):
        '''Write what it is given. Nothing else.'''
        with timed(cold=False):
            time.sleep(cost / 80_000)

    def test_delete(self, timed, cost):
        with timed(cold=False):
            time.sleep(cost / 80_000)
"""
CRASH = """
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session):
    yield
    raise RuntimeError("the rack lost power")
"""
#: Before the first test.
CRASH_EARLY = """
@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session):
    raise RuntimeError("the rack lost power")
    yield
"""
REPORTS = ("--fsstack-rounds=5", "--fsstack-report=html=page.html", "--junitxml=junit.xml")


def junit_answers() -> list[str]:
    root = ElementTree.parse("junit.xml").getroot()
    found = root.findall("./testsuite/properties/property[@name='fsstack_answer']")
    return [str(each.get("value")) for each in found]


def test_the_answer_comes_first_and_is_in_junit_and_on_the_page(project: Project) -> None:
    project.write(TEST)
    result = project.run(*REPORTS, "--fsstack-weights=write=3")
    (sentence,) = junit_answers()
    assert sentence in result.outlines
    assert re.search(r"\bplain\b.*\ba\b.*\babsent\b.*no-such-tool", sentence)
    page = Path("page.html").read_text()
    assert sentence.partition(": ")[0] in page.partition("</h1>")[0]
    assert "write=3" in page
    assert "Write what it is given." in page


def test_results_tell_a_test_that_fails_by_its_limits_from_one_that_fails_itself(project: Project) -> None:
    project.write(TEST + "        assert cost != 2000\n")
    project.run("--fsstack-rounds=5", "--fsstack-budget=seconds <= 0.0001", "--fsstack-report=json=r.json")
    tests = loads(Path("r.json").read_text()).tests.values()
    failed = {(test.step, test.stack): test.by_limits for test in tests if test.outcome == "failed"}
    assert failed["write", "a"]
    assert not failed["delete", "b"]


def test_a_weight_of_an_unknown_step_is_refused_before_the_first_round(project: Project) -> None:
    project.write(TEST)
    result = project.run("--fsstack-weights=wriet=3")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert any("'wriet'" in line and "'write'" in line for line in result.stderr.lines)


def test_weights_in_an_ini_fail_no_session_without_their_steps(project: Project) -> None:
    project.write(TEST)
    project.pytester.makeini("[pytest]\nfsstack_weights = wriet=3, write=0\n")
    assert project.run(*REPORTS, "-k", "write").ret == pytest.ExitCode.OK
    assert junit_answers()


@pytest.mark.parametrize("text", ["write", "write=-1", "write=1, write=2", "=1", "write=x", ""])
def test_a_weight_that_is_written_wrongly_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="STEP=WEIGHT"):
        options.named("weights").read(text)


@pytest.mark.parametrize("crash", [CRASH, CRASH_EARLY])
def test_a_session_that_broke_says_so_first_everywhere(project: Project, crash: str) -> None:
    project.pytester.makeconftest(LAYERS + crash)
    project.write(TEST)
    assert project.run(*REPORTS).ret == pytest.ExitCode.INTERNAL_ERROR
    error = "RuntimeError: the rack lost power"
    assert error in junit_answers()[0]
    assert error in Path("page.html").read_text().partition("</h1>")[0]


def test_what_the_comparison_with_earlier_runs_found_is_in_all_reports(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    project.write(TEST)
    project.run("--fsstack-rounds=5", "--fsstack-ci=off", "--fsstack-json=old.json")
    result = project.run(*REPORTS, "--fsstack-compare=old.json", "--fsstack-report=markdown=report.md")
    assert junit_answers()[0].partition(": ")[0] in Path("summary.md").read_text().splitlines()[0]
    for text in (result.stdout.str(), *(Path(name).read_text() for name in ("page.html", "report.md", "summary.md"))):
        assert re.search(r"\bthen\b.*\b1 run\b", text)
        # Both figures of a series, each with its overhead.
        assert re.search(r"\bwrite on b\b.*[x+]\d.*[x+]\d", text)


DEPENDS = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestIt:
    def test_one(self, timed, fsstack):
        with timed(cold=False):
            pass
        assert fsstack.stack.id == "plain", "lost a file"

    def test_two(self, timed):
        with timed(cold=False):
            pass
"""


def test_what_depends_on_a_failed_step_says_why_in_its_first_line(project: Project) -> None:
    project.write(DEPENDS)
    words = ("--fsstack-rounds=2", "--fsstack-json=out.json", "--fsstack-report=ktap=ktap.txt", "-k", "two")
    result = project.run(*words, "--fsstack-ci=auto")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (failed,) = [line for line in result.outlines if line.startswith("ERROR ")]
    assert "two[crypt]" in failed
    texts = [test["text"] for test in json.loads(Path("out.json").read_text())["tests"].values() if test["text"]]
    assert texts
    assert all(re.search(r"one .*failed on crypt.*lost a file", text) for text in texts)
    assert re.search("crypt.*lost a file", Path("ktap.txt").read_text())
    (annotation,) = [line for line in project_annotations(project, *words) if "two" in line]
    assert "lost a file" in annotation


def project_annotations(project: Project, *words: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_ACTIONS", "true")
        return [line for line in project.run(*words).outlines if line.startswith("::error")]


FAILS = """
import pytest

def test_plain():
    assert not "plain and broken"

@pytest.mark.fsstack("plain", "crypt")
class TestIt:
    @pytest.mark.fsstack_budget("5000%")
    def test_one(self, timed):
        with timed(cold=False):
            pass

@pytest.mark.fsstack("plain", "crypt")
class TestOther:
    @pytest.fixture
    def server(self):
        yield
        raise OSError("the server hangs")

    def test_two(self, timed, server):
        with timed(cold=False):
            pass
"""


def test_kept_limits_are_no_headline_beside_failures(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(Path("summary.md").absolute()))
    project.write(FAILS)
    result = project.run("--fsstack-rounds=6", *REPORTS[1:])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    headlines = [
        junit_answers()[0],
        re.findall("<h1>(.*?)</h1>", Path("page.html").read_text())[0],
        Path("summary.md").read_text().splitlines()[0],
    ]
    assert headlines[0] in result.outlines
    for headline in headlines:
        failed, kept = headline.index("failed (two on"), headline.index("limit is kept")
        assert failed < headline.index("the server hangs") < headline.index("test_plain") < kept
