"""A separate process beside each process that runs tests. Once that has died, it removes what its tests have left.

Usage: ``python -m tests.aftermath PIDFD MARK DIRECTORY``. An interrupted worker tears its test down itself, but xdist
waits for ten seconds at most, and nothing is torn down after SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_fsstack.machine import descriptors, reaper
from tests.sessions import MARK, MEMORY, interrupt_once

_ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_the_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tear down at the first signal, and remove what is left after the death of this process."""
    interrupt_once()
    _watch(tmp_path_factory.getbasetemp())


def _watch(directory: Path) -> None:
    os.environ.pop(MARK, None)
    environment = dict(os.environ)
    os.environ[MARK] = os.urandom(16).hex()
    with descriptors.closing(os.pidfd_open(os.getpid())) as pidfd:
        words = [str(pidfd), os.environ[MARK], os.fspath(directory)]
        argv = [sys.executable, "-m", "tests.aftermath", *words]
        process = subprocess.Popen(
            argv, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL, pass_fds=[pidfd], start_new_session=True
        )
    # It is not waited for, because it ends after this process.
    process.returncode = 0


def main(pidfd: int, mark: str, directory: Path) -> None:
    """Wait for the death of the process behind a pidfd, and remove what is left."""
    from pytest_fsstack.layers import BUILT_IN
    from pytest_fsstack.machine import journal, mounts
    from pytest_fsstack.machine.real import RealMachine
    from pytest_fsstack.session.cleanup import kinds

    select.select([pidfd], [], [])
    # They may start others meanwhile.
    while reaper.end(f"{MARK}={mark}".encode()):
        time.sleep(0.02)
    for parent, _, names in os.walk(directory):
        if any(name.endswith(".jsonl") for name in names):
            with contextlib.suppress(PermissionError):  # a test has let others write to it
                journal.cleanup(Path(parent), RealMachine(), lambda: kinds(BUILT_IN.values()))
    for mount in reversed(mounts.below(directory)):
        subprocess.run(["umount", mount])
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        if _content(backing).startswith(f"{directory}/"):
            device = f"/dev/{backing.parents[1].name}"
            subprocess.run(["partx", "-d", device], capture_output=True)
            subprocess.run(["losetup", "-d", device])
    for place in MEMORY.glob(f"{mark[:8]}-*"):
        shutil.rmtree(place)


def _content(file: Path) -> str:
    with contextlib.suppress(OSError):  # another process has just detached it
        return file.read_text()
    return ""


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
