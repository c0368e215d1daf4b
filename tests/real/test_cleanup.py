"""After a session was killed in the middle: what it left is undone, what is not its own stays."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, guard, journal, mounts
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from tests.real.conftest import Loop, LoopDevice, run
from tests.toolkit import leftovers

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("locks")]

SESSION = """
import os, pathlib, subprocess, sys
from contextlib import ExitStack, nullcontext
from pytest_fsstack.machine import guard
from pytest_fsstack.machine import blockdev, commands, mounts
from pytest_fsstack.machine.guard import holding, label
from pytest_fsstack.session.cleanup import kinds
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.journal import Journal
from tests import guarding
KINDS = kinds(BUILT_IN.values())
journal_directory, device, here = map(pathlib.Path, sys.argv[1:])
from pytest_fsstack.machine.real import RealMachine
journal = Journal(journal_directory, RealMachine())
stack = ExitStack()
holding.LOCKS = journal_directory.parent / "lock"
def entry(kind, **facts):
    return stack.enter_context(journal.entry(KINDS[kind], **facts))
"""

NOTHING = journal.CleanupReport()


def cleanup(directory: Path) -> journal.CleanupReport:
    return journal.cleanup(directory, RealMachine(), lambda: kinds(BUILT_IN.values()))


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    return tmp_path / "journals"


@pytest.fixture
def killed(journals: Path, tmp_path: Path) -> Iterator[Callable[[Path, str], str]]:
    """Run a session that is killed where its code ends; what it printed."""
    here = tmp_path / "here"
    here.mkdir()

    def session(device: Path, code: str) -> str:
        whole = SESSION + code + "\nsys.stdout.flush(); os.kill(os.getpid(), 9)"
        result = subprocess.run(
            [sys.executable, "-c", whole, journals, device, here], stdout=subprocess.PIPE, stderr=None, text=True
        )
        assert result.returncode == -signal.SIGKILL
        return result.stdout.strip()

    yield session
    while mounts.at(here):
        run("umount", here)


@pytest.fixture
def loop(loop_device: LoopDevice) -> Loop:
    return loop_device()


CLAIM = """
disk = stack.enter_context(guarding.claimed(device, overwrite=True, record=lambda d: nullcontext()))
note = entry("disk", **guard.identify(device).facts())
commands.run("wipefs", "-aq", disk.path)
commands.run("mkfs.ext4", "-q", "-F", disk.path)
def proof():
    note.update(signature=guard.signature(disk.path), mounted=blockdev.last_mount(disk.path))
