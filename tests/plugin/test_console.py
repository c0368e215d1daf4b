"""Output of a session for machines that read its console."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fsstack.records import saved
from pytest_fsstack.report import BUILT_IN
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


MISBEHAVING = """
import pytest

@pytest.mark.fsstack("plain", "crypt")
class TestIt:
    def test_write(self, timed, fsstack):
        with timed():
            (fsstack.path / "file").write_bytes(bytes(4096))
        if fsstack.stack.id == "crypt":
            assert (fsstack.path / "file").read_bytes() == b"other"

@pytest.mark.fsstack("plain", "crypt")
def test_before_its_block(timed, fsstack):
    assert fsstack.stack.id == "plain"
    with timed():
        pass

@pytest.mark.fsstack("plain")
def test_that_measures_nothing(fsstack):
    assert fsstack.path.name == "other"
"""


def test_the_outcome_of_the_test_decides_on_a_console(project: Project) -> None:
    project.write(MISBEHAVING)
    result = project.run(
        *("--fsstack-rounds=1", "--fsstack-console=ktap", "--fsstack-report=lava=lava.txt", "--fsstack-json=out.json")
    )
    result.assert_outcomes(passed=2, failed=3)
    ktap = [line.strip() for line in result.outlines if re.match(r" *(not )?ok ", line)]
    assert "ok 1 write on plain" in ktap
    assert "not ok 2 write on crypt" in ktap
    assert "not ok 2 before_its_block on crypt" in ktap
    assert any(line.startswith("not ok") and "test_that_measures_nothing" in line for line in ktap)
    lava = Path("lava.txt").read_text()
    assert "test_it.py.test_before_its_block.before_its_block.crypt RESULT=fail" in lava
    assert "test_it.py.TestIt.write.plain.seconds RESULT=pass" in lava
    assert "test_it.py.test_that_measures_nothing-plain RESULT=fail" in lava
    assert not re.search("write.crypt.* RESULT=pass", lava)
    for form, text in ("ktap", ktap), ("lava", lava.splitlines()):
        reread = BUILT_IN[form](saved.loads(Path("out.json").read_text())).splitlines()
        assert set(text) <= {line.strip() for line in reread}


def test_a_test_that_measures_nothing_is_on_a_console_if_it_passes(project: Project) -> None:
    project.write("import pytest\n\n@pytest.mark.fsstack('plain')\ndef test_it(fsstack):\n    pass\n" + TEST)
    words = ("--fsstack-rounds=1", "--fsstack-console=ktap", "--fsstack-report=lava=lava.txt", "--fsstack-json=o.json")
    result = project.run(*words)
    result.assert_outcomes(passed=3)
    assert "ok 1 test_it.py::test_it[plain]" in [line.strip() for line in result.outlines]
    assert "TEST_CASE_ID=test_it.py.test_it-plain RESULT=pass" in Path("lava.txt").read_text()
    chains = {test.id: test.chain for test in saved.loads(Path("o.json").read_text()).tests.values()}
    assert chains["test_it.py::test_it[plain]"] == ""
    assert chains["test_it.py::TestIt::test_write[plain]"] == "test_it.py::TestIt"
