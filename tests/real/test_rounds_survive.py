"""A session that waits for a disk, and the rounds of one that was killed."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pytest_fsstack.machine import commands
from pytest_fsstack.records import saved
from tests.real.conftest import Loop, Sessions

pytestmark = pytest.mark.root


def waiting(sessions: Sessions, *arguments: str) -> subprocess.Popen[str]:
    command = sessions.command(*arguments)
    return subprocess.Popen(command, cwd=sessions.directory, stdout=subprocess.PIPE, text=True)


def until_it_waits(process: subprocess.Popen[str], holder: int) -> str:
    assert process.stdout is not None
    return next((line for line in process.stdout if re.search(rf"\b{holder}\b", line)), "")


def test_a_session_waits_for_a_disk_and_names_who_has_it(sessions: Sessions, disk: Loop) -> None:
    sessions.write("ext4")
    device = f"--fsstack-device={disk.path}"
    holder = sessions.start(device, "--fsstack-rounds=1")
    for words in [], ["--fsstack-wait=1"]:
        refused = sessions.run(device, "--fsstack-rounds=1", *words)
        assert refused.returncode == 4
        assert re.search(rf"{disk.path} .*\b{holder.pid}\b", refused.stderr)
    with waiting(sessions, device, "--fsstack-rounds=1", "--fsstack-wait=100") as process:
        assert str(disk.path) in until_it_waits(process, holder.pid)
        (sessions.directory / "wait").unlink()
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert re.search(rf"{disk.path} .*\b\d+ s\b", output)
    assert "passed" in holder.communicate()[0]


def test_who_waited_for_a_killed_session_says_what_it_left(sessions: Sessions, disk: Loop) -> None:
    sessions.write("ext4")
    holder = sessions.start(f"--fsstack-device={disk.path}", "--fsstack-rounds=1")
    words = [f"--fsstack-device={disk.path}", "--fsstack-rounds=1", "--fsstack-wait=100"]
    with waiting(sessions, *words) as process:
        until_it_waits(process, holder.pid)
        holder.kill()
        (sessions.directory / "wait").unlink()
        output, _ = process.communicate(timeout=120)
    holder.communicate()
    # As of any session after a killed one.
    assert process.returncode == 4, output
    assert re.search(rf"\bdisk {disk.path}\b.*\b{holder.pid}\b", output)


SLOW = """
import pathlib, time, pytest

@pytest.mark.fsstack("ext4", "xfs")
def test_step(fsstack, timed, request):
    with timed(cold=False):
        (fsstack.path / "file").write_bytes(bytes(1 << 20))
    with open(request.config.rootpath / "runs", "a") as runs:
        print(fsstack.stack.id, file=runs, flush=True)
    if len((request.config.rootpath / "runs").read_text().split()) == 13:
        time.sleep(600)
"""


@pytest.mark.parametrize("words", [[], ["--fsstack-kernel=host"]], ids=["loop", "controller"])
@pytest.mark.plugins("xdist")
def test_sigkill_costs_the_running_rounds_only(sessions: Sessions, words: list[str]) -> None:
    (sessions.directory / "test_it.py").write_text(SLOW)
    (sessions.directory / "pytest.ini").write_text("[pytest]\n")
    log, runs = sessions.directory / "log.jsonl", sessions.directory / "runs"
    command = sessions.command("--fsstack-rounds=8", f"--fsstack-log={log}", *words)
    with subprocess.Popen(command, cwd=sessions.directory, stdout=subprocess.PIPE, text=True) as process:
        assert commands.wait_until(lambda: runs.exists() and len(runs.read_text().split()) == 13, 120)
        process.kill()
    assert sessions.nothing_is_left()
    results = saved.loads(log.read_bytes())
    (chain,) = results.chains
    # One round, and four mixed ones.
    assert chain.rounds == 5
    assert [len(samples) for _, _, samples in chain.all_samples()] == [5, 5]
    assert "5 rounds" in results.interrupted
    assert results.environment["kernel"]
    reported = subprocess.run(
        [sys.executable, "-m", "pytest_fsstack.command", "report", log], capture_output=True, text=True, check=True
    )
    assert results.interrupted in reported.stdout
