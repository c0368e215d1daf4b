"""Findings in CI: GitHub's workflow commands and GitLab's code quality report, as they are documented."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from pytest_fsstack.records.results import Results, TestOutcome
from pytest_fsstack.report import findings
from tests.unit.report.results import made

TEXT = "xfs: seconds +50 % (40 to 60 %) over ext4, budget 30 %\nx"
BROKEN = TestOutcome("t.py::test_x[a,b:c]", "failed", TEXT, "tests/t.py", 12)


def test_a_workflow_command_is_one_line_with_everything_escaped() -> None:
    (line,) = findings.github([BROKEN])
    assert line == (
        "::error file=tests/t.py,line=12,title=t.py%3A%3Atest_x[a%2Cb%3Ac]::"
        "xfs: seconds +50 %25 (40 to 60 %25) over ext4, budget 30 %25%0Ax"
    )


def test_a_test_outside_of_the_repository_has_no_place() -> None:
    (line,) = findings.github([TestOutcome("t", "failed", "x")])
    assert line == "::error title=t::x"


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (10, 10), (11, 10), (50, 10)])
def test_no_more_than_github_shows(count: int, lines: int) -> None:
    found = findings.github([BROKEN] * count)
    assert len(found) == lines
    if count > lines:
        assert re.fullmatch(rf"::error title=fsstack::\D*{count - lines + 1}\D*", found[-1])


@pytest.mark.parametrize("room", [10**6, 2000, 300, 60, 10, 0, -5])
def test_a_summary_is_never_larger_than_its_room(room: int) -> None:
    results: Results = made()
    whole = findings.github_summary(results, 10**9)
    text = findings.github_summary(results, room)
    assert len(text.encode()) <= max(0, room)
    if room < len(whole.encode()):
        kept, _, told = text.rpartition("\n\n")
        assert whole.startswith(kept)
        assert text == "" or (told not in whole and "log" in told)
    else:
        assert text == whole


def test_gitlab_gets_an_entry_a_failure() -> None:
    # docs.gitlab.com/ci/testing/code_quality/, "Code Quality report format".
    found = json.loads(findings.gitlab([BROKEN, TestOutcome("other.py::test", "failed", "x")]))
    for entry in found:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert re.fullmatch("[0-9a-f]{64}", entry["fingerprint"])
        assert entry["location"]["lines"]["begin"] >= 1
    assert found[0]["location"] == {"path": "tests/t.py", "lines": {"begin": 12}}
    assert found[1]["location"]["path"] == "other.py"
    assert len({entry["fingerprint"] for entry in found}) == 2
    assert json.loads(findings.gitlab([])) == []


def test_the_fingerprint_stays_when_the_figures_change() -> None:
    changed = replace(BROKEN, line=99, text="xfs: seconds +51 %")
    first, second = (json.loads(findings.gitlab([each]))[0]["fingerprint"] for each in (BROKEN, changed))
    assert first == second
