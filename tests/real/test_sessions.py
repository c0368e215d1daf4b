"""Whole sessions on real devices: what they may touch, and what is left of them however they end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, guard
from tests.real.conftest import Loop, Sessions, lacking, run
from tests.toolkit import chains_of

pytestmark = pytest.mark.root

ALL_KINDS = (
    *("ext4", "ext4 | gocryptfs", "ext4 | encfs", "ext4 | securefs", "xfs | loop(size='64M') | ext2", "btrfs | bind"),
    "ext4 | fscrypt | overlay",
)


def test_a_session_leaves_nothing(sessions: Sessions) -> None:
    stacks = [stack for stack in ALL_KINDS if not lacking(stack)]
    sessions.write(*stacks)
    result = sessions.run("--fsstack-rounds=1")
    assert result.returncode == 0, result.stdout
    assert f"{2 * len(stacks)} passed" in result.stdout
    assert sessions.left == []
    assert list((sessions.directory / "tmp").rglob("fsstack-*")) == []


def test_mounts_are_seen_by_nobody_else(sessions: Sessions) -> None:
    sessions.write("ext4")
    process = sessions.start("--fsstack-rounds=1")
    _, path, pid = sessions.mounts.read_text().split()
    assert path not in Path("/proc/self/mountinfo").read_text()
    assert path in Path(f"/proc/{pid}/mountinfo").read_text()
    (sessions.directory / "wait").unlink()
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output


@pytest.mark.parametrize(
    ("stack", "number", "status"),
    [
        # Which of them ends which stack is drawn by `tests.torture`, without end.
        ("ext4", signal.SIGINT, 130),
        ("ext4 | gocryptfs", signal.SIGTERM, 143),
        ("ext4 | encfs", signal.SIGHUP, 129),
        ("ext4 | securefs", signal.SIGQUIT, 131),
        ("ext4 | gocryptfs", signal.SIGKILL, -9),
        ("xfs | loop(size='64M') | ext2", signal.SIGKILL, -9),
        ("btrfs | bind", signal.SIGKILL, -9),
        ("ext4 | fscrypt | overlay", signal.SIGKILL, -9),
    ],
)
def test_a_signal_leaves_nothing(sessions: Sessions, stack: str, number: signal.Signals, status: int) -> None:
    sessions.write(stack)
    process = sessions.start("--fsstack-rounds=1")
    process.send_signal(number)
    output, _ = process.communicate(timeout=300)
    assert process.returncode == status, output
    assert sessions.nothing_is_left(), sessions.left
    assert "Traceback" not in output


@pytest.mark.parametrize("stack", ["ext4", "ext4 | bind"])
def test_a_tool_that_is_killed_once_it_has_done_its_work_leaves_nothing(
    sessions: Sessions, disk: Loop, monkeypatch: pytest.MonkeyPatch, stack: str
) -> None:
    sessions.write(stack)
    slow, mounted = sessions.directory / "bin/mount", sessions.directory / "mounted"
    slow.parent.mkdir()
    last = stack.rpartition(" ")[2]
    slow.write_text(f"""#!/bin/sh
{shutil.which("mount")} "$@" || exit
case "$*" in *-{last}) touch {mounted}; exec sleep 60;; esac
""")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    command = sessions.command(f"--fsstack-device={disk.path}", "--fsstack-rounds=1")
    with subprocess.Popen(command, cwd=sessions.directory, stdout=subprocess.PIPE, text=True) as process:
        assert commands.wait_until(mounted.exists, 60)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        # The second one hurries: it kills what runs.
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 130, output
    assert sessions.nothing_is_left(), sessions.left
    assert guard.labelled(disk.path), output
    assert list(sessions.journals.iterdir()) == []
    assert "--fsstack-cleanup" not in output


def test_what_cannot_be_undone_is_told_at_the_end_of_the_session(
    sessions: Sessions, disk: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions.write("ext4")
    # Formatting it asks for quiet; what writes the label does not.
    stubborn = sessions.directory / "bin/wipefs"
    stubborn.parent.mkdir()
    stubborn.write_text(
        f'#!/bin/sh\ncase $1 in -a) echo it will not >&2; exit 1;; *) exec {shutil.which("wipefs")} "$@";; esac\n'
    )
    stubborn.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sessions.directory}/bin:{os.environ['PATH']}")
    result = used_as_disk(sessions, disk)
    assert result.returncode == 1
    (hint,) = [line for line in result.stdout.splitlines() if "--fsstack-cleanup" in line]
    assert hint.startswith("fsstack: ")
    assert f"disk {disk.path}" in hint
    monkeypatch.undo()
    assert sessions.nothing_is_left(), sessions.left
    assert str(disk.path) in sessions.run("--fsstack-cleanup").stdout
    assert guard.labelled(disk.path)


def test_sigkill_while_a_stack_is_being_built_leaves_nothing(sessions: Sessions) -> None:
    sessions.write("ext4 | gocryptfs | encfs", "xfs | gocryptfs")
    for delay in (0.2, 0.7, 1.2):
        sessions.mounts.unlink(missing_ok=True)
        process = sessions.start("--fsstack-rounds=30")
        (sessions.directory / "wait").unlink()
        time.sleep(delay)
        sessions.kill(process)


def test_clean_up_after_sigkill_has_only_a_directory_to_remove(sessions: Sessions) -> None:
    sessions.write("ext4 | gocryptfs")
    process = sessions.start("--fsstack-rounds=1")
    sessions.kill(process)
    cleaned = sessions.run("--fsstack-cleanup")
    assert cleaned.returncode == 0, cleaned.stdout
    assert str(process.pid) in cleaned.stdout
    assert list((sessions.directory / "tmp").glob("fsstack-*")) == []
    again = sessions.run("--fsstack-cleanup").stdout
    assert len(again.splitlines()) == 1
    assert str(process.pid) not in again


def used_as_disk(sessions: Sessions, disk: Loop, *arguments: str) -> subprocess.CompletedProcess[str]:
    return sessions.run(f"--fsstack-device={disk.path}", "--fsstack-rounds=1", *arguments)


def test_a_blank_device_is_used_and_carries_only_the_label_afterwards(sessions: Sessions, disk: Loop) -> None:
    sessions.write("ext4", "ext4 | gocryptfs")
    result = used_as_disk(sessions, disk)
    assert result.returncode == 0, result.stdout
    assert guard.labelled(disk.path)
    assert run("wipefs", disk.path) == ""
    assert b"pytest-fsstack" in disk.image.read_bytes()[:4096]


def test_given_over_once_it_needs_no_flag_again(sessions: Sessions, disk: Loop) -> None:
    sessions.write("ext4")
    run("mkfs.ext4", "-q", "-L", "photos", disk.path)
    assert used_as_disk(sessions, disk, f"--fsstack-overwrite={disk.path}").returncode == 0
    assert used_as_disk(sessions, disk).returncode == 0


def test_the_disk_of_the_root_filesystem_is_refused(sessions: Sessions) -> None:
    source = run("findmnt", "-no", "SOURCE", "/").partition("[")[0]
    if not source.startswith("/dev/"):
        pytest.skip("the root filesystem here is on no device of its own")
    sessions.write("ext4")
    result = sessions.run(f"--fsstack-device={source}", f"--fsstack-overwrite={source}", "--fsstack-rounds=1")
    assert result.returncode == 4
    # Some machines let nobody open it, so that the reason may be another one than that it is the root's.
    assert re.search(rf"^ERROR: .*{source}\b", result.stderr, re.MULTILINE)
    assert not sessions.mounts.exists()


def killed_on(disk: Loop, sessions: Sessions) -> subprocess.Popen[str]:
    """A session that was killed while its first stack stood on the disk, of which nothing is left."""
    process = sessions.start(f"--fsstack-device={disk.path}", "--fsstack-rounds=1")
    sessions.kill(process)
    assert disk.free()
    return process


def test_the_next_session_on_a_killed_ones_disk_says_what_to_do(sessions: Sessions, disk: Loop) -> None:
    sessions.write("ext4 | gocryptfs")
    process = killed_on(disk, sessions)
    (sessions.directory / "wait").unlink()
    with disk.untouched():
        refused = used_as_disk(sessions, disk)
    assert refused.returncode == 4, refused.stdout
    assert re.search(rf"\bdisk {disk.path}\b.*\b{process.pid}\b.*--fsstack-cleanup\b", refused.stdout)

    sessions.run("--fsstack-cleanup")
    assert guard.labelled(disk.path)
    assert used_as_disk(sessions, disk).returncode == 0


def test_files_put_on_a_killed_ones_disk_are_not_lost(
    sessions: Sessions, disk: Loop, mount: Callable[[Path], Path]
) -> None:
    sessions.write("ext4")
    killed_on(disk, sessions)
    target = mount(disk.path)
    (target / "mine").write_text("put there since")
    run("umount", target)
    with disk.untouched():
        sessions.run("--fsstack-cleanup")
    run("mount", disk.path, target)
    assert (target / "mine").read_text() == "put there since"


def test_samples_say_what_was_read_and_written(sessions: Sessions) -> None:
    (sessions.directory / "test_it.py").write_text("""
