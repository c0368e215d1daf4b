"""A directory over SSH: its server is reached by nobody else, and ends with the stack however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.journal import cleanup
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from pytest_fsstack.stack.build import BuildError
from pytest_fsstack.stack.places import BuildContext
from tests.real.conftest import built, run
from tests.toolkit import kill_session

pytestmark = pytest.mark.root

SIZE = 64 << 20


def processes(directory: Path) -> dict[int, str]:
    """Return the command lines of servers and clients of stacks below a directory, and of what they started."""
    lines: dict[int, str] = {}
    networks = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # processes end while one looks
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if os.fspath(directory) in line and os.path.basename(line.split()[0]) in ("unshare", "sshfs"):
                lines[int(process.name)] = line
                networks.add(os.readlink(process / "ns/net"))
    networks.discard(os.readlink("/proc/self/ns/net"))
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "ns/net") in networks:
                lines[int(process.name)] = (process / "comm").read_text().strip()
    return lines


def server_of(directory: Path) -> int:
    """Return the process that started the server."""
    (pid,) = (int(pid) for pid in run("pgrep", "-f", f"^[^ ]*unshare .* {directory}/").split())
    return pid


def test_the_server_is_reached_from_its_own_network_only(context: BuildContext) -> None:
    with built("ext4 | sshfs", LoopDevice(SIZE), context):
        inside = ["nsenter", f"--net=/proc/{server_of(context.directory)}/ns/net"]
        assert [line.split()[3] for line in run(*inside, "ss", "-Hltn").splitlines()] == ["127.0.0.1:22"]
        assert [line.split()[1] for line in run(*inside, "ip", "-o", "link").splitlines()] == ["lo:"]
        listeners = run("ss", "-Hltnp")
        assert not any(f"pid={pid}," in listeners for pid in processes(context.directory))


def test_its_keys_are_in_memory_only(context: BuildContext) -> None:
    with built("ext4 | sshfs", LoopDevice(SIZE), context) as stack:
        keys = Path(f"/proc/{server_of(context.directory)}/root/run/keys")
        secret = (keys / "user").read_bytes().splitlines()[2]
        assert (keys / "user").stat().st_mode & 0o777 == 0o600
        for process in Path("/proc").glob("[0-9]*"):
            for name in "cmdline", "environ":
                with contextlib.suppress(OSError):
                    assert secret not in (process / name).read_bytes(), process
        stack.sync()
        assert secret not in stack.bottom.path.read_bytes()
    assert not Path("/run/keys").exists()


def test_nothing_of_it_survives_a_killed_session(context: BuildContext, tmp_path: Path) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        kill_session("sshfs", stack.path, tmp_path)
        assert commands.wait_until(lambda: not processes(context.directory), 60), processes(context.directory)
        assert (stack.path / "sshfs/secret-name").read_text() == "content"
        report = cleanup(tmp_path / "dead", RealMachine(), lambda: kinds(BUILT_IN.values()))
        assert report.left == []
        assert mounts.below(tmp_path / "0-sshfs") == []
        assert not list((tmp_path / "dead").glob("*.jsonl"))


def test_a_server_that_dies_while_it_is_in_use_is_named(context: BuildContext) -> None:
    lines: list[str] = []
    context.notify = lines.append

    def kill_the_server() -> None:
        with built("ext4 | sshfs", LoopDevice(SIZE), context):
            os.kill(server_of(context.directory), signal.SIGKILL)
            assert commands.wait_until(lambda: not processes(context.directory), 60)

    with pytest.raises(BuildError, match=r"layer sshfs: `.*` .*mounted\b"):
        kill_the_server()
    (line,) = lines
    assert "unshare" in line
    assert "SIGKILL" in line


def test_a_server_that_does_not_start_is_reported_with_its_words(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sshd").write_text("#!/bin/sh\necho 'no such cipher' >&2\nexit 3\n")
    (tools / "sshd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with pytest.raises(BuildError, match=r"layer sshfs: `unshare .*` .*\b3\b.*no such cipher"):
        with built("ext4 | sshfs", LoopDevice(SIZE), context):
            pass
    assert processes(context.directory) == {}


def test_a_client_that_cannot_connect_is_reported_with_its_words(context: BuildContext) -> None:
    with pytest.raises(BuildError, match=r"layer sshfs: `sshfs .*(?s:.)*no-such-cipher"):
        with built("ext4 | sshfs(cipher='no-such-cipher')", LoopDevice(SIZE), context):
            pass
    assert processes(context.directory) == {}


def test_the_configuration_of_the_user_changes_nothing(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ssh asks the table of users for the home directory, so this is a table of the test's own.
    mounts.private_namespace()
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("NoSuchOption yes\n")
    users = tmp_path / "passwd"
    users.write_text(Path("/etc/passwd").read_text().replace(":/root:", f":{tmp_path}:"))
    with mounts.mounted(RealMachine(), users, Path("/etc/passwd"), options="bind"):
        assert subprocess.run(["ssh", "-G", "host"], capture_output=True).returncode != 0
        with built("ext4 | sshfs", LoopDevice(SIZE), context) as stack:
            (stack.path / "file").write_text("content")


def test_modes_are_those_that_were_asked_for(context: BuildContext) -> None:
    with built("ext4 | sshfs", LoopDevice(SIZE), context) as stack:
        before = os.umask(0o027)
        try:
            (stack.path / "directory").mkdir()
            (stack.path / "file").touch()
        finally:
            os.umask(before)
        assert [(stack.path / name).stat().st_mode & 0o777 for name in ("directory", "file")] == [0o750, 0o640]
