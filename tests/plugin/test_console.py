"""What a session prints for machines that read its console."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugin.conftest import Project

TEST = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestIt:
    def test_write(self, timed, fsstack):
        with timed():
            (fsstack.path / "file").write_bytes(bytes(4096))
"""


@pytest.mark.parametrize("form", ["ktap", "lava"])
def test_the_console_has_what_the_report_has_below_the_tables(project: Project, form: str) -> None:
    project.write(TEST)
    result = project.run("--fsstack-rounds=1", f"--fsstack-console={form}", f"--fsstack-report={form}=lines.txt")
    assert result.ret == 0
    lines = Path("lines.txt").read_text().splitlines()
    first = {"ktap": "KTAP version 1", "lava": "<LAVA_SIGNAL_TESTCASE TEST_CASE_ID="}[form]
    assert lines[0].startswith(first)
    start = result.outlines.index(lines[0])
    assert result.outlines[start : start + len(lines)] == lines
    assert any(line.startswith("plain") for line in result.outlines[:start])


def test_nobody_gets_them_unasked_and_a_wrong_form_is_refused(project: Project) -> None:
    project.write(TEST)
    result = project.run("--fsstack-console=tap")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fsstack-console: must be lava or ktap (got 'tap')"])
