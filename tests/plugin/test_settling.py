"""--fsstack-settle: what happens between two stacks, and where it is shown."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from tests.plugin.conftest import Project

TEST = """
import time
import pytest

@pytest.mark.fsstack("plain", "crypt")
@pytest.mark.benchmark
def test_step(fsstack, timed, log):
    log(time.monotonic())
    with timed(cold=False):
        pass
"""
NEVER_QUIET = """
from pytest_fsstack.measuring.settling import Settle

Settle.rest = lambda self, place: "not quiet within 60 s: sdx writes"
"""


def test_a_pause_is_between_stacks_and_in_the_header_the_dry_run_and_the_environment(project: Project) -> None:
    project.write(TEST)
    project.pytester.makeini("[pytest]\nfsstack_settle = 0.2\n")
    result = project.run("--fsstack-rounds=2", "--fsstack-json=all.json")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["fsstack: * 0.2 s"])
    starts = [float(line.split()[0]) for line in project.log]
    assert len(starts) == 4
    assert all(later - earlier >= 0.2 for earlier, later in pairwise(starts))
    saved = json.loads((project.pytester.path / "all.json").read_text())
    assert saved["environment"]["settings"]["settle"] == "0.2 s"
    project.run("--fsstack-dry-run").stdout.fnmatch_lines(["  *: * 0.2 s"])


def test_a_device_that_never_rests_is_said_once_and_counted(project: Project) -> None:
    project.write(NEVER_QUIET + TEST)
    result = project.run("--fsstack-rounds=2", "--fsstack-settle=idle", "--fsstack-json=all.json")
    result.assert_outcomes(passed=2)
    assert result.stdout.str().count("sdx writes") == 1
    result.stdout.fnmatch_lines(["settle *idle* 3 *"])
    saved = json.loads((project.pytester.path / "all.json").read_text())
    assert saved["environment"]["settings"] == {"settle": "idle", "not_settled": 3}


@pytest.mark.parametrize(("word", "says"), [("discard", "block device"), ("soon", "0 * 3600 * soon")])
def test_what_cannot_be_is_one_line(project: Project, word: str, says: str) -> None:
    project.write(TEST)
    result = project.run(f"--fsstack-settle={word}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: --fsstack-settle: *{says}*"])
