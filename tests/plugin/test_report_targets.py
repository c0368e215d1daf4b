"""Report files that cannot be written, and reports that raise: nothing that was measured is lost."""

from __future__ import annotations

import json
import os

import pytest

from tests.plugin.conftest import LAYERS, Project

TEST = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.benchmark
def test_step(fsstack, timed, log):
    log("ran")
    with timed(cold=False):
        pass
"""

BAD_REPORT = """
def pytest_fsstack_reports():
    def bad(results):
        raise RuntimeError("no such colour\\nin line two")
    return {"bad": bad, "none": lambda results: None}
"""


@pytest.mark.parametrize(
    "target", ["json={}", "csv={}/missing/out.csv", "html={}/" + "x" * 300, "html={}/" + "x" * 300 + "/out"]
)
def test_a_target_that_cannot_be_written_is_refused_before_the_first_round(project: Project, target: str) -> None:
    project.write(TEST)
    directory = project.pytester.mkdir("reports")
    result = project.run("--fsstack-rounds=2", f"--fsstack-report={target.format(directory)}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = [line for line in result.stderr.lines if line]
    assert len(errors) == 1
    assert errors[0].startswith("ERROR: --fsstack-report: ")
    assert not (project.pytester.path / "log").exists()
    assert not list(directory.iterdir())


def test_a_report_that_raises_is_one_line_after_the_tables_and_the_others_are_written(project: Project) -> None:
    project.pytester.makeconftest(LAYERS + BAD_REPORT)
    project.write(TEST)
    reports = ("--fsstack-report=bad=bad.txt", "--fsstack-report=none=none.txt", "--fsstack-report=csv=out.csv")
    result = project.run("--fsstack-rounds=2", *reports)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "crypt  *",
            "fsstack: bad=bad.txt: *RuntimeError: no such colour in line two",
            "fsstack: none=none.txt: *",
            "fsstack: * csv * out.csv",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert not (project.pytester.path / "bad.txt").exists()
    assert (project.pytester.path / "out.csv").exists()


def test_a_target_that_is_lost_on_the_way_does_not_hide_the_tables(project: Project) -> None:
    project.pytester.mkdir("reports")
    project.write(TEST + "    import shutil\n    shutil.rmtree('reports', ignore_errors=True)\n")
    result = project.run("--fsstack-rounds=2", "--fsstack-json=reports/out.json", "--fsstack-report=csv=out.csv")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "crypt  *",
            "fsstack: * csv * out.csv",
            "fsstack: json=reports/out.json: *No such file or directory",
        ]
    )


def test_reports_are_written_without_a_summary_too(project: Project) -> None:
    project.write(TEST)
    result = project.run("--fsstack-rounds=2", "--fsstack-json=out.json", "--no-summary")
    assert result.ret == pytest.ExitCode.OK
    assert json.loads((project.pytester.path / "out.json").read_text())["chains"]


def test_a_name_that_is_no_text_is_no_reason_to_lose_a_report(project: Project) -> None:
    project.write(TEST)
    name = os.fsdecode(b"\xff.json")
    result = project.run("--fsstack-rounds=2", f"--fsstack-json={name}")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines([r"fsstack: * json * \xff.json"])
    assert json.loads((project.pytester.path / name).read_text())["chains"]


@pytest.mark.parametrize(("option", "mark"), [("-v", ""), ("-x", "stopping after 1 failures")])
def test_the_json_marks_a_session_that_was_ended_early(project: Project, option: str, mark: str) -> None:
    project.write(TEST + "    assert fsstack.stack.id == 'plain'\n")
    result = project.run("--fsstack-rounds=2", "--fsstack-json=out.json", option)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert json.loads((project.pytester.path / "out.json").read_text())["interrupted"] == mark


def test_the_json_of_what_ctrl_c_leaves_is_marked(project: Project) -> None:
    project.write(TEST + "    if len(open('log').readlines()) == 5:\n        raise KeyboardInterrupt\n")
    result = project.run("--fsstack-rounds=4", "--fsstack-json=out.json")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    content = json.loads((project.pytester.path / "out.json").read_text())
    assert content["interrupted"] == "interrupted"
    # What ran of the mixed rounds is there.
    assert sum(map(len, content["chains"][0]["orders"])) == 4
