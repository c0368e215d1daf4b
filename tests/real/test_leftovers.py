"""Leftovers of a killed session are removed, also by the next session. What is mounted is never emptied."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import directories, journal, mounts, orphans
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from tests.real.conftest import LoopDevice, Sessions, run
from tests.unit.machine.test_held_directories import at_the_end_of

pytestmark = pytest.mark.root


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """A directory with a file, mounted inside of another: `tmp_path / "removed"`."""
    mounts.private_namespace()
    kept, place = tmp_path / "kept", tmp_path / "removed/a/b"
    kept.mkdir()
    (kept / "file").write_text("mine")
    place.mkdir(parents=True)
    run("mount", "--bind", kept, place)
    yield kept
    if mounts.at(place):
        run("umount", place)


def test_nothing_is_removed_while_something_is_mounted_below(precious: Path, tmp_path: Path) -> None:
    (tmp_path / "removed/other").touch()
    with pytest.raises(OSError, match="removed/a/b") as caught:
        directories.remove(tmp_path / "removed")
    assert caught.value.errno == errno.EBUSY
    assert (precious / "file").read_text() == "mine"
    assert (tmp_path / "removed/other").exists()


def test_what_is_mounted_while_a_directory_is_removed_is_kept(
    precious: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if it had been mounted after the look: a bind mount of the same filesystem, with the same number of a device.
    monkeypatch.setattr(mounts, "below", lambda path: [])
    (tmp_path / "removed/marker").touch()
    with pytest.raises(OSError, match="removed/a/b") as caught:
        directories.remove(tmp_path / "removed")
    assert caught.value.errno == errno.EBUSY
    assert (precious / "file").read_text() == "mine"
    # Another session can try again.
    assert (tmp_path / "removed/marker").exists()


def test_the_way_back_up_does_not_lead_into_a_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts.private_namespace()
    (tmp_path / "removed/a/b").mkdir(parents=True)
    (tmp_path / "removed/a/b/last").touch()
    # The same directory, so only the mount differs.
    words = ["mount", "--bind", str(tmp_path / "removed/a"), str(tmp_path / "removed/a")]
    with at_the_end_of("last", lambda: run(*words), monkeypatch), pytest.raises(OSError, match="removed") as caught:
        directories.remove(tmp_path / "removed")
    assert caught.value.errno == errno.ESTALE
    assert (tmp_path / "removed/a/b").exists()
    run("umount", tmp_path / "removed/a")


def test_a_directory_on_btrfs_is_removed_with_subvolumes_of_a_test(
    loop_device: LoopDevice, mount: Callable[[Path], Path], tmp_path: Path
) -> None:
    if not shutil.which("mkfs.btrfs"):
        pytest.skip("mkfs.btrfs is not installed")
    mounts.private_namespace()
    loop = loop_device(size=128 << 20)
    run("mkfs.btrfs", "-q", loop.path)
    book = Journal(tmp_path / "journals", RealMachine())
    with directories.temporary(place := mount(loop.path), book) as made:
        (made / "file").touch()
        run("btrfs", "subvolume", "create", made / "subvolume")
        (made / "subvolume/file").touch()
    assert list(place.iterdir()) == []
    book.close()


def test_a_device_in_which_a_test_left_a_mount_loses_nothing(precious: Path, tmp_path: Path) -> None:
    book = Journal(tmp_path / "journals", RealMachine())
    device = contextlib.ExitStack()
    made = device.enter_context(directories.temporary(tmp_path, book))
    (made / "left").mkdir()
    run("mount", "--bind", precious, made / "left")
    with pytest.raises(OSError, match=f"{made / 'left'}") as caught:
        device.close()
    assert caught.value.errno == errno.EBUSY
    assert (precious / "file").read_text() == "mine"
    run("umount", made / "left")
    book.close()
    assert list((tmp_path / "journals").iterdir())


@pytest.mark.parametrize("name", [b"/gr\xc3\xb6\xc3\x9fe", b"/\xff", b"/a\x0bb", "/a\u2028b".encode(), b"/a\nb \\c"])
def test_a_mount_with_an_odd_name_is_found_and_undone(tmp_path: Path, name: bytes) -> None:
    mounts.private_namespace()
    target = Path(os.fsdecode(os.fsencode(tmp_path) + name))
    target.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", os.fsencode(target)], check=True)
    try:
        mount = mounts.at(target)
        assert mount is not None
        assert mount.kind == "tmpfs"
        assert mounts.below(tmp_path) == [str(target)]
    finally:
        subprocess.run(["umount", os.fsencode(target)], check=True)


KILLED = """
import os, signal, subprocess, sys
from pathlib import Path
from pytest_fsstack.machine import mounts, orphans
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
with orphans.marked(Journal(Path(sys.argv[1]), RealMachine()), private=mounts.private_namespace()):
    marked = subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
    cleared = subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True, stdout=subprocess.DEVNULL)
    print(marked.pid, cleared.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("numbered", [True, False], ids=["", "before Linux 6.11"])
def test_a_namespace_is_the_session_s_only_by_its_number(numbered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not numbered:
        monkeypatch.setattr(orphans, "_number", lambda process: None)
    words = ["unshare", "-m", "sh", "-c", "echo; exec sleep 1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other, contextlib.ExitStack() as undo:
        undo.callback(other.kill)
        assert other.stdout is not None
        other.stdout.readline()
        process = Path(f"/proc/{other.pid}")
        number = orphans._number(process)
        facts: dict[str, journal.Fact] = {"mark": "none", "namespace": orphans._inode(process), "namespace_id": number}
        assert (other.pid in orphans._descendants(facts)) is (number is not None)


def test_what_a_killed_session_had_started_is_ended_and_nothing_else(tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    with subprocess.Popen(["sleep", "1000"]) as other:
        result = subprocess.run([sys.executable, "-c", KILLED, journals], stdout=subprocess.PIPE, text=True)
        assert result.returncode == -signal.SIGKILL
        pids = [int(word) for word in result.stdout.split()]
        assert all(journal.start_time(pid) for pid in pids)
        report = journal.cleanup(journals, RealMachine(), lambda: {"processes": orphans.PROCESSES})
        (line,) = report.undone
        if orphans._number(orphans.PROC / "self") is None:  # the second one is not found
            os.kill(pids.pop(), signal.SIGKILL)
        assert re.search(rf"\b{', '.join(map(str, pids))}\b", line)
        assert not any(map(journal.start_time, pids))
        assert other.poll() is None
        other.kill()
    assert list(journals.iterdir()) == []


KILLED_IN_A_CONTAINER = """
import os, signal, subprocess, sys
from pathlib import Path
from pytest_fsstack.machine import mounts, orphans
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
with orphans.marked(Journal(Path(sys.argv[1]), RealMachine()), private=mounts.private_namespace()):
    words = ["nsenter", "-t", sys.argv[2], "-m", "sh", "-c", "echo $$; exec sleep 1000"]
    entered = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE)
    print(int(entered.stdout.readline()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_session_had_started_in_a_container_is_ended_and_the_container_is_not(tmp_path: Path) -> None:
    journals = tmp_path / "journals"
    container = ["unshare", "-m", "--propagation", "private", "sh", "-c", "echo ready; sleep 1000 & wait"]
    with subprocess.Popen(container, stdout=subprocess.PIPE, text=True, start_new_session=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "ready\n"
            words: list[str] = [sys.executable, "-c", KILLED_IN_A_CONTAINER, str(journals), str(other.pid)]
            result = subprocess.run(words, stdout=subprocess.PIPE, text=True)
            assert result.returncode == -signal.SIGKILL
            entered = int(result.stdout)
            namespaces = {os.stat(f"/proc/{pid}/ns/mnt").st_ino for pid in (entered, other.pid)}
            assert len(namespaces) == 1
            report = journal.cleanup(journals, RealMachine(), lambda: {"processes": orphans.PROCESSES})
            assert report.undone
            assert re.search(rf"\b{entered}\b", report.undone[0])
            assert other.poll() is None
            children = Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split()
            assert len(children) == 1
        finally:
            os.killpg(other.pid, signal.SIGKILL)


KILLED_IN_A_TEST = """
import os, subprocess
from pathlib import Path
import pytest

@pytest.mark.fsstack("bind")
def test_it(fsstack):
    if not Path("second").exists():
        Path("second").touch()
        (fsstack.path / "much").write_text("data")
        child = subprocess.Popen(["sleep", "1000"], cwd=fsstack.path, start_new_session=True)
        Path("child").write_text(str(child.pid))
        os.kill(os.getpid(), 9)
"""


def test_the_next_session_cleans_up_and_says_so(sessions: Sessions, tmp_path: Path) -> None:
    sessions.write()
    (tmp_path / "test_it.py").write_text(KILLED_IN_A_TEST)
    (tmp_path / "device").mkdir()
    first = sessions.run(f"--fsstack-device=dir:{tmp_path / 'device'}")
    assert first.returncode == -signal.SIGKILL, first.stdout
    (leftover,) = (tmp_path / "device").iterdir()
    child = (tmp_path / "child").read_text()
    second = sessions.run(f"--fsstack-device=dir:{tmp_path / 'device'}")
    assert second.returncode == 0, second.stdout
    (line,) = [line for line in second.stdout.splitlines() if str(leftover) in line]
    assert line.startswith("fsstack: ")
    assert journal.start_time(int(child)) is None
    # It has files, so only a clean-up that its user asks for removes it.
    assert "--fsstack-cleanup" in line
    assert list((tmp_path / "device").iterdir()) == [leftover]
    third = sessions.run("--fsstack-cleanup")
    assert f"removed {leftover}" in third.stdout
    assert list((tmp_path / "device").iterdir()) == []


def test_a_directory_that_its_user_renamed_and_kept_is_left_alone(sessions: Sessions, tmp_path: Path) -> None:
    sessions.write()
    (tmp_path / "test_it.py").write_text(KILLED_IN_A_TEST)
    (tmp_path / "device").mkdir()
    device = f"--fsstack-device=dir:{tmp_path / 'device'}"
    assert sessions.run(device).returncode == -signal.SIGKILL
    (leftover,) = (tmp_path / "device").iterdir()
    kept = leftover.rename(leftover.with_name("fsstack-results"))
    (kept / "data/notes").write_text("mine")
    for words in ([device], ["--fsstack-cleanup"], ["--fsstack-cleanup", device]):
        result = sessions.run(*words)
        assert result.returncode == 0, result.stdout
        assert (kept / "data/notes").read_text() == "mine"
    assert f"left alone: {kept}" in result.stdout
