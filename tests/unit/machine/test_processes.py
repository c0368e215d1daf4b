"""Children end with their parent, hold no secrets, and are told from others by more than a number."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, journal, orphans, processes
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.places import BuildContext

START = """
import time
from pathlib import Path
from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.machine import commands, orphans, processes
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import build
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext
here = Path({directory!r})
how = {how!r}
if how == "run":
    commands.run("sleep", "98765")
elif how == "start":
    daemon = RealMachine().start("sleep", "98765")
    time.sleep(60)
else:
    book = Journal(here / "journal", RealMachine())
    with orphans.marked(book, private=False), processes.watched(orphans.VARIABLE, private=False):
        with build(Stack(()), DirectoryDevice(here), BuildContext(here, book)) as built:
            Timed(built).run("sh", "-c", "sleep 98765; true")
"""


def children(pid: int) -> list[int]:
    """Those that sleep, and their children."""
    parents, sleeping = {}, []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            # Before that it is setpriv with the same last words, which has no parent-death signal yet.
            is_sleep = (process / "comm").read_text() == "sleep\n"
            if is_sleep and (process / "cmdline").read_bytes().endswith(b"sleep\00098765\0"):
                sleeping.append(int(process.name))
        except OSError:
            continue
    return [child for child in sleeping if pid in (parents[child], parents.get(parents[child]))]


def sleeps(pid: int) -> bool:
    try:
        return b"98765" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.mark.parametrize("how", ["run", "start", "timed"])
def test_a_child_ends_with_a_killed_parent(how: str, tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", START.format(directory=str(tmp_path), how=how)])
    try:
        assert commands.wait_until(lambda: children(parent.pid), 60)
        child = children(parent.pid)[0]
    finally:
        parent.kill()
        parent.wait()
    assert commands.wait_until(lambda: not sleeps(child), 60)


def test_a_command_and_a_daemon_leave_no_core_dump() -> None:
    # Where the hard limit is 0 already, it stays.
    most = "0" if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0 else "1"
    assert commands.run("sh", "-c", "cat /proc/self/limits | grep core").split()[4:6] == [most, most]


def test_a_daemon_cannot_read_the_passphrase_once_it_has_started() -> None:
    with commands.secret_fd(b"very secret") as fd:
        daemon = RealMachine().start("sh", "-c", f"cat /proc/self/fd/{fd}; exec sleep 60", fds=(fd,))
        held = Path(f"/proc/{daemon.pid}/fd/{fd}")
        try:
            assert commands.wait_until(lambda: Path(f"/proc/{daemon.pid}/comm").read_text() == "sleep\n", 60)
            assert held.read_bytes() == b"very secret"
        except BaseException:
            daemon.kill()
            raise
    try:
        assert held.exists()
        assert held.read_bytes() == b""
    finally:
        daemon.kill()


def test_each_stack_has_a_passphrase_of_its_own(tmp_path: Path) -> None:
    passphrases = set()
    for _ in range(5):
        with BuildContext(tmp_path, Journal(tmp_path, RealMachine())).secret.passphrase() as fd:
            passphrases.add(commands.run("cat", f"/proc/self/fd/{fd}", fds=(fd,)))
    assert [len(text) for text in passphrases] == [64] * 5


#: Makes a secret, uses it in all forms, and keeps it while its memory is searched.
HOLDER = """
import sys
from pytest_fsstack.stack.places import Secret

secret, other = Secret(), Secret()
for form in secret.key(144), secret.replacing(other), secret.passphrase():
    with form as fd:
        pass
with secret.passphrase() as first, secret.key(64) as second:
    print(first, second, flush=True)
    sys.stdin.read()