import pytest

@pytest.mark.fsstack("ext4", "btrfs(compress='zstd')", "ext4 | encfs")
class TestIt:
    @pytest.mark.benchmark
    def test_write(self, fsstack, timed):
        with timed(bytes=32 << 20, files=1):
            timed.run("dd", "if=/dev/zero", f"of={fsstack.path}/file", "bs=1M", "count=32")

    @pytest.mark.benchmark
    def test_read(self, fsstack, timed):
        with timed(bytes=32 << 20):
            timed.run("cat", fsstack.path / "file")
""")
    result = sessions.run("--fsstack-rounds=2", "--fsstack-json=out.json")
    assert result.returncode == 0, result.stdout
    (chain,) = chains_of(sessions.directory / "out.json")

    def median(step: str, stack: str, metric: str) -> float:
        return chain.median(step, stack, metric) or 0.0

    assert 32 << 20 <= median("write", "ext4", "written_bytes") < 40 << 20
    # Cold caches: what was written before is read from the device.
    assert median("write", "ext4", "read_bytes") < 4 << 20
    assert 32 << 20 <= median("read", "ext4", "read_bytes") < 40 << 20
    assert 32 << 20 <= median("read", "ext4+encfs", "read_bytes") < 48 << 20
    assert median("write", "btrfs-zstd", "written_bytes") < 8 << 20
    assert 32 << 20 <= median("write", "ext4", "used_bytes") < 80 << 20
    assert median("write", "ext4", "throughput") == pytest.approx(
        (32 << 20) / median("write", "ext4", "seconds"), rel=0.5
    )
    # The daemon's work is charged to the machine, and to no child of the test.
    assert median("write", "ext4+encfs", "machine_seconds") > median("write", "ext4+encfs", "user_seconds")
    stacks = chain.stacks
    assert stacks["ext4"].mounts[0].startswith("ext4 /dev/loop")
    made, mounted = (line.split()[0] for line in stacks["ext4"].commands)
    assert (made, mounted) == ("mkfs.ext4", "mount")
    assert any(line.startswith("encfs ") for line in stacks["ext4+encfs"].commands)


DATABASE = """
from pytest_fsstack import workloads

def test_commit(fsstack, timed):
    workloads.sqlite(timed, fsstack, transactions=50, synchronous=fsstack.stack.id)
"""


def test_commits_with_syncs_cost_more_and_a_gate_finds_it(sessions: Sessions) -> None:
    """A known answer: without syncs, the pages of all transactions are written once, at the end."""
    sessions.write("ext4")
    (sessions.directory / "test_it.py").write_text(DATABASE)
    # Counted, because the time of a busy machine decides nothing in five rounds.
    budget = "--fsstack-budget=full: written_bytes 200%"
    stacks = "--fsstack-stacks=off = ext4", "--fsstack-stacks=full = ext4"
    result = sessions.run(*stacks, budget, "--fsstack-rounds=5", "--fsstack-json=out.json")
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    assert "1 failed, 1 passed" in result.stdout
    (chain,) = chains_of(sessions.directory / "out.json")
    off, full = (chain.median("commit", name, "written_bytes") for name in ("off", "full"))
    assert off is not None
    assert full is not None
    assert full > 3 * off > 0
