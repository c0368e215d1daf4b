"""Whole sessions on real devices: what they may touch, and what is left of them however they end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_fsstack import guard
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, journal, needs
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from pytest_fsstack.stack.model import Stack
from tests.real.conftest import Loop, LoopDevice, run
from tests.toolkit import chains_of

pytestmark = pytest.mark.root

SIZE = 512 << 20

TEST = """
import os, time
from pathlib import Path
import pytest

@pytest.mark.fsstack({stacks})
class TestIt:
    @pytest.mark.benchmark
    def test_write(self, fsstack, timed):
        with timed(cold=False):
            (fsstack.path / "file").write_bytes(bytes(1 << 20))

    def test_wait(self, fsstack, request):
        with open(request.config.rootpath / "mounts", "a") as file:
            print(fsstack.spec, fsstack.path, os.getpid(), file=file, flush=True)
        flag = request.config.rootpath / "wait"
        while flag.exists():
            time.sleep(0.05)
"""


def lacking(stack: str) -> list[str]:
    """What this machine must have to build it, and has not."""
    return needs.missing(Stack.parse(stack, BUILT_IN).needs())


#: Whoever has root shares the journals, so that other tests' sessions would clean up what is to be found here.
OWN_JOURNALS = 'mkdir -p /run/pytest-fsstack && mount --bind "$0" /run/pytest-fsstack && exec "$@"'


class Sessions:
    """Runs pytest on a test file in a directory of its own, as a user would; its sessions know only of each other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mounts = directory / "mounts"
        self.journals = directory / "journals"
        self.journals.mkdir(mode=0o700)
        self._pipes = ExitStack()

    def write(self, *stacks: str) -> None:
        for stack in stacks:
            if reasons := lacking(stack):
                pytest.skip("; ".join(reasons))
        (self.directory / "test_it.py").write_text(TEST.format(stacks=", ".join(map(repr, stacks))))
        (self.directory / "pytest.ini").write_text("[pytest]\n")

    def command(self, *arguments: str) -> list[str]:
        base = ["--fsstack-size=512M", f"--basetemp={self.directory / 'tmp'}", "-p", "no:cacheprovider"]
        alone = ["unshare", "--mount", "sh", "-c", OWN_JOURNALS, str(self.journals)]
        return [*alone, sys.executable, "-m", "pytest", *base, *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), cwd=self.directory, capture_output=True, text=True, timeout=600)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a session, and wait until its first stack stands."""
        (self.directory / "wait").touch()
        process = subprocess.Popen(
            self.command(*arguments), cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        self._pipes.callback(process.stdout.close)
        assert commands.wait_until(lambda: self.mounts.exists() and self.mounts.read_text(), 120), process.communicate()
        return process

    def close(self) -> None:
        """Close what is read from sessions, and undo what killed ones left, such as mount points in /tmp."""
        self._pipes.close()
        report = journal.cleanup(self.journals, RealMachine(), lambda: kinds(BUILT_IN.values()))
        assert [line for line in report.left if " disk /dev/" not in line] == []

    @property
    def left(self) -> list[str]:
        """Everything of these sessions that is still there: loop devices, mounts in any namespace, processes."""
        mine, found = f"{self.directory}/tmp/", []
        for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
            try:
                if mine in backing.read_text():
                    found.append(f"{backing}: {backing.read_text().strip()}")
            except OSError:
                continue
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mine in (process / "mountinfo").read_text():
                    found.append(f"mount seen by {process}")
                # The kernel's view of a daemon's command line holds its mount point.
                if mine.encode() in (process / "cmdline").read_bytes():
                    found.append(f"process {process}")
            except OSError:
                continue
        return found

    def nothing_is_left(self, seconds: float = 60.0) -> bool:
        return commands.wait_until(lambda: not self.left, seconds)


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    found = Sessions(tmp_path)
    yield found
    found.close()


@pytest.fixture
def disk(loop_device: LoopDevice) -> Loop:
    return loop_device(size=SIZE)


ALL_KINDS = (
    "ext4",
    "ext4 | gocryptfs",
    "ext4 | encfs",
    "ext4 | securefs",
    "xfs | loop(size='64M') | ext2",
    "btrfs | bind",
    "ext4 | fscrypt | overlay",
)


def test_a_session_leaves_nothing(sessions: Sessions) -> None:
    stacks = [stack for stack in ALL_KINDS if not lacking(stack)]
    sessions.write(*stacks)
    done = sessions.run("--fsstack-rounds=1")
    assert done.returncode == 0, done.stdout
    assert f"{2 * len(stacks)} passed" in done.stdout
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
    done = used_as_disk(sessions, disk)
    assert done.returncode == 1
    (told,) = [line for line in done.stdout.splitlines() if "--fsstack-cleanup" in line]
    assert told.startswith("fsstack: ")
    assert f"disk {disk.path}" in told
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
        process.kill()
        process.communicate()
        assert sessions.nothing_is_left(), sessions.left


def test_clean_up_after_sigkill_has_only_a_directory_to_remove(sessions: Sessions) -> None:
    sessions.write("ext4 | gocryptfs")
    process = sessions.start("--fsstack-rounds=1")
    process.kill()
    process.communicate()
    assert sessions.nothing_is_left()
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
    done = used_as_disk(sessions, disk)
    assert done.returncode == 0, done.stdout
    assert guard.labelled(disk.path)
    assert run("wipefs", disk.path) == ""
    assert b"pytest-fsstack" in disk.image.read_bytes()[:4096]


def test_a_device_with_data_is_refused_and_not_a_byte_changes(sessions: Sessions, disk: Loop) -> None:
    sessions.write("ext4", "xfs")
    run("mkfs.ext4", "-q", "-L", "photos", disk.path)
    with disk.untouched():
        done = used_as_disk(sessions, disk)
        said = done.stdout + done.stderr
        assert done.returncode == 4
        pattern = rf"{disk.path} .*\(ext4\).*'photos'.*`--fsstack-overwrite={disk.path}`"
        assert len(re.findall(pattern, said)) == 1
        assert "Traceback" not in said
        assert not sessions.mounts.exists()


def test_given_over_once_it_needs_no_flag_again(sessions: Sessions, disk: Loop) -> None:
    sessions.write("ext4")
    run("mkfs.ext4", "-q", "-L", "photos", disk.path)
    assert used_as_disk(sessions, disk, f"--fsstack-overwrite={disk.path}").returncode == 0
    assert used_as_disk(sessions, disk).returncode == 0


def test_a_mounted_device_is_refused_even_when_it_is_given_over(
    sessions: Sessions, disk: Loop, mount: Callable[[Path], Path]
) -> None:
    sessions.write("ext4")
    # What ext4 would initialise in the background would change bytes by itself.
    run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk.path)
    target = mount(disk.path)
    # It lies where pytest looks for tests, and the time of the last access would change.
    run("mount", "-o", "remount,noatime", target)
    (target / "file").write_text("mine")
    os.sync()
    with disk.untouched():
        done = used_as_disk(sessions, disk, f"--fsstack-overwrite={disk.path}")
        assert done.returncode == 4
        assert re.search(rf"{disk.path} .*{target}\b", done.stdout + done.stderr)


def test_the_disk_of_the_root_filesystem_is_refused(sessions: Sessions) -> None:
    source = run("findmnt", "-no", "SOURCE", "/").partition("[")[0]
    if not source.startswith("/dev/"):
        pytest.skip("the root filesystem here is on no device of its own")
    sessions.write("ext4")
    done = sessions.run(f"--fsstack-device={source}", f"--fsstack-overwrite={source}", "--fsstack-rounds=1")
    assert done.returncode == 4
    # Some machines let nobody open it, so that the reason may be another one than that it is the root's.
    assert re.search(rf"^ERROR: .*{source}\b", done.stderr, re.MULTILINE)
    assert not sessions.mounts.exists()


def killed_on(disk: Loop, sessions: Sessions) -> subprocess.Popen[str]:
    """A session that was killed while its first stack stood on the disk, of which nothing is left."""
    process = sessions.start(f"--fsstack-device={disk.path}", "--fsstack-rounds=1")
    process.kill()
    process.communicate()
    assert sessions.nothing_is_left(), sessions.left
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
    done = sessions.run("--fsstack-rounds=2", "--fsstack-json=out.json")
    assert done.returncode == 0, done.stdout
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
    done = sessions.run(*stacks, budget, "--fsstack-rounds=5", "--fsstack-json=out.json")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    (chain,) = chains_of(sessions.directory / "out.json")
    off, full = (chain.median("commit", name, "written_bytes") for name in ("off", "full"))
    assert off is not None
    assert full is not None
    assert full > 3 * off > 0
