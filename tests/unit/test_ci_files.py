"""The files in docs/ci, as far as they can be checked without the services that read them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_fsstack import options
from pytest_fsstack.command import read
from pytest_fsstack.plugin import ci
from pytest_fsstack.report import BUILT_IN
from tests.install import LAVA, LAVA_PACKAGE

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docs" / "ci").iterdir())
TMT = Path(sys.prefix, "bin/tmt")
CONTENT: dict[str, Any] = {file.name: yaml.safe_load(file.read_text()) for file in FILES}


def texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict):
        for value in content.values():
            yield from texts(value)
    elif isinstance(content, list):
        for value in content:
            yield from texts(value)


def commands(name: str) -> list[list[str]]:
    """The words of all that is run, from `pytest` or `fsstack` on."""
    scripts = []
    for text in texts(CONTENT[name]):
        words = shlex.split(text.replace("||", "#"), comments=True) if "--" in text or "fsstack doctor" in text else []
        words = [Path(word).name if word.endswith(("/pytest", "/fsstack")) else word for word in words]
        for program in "pytest", "fsstack":
            if program in words:
                scripts.append(words[words.index(program) :])
    return scripts


def test_there_is_a_file_for_each_ci_that_the_page_names() -> None:
    names = ["buildkite", "fuse", "github-matrix", "github", "gitlab", "hosts", "lava", "storage"]
    assert [Path(name).stem for name in CONTENT] == names
    page = (ROOT / "docs" / "ci.md").read_text()
    assert set(re.findall(r"\]\(ci/([\w.-]+)\)", page)) == set(CONTENT)


@pytest.mark.parametrize("name", CONTENT)
def test_every_word_of_ours_in_a_command_exists(name: str) -> None:
    known = {option.flags: option for option in options.OPTIONS}
    scripts = commands(name)
    assert any(words[0] == "pytest" for words in scripts)
    for words in scripts:
        if words[0] == "fsstack":
            assert read(words[1:]).place
        for word in words:
            if word.startswith("--fsstack-"):
                flag, _, value = word.partition("=")
                assert known[flag].flag == (not value)
                if value:
                    known[flag].read(value.replace("$TMT_TEST_DATA", "."))
                if flag == "--fsstack-report":
                    assert value.partition("=")[0] in BUILT_IN


@pytest.mark.parametrize("name", [name for name in CONTENT if name != "lava.yml"])
def test_each_is_a_gate_that_cannot_pass_without_having_judged(name: str) -> None:
    (gate,) = (words for words in commands(name) if words[0] == "pytest")
    assert {"--fsstack-strict", "--fsstack-if-unavailable=fail"} <= set(gate)


@pytest.mark.parametrize("name", ["buildkite.yml", "github-matrix.yml"])
def test_sessions_on_hosts_wait_for_their_disk_and_are_pooled(name: str) -> None:
    (session,) = (words for words in commands(name) if words[0] == "pytest")
    assert any(word.startswith("--fsstack-wait=") for word in session)
    assert any(word.startswith("--fsstack-label=host=") for word in session)
    (pool,) = (words for words in commands(name) if words[:2] == ["fsstack", "pool"])
    assert "--strict" in pool, "a host without results must fail"


def test_what_the_job_of_a_filesystem_writes_is_uploaded() -> None:
    job = (ROOT / "docs/ci/fuse.yml").read_text()
    files = re.findall(r"--(?:junitxml|fsstack-report=\w+|fsstack-counterexamples)=(\S+)", job)
    uploaded = job.partition("upload-artifact")[2].split()
    assert len(files) == 3, "JUnit, a page and the counterexamples"
    assert {*files} <= {*uploaded}


def test_authors_are_shown_how_to_measure_their_filesystem() -> None:
    assert re.search(r"^sudo \S*fsstack bench .*\bmyfs\b", (ROOT / "docs/for-authors.md").read_text(), re.M)


@pytest.mark.parametrize("name", ["fuse.yml", "github.yml", "github-matrix.yml"])
def test_a_workflow_of_github_is_one(name: str) -> None:
    workflow = CONTENT[name]
    # YAML 1.1 takes the key `on` for a truth value; GitHub does not.
    assert set(workflow) == {"name", True, "permissions", "jobs"}
    for step in (step for job in workflow["jobs"].values() for step in job["steps"]):
        assert ("run" in step) != ("uses" in step)
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


def test_the_workflow_of_github_stores_what_the_session_writes() -> None:
    (job,) = CONTENT["github.yml"]["jobs"].values()
    (store,) = (step["with"] for step in job["steps"] if "github-action-benchmark" in step.get("uses", ""))
    assert store["tool"] == "customSmallerIsBetter"
    written = [word for words in commands("github.yml") for word in words if "github-benchmark=" in word]
    assert written == [f"--fsstack-report=github-benchmark={store['output-file-path']}"]


def test_the_job_of_gitlab_names_what_a_session_writes_there() -> None:
    (job,) = CONTENT["gitlab.yml"].values()
    reports = job["artifacts"]["reports"]
    assert reports["codequality"] == ci.GITLAB_CODE_QUALITY
    assert reports["metrics"] == ci.GITLAB_METRICS
    (gate,) = (words for words in commands("gitlab.yml") if words[0] == "pytest")
    assert f"--junitxml={reports['junit']}" in gate
    assert "junit_family=xunit1" in gate
    assert job["artifacts"]["when"] == "always", "failures are what one wants to see"


@pytest.mark.parametrize("name", ["hosts.fmf", "storage.fmf"])
def test_the_plan_of_tmt_has_its_steps(name: str) -> None:
    # tmt's specification, "plans": these are all steps that there are, besides finish and cleanup.
    plan = CONTENT[name]
    steps = {"discover", "provision", "prepare", "execute", "report"}
    assert set(plan) == {"summary", "description", *steps}
    for step in steps:
        phases = plan[step] if isinstance(plan[step], list) else [plan[step]]
        assert all("how" in phase for phase in phases)
    assert all({"name", "test", "duration"} == set(test) for test in plan["discover"]["tests"])


#: The schemas that come with check-jsonschema, whose authors have them from the services.
SCHEMAS = {
    "buildkite": ["buildkite.yml"],
    "github-workflows": ["fuse.yml", "github-matrix.yml", "github.yml"],
    "gitlab-ci": ["--data-transform=gitlab-ci", "gitlab.yml"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_keep_the_schema_of_their_service(schema: str) -> None:
    pytest.importorskip("check_jsonschema", reason="needs check-jsonschema: pip install .[test]")
    command = [sys.executable, "-m", "check_jsonschema", f"--builtin-schema=vendor.{schema}", *SCHEMAS[schema]]
    checked = subprocess.run(command, cwd=ROOT / "docs/ci", capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_job_of_lava_keeps_its_schema() -> None:
    validate = "import sys, yaml; from lava_common.schemas import validate; validate(yaml.safe_load(sys.stdin))"
    if not LAVA.exists():
        pytest.skip(f"needs {LAVA_PACKAGE}: tox -e laboratory installs it")
    with (ROOT / "docs/ci/lava.yml").open() as job:
        checked = subprocess.run(["/usr/bin/python3", "-c", validate], stdin=job, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(not TMT.exists(), reason="tmt is not installed: pip install tmt")
@pytest.mark.parametrize("name", ["hosts.fmf", "storage.fmf"])
def test_tmt_itself_accepts_the_plan(tmp_path: Path, name: str) -> None:
    (tmp_path / "plans").mkdir()
    shutil.copy(ROOT / "docs" / "ci" / name, tmp_path / "plans")
    subprocess.run([TMT, "init"], cwd=tmp_path, check=True, capture_output=True)
    linted = subprocess.run([TMT, "lint"], cwd=tmp_path, capture_output=True, text=True)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_the_job_of_lava_has_its_actions_and_no_step_ends_the_others() -> None:
    job = CONTENT["lava.yml"]
    assert {"job_name", "timeouts", "visibility", "actions", "device_type"} <= set(job)
    assert [next(iter(action)) for action in job["actions"]] == ["deploy", "boot", "test"]
    (definition,) = job["actions"][2]["test"]["definitions"]
    assert definition["from"] == "inline"
    metadata = definition["repository"]["metadata"]
    assert metadata["format"] == "Lava-Test Test Definition 1.0"
    assert re.fullmatch(r"[A-Za-z0-9_.-]+", metadata["name"])
    # A step whose exit code nothing reports would make a job green that measured nothing.
    assert all(step.startswith("lava-test-case ") for step in definition["repository"]["run"]["steps"])
    assert "--fsstack-console=lava" in commands("lava.yml")[0]
