"""A run of these tests is interrupted or killed, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from tests.pages import ROOT
from tests.real.conftest import lacking, left_of

pytestmark = pytest.mark.root

CONFTEST = """
from tests.aftermath import nothing_outlives_the_tests
from tests.real.conftest import context, context_directory, loop_device
"""
#: It has a process, a loop device and a stack of its own, and runs a session that waits on another stack.
TEST = """
import os, subprocess
from pathlib import Path
from pytest_fsstack.devices import LoopDevice
from tests import warm
from tests.real.conftest import built

HERE = Path(__file__).parent
INSIDE = '''
import time
from pathlib import Path
import pytest

@pytest.fixture
def directory():
    yield
    Path("torn down").touch()

@pytest.mark.fsstack("ext4")
def test_it(fsstack, directory):
    Path("waits").touch()
    time.sleep(600)
'''

def test_it(loop_device, context, tmp_path):
    (HERE / "worker").write_text(str(os.getpid()))
    inside = HERE / "inside"
    inside.mkdir()
    (inside / "pytest.ini").write_text("[pytest]")
    (inside / "test_inside.py").write_text(INSIDE)
    subprocess.Popen(["sh", "-c", "sleep 600; true", str(tmp_path)], start_new_session=True)
    loop_device()
    with built("ext4 | gocryptfs", LoopDevice(64 << 20), context):
        warm.session("-p", "pytest_fsstack.plugin", f"--basetemp={tmp_path}/inside", "--fsstack-size=64M", cwd=inside)
"""
#: The signal, the process that gets it, and whether the session inside has the time to tear down.
ENDS = [
    (signal.SIGINT, "controller", True),
    (signal.SIGTERM, "controller", True),
    (signal.SIGKILL, "controller", True),
    (signal.SIGKILL, "worker", False),
]


def is_clean(directory: Path) -> bool:
    """Wait until nothing is left of a run."""
    return commands.wait_until(lambda: not any(left_of(directory).values()), 300)


def test_nothing_is_left(tmp_path: Path) -> None:
    if reasons := lacking("ext4 | gocryptfs"):
        pytest.skip("; ".join(reasons))
    runs: list[tuple[Path, subprocess.Popen[bytes], signal.Signals, str, bool]] = []
    for number, who, torn_down in ENDS:
        directory = tmp_path / f"{who} {number.name}"
        directory.mkdir()
        (directory / "pytest.ini").write_text(f"[pytest]\npythonpath = {ROOT}\naddopts = --import-mode=importlib\n")
        (directory / "conftest.py").write_text(CONFTEST)
        (directory / "test_it.py").write_text(TEST)
        words = ["-c", f"{directory}/pytest.ini", f"--basetemp={directory}/tmp", "-p", "xdist", "-n1", str(directory)]
        with (directory / "output").open("w") as output:
            argv = [sys.executable, "-m", "tests", "-p", "no:cacheprovider", *words]
            process = subprocess.Popen(argv, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        runs.append((directory, process, number, who, torn_down))
    try:
        for directory, *_ in runs:
            waits = directory / "inside" / "waits"
            assert commands.wait_until(waits.exists, 300), (directory / "output").read_text()
            assert all(left_of(directory).values()), "the test would prove nothing"
        for directory, process, number, who, _ in runs:
            os.kill(process.pid if who == "controller" else int((directory / "worker").read_text()), number)
        for directory, process, _, _, torn_down in runs:
            process.wait(300)
            assert is_clean(directory), left_of(directory)
            assert (directory / "inside" / "torn down").exists() == torn_down, (directory / "output").read_text()
    finally:
        for _, process, _, _, _ in runs:
            process.kill()
