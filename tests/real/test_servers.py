"""The server of a FUSE stack that dies or hangs while a test runs: it is named, and the stack is taken down."""

from __future__ import annotations

import os
import re
import signal as signals
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, mounts, needs
from pytest_fsstack.stack.model import Stack
from tests.real.conftest import lines_naming
from tests.warm import session as run_pytest

pytestmark = pytest.mark.root

TEST = """
import contextlib, os, signal
from pathlib import Path

import pytest

from pytest_fsstack.machine.commands import wait_until


def states(pid):
    # Some of the threads may end meanwhile.
    states = set()
    for stat in Path("/proc", pid, "task").glob("*/stat"):
        with contextlib.suppress(OSError):
            states.add(stat.read_text().rpartition(")")[2].split()[0])
    return states


@pytest.mark.fsstack({stack!r})
def test_it(fsstack):
    (fsstack.path / "file").write_text("text")
    children = Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split()
    names = os.fsencode(fsstack.path), b"zfs-fuse"
    commands = {{pid: Path("/proc", pid, "cmdline").read_bytes() for pid in children}}
    (server,) = [pid for pid, command in commands.items() if any(name in command for name in names)]
    os.kill(int(server), signal.{signal})
    # Threads may wait for the disk first, and on a busy machine for a processor.
    assert wait_until(lambda: states(server) == {{{state!r}}}, 60)


def test_other():
    pass
"""


def session(directory: Path, stack: str, signal: str, ends: str, *arguments: str) -> str:
    """What a session says whose test sends a signal to the server of its stack; it `ends` so, and leaves nothing."""
    if reasons := needs.missing(Stack.parse(stack, BUILT_IN).needs()):
        pytest.skip("; ".join(reasons))
    state = {"SIGKILL": "Z", "SIGSTOP": "T"}[signal]
    (directory / "test_it.py").write_text(TEST.format(stack=stack, signal=signal, state=state))
    (directory / "pytest.ini").write_text("[pytest]\n")
    result = run_pytest("-p", "no:cacheprovider", "--fsstack-size=64M", "--basetemp=tmp", *arguments, cwd=directory)
    assert f" {ends} in " in result.stdout, result.stdout
    assert list((directory / "tmp").rglob("fsstack-*")) == []
    assert commands.wait_until(lambda: not lines_naming(directory), 60.0)
    assert mounts.below(directory) == []
    return result.stdout


@pytest.mark.parametrize("stack", ["ext4 | gocryptfs", "ext4 | encfs"])
def test_one_that_dies_while_it_is_in_use_is_named(stack: str, tmp_path: Path) -> None:
    output = session(tmp_path, stack, "SIGKILL", "2 passed")
    lines = [line for line in output.splitlines() if line.startswith(f"fsstack: `{stack.rpartition(' ')[2]} ")]
    assert len(lines) == 1, output
    (line,) = lines
    assert re.search(r"` .*\bSIGKILL\b", line)


@pytest.mark.parametrize("stack", ["ext4 | gocryptfs", "zfs"])
def test_one_that_hangs_is_killed_and_named_and_leaves_nothing(stack: str, tmp_path: Path) -> None:
    output = session(tmp_path, stack, "SIGSTOP", "2 passed, 1 error", "--fsstack-timeout=8")
    named = r"`(gocryptfs .*|zfs-fuse)` .* connection was aborted\b|\bserver, (gocryptfs|zfs-fuse), was killed\b"
    assert re.search(named, output), output


SERVER = """
import ctypes, errno, os, struct, sys, time

LOOKUP, GETATTR, STATFS, INIT = 1, 3, 17, 26
ANSWERS = {
    INIT: struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 12, 9, 4096, 1, 1, 0, *[0] * 8),
    GETATTR: struct.pack("<QII6Q10I", 60, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0),
    STATFS: bytes(80),
}
target = sys.argv[1]
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
assert ctypes.CDLL(None).mount(b"hanging", target.encode(), b"fuse", 0, options) == 0
while True:
    try:
        request = os.read(fuse, 65536)
    except OSError:
        sys.exit() if len(sys.argv) < 3 else time.sleep(60)  # unmounted or aborted
    _, call, number = struct.unpack_from("<IIQ", request)
    answer = ANSWERS.get(call, b"")
    try:
        if call == LOOKUP:
            open(os.path.join(os.path.dirname(__file__), "asked"), "w").close()
            os.stat(os.path.join(target, os.fsdecode(request[40:-1])))  # of itself
        os.write(fuse, struct.pack("<IiQ", 16 + len(answer), 0 if answer else -errno.ENOSYS, number) + answer)
    except OSError:
        continue
"""

LAYER = """
import contextlib, sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack import FUSE, Directory, Layer, Root, served


@dataclass(frozen=True)
class Hanging(Layer):
    name: ClassVar = "hanging"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    def needs(self):
        return [Root("mounting"), FUSE]

    @contextlib.contextmanager
    def opened(self, below, context):
        target = context.mountpoint(self.name)
        server = str(Path(__file__).with_name("server.py"))
        with served(target, context, sys.executable, server, str(target)) as directory:
            yield directory


def pytest_fsstack_layers():
    return [Hanging]
"""

ASKING = """
import os, subprocess
from pathlib import Path

import pytest

from pytest_fsstack.machine.commands import wait_until


@pytest.mark.fsstack("ext4 | hanging")
def test_it(fsstack{}):
    {}
"""


