"""A fault costs at most the current round on one host, which the report names.

The fixture `laboratory` asserts after each test that sessions have left no mount, loop device or process behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.machine import commands
from tests.laboratory.conftest import ROOT, Laboratory

pytestmark = pytest.mark.root

#: Enough to be amid a session for some seconds.
# With a rule that could discard rounds, each round has its own line in the log.
WORDS = ("--fsstack-rounds=5", "--fsstack-drop-rounds=load>1000000", "test_write.py")


def finish(run: subprocess.Popen[str], code: int) -> str:
    output, _ = run.communicate(timeout=600)
    assert run.returncode == code, output
    return output


def pooled(laboratory: Laboratory, directory: str = "run") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((laboratory.directory / directory / "pool.json").read_text())
    return content


def rounds_of(content: dict[str, Any], host: str) -> int:
    return max(
        int(figure["rounds"]) for series in content["series"] for figure in series["hosts"] if figure["host"] == host
    )


def problems_of(content: dict[str, Any], host: str) -> str:
    return "; ".join(
        [
            *(
                problem
                for host_facts in content["hosts"]
                if host_facts["name"] == host
                for problem in host_facts["problems"]
            )
        ]
        + [reason for name, reason in content["unreadable"].items() if host in name]
    )


def session_of(laboratory: Laboratory, host: str) -> int:
    """Return the process of the session that a host runs."""
    place = str(laboratory.on_host(host) / "run.json")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0")
        if any(word.decode(errors="replace").endswith(place) for word in words) and b"pytest" in words:
            return int(path.parent.name)
    raise AssertionError(f"no session on {host}")


def test_a_killed_session_has_its_rounds_and_leaves_nothing(laboratory: Laboratory) -> None:
    laboratory.write("node1", "node2", seconds=0.3)
    with laboratory.start(*WORDS) as run:
        log = laboratory.wait_for_rounds("node1")
        assert commands.wait_until(lambda: bool(laboratory.cluster.loops()), 60), "no loop device that may be left"
        os.kill(session_of(laboratory, "node1"), signal.SIGKILL)
        rounds = len(log.read_bytes().splitlines())
        output = finish(run, 1)
    content = pooled(laboratory)
    assert "node1: exit code 137" in output
    assert rounds_of(content, "node2") == 5
    assert rounds - 1 <= rounds_of(content, "node1") <= rounds
    assert problems_of(content, "node1")
    assert not problems_of(content, "node2")


def test_a_lost_node_is_fetched_when_it_is_back(laboratory: Laboratory) -> None:
    laboratory.write("node1", "node2", seconds=0.3)
    with laboratory.start(*WORDS) as run:
        log = laboratory.wait_for_rounds("node2")
        laboratory.cluster.kill("node2")
        os.kill(session_of(laboratory, "node2"), signal.SIGSTOP)
        rounds = len(log.read_bytes().splitlines())
        output = finish(run, 1)
    assert "node2: node fail" in output
    host = laboratory.hosts()["node2"]
    assert host.job
    assert not host.fetched
    assert host.problem
    assert f"node2: {host.problem}" in output
    assert "node2" in pooled(laboratory)["unreadable"]
    # Slurm ends on it what it gave up before.
    laboratory.cluster.recover()
    assert commands.wait_until(lambda: not laboratory.cluster.sessions(), 60)
    fetched = laboratory.lab("fetch", "run")
    assert fetched.returncode == 1, fetched.stdout + fetched.stderr
    assert rounds_of(pooled(laboratory), "node1") == 5
    assert rounds_of(pooled(laboratory), "node2") == rounds
    assert problems_of(pooled(laboratory), "node2")


#: How far a run has come.
EARLY = pytest.mark.parametrize("early", [True, False], ids=["while it sends", "while it waits"])


def wait_for_begin(laboratory: Laboratory, early: bool) -> None:
    """Wait until a run sends its files, or until a session has some rounds."""
    if early:
        commands.wait_until((laboratory.directory / "run/run.json").exists, 60)
    else:
        laboratory.wait_for_rounds("node1")


@EARLY
def test_a_controller_that_is_started_again_costs_nothing(laboratory: Laboratory, early: bool) -> None:
    laboratory.write("node1", "node2", seconds=0.3)
    with laboratory.start(*WORDS) as run:
        wait_for_begin(laboratory, early)
        laboratory.cluster.kill("slurmctld")
        # Commands of Slurm fail after nine seconds.
        time.sleep(15)
        laboratory.cluster.start_controller()
        finish(run, 0)
    assert [rounds_of(pooled(laboratory), name) for name in ("node1", "node2")] == [5, 5]


@EARLY
def test_a_run_goes_on_after_its_process_was_killed(laboratory: Laboratory, early: bool) -> None:
    laboratory.write("node1", "node2", seconds=0.3)
    with laboratory.start(*WORDS) as run:
        wait_for_begin(laboratory, early)
        run.kill()
    with laboratory.start() as run:
        finish(run, 0)
    jobs = laboratory.cluster.run("squeue", "-h", "-t", "all", f"--name={laboratory.state().state.name}", "-o", "%n")
    assert sorted(jobs.split()) == ["node1", "node2"]
    assert [rounds_of(pooled(laboratory), name) for name in ("node1", "node2")] == [5, 5]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A filesystem for a host's directory, which a session fills."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48K", "none", directory], check=True)
    yield directory
    subprocess.run(["umount", directory], check=True)


def test_a_full_disk_costs_the_round_that_did_not_fit(laboratory: Laboratory, small: Path) -> None:
    laboratory.write("node1", "node2")
    # On each stack in each round, both hosts append a letter to a file elsewhere.
    steps, test = laboratory.directory / "steps", laboratory.directory / "test_write.py"
    test.write_text(f"{test.read_text()}    with open({str(steps)!r}, 'a') as steps:\n        steps.write('x')\n")
    text = (laboratory.directory / "LAB.toml").read_text()
    text = text.replace('name = "node2"', f'name = "node2"\ndirectory = "{small}"')
    (laboratory.directory / "LAB.toml").write_text(text)
    # The node started before this was mounted.
    laboratory.inside("node2", "mount", "-t", "tmpfs", "-o", "size=48K", "none", str(small))
    try:
        with laboratory.start("--fsstack-rounds=12", "test_write.py") as run:
            output = finish(run, 1)
    finally:
        laboratory.inside("node2", "umount", str(small))
    assert rounds_of(pooled(laboratory), "node1") == 12
    assert problems_of(pooled(laboratory), "node2"), output
    # The session ended with the round that did not fit.
    rounds = rounds_of(pooled(laboratory), "node2")
    assert 0 < rounds < 11
    assert len(steps.read_text()) == 2 * (12 + rounds + 1)


def test_two_runs_have_a_disk_one_after_the_other(laboratory: Laboratory) -> None:
    laboratory.write("node1")
    with laboratory.start(*WORDS, directory="one") as one, laboratory.start(*WORDS, directory="two") as two:
        finish(one, 0)
        finish(two, 0)
    places = [laboratory.on_host("node1", name) for name in ("one", "two")]
    begun = [json.loads((place / "run.json").read_text())["environment"]["date"] for place in places]
    ended = [(place / "exit").stat().st_mtime for place in places]
    assert datetime.fromisoformat(max(begun)).timestamp() >= int(min(ended))


def test_a_disk_that_another_session_has_is_waited_for(laboratory: Laboratory) -> None:
    laboratory.write("node1")
    disk = laboratory.cluster.disks["node1"]
    command = [sys.executable, "-m", "pytest", f"--fsstack-device={disk}", "--fsstack-rounds=12", "test_write.py"]
    with subprocess.Popen(command, cwd=laboratory.directory, env=laboratory.environment) as other:
        with laboratory.start(*WORDS, "--fsstack-wait=200") as run:
            finish(run, 0)
        assert other.wait(60) == 0


def test_a_clock_that_is_wrong_by_hours_changes_no_figure(laboratory: Laboratory) -> None:
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.skip("needs libfaketime: tox -e laboratory installs it")
    fake = script(
        laboratory.directory / "fake/bin/python", f'FAKETIME=+7h LD_PRELOAD={library} exec {sys.executable} "$@"'
    )
    laboratory.write("node1", python={"environment": str(fake.parents[1])})
    with laboratory.start(*WORDS) as run:
        finish(run, 0)
    content = json.loads((laboratory.directory / "run/results/node1/0/run.json").read_text())
    assert content["environment"]["date"] > time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() + 6 * 3600))
    assert rounds_of(pooled(laboratory), "node1") == 5


def test_a_host_without_a_tool_is_named(laboratory: Laboratory) -> None:
    laboratory.write("node1", "node2")
    mkfs = commands.which("mkfs.ext4")
    assert mkfs
    laboratory.inside("node2", "mount", "--bind", "/dev/null", mkfs)
    try:
        with laboratory.start(*WORDS) as run:
            finish(run, 1)
    finally:
        laboratory.inside("node2", "umount", mkfs)
    assert rounds_of(pooled(laboratory), "node1") == 5
    assert problems_of(pooled(laboratory), "node2")


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def another_python() -> str:
    """Return an interpreter of another minor version; empty if there is none."""
    names = [f"python3.{minor}" for minor in range(10, 16) if minor != sys.version_info[1]]
    # Versions that one tool has installed lie beside each other.
    beside = [path for name in names for path in Path(sys.base_prefix).parent.glob(f"*/bin/{name}")]
    for program in [*names, *map(str, beside)]:
        words = [program, "-c", "import sys, venv, ensurepip; print(sys.executable)"]
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return ""


def run_with_another_interpreter(laboratory: Laboratory, here: Path, there: Path) -> str:
    """Run on two hosts, of which node2 has another script in the place of an interpreter. Return why it is missing."""
    laboratory.inside("node2", "mount", "--bind", str(there), str(here))
    try:
        with laboratory.start(*WORDS) as run:
            output = finish(run, 1)
    finally:
        laboratory.inside("node2", "umount", str(here))
    host = laboratory.hosts()["node2"]
    assert not host.job
    assert host.problem
    assert f"node2: {host.problem}" in output
    assert rounds_of(pooled(laboratory), "node1") == 5
    assert not problems_of(pooled(laboratory), "node1")
    return problems_of(pooled(laboratory), "node2")


def test_a_host_with_another_python_is_named(laboratory: Laboratory, tmp_path: Path) -> None:
    other = another_python()
    if not other:
        pytest.skip("needs another Python than the one that runs the tests, as python3.N")
    here = script(tmp_path / "bin/python", f'exec {sys.executable} "$@"')
    there = script(tmp_path / "other/python", f'exec {other} "$@"')
    laboratory.write("node1", "node2", python={"requirements": [str(ROOT)], "executable": str(here)})
    assert "is not a supported wheel on this platform" in run_with_another_interpreter(laboratory, here, there)


def test_a_host_with_another_version_is_named(laboratory: Laboratory, tmp_path: Path) -> None:
    here = script(tmp_path / "env/bin/python", f'exec {sys.executable} "$@"')
    laboratory.write("node1", "node2", python={"environment": str(tmp_path / "env")})
    old = script(tmp_path / "old/python", "echo 0.0.7")
    assert "pytest-fsstack 0.0.7" in run_with_another_interpreter(laboratory, here, old)


def test_a_half_written_line_costs_its_round(laboratory: Laboratory) -> None:
    laboratory.write("node1")
    with laboratory.start(*WORDS) as run:
        finish(run, 0)
    place = laboratory.directory / "run/results/node1/0"
    (place / "run.json").unlink()
    log = (place / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    (place / "rounds.jsonl").write_bytes(b"".join(log[:3]) + log[3][:100])
    laboratory.lab("fetch", "run")
    assert rounds_of(pooled(laboratory), "node1") == 3
    assert problems_of(pooled(laboratory), "node1")
