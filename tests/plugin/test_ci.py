"""Output of a session for the CI that it runs in. Anywhere else, there is none."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_fsstack.plugin import ci
from tests.plugin.conftest import Project

#: The second stack costs far more, by a figure that is not the clock's.
TEST = """
import pytest


@pytest.mark.fsstack("plain", "crypt(cost=500)")
@pytest.mark.fsstack_budget("30%", metric="steps")
class TestIt:
    def test_write(self, timed, fsstack, cost):
        with timed():
            (fsstack.path / "file").write_bytes(bytes(4096))
        timed.record("steps", cost)


def test_other():
    assert False, "not ours"
"""
LINE = TEST.strip().split("\n").index("    def test_write(self, timed, fsstack, cost):") + 1
#: The line of its broken budget.
BROKEN = r"crypt-cost\.500: steps x5\.00 .*x5\.00.*x5\.00.* plain,.* x1\.3"


@pytest.fixture
def project(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    project.pytester.mkdir("repository")
    project.write(TEST)
    return project


def github(project: Project, monkeypatch: pytest.MonkeyPatch, summary: str) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project.pytester.path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", summary)


def gitlab(project: Project, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_PROJECT_DIR", str(directory))


def run(project: Project, *words: str) -> pytest.RunResult:
    result = project.run("--fsstack-rounds=5", *words)
    result.assert_outcomes(passed=1, failed=2)
    assert result.ret == 1
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    return result


def test_github_gets_a_summary_and_an_annotation(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    github(project, monkeypatch, "summary.md")
    Path("summary.md").write_text("# What an earlier command of the step wrote\n")
    result = run(project)
    errors = [line for line in result.outlines if line.startswith("::error")]
    name = "test_it.py%3A%3ATestIt%3A%3Atest_write[crypt-cost.500]"
    assert len(errors) == 1
    assert re.fullmatch(re.escape(f"::error file=test_it.py,line={LINE},title={name}::") + BROKEN, errors[0])
    first, *rest = Path("summary.md").read_text().splitlines()
    assert first == "# What an earlier command of the step wrote"
    assert re.match(r"\*\*.*limit.*\(.*write.*crypt-cost\.500", rest[0])
    assert any(re.match(r"## test_it\.py::TestIt .*dir:", line) for line in rest)
    assert any("| crypt-cost.500" in line and "FAIL" in line for line in rest)


@pytest.mark.parametrize("file", ["no/such/directory/summary.md", "."])
def test_a_summary_that_cannot_be_written_is_a_line(
    project: Project, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    github(project, monkeypatch, file)
    said = [line for line in run(project).outlines if "GITHUB_STEP_SUMMARY" in line]
    assert len(said) == 1
    assert said[0].startswith("fsstack: GITHUB_STEP_SUMMARY: ")
    assert not Path(file).is_file()


def test_gitlab_gets_its_reports(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    gitlab(project, monkeypatch, project.pytester.path)
    run(project)
    (entry,) = json.loads(Path(ci.GITLAB_CODE_QUALITY).read_text())
    test = re.escape("test_it.py::TestIt::test_write[crypt-cost.500]: ")
    assert re.fullmatch(test + BROKEN, entry["description"])
    assert entry["location"] == {"path": "test_it.py", "lines": {"begin": LINE}}
    metrics = Path(ci.GITLAB_METRICS).read_text().splitlines()
    assert metrics[-1] == "# EOF"
    assert any('fsstack_verdict="fail"' in line and line.endswith(" 1") for line in metrics)


def test_reports_that_cannot_be_written_are_a_line_each(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    gitlab(project, monkeypatch, Path("/proc/nothing/here"))
    said = [line for line in run(project).outlines if line.startswith("fsstack: gitlab=")]
    assert len(said) == 2
    for line, name in zip(sorted(said), sorted([ci.GITLAB_CODE_QUALITY, ci.GITLAB_METRICS])):
        assert f"/{name}: " in line
        assert line.endswith(os.strerror(errno.ENOENT))


def test_nothing_is_given_elsewhere_or_if_it_is_forbidden(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(name.startswith(("GITHUB_", "GITLAB_", "CI_")) for name in os.environ), "see tests/conftest.py"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    gitlab(project, monkeypatch, project.pytester.path)
    result = run(project, "--fsstack-ci=off")
    monkeypatch.delenv("GITLAB_CI")
    assert "::error" not in result.stdout.str() + run(project).stdout.str()
    there = {path.name for path in project.pytester.path.iterdir()}
    assert not there & {"summary.md", ci.GITLAB_CODE_QUALITY, ci.GITLAB_METRICS}


def test_a_session_without_stacks_gives_nothing(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    pytester.makepyfile("def test_it(): assert False")
    assert "::error" not in pytester.runpytest_subprocess("-p", "no:cacheprovider").stdout.str()
    assert not Path("summary.md").exists()


def test_junit_shows_where_what_and_how_much(project: Project) -> None:
    # GitLab reads classname, name and file, which only the family xunit1 has; Jenkins keeps properties.
    run(project, "--junitxml=junit.xml", "-o", "junit_family=xunit1")
    cases = {case.get("name"): case for case in ElementTree.parse("junit.xml").iter("testcase")}
    broken, kept = cases["test_write[crypt-cost.500]"], cases["test_write[plain]"]
    for case in broken, kept:
        assert (case.get("classname"), case.get("file")) == ("test_it.TestIt", "test_it.py")
    properties = {each.get("name"): each.get("value") or "" for each in broken.iter("property")}
    assert properties["fsstack_verdict"] == "fail"
    assert float(properties["fsstack_steps_estimate"]) == pytest.approx(4.0)
    assert float(properties["fsstack_steps_low"]) <= float(properties["fsstack_steps_high"])
    assert re.fullmatch(f"fail: {BROKEN.partition(': ')[2]}", properties["fsstack_summary"])
    failure = broken.find("failure")
    assert failure is not None
    first = (failure.get("message") or "").splitlines()[0]
    assert re.fullmatch(f"Failed: {BROKEN}", first)
    assert len(first) <= 80
    assert kept.find("failure") is None


FAILED_ASSERTION = """
import pytest

