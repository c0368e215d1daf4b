"""A worker of pytest-xdist takes its stack down when the process that started it is killed."""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.descriptors import closing
from tests.sessions import FEW_PLUGINS
from tests.torture.place import Place

pytestmark = pytest.mark.root

#: Longer than the ten seconds that execnet leaves a worker after it has interrupted it.
TEARDOWN = 11.0

TEST = """
import os, pathlib, time, pytest

@pytest.fixture
def slow(fsstack):
    yield
    time.sleep({teardown})
    assert os.path.ismount(fsstack.path)
    pathlib.Path("undone").touch()

@pytest.mark.fsstack({stack!r})
def test_it(fsstack, slow):
    pathlib.Path("worker").write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.mark.plugins("xdist")
@pytest.mark.parametrize("words", [["--fsstack-kernel=host"], ["-n1"]], ids=["kernel", "xdist"])
def test_a_worker_takes_its_stack_down_when_its_controller_is_killed(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(TEST.format(stack="ext4", teardown=TEARDOWN if "-n1" in words else 0))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", f"--basetemp={tmp_path}/tmp"]
    with subprocess.Popen([*command, *words], cwd=tmp_path, env={**os.environ, **FEW_PLUGINS}) as controller:
        worker = tmp_path / "worker"
        assert commands.wait_until(lambda: worker.exists() and worker.read_text(), 120)
        pid = int(worker.read_text())
        # Nobody may reap it.
        pidfd = os.pidfd_open(pid)
        controller.kill()
    with closing(pidfd):
        assert select.select([pidfd], [], [], 120)[0]
    assert (tmp_path / "undone").exists()
    assert not any(Place(tmp_path, Path(), random.Random()).left(pid).values())
