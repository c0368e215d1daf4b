"""The server of a FUSE stack that dies or hangs while a test runs: it is named, and the stack is taken down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, mounts, needs
from pytest_fsstack.stack.model import Stack

pytestmark = pytest.mark.root

TEST = """
import os, signal, time
from pathlib import Path

import pytest


@pytest.mark.fsstack({stack!r})
def test_it(fsstack):
    (fsstack.path / "file").write_text("text")
    children = Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split()
    (server,) = [pid for pid in children if os.fsencode(fsstack.path) in Path("/proc", pid, "cmdline").read_bytes()]
    os.kill(int(server), signal.{signal})
    while signal.{signal} == signal.SIGKILL and Path("/proc", server).exists():
        time.sleep(0.01)


def test_other():
    pass
"""


def session(directory: Path, stack: str, signal: str, ends: str, *arguments: str) -> str:
    """What a session says whose test sends a signal to the server of its stack; it `ends` so, and leaves nothing."""
    if reasons := needs.missing(Stack.parse(stack, BUILT_IN).needs()):
        pytest.skip("; ".join(reasons))
    (directory / "test_it.py").write_text(TEST.format(stack=stack, signal=signal))
    (directory / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--fsstack-size=64M", "--basetemp=tmp", *arguments],
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert f" {ends} in " in done.stdout, done.stdout
    assert list((directory / "tmp").rglob("fsstack-*")) == []
    mine = os.fsencode(directory)
    assert commands.wait_until(
        lambda: not any(mine in process.read_bytes() for process in Path("/proc").glob("[0-9]*/cmdline")), 60.0
    )
    assert mounts.below(directory) == []
    return done.stdout


@pytest.mark.parametrize("stack", ["ext4 | gocryptfs", "ext4 | encfs"])
def test_one_that_dies_while_it_is_in_use_is_named(stack: str, tmp_path: Path) -> None:
    said = session(tmp_path, stack, "SIGKILL", "2 passed")
    (line,) = [line for line in said.splitlines() if line.startswith(f"fsstack: `{stack.rpartition(' ')[2]} ")]
    assert line.endswith(" failed (it ended while its filesystem was in use, killed by SIGKILL)")


def test_one_that_hangs_is_killed_and_named_and_leaves_nothing(tmp_path: Path) -> None:
    said = session(tmp_path, "ext4 | gocryptfs", "SIGSTOP", "2 passed, 1 error", "--fsstack-timeout=2")
    assert "(no answer within 2 s, killed" in said
    assert "; its server, gocryptfs, was killed" in said
