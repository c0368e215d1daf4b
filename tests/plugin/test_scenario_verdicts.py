"""A broken promise fails a scenario; a known fault of a layer is expected, and must show after enough attempts."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import Project

TEST = """
import pytest
from pytest_fsstack.correctness import verdict

@pytest.mark.fsstack("plain", "crypt")
def test_promise(request, fsstack, timed):
    {faults}
    with timed(cold=False):
        (fsstack.path / "file").write_text("x")
    verdict.conclude(request.node, timed, fsstack, {broken!r} * (fsstack.stack.id == "crypt"), enough={enough})
"""
FAULTS = 'type(fsstack.stack.layers[-1]).faults = {"scenario": "its issue 7"} if fsstack.stack.id == "crypt" else {}'
SECOND = '\n    assert not request.node.get_closest_marker("xfail"), "in the second round"'


@pytest.mark.parametrize(
    ("faults", "broken", "enough", "outcomes"),
    [
        ("pass", "data are gone", True, {"failed": 1, "passed": 1}),
        ("pass", "", True, {"passed": 2}),
        (FAULTS, "data are gone", True, {"xfailed": 1, "passed": 1}),
        (FAULTS.replace("scenario", "scenario::test_promise"), "data are gone", True, {"xfailed": 1, "passed": 1}),
        (FAULTS.replace("scenario", "scenario::test_other"), "data are gone", True, {"failed": 1, "passed": 1}),
        # It was mended, or there were too few attempts to tell.
        (FAULTS, "", True, {"failed": 1, "passed": 1}),
        (FAULTS, "", False, {"xpassed": 1, "passed": 1}),
        # Another error is not the known fault.
        (FAULTS + SECOND, "data are gone", True, {"failed": 1, "passed": 1}),
    ],
)
def test_a_broken_promise_fails_unless_it_is_a_known_fault(
    project: Project, faults: str, broken: str, enough: bool, outcomes: dict[str, int]
) -> None:
    project.pytester.makepyfile(test_scenario=TEST.format(faults=faults, broken=broken, enough=enough))
    result = project.run("--fsstack-rounds=2")
    result.assert_outcomes(**outcomes)
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if "failed" in outcomes else pytest.ExitCode.OK)