def deadlocked(directory: Path, call: str, *arguments: str, fixture: str = "") -> subprocess.Popen[str]:
    """Start a session whose test asks, by a call, a FUSE server that then asks itself."""
    directory.mkdir()
    for name, text in ("server.py", SERVER), ("conftest.py", LAYER), ("test_it.py", ASKING.format(fixture, call)):
        (directory / name).write_text(text)
    (directory / "pytest.ini").write_text("[pytest]\n")
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "--basetemp=tmp", "--fsstack-size=64M"]
    command = [sys.executable, *words, "--fsstack-rounds=1", *arguments]
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_one_that_asks_itself_holds_up_no_session(tmp_path: Path) -> None:
    if reasons := needs.missing([*Stack.parse("ext4", BUILT_IN).needs(), needs.FUSE]):
        pytest.skip("; ".join(reasons))
    file, asked = 'fsstack.path / "file"', 'wait_until(Path(__file__).with_name("asked").exists, 60)'
    sessions = {
        "call": deadlocked(tmp_path / "call", f"os.stat({file})"),
        "command": deadlocked(tmp_path / "command", f'timed.run("stat", {file})', fixture=", timed"),
        "left": deadlocked(tmp_path / "left", f'subprocess.Popen(["stat", {file}]); {asked}', "--fsstack-timeout=8"),
    }
    assert commands.wait_until(lambda: all((tmp_path / name / "asked").exists() for name in sessions), 60.0)
    time.sleep(0.5)
    for name in "call", "command":
        sessions[name].send_signal(signals.SIGTERM)
    time.sleep(0.5)
    sessions["command"].send_signal(signals.SIGTERM)
    for name, session in sessions.items():
        try:
            stdout = session.communicate(timeout=120.0)[0]
        finally:
            session.kill()
        assert session.returncode == (1 if name == "left" else 143), stdout
        python = os.path.basename(sys.executable)
        assert re.search(rf"`.*{python}\b.*/server\.py .*` .*\babort", stdout), stdout
        assert "INTERNALERROR" not in stdout
        assert bool(re.search(r"\btest_it\.py::test_it .*\bloop\b", stdout)) == (name == "command")
        assert list((tmp_path / name / "tmp").rglob("fsstack-*")) == []
    assert not lines_naming(tmp_path)


STAYING = """
from pytest_fsstack.machine import processes

stop = processes.Daemon.stop


def noting(daemon, patience=10.0):
    print(f"waiting {patience:g} s for it")
    stop(daemon, patience)


processes.Daemon.stop = noting
"""


def test_one_that_stays_without_its_connection_is_soon_ended(tmp_path: Path) -> None:
    if reasons := needs.missing([*Stack.parse("ext4", BUILT_IN).needs(), needs.FUSE]):
        pytest.skip("; ".join(reasons))
    layer = LAYER.replace("server, str(target))", "server, str(target), 'stays')")
    # Without fusectl, the abort is a forced unmount, which an open directory prevents.
    call = "fd = os.open(fsstack.path, os.O_RDONLY); mounts.abort_fuse(fsstack.machine, fsstack.path); os.close(fd)"
    test = "from pytest_fsstack.machine import mounts\n" + ASKING.format("", call)
    for name, text in ("server.py", SERVER), ("conftest.py", layer + STAYING), ("test_it.py", test):
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    result = run_pytest("-p", "no:cacheprovider", "-s", "--fsstack-size=64M", "--basetemp=tmp", cwd=tmp_path)
    assert " 1 passed in " in result.stdout, result.stdout
    assert re.findall(r"waiting (\S+) s for it\n", result.stdout) == ["2"]
    assert list((tmp_path / "tmp").rglob("fsstack-*")) == []


KILLING = """
import os
from pathlib import Path

import pytest

from pytest_fsstack.truth.correctness import fsxfile, verdict
from pytest_fsstack.records.findings import Finding


@pytest.mark.benchmark
@pytest.mark.fsstack("ext4 | gocryptfs")
def test_it(fsstack, timed, monkeypatch, tmp_path, request):
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    (server,) = [pid for pid in children if os.fsencode(fsstack.path) in Path("/proc", pid, "cmdline").read_bytes()]
    script = tmp_path / "fsx"
    script.write_text(f"#!/bin/sh\\nkill -9 {server}\\necho the message >&2\\nexit 1\\n")
    script.chmod(0o755)
    monkeypatch.setattr(type(fsxfile.FSX), "path", str(script))
    wrong = fsxfile.fsx(timed, fsstack, seed=1)
    verdict.conclude(request.node, timed, fsstack, [Finding(fsxfile.kind_of(wrong), wrong)])
"""


def test_one_that_dies_below_fsx_is_a_difference(tmp_path: Path) -> None:
    if reasons := needs.missing(Stack.parse("ext4 | gocryptfs", BUILT_IN).needs()):
        pytest.skip("; ".join(reasons))
    (tmp_path / "test_it.py").write_text(KILLING)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ("--fsstack-size=64M", "--fsstack-rounds=1", "--basetemp=tmp")
    result = run_pytest("-p", "no:cacheprovider", *options, cwd=tmp_path)
    assert " 1 failed" in result.stdout, result.stdout
    assert re.search(r"did not do the work: .*fsx: .*the message; .*remounted", result.stdout), result.stdout
