"""A separate process beside each process that runs tests. Once that has died, it removes what its tests have left.

Usage: ``python -m tests.aftermath PIDFD VARIABLE=MARK DIRECTORY``. An interrupted worker tears its test down
itself, but xdist waits for ten seconds at most, and nothing is torn down after SIGKILL.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import descriptors, journal, mounts, reaper
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from tests.sessions import interrupt_once

#: An environment variable with a unique number, inherited by all processes that tests start.
VARIABLE = "FSSTACK_TESTS"
_ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tear down at the first signal, and remove what is left after the death of this process."""
    interrupt_once()
    _watch(tmp_path_factory.getbasetemp())


def _watch(directory: Path) -> None:
    os.environ.pop(VARIABLE, None)
    environment = dict(os.environ)
    os.environ[VARIABLE] = os.urandom(16).hex()
    with descriptors.closing(os.pidfd_open(os.getpid())) as pidfd:
        words = [str(pidfd), f"{VARIABLE}={os.environ[VARIABLE]}", os.fspath(directory)]
        argv = [sys.executable, "-m", "tests.aftermath", *words]
        process = subprocess.Popen(
            argv, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, pass_fds=[pidfd], start_new_session=True
        )
    # It is not waited for, because it ends after this process.
    process.returncode = 0


def main(pidfd: int, mark: bytes, directory: Path) -> None:
    """Wait for the death of the process behind a pidfd, and remove what is left."""
    select.select([pidfd], [], [])
    # They may start others meanwhile.
    while reaper.end(mark):
        time.sleep(0.02)
    for place, _, names in os.walk(directory):
        if any(name.endswith(".jsonl") for name in names):
            journal.cleanup(Path(place), RealMachine(), lambda: kinds(BUILT_IN.values()))
    for mount in reversed(mounts.below(directory)):
        subprocess.run(["umount", mount])
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        if backing.read_text().startswith(f"{directory}/"):
            device = f"/dev/{backing.parents[1].name}"
            subprocess.run(["partx", "-d", device], capture_output=True)
            subprocess.run(["losetup", "-d", device])


if __name__ == "__main__":
    main(int(sys.argv[1]), os.fsencode(sys.argv[2]), Path(sys.argv[3]))
