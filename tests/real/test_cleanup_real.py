"""After a session was killed in the middle: what it left is undone, what is not its own stays."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack import guard, host
from pytest_fsstack.journal import cleanup, leftovers
from tests.real.conftest import Loop, LoopDevice, run

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("locks")]

SESSION = """
import os, pathlib, subprocess, sys
from contextlib import ExitStack
from pytest_fsstack import guard, host
from pytest_fsstack.journal import Journal
journal_directory, device, here = map(pathlib.Path, sys.argv[1:])
journal = Journal(journal_directory)
stack = ExitStack()
guard._LOCKS = journal_directory.parent / "lock"
def entry(kind, **facts):
    return stack.enter_context(journal.entry(kind, **facts))
"""


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
        done = subprocess.run(
            [sys.executable, "-c", whole, journals, device, here], stdout=subprocess.PIPE, stderr=None, text=True
        )
        assert done.returncode == -signal.SIGKILL
        return done.stdout.strip()

    yield session
    while host.mount_options(here):
        run("umount", here)


@pytest.fixture
def loop(loop_device: LoopDevice) -> Loop:
    return loop_device()


CLAIM = """
disk = stack.enter_context(guard.claimed(device, overwrite=True, record=lambda d: ExitStack()))
note = entry("disk", **disk.facts())
host.run("wipefs", "-aq", disk.path)
host.run("mkfs.ext4", "-q", "-F", disk.path)
note.note(signature=guard.signature(disk.path))
"""


def test_a_whole_stack_is_taken_down(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str]
) -> None:
    here = tmp_path / "here"
    pid, inner = killed(
        loop.path,
        f"""
{CLAIM}
entry("mount", target=str(here)); host.run("mount", disk.path, here)
new = here / "new"
note = entry("directory", path=str(new)); new.mkdir(); note.note(); (new / "file").touch()
image = here / "image"
with image.open("wb") as file: file.truncate(20 << 20)
note = entry("loop"); inner = host.run("losetup", "-f", "--show", image).strip(); note.note(path=inner)
daemon = subprocess.Popen(["sleep", "1000"], cwd=here, start_new_session=True, stdout=subprocess.DEVNULL)
entry("daemon", pid=daemon.pid)
print(daemon.pid, inner)
""",
    ).split()
    (left,) = leftovers(journals)
    assert [entry.kind for entry in left.entries] == ["disk", "mount", "directory", "loop", "daemon"]

    said = cleanup(journals)

    assert [line.partition(" (of the session of process ")[0] for line in said] == [
        f"ended process {pid}",
        f"detached {inner}",
        f"removed {here}/new",
        f"unmounted {here}",
        f"emptied {loop.path} but for its scratch label",
    ]
    assert host.mount_options(here) is None
    assert not Path("/sys/block", Path(inner).name, "loop").exists()
    assert guard.labelled(loop.path)
    assert list(journals.iterdir()) == []
    assert cleanup(journals) == []


def test_what_is_still_in_use_is_left_until_it_is_not(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str]
) -> None:
    here = tmp_path / "here"
    killed(loop.path, CLAIM + 'entry("mount", target=str(here)); host.run("mount", disk.path, here)')
    user = subprocess.Popen(["sleep", "1000"], cwd=here)
    try:
        unmount, relabel = cleanup(journals)
    finally:
        user.kill()
        user.wait()
    assert unmount.startswith(f"left alone: mount {here}")
    assert f"in use by: {user.pid} (sleep)" in unmount
    assert relabel.startswith(f"left alone: disk {loop.path}")
    assert "is mounted on" in relabel
    assert len(leftovers(journals)[0].entries) == 2

    assert len(cleanup(journals)) == 2
    assert guard.labelled(loop.path)
    assert list(journals.iterdir()) == []


def test_a_disk_of_which_the_session_had_not_been_given_the_use_is_left_alone(
    journals: Path, loop: Loop, killed: Callable[[Path, str], str]
) -> None:
    run("mkfs.ext4", "-q", loop.path)
    before = loop.digest()
    killed(
        loop.path,
        CLAIM.replace("overwrite=True", "overwrite=False")
        .replace("disk = ", "try: disk = ", 1)
        .replace(
            CLAIM.partition("d: ExitStack()))")[2],
            "\nexcept guard.Refused: pass",
        ),
    )
    assert cleanup(journals) == []
    assert loop.digest() == before


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
    (line,) = cleanup(journals)
    assert line.endswith("it is another disk now, or was plugged in again")
    assert other.read_bytes() == before
    assert list(journals.iterdir()) == []


def test_a_disk_that_the_user_has_formatted_since_is_left_alone(
    journals: Path, loop: Loop, killed: Callable[[Path, str], str]
) -> None:
    killed(loop.path, CLAIM)
    run("wipefs", "-aq", loop.path)
    run("mkfs.ext4", "-q", loop.path)
    before = loop.digest()
    (line,) = cleanup(journals)
    assert "nothing proves that it holds what the session left" in line
    assert loop.digest() == before


def test_a_disk_without_a_signature_of_ours_is_left_alone(
    journals: Path, loop: Loop, killed: Callable[[Path, str], str]
) -> None:
    killed(
        loop.path, CLAIM.replace('host.run("mkfs.ext4", "-q", "-F", disk.path)', "(disk.path).write_bytes(b'x' * 4096)")
    )
    before = loop.digest()
    (line,) = cleanup(journals)
    assert "nothing proves that it holds what the session left" in line
    assert loop.digest() == before


def test_a_loop_device_that_stands_on_another_file_now_is_left_alone(
    journals: Path, loop: Loop, tmp_path: Path, killed: Callable[[Path, str], str]
) -> None:
    killed(loop.path, 'entry("loop", path=str(device))')
    run("losetup", "-d", loop.path)
    other = tmp_path / "other"
    with other.open("wb") as file:
        file.truncate(20 << 20)
    run("losetup", loop.path, other)
    (line,) = cleanup(journals)
    assert line.endswith("it stands on another file now")
    assert run("losetup", "-nO", "BACK-FILE", loop.path) == str(other)


def test_a_loop_device_that_is_in_use_goes_with_its_last_user(
    journals: Path, loop: Loop, killed: Callable[[Path, str], str]
) -> None:
    killed(loop.path, 'entry("loop", path=str(device))')
    with loop.path.open("rb"):
        (line,) = cleanup(journals)
        assert line.startswith(f"told {loop.path} to detach once nothing uses it any more")
    assert host.wait_until(lambda: not Path("/sys/block", loop.path.name, "loop").exists(), 5)
