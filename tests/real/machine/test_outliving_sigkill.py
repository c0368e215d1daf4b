"""A command that not even SIGKILL ends, because it hangs in the kernel: it is reported, and not waited for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, journal, mounts, orphans, reaper
from pytest_fsstack.machine.real import RealMachine
from tests.real.conftest import run

pytestmark = pytest.mark.root

#: struct fuse_in_header, and the answer to FUSE_INIT in version 7.31 (linux/fuse.h).
_IN, _INIT = struct.Struct("=IIQQIIII"), 26
_VERSION = struct.pack("=IIIIHHIIHHI28x", 7, 31, 0, 0, 1, 1, 4096, 1, 0, 0, 0)


def serve_nothing(target: Path) -> int:
    """Mount a FUSE filesystem that takes requests and never answers, and return the descriptor of its connection."""
    target.mkdir()
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0".encode()
    assert ctypes.CDLL(None).mount(b"none", os.fsencode(target), b"fuse", 0, options) == 0

    def serve() -> None:
        with contextlib.suppress(OSError):  # the end of the connection
            while request := os.read(fd, 1 << 17):
                _, opcode, unique, *_ = _IN.unpack_from(request)
                if opcode == _INIT:
                    os.write(fd, struct.pack("=IiQ", 16 + len(_VERSION), 0, unique) + _VERSION)

    threading.Thread(target=serve, daemon=True).start()
    return fd


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A directory of such a filesystem: who has made a request cannot be killed."""
    mounts.private_namespace()
    target = tmp_path / "hanging"
    fd = serve_nothing(target)
    mount = mounts.at(target)
    assert mount is not None
    yield target
    # Ends all that hangs.
    connections = Path("/sys/fs/fuse/connections")
    if not (connections / "waiting").exists() and not any(connections.iterdir()):
        run("mount", "-t", "fusectl", "none", connections)
    (connections / mount.device.removeprefix("0:") / "abort").write_text("1")
    run("umount", "-l", target)
    os.close(fd)


def test_a_command_is_reported_and_left_behind(hanging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_DEATH", 0.5)
    began = time.monotonic()
    with pytest.raises(commands.CommandError, match=r"`stat .*\b0\.5 s\b.*\bkernel\b") as caught:
        commands.run("stat", hanging / "file", timeout=0.5)
    assert caught.value.returncode is None
    assert time.monotonic() - began < 300


def test_so_is_a_daemon(hanging: Path) -> None:
    daemon = RealMachine().start("stat", hanging / "file")
    time.sleep(0.3)
    with pytest.raises(commands.CommandError, match=rf"\b{daemon.pid}\b.*\bSIGKILL\b"):
        daemon.kill()


def test_a_clean_up_leaves_it_for_the_next_one(hanging: Path, tmp_path: Path) -> None:
    daemon = RealMachine().start("stat", hanging / "file")
    time.sleep(0.3)
    start = journal.start_time(daemon.pid)
    with pytest.raises(journal.UndoError, match=rf"\b{daemon.pid}\b.*\bSIGKILL\b"):
        orphans.end(daemon.pid, start)


#: A session with a server that uses its own mount.
SESSION = """
import os, sys, time
from pytest_fsstack.machine import mounts, orphans, processes
from pytest_fsstack.machine.real import RealMachine
mounts.private_namespace()
os.environ[orphans.VARIABLE] = "123"
with processes.watched(orphans.VARIABLE, private=True):
    print(RealMachine().start(sys.executable, "-c", sys.argv[1], sys.argv[2]).pid, flush=True)
    time.sleep(600)
"""
SERVER = """
import sys
from pathlib import Path
from tests.real.machine.test_outliving_sigkill import serve_nothing
target = Path(sys.argv[1])
serve_nothing(target)
(target / "file").exists()
"""


def waits_for_an_answer(pid: int) -> bool:
    return Path(f"/proc/{pid}/wchan").read_text() == "request_wait_answer"


def test_a_server_that_uses_its_own_mount_ends_with_a_killed_session(hanging: Path, tmp_path: Path) -> None:
    foreign = RealMachine().start("stat", hanging / "file")
    command = [sys.executable, "-c", SESSION, SERVER, str(tmp_path / "own mount")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as session:
        assert session.stdout
        server = int(session.stdout.readline())
        assert commands.wait_until(lambda: waits_for_an_answer(server), 60)
        session.kill()
    assert commands.wait_until(lambda: journal.start_time(server) is None, 60)
    # A mount from before the session still waits for its server.
    assert waits_for_an_answer(foreign.pid)


def test_a_mount_on_top_of_a_server_s_mount_is_left_alone(hanging: Path) -> None:
    before = {fields[2] for fields in reaper.fuse_mounts() if os.fsdecode(fields[4]) != str(hanging)}
    run("mount", "-t", "tmpfs", "none", hanging)
    reaper.disconnect(before)
    mount = mounts.at(hanging)
    assert mount is not None
    assert mount.kind == "tmpfs"
    run("umount", hanging)
