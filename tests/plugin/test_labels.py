"""The run in a session's JSON: labels, times, scale and work. The JSON keeps to its schema."""

from __future__ import annotations

import json
import platform
from datetime import datetime

import pytest

from pytest_fsstack.records import saved
from tests.plugin.conftest import Project

TEST = """
import pytest
from pytest_fsstack import workload

@workload()
def idle(timed, fsstack, *, times=3):
    with timed(bytes=1000, cold=False):
        pass

@pytest.mark.fsstack("plain", "crypt")
def test_step(fsstack, timed):
    idle(timed, fsstack, times=5)
"""


def test_the_json_of_a_session_says_what_run_it_is_and_keeps_to_the_schema(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jsonschema

    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_COMMIT_SHA", "c0ffee")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(project.pytester.path.parent))
    project.pytester.makeini("[pytest]\nfsstack_label =\n    team=a\n    rack=b")
    project.write(TEST)
    words = ("--fsstack-label=team=storage", "--fsstack-label=ticket=7", "--fsstack-scale=paper")
    result = project.run("--fsstack-rounds=2", *words, "--fsstack-json=out.json")
    result.assert_outcomes(passed=2)
    content = json.loads((project.pytester.path / "out.json").read_text())
    jsonschema.Draft202012Validator(saved.schema()).validate(content)
    assert content["labels"] == {
        "ci": "gitlab",
        "commit": "c0ffee",
        "kernel": platform.release(),
        "team": "storage",
        "ticket": "7",
    }
    assert content["scale"] == "paper"
    start, stop = (datetime.fromisoformat(content[name]) for name in ("start", "stop"))
    assert start.tzinfo is not None
    assert start <= stop
    (work,) = content["chains"][0]["work"].values()
    assert work == {
        "bytes": 1000,
        "direction": "write",
        "cold": False,
        "workloads": [{"name": "idle", "options": {"times": 5}}],
    }