"""


def test_a_secret_is_only_in_memory_that_is_never_swapped_out() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        process = Path(f"/proc/{holder.pid}")
        secrets = [(process / "fd" / fd).read_bytes() for fd in holder.stdout.readline().split()]
        assert [len(secret) for secret in secrets] == [64, 64]
        places: list[tuple[int, set[str]]] = []
        with open(process / "mem", "rb") as memory:
            for head, flags in mappings(process):
                start, end = (int(part, 16) for part in head.split()[0].split("-"))
                # The stack may have copies of registers, which later calls overwrite.
                if "r" in head.split()[1] and not re.search(r"\[(stack|v\w+)\]$", head):
                    content = os.pread(memory.fileno(), end - start, start)
                    places += [(number, flags) for number, secret in enumerate(secrets) if secret in content]
        holder.communicate()
    # Each is in the memory of the session and in its file.
    assert sorted(number for number, _ in places) == [0, 0, 1, 1]
    assert all({"lo", "dd"} <= flags for _, flags in places), places


def mappings(process: Path) -> list[tuple[str, set[str]]]:
    """Return the first line of each mapping of a process in smaps, and its flags."""
    files, head = [], ""
    for line in (process / "smaps").read_text().splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            head = line
        elif line.startswith("VmFlags:"):
            files.append((head, set(line.split()[1:])))
    return files


def test_this_process_leaves_no_core_dump_while_it_holds_keys() -> None:
    def _dumpable() -> int:
        return int(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))

    before = _dumpable()
    with processes.undumpable():
        assert _dumpable() == 0
    assert _dumpable() == before


def test_a_daemon_that_was_stopped_still_has_its_error() -> None:
    daemon = RealMachine().start("sh", "-c", "echo broken >&2; exit 3")
    assert commands.wait_until(lambda: not daemon.alive, 60)
    daemon.stop()
    error = daemon.error()
    assert (error.returncode, error.stderr) == (3, "broken")


def test_a_session_of_its_own_keeps_the_terminals_signals_away() -> None:
    daemon = RealMachine().start("sleep", "60")
    try:
        assert os.getsid(daemon.pid) == daemon.pid
        assert daemon.alive
    finally:
        daemon.kill()
    assert not daemon.alive


def test_a_server_is_dead_as_soon_as_its_clients_notice() -> None:
    for _ in range(20):
        read, write = os.pipe()
        os.set_inheritable(write, True)
        daemon = RealMachine().start("sleep", "60", fds=(write,))
        os.close(write)
        os.kill(daemon.pid, signal.SIGKILL)
        assert os.read(read, 1) == b""
        assert not daemon.alive
        os.close(read)
        daemon.kill()


def test_a_daemon_of_ours_is_no_user_of_a_mount(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ["sh", "-c", f"exec sleep 60 < {tmp_path}/file"]
    machine = RealMachine()
    daemon, other = machine.start(*words), subprocess.Popen(words)
    try:
        assert commands.wait_until(lambda: processes.users(tmp_path, machine.daemons), 60)
        assert commands.wait_until(lambda: Path(f"/proc/{daemon.pid}/comm").read_text() == "sleep\n", 60)
        assert [user.split()[0] for user in processes.users(tmp_path, machine.daemons)] == [str(other.pid)]
    finally:
        daemon.kill()
        other.kill()
        other.wait()


def test_a_server_that_does_not_finish_its_exit_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_EXIT", 0.01)
    daemon = RealMachine().start("sleep", "98765")
    try:
        assert "sleep" in str(daemon.error())
        assert daemon.error().returncode is None
    finally:
        daemon.kill()


def test_processes_that_are_hidden_from_this_user_are_none_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def hidden(process: Path) -> list[str]:
        raise PermissionError(errno.EPERM, "", str(process))

    for module in orphans, commands, journal:
        monkeypatch.setattr(module, "stat_fields", hidden)
    assert orphans.work() is None
    assert commands._exiting(1) is False
    assert journal.start_time(1) is None


@pytest.mark.parametrize(
    ("script", "works"),
    [
        ("import time; print(flush=True); time.sleep(60)", False),
        ("print(flush=True)\nwhile True: pass", True),
        # Its child has another environment.
        (
            "import os, subprocess, sys; print(flush=True)\n"
            # Its parent may be killed before it has begun.
            "busy = f'import os\\nwhile os.getppid() == {os.getpid()}: pass'\n"
            "subprocess.run([sys.executable, '-c', busy], env={})",
            True,
        ),
    ],
)
def test_the_work_of_the_session_is_that_of_its_processes(
    script: str, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(orphans.VARIABLE, os.urandom(8).hex())
    assert orphans.work() is None

    def works_on(before: float) -> bool:
        work = orphans.work()
        return work is not None and not work.on_disk and work.seconds > before

    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            work = orphans.work()
            assert work
            assert commands.wait_until(lambda: works_on(work.seconds + 0.1), 60.0 if works else 0.5) == works
        finally:
            process.kill()