@pytest.mark.fsstack("plain")
class TestReal:
    def test_real(self, fsstack, timed):
        with timed():
            pass
        assert fsstack.path.name == "other", "the tree is not there"
"""


def test_a_failed_assertion_is_shown_by_its_first_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.write(FAILED_ASSERTION)
    github(project, monkeypatch, "summary.md")
    (error,) = [line for line in project.run("--fsstack-rounds=1").outlines if line.startswith("::error")]
    assert error.partition("title=")[2].partition("::")[2].startswith("AssertionError: the tree is not there")


INTERRUPTED = """
import os, signal
import pytest

@pytest.mark.fsstack("plain", "crypt")
def test_broken(fsstack, timed):
    with timed(cold=False):
        pass
    assert fsstack.stack.id != "crypt"

@pytest.mark.fsstack("plain", "crypt")
def test_it(fsstack, timed, fsstack_seed, log):
    log("ran")
    with timed(cold=False):
        pass
    if fsstack.stack.id == "crypt":
        {how}
"""


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("os.kill(os.getpid(), signal.SIGINT)", 130),
        ("os.kill(os.getpid(), signal.SIGINT); os.kill(os.getpid(), signal.SIGINT)", 130),
        ("raise KeyboardInterrupt", 2),
        ("pytest.exit('enough', returncode=9)", 9),
    ],
)
@pytest.mark.parametrize("words", [[], ["--no-summary"]], ids=["summary", "no-summary"])
def test_a_session_that_is_ended_gives_all_its_reports(
    project: Project, monkeypatch: pytest.MonkeyPatch, how: str, status: int, words: list[str]
) -> None:
    project.write(INTERRUPTED.format(how=how))
    github(project, monkeypatch, "summary.md")
    reports = ["--fsstack-json=out.json", "--fsstack-report=html=page.html", "--junitxml=junit.xml"]
    result = project.run("--fsstack-rounds=2", *reports, *words)
    assert result.ret == status
    assert sum("::error file=test_it.py" in line for line in result.outlines) == 1
    assert "test_it.py::test_broken" in Path("summary.md").read_text()
    assert all(Path(name).stat().st_size for name in ("out.json", "page.html", "junit.xml"))


def test_a_session_that_ends_before_a_test_failed_is_annotated(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write(INTERRUPTED.format(how="os.kill(os.getpid(), signal.SIGTERM)"))
    github(project, monkeypatch, "summary.md")
    result = project.run("--fsstack-rounds=2", "-k", "not broken")
    (error,) = [line for line in result.outlines if line.startswith("::error")]
    assert "SIGTERM" in error
    assert "SIGTERM" in Path("summary.md").read_text()


def test_an_internal_error_leaves_no_report_out(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with (project.pytester.path / "conftest.py").open("a") as file:
        file.write("\n\ndef pytest_runtest_logfinish(nodeid):\n    assert 'write[crypt' not in nodeid, 'not ours'\n")
    github(project, monkeypatch, "summary.md")
    result = project.run("--fsstack-rounds=5", "--fsstack-json=out.json")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    assert any(line.startswith("::error") for line in result.outlines)
    assert Path("summary.md").stat().st_size
    assert Path("out.json").stat().st_size
