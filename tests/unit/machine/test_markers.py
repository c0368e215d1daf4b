"""Markers with name, device and inode of what is removed. What may hold files of others waits for a user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack.machine import directories, journal, owners
from pytest_fsstack.machine.owners import MARKER
from pytest_fsstack.machine.real import RealMachine

KILLED = """
import os, sys
from pathlib import Path
from pytest_fsstack.machine import directories
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
place, book = Path(sys.argv[1]), Journal(Path(sys.argv[1]).parent / "journals", RealMachine())
with getattr(directories, sys.argv[2])(place, book) as made:
    os.kill(os.getpid(), 9)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.fixture
def directory(place: Path) -> Path:
    """A directory that a killed session left, and whose journal is gone, as after a reboot."""
    directory = left_behind(place, "lasting")
    shutil.rmtree(place.parent / "journals")
    return directory


def left_behind(place: Path, how: str) -> Path:
    subprocess.run([sys.executable, "-c", KILLED, place, how], check=False)
    (directory,) = place.glob("fsstack-*")
    return directory


def cleaned(place: Path, asked: bool) -> journal.CleanupReport:
    kinds = {directories.DIRECTORY.name: directories.DIRECTORY}
    return journal.cleanup(place.parent / "journals", RealMachine(), lambda: kinds, asked=asked)


def test_an_empty_directory_of_a_killed_session_is_removed(place: Path, directory: Path) -> None:
    (line,) = directories.remove_stale(place)
    assert line.startswith("removed")
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("where", [".", "data", "data/deep/below"])
def test_notes_in_it_are_removed_only_if_a_user_asks_for_that(place: Path, directory: Path, where: str) -> None:
    (directory / where).mkdir(parents=True, exist_ok=True)
    (directory / where / "notes").write_text("mine")
    (line,) = directories.remove_stale(place)
    assert line.startswith(f"left alone: {directory}")
    assert f"--fsstack-cleanup --fsstack-device=dir:{place}" in line
    assert (directory / where / "notes").read_text() == "mine"
    (line,) = directories.remove_stale(place, asked=True)
    assert line.startswith("removed")


def _renamed(directory: Path) -> Path:
    return directory.rename(directory.with_name("fsstack-kept"))


def _copied(directory: Path) -> Path:
    return Path(shutil.copytree(directory, directory.with_name("fsstack-copy")))


def _marked(directory: Path) -> Path:
    mine = directory.with_name("fsstack-mine")
    mine.mkdir()
    shutil.copy(directory / MARKER, mine)
    return mine


def _linked(directory: Path) -> Path:
    mine = directory.with_name("fsstack-mine")
    mine.mkdir()
    os.link(directory / MARKER, mine / MARKER)
    return mine


def _restored(directory: Path) -> Path:
    backup = Path(shutil.copytree(directory, directory.parent.parent / "backup"))
    shutil.rmtree(directory)
    return Path(shutil.copytree(backup, directory))


def _exchanged(directory: Path) -> Path:
    moved = directory.rename(directory.with_name("moved"))
    directory.mkdir()
    (moved / MARKER).rename(directory / MARKER)
    return directory


@pytest.mark.parametrize("change", [_renamed, _copied, _marked, _linked, _restored, _exchanged])
@pytest.mark.parametrize("asked", [True, False])
def test_a_marker_is_of_one_directory_only(
    place: Path, directory: Path, change: Callable[[Path], Path], asked: bool
) -> None:
    mine = change(directory)
    (mine / "notes").write_text("mine")
    lines = directories.remove_stale(place, asked=asked)
    assert (mine / "notes").read_text() == "mine"
    assert [line for line in lines if line.startswith(f"left alone: {mine}: it")], lines


@pytest.mark.parametrize("how", ["lasting", "temporary"])
def test_a_directory_in_a_journal_keeps_notes_until_a_user_asks(place: Path, how: str) -> None:
    directory = left_behind(place, how)
    (directory / "notes").write_text("mine")
    report = cleaned(place, asked=False)
    assert report.undone == []
    assert "--fsstack-cleanup" in report.left[0]
    assert (directory / "notes").read_text() == "mine"
    renamed = directory.rename(place / "fsstack-kept")
    cleaned(place, asked=True)
    assert (renamed / "notes").read_text() == "mine"


@pytest.mark.parametrize("how", ["lasting", "temporary"])
@pytest.mark.parametrize("asked", [True, False])
def test_what_a_journal_proves_is_removed(place: Path, how: str, asked: bool) -> None:
    directory = left_behind(place, how)
    if asked:
        (directory / "file").touch()
    assert len(cleaned(place, asked=asked).undone) == 1
    assert list(place.iterdir()) == []


@needs_root
@pytest.mark.parametrize("part", ["directory", "marker"])
def test_the_marker_of_another_user_proves_nothing(place: Path, directory: Path, part: str) -> None:
    os.chown(directory if part == "directory" else directory / MARKER, 65534, 65534)
    directories.remove_stale(place, asked=True)
    assert directory.is_dir()


def test_a_directory_of_this_program_is_made_once_and_known_again(place: Path) -> None:
    parent = os.open(place, os.O_RDONLY)
    try:
        first, second = owners.own(parent, "own"), owners.own(parent, "own")
        assert os.path.samestat(os.fstat(first), os.fstat(second))
        (place / "own").rename(place / "moved")
        with pytest.raises(owners.UntrustedError, match="moved"):
            owners.own(parent, "moved")
        (place / "own").mkdir()
        with pytest.raises(owners.UntrustedError, match="no marker"):
            owners.own(parent, "own")
    finally:
        os.close(parent)


@pytest.mark.parametrize(
    ("kind", "options", "reason"),
    [
        ("fuse.mine", "rw,user_id=65534,group_id=65534,allow_other", "user 65534 mounted"),
        ("fuse.sshfs", "rw,user_id=0,group_id=0", ""),
        ("ext4", "rw,user_id=65534", ""),
    ],
)
def test_a_filesystem_that_another_user_serves_is_not_trusted(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: str, options: str, reason: str
) -> None:
    # Its server may show root as the owner of everything.
    read_text = Path.read_text
    descriptor = os.open(place, os.O_RDONLY)
    info = read_text(Path(f"/proc/self/fdinfo/{descriptor}"))
    os.close(descriptor)
    (mount,) = (line.split()[1] for line in info.splitlines() if line.startswith("mnt_id:"))

    def faked(path: Path, **options_of_reading: str) -> str:
        text = f"{mount} 1 0:99 / /somewhere rw,nosuid shared:1 - {kind} a\\040source {options}\n"
        return text if path == Path("/proc/self/mountinfo") else read_text(path)

    monkeypatch.setattr(Path, "read_text", faked)
    assert owners.untrusted(place).startswith(reason)
    assert bool(owners.untrusted(place)) is bool(reason)