proof()
"""

MOUNTED = 'entry("mount", target=str(here)); commands.run("mount", disk.path, here); proof()'


def test_a_whole_stack_is_taken_down(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str]
) -> None:
    here = tmp_path / "here"
    pid = killed(
        loop.path,
        f"""
{CLAIM}
entry("mount", target=str(here)); commands.run("mount", disk.path, here); proof()
new = here / "new"
note = entry("directory", path=str(new)); new.mkdir(); note.update(); (new / "file").touch()
daemon = subprocess.Popen(["sleep", "1000"], cwd=here, start_new_session=True, stdout=subprocess.DEVNULL)
entry("daemon", pid=daemon.pid)
print(daemon.pid)
""",
    )
    (leftover,) = leftovers(journals)
    assert [entry.kind for entry in leftover.entries] == ["disk", "mount", "directory", "daemon"]

    report = cleanup(journals)

    assert report.left == []
    assert len(report.undone) == 4
    for line, thing in zip(report.undone, [pid, f"{here}/new", here, loop.path]):
        assert re.search(rf"{thing}\b(?!/).*\b{leftover.session.pid}\b", line)
    assert journal.start_time(int(pid)) is None
    assert mounts.at(here) is None
    assert guard.labelled(loop.path)
    assert list(journals.iterdir()) == []
    assert cleanup(journals) == NOTHING


def test_what_is_still_in_use_is_left_until_it_is_not(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str]
) -> None:
    here = tmp_path / "here"
    killed(loop.path, CLAIM + MOUNTED)
    user = subprocess.Popen(["sleep", "1000"], cwd=here)
    try:
        report = cleanup(journals)
    finally:
        user.kill()
        user.wait()
    assert report.undone == []
    unmount, relabel = report.left
    assert re.search(rf"\bmount {here}\b.*\b{user.pid} \(sleep\)", unmount)
    assert re.search(rf"\bdisk {loop.path}\b.*{here}\b", relabel)
    assert len(leftovers(journals)[0].entries) == 2

    report = cleanup(journals)
    assert len(report.undone) == 2
    assert report.left == []
    assert guard.labelled(loop.path), report
    assert list(journals.iterdir()) == []


def test_a_disk_of_which_the_session_had_not_been_given_the_use_is_left_alone(
    journals: Path, loop: Loop, killed: Callable[[Path, str], str]
) -> None:
    run("mkfs.ext4", "-q", loop.path)
    claim = CLAIM[: CLAIM.index("note =")].strip().replace("overwrite=True", "overwrite=False")
    with loop.untouched():
        killed(loop.path, f"try: {claim}\nexcept guard.Refused: pass")
        assert cleanup(journals) == NOTHING


def test_another_disk_that_has_its_name_now_is_left_alone(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str]
) -> None:
    killed(loop.path, CLAIM)
    other = tmp_path / "other"
    with other.open("wb") as file:
        file.truncate(loop.image.stat().st_size)
    run("losetup", "-d", loop.path)
    run("losetup", loop.path, other)
    run("mkfs.ext4", "-q", loop.path)
    before = other.read_bytes()
    (line,) = cleanup(journals).left
    assert f"disk {loop.path}" in line
    # Whatever it is, it is not the session's.
    assert "--fsstack-overwrite" not in line
    assert other.read_bytes() == before
    assert list(journals.iterdir()) == []


def test_a_disk_that_the_user_has_formatted_since_is_left_alone(
    journals: Path, loop: Loop, killed: Callable[[Path, str], str]
) -> None:
    killed(loop.path, CLAIM)
    run("wipefs", "-aq", loop.path)
    run("mkfs.ext4", "-q", loop.path)
    with loop.untouched():
        (line,) = cleanup(journals).left
    assert f"`--fsstack-overwrite={loop.path}`" in line


def test_a_disk_without_a_signature_of_ours_is_left_alone(
    journals: Path, loop: Loop, killed: Callable[[Path, str], str]
) -> None:
    killed(
        loop.path,
        CLAIM.replace('commands.run("mkfs.ext4", "-q", "-F", disk.path)', "(disk.path).write_bytes(b'x' * 4096)"),
    )
    with loop.untouched():
        (line,) = cleanup(journals).left
    assert f"`--fsstack-overwrite={loop.path}`" in line


def test_no_session_empties_a_disk_by_itself_in_which_there_may_be_files_by_now(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str]
) -> None:
    killed(loop.path, CLAIM)
    here = tmp_path / "here"
    run("mount", loop.path, here)
    (here / "mine").write_text("put there since")
    run("umount", here)
    report = journal.cleanup(journals, RealMachine(), lambda: kinds(BUILT_IN.values()), asked=False)
    assert report.undone == []
    assert "--fsstack-cleanup" in report.left[0]
    run("mount", "-o", "ro", loop.path, here)
    assert (here / "mine").read_text() == "put there since"


@pytest.mark.parametrize("mkfs", ["mkfs.ext2", "mkfs.ext3", "mkfs.ext4"])
def test_a_disk_that_nobody_has_mounted_since_is_emptied_if_asked(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str], mkfs: str
) -> None:
    killed(loop.path, CLAIM.replace("mkfs.ext4", mkfs) + MOUNTED)
    run("umount", tmp_path / "here")
    # To look at it leaves it as it is.
    run("mount", "-o", "ro", loop.path, tmp_path / "here")
    run("umount", tmp_path / "here")
    assert str(loop.path) in cleanup(journals).undone[-1]
    assert guard.labelled(loop.path)


@pytest.mark.parametrize("mkfs", ["mkfs.ext2", "mkfs.ext3", "mkfs.ext4"])
@pytest.mark.parametrize("mounted", ["", MOUNTED])
def test_files_that_were_put_on_it_since_are_not_lost_even_if_asked(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str], mkfs: str, mounted: str
) -> None:
    here = tmp_path / "here"
    killed(loop.path, CLAIM.replace("mkfs.ext4", mkfs) + mounted)
    if mounted:
        run("umount", here)
    run("mount", loop.path, here)
    (here / "mine").write_text("put there since")
    run("umount", here)
    with loop.untouched():
        (line,) = cleanup(journals).left
    assert re.search(f"mounted.*`--fsstack-overwrite={loop.path}`", line)
    assert list(journals.iterdir()) == []


@pytest.mark.parametrize("tool", ["mkfs.xfs", "mkfs.btrfs"])
def test_a_filesystem_that_does_not_record_its_mounts_is_left_alone(
    journals: Path, loop_device: LoopDevice, killed: Callable[[Path, str], str], tool: str
) -> None:
    if commands.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    loop = loop_device(size=320 << 20)
    killed(loop.path, CLAIM.replace('"mkfs.ext4", "-q", "-F"', f'"{tool}", "-q", "-f"'))
    with loop.untouched():
        (line,) = cleanup(journals).left
    assert re.search(f"mounted.*`--fsstack-overwrite={loop.path}`", line)


def test_what_is_encrypted_by_a_passphrase_that_died_with_the_session_is_emptied(
    journals: Path, loop: Loop, killed: Callable[[Path, str], str]
) -> None:
    if commands.which("cryptsetup") is None:
        pytest.skip("cryptsetup is not installed")
    luks = """
with commands.secret_fd(os.urandom(32)) as fd:
    commands.run("cryptsetup", "-q", "luksFormat", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000",
                 "--key-file", f"/proc/self/fd/{fd}", disk.path, fds=(fd,))
"""
    killed(loop.path, CLAIM.replace('commands.run("mkfs.ext4", "-q", "-F", disk.path)', luks))
    (line,) = cleanup(journals).undone
    assert str(loop.path) in line
    assert guard.labelled(loop.path)


EMPTYING = """
note = entry("disk", **guard.identify(device).facts())
real = label.write_all
left = int({steps})
def write(fd, data, offset):
    global left
    if not left:
        os.fsync(fd); sys.stdout.flush(); os.kill(os.getpid(), 9)
    left -= 1
    real(fd, data, offset)
commands.run("mkfs.xfs" if {xfs} else "mkfs.btrfs", "-q", "-f", "-K", device)
note.update(signature=guard.signature(device))
label.write_all = write
label.write_label_on(guard.identify(device), lambda proof: note.update(**proof))
"""


@pytest.fixture
def is_half_emptied(loop_device: LoopDevice, killed: Callable[[Path, str], str]) -> Callable[..., Loop]:
    """A device of a session that was killed after so many writes for its label, one at each end."""

    def make(steps: int, xfs: bool = True) -> Loop:
        if commands.which("mkfs.xfs") is None or commands.which("mkfs.btrfs") is None:
            pytest.skip("mkfs.xfs and mkfs.btrfs are not both installed")
        loop = loop_device(size=304 << 20)
        killed(loop.path, EMPTYING.format(steps=steps, xfs=xfs))
        return loop

    return make


@pytest.mark.parametrize("xfs", [True, False])
def test_a_disk_that_was_being_emptied_is_emptied(
    journals: Path, is_half_emptied: Callable[..., Loop], xfs: bool
) -> None:
    loop = is_half_emptied(2, xfs)
    assert not guard.labelled(loop.path)
    (line,) = cleanup(journals).undone
    assert str(loop.path) in line
    assert guard.labelled(loop.path)


def test_whatever_was_written_to_it_since_is_not_lost(journals: Path, is_half_emptied: Callable[..., Loop]) -> None:
    loop = is_half_emptied(2)
    loop.write(b"m", 100)
    with loop.untouched():
        (line,) = cleanup(journals).left
    assert f"`--fsstack-overwrite={loop.path}`" in line


def test_a_filesystem_that_was_made_on_it_since_is_not_lost(
    journals: Path, is_half_emptied: Callable[..., Loop]
) -> None:
    loop = is_half_emptied(2)
    run("mkfs.ext4", "-q", loop.path)
    with loop.untouched():
        (line,) = cleanup(journals).left
    assert f"`--fsstack-overwrite={loop.path}`" in line
