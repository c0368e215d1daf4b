"""A directory that a descriptor holds: what is done in it is done there, whatever its name leads to meanwhile."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import resource
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import directories, owners
from pytest_fsstack.machine.directories import HeldDirectory
from pytest_fsstack.machine.journal import Journal, OutdatedEntryError
from pytest_fsstack.machine.real import RealMachine


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    (tmp_path / "victim/data").mkdir(parents=True)
    (tmp_path / "victim/file").write_text("precious")
    return tmp_path / "victim"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def exchange(path: Path, victim: Path) -> Path:
    moved = path.with_name("moved")
    path.rename(moved)
    path.symlink_to(victim)
    return moved


def test_a_directory_whose_name_leads_elsewhere_is_emptied_and_its_name_left_alone(place: Path, victim: Path) -> None:
    book = Journal(place.parent / "journal", RealMachine())
    made = directories.temporary(place, book)
    path = made.__enter__()
    (path / "own").write_text("text")
    moved = exchange(path, victim)
    with pytest.raises(OSError, match=f"{path} .*{moved}") as error:
        made.__exit__(None, None, None)
    assert error.value.errno == errno.ESTALE
    assert list(moved.iterdir()) == []
    assert path.is_symlink()
    assert (victim / "file").read_text() == "precious"
    book.close()


def test_a_directory_of_the_same_name_is_not_removed(place: Path) -> None:
    made = directories.scratch(place)
    path = made.__enter__()
    path.rename(place / "moved")
    path.mkdir()
    with pytest.raises(OSError, match=f"{path} .*{place}/moved") as error:
        made.__exit__(None, None, None)
    assert error.value.errno == errno.ESTALE
    assert path.is_dir()


def test_a_link_in_place_of_a_subdirectory_is_removed_and_not_followed(place: Path, victim: Path) -> None:
    with directories.scratch(place) as path:
        (path / "a/b").mkdir(parents=True)
        (path / "a/b/link").symlink_to(victim)
        exchange(path / "a/b", victim)
    assert list(place.iterdir()) == []
    assert (victim / "file").read_text() == "precious"


@contextlib.contextmanager
def at_the_end_of(file: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Act while a tree is removed, just before a file in it."""
    unlink = os.unlink

    def acting(name: str, dir_fd: int) -> None:
        if name == file:
            act()
        unlink(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", acting)
        yield


def test_a_subdirectory_that_is_moved_while_it_is_emptied_leads_nowhere_else(
    place: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "made/a/b").mkdir(parents=True)
    (place / "made/a/b/last").touch()
    moving = functools.partial(os.rename, place / "made/a/b", victim / "b")
    with at_the_end_of("last", moving, monkeypatch), pytest.raises(OSError, match=f"{place}/made") as error:
        directories.remove(place / "made")
    assert error.value.errno == errno.ESTALE
    assert sorted(os.listdir(victim)) == ["b", "data", "file"]


def test_a_tree_is_removed_however_deep_it_is(place: Path) -> None:
    (place / "made").mkdir()
    here = os.open(place / "made", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("a", dir_fd=here)
        below = os.open("a", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (here + 20, limits[1]))
    try:
        directories.remove(place / "made")
    finally:
        os.close(here)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        paths = list(place.iterdir())
        subprocess.run(["rm", "-rf", place / "made"])  # too deep for pytest
    assert paths == []


def test_a_tree_is_removed_whatever_modes_its_directories_have(place: Path) -> None:
    for number, mode in enumerate((0o555, 0o300, 0)):
        (place / f"made/{number}/below").mkdir(parents=True)
        (place / f"made/{number}").chmod(mode)
    # Without the capabilities of root, which ignore modes.
    drop = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    code = f"from pytest_fsstack.machine import directories as d; d.remove(d.Path({str(place / 'made')!r}))"
    subprocess.run([*drop, sys.executable, "-c", code], check=True)
    assert list(place.iterdir()) == []


def test_modes_are_changed_of_the_directory_itself(place: Path, victim: Path) -> None:
    before = stat.S_IMODE(victim.stat().st_mode)
    with HeldDirectory.open(place) as above, above.make("new") as held:
        moved = exchange(held.path, victim)
        held.chmod(0o711)
        assert stat.S_IMODE(moved.stat().st_mode) == 0o711
    assert stat.S_IMODE(victim.stat().st_mode) == before


def test_another_directory_that_takes_the_name_at_once_is_not_used(
    place: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir = os.mkdir

    def exchanged(name: str, mode: int, dir_fd: int) -> None:
        mkdir(name, mode, dir_fd=dir_fd)
        (place / name).rename(place / "moved")
        victim.chmod(0o700)
        victim.rename(place / name)

    monkeypatch.setattr(os, "mkdir", exchanged)
    with HeldDirectory.open(place) as above, pytest.raises(PermissionError, match=f"{place}/new "):
        above.make("new")
    assert (place / "new/file").read_text() == "precious"


def test_links_of_this_user_are_followed_also_in_the_middle(place: Path, tmp_path: Path) -> None:
    (place / "below").mkdir()
    (tmp_path / "relative").symlink_to("place")
    (tmp_path / "absolute").symlink_to(tmp_path / "relative/../relative")
    for path in tmp_path / "relative/below", tmp_path / "absolute/below", Path("/proc/self/cwd") / place / "below":
        with HeldDirectory.open(path) as held:
            assert held.where == place / "below"


@pytest.mark.parametrize("name", ["absent", "file", "file/below", "loop", "dangling"])
def test_what_is_no_directory_is_an_error_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("absent")
    with pytest.raises(OSError, match=name):
        HeldDirectory.open(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link to another user")
def test_links_of_others_are_not_followed(place: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    os.chown(link, 65534, 65534, follow_symlinks=False)
    with pytest.raises(PermissionError, match=r"\blink\b.*\b65534\b"):
        HeldDirectory.open(link)
    with pytest.raises(PermissionError, match=r"\blink\b.*\b65534\b"):
        HeldDirectory.open(link / "below")


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path), os.mkdir])
def test_only_regular_files_are_opened(place: Path, make: object) -> None:
    assert callable(make)
    make(place / "file")
    with HeldDirectory.open(place) as held, pytest.raises(OSError, match="file"):
        held.open_file("file", os.O_RDWR | os.O_CREAT)


def test_the_journal_knows_a_directory_by_its_inode_and_not_by_its_name(place: Path, tmp_path: Path) -> None:
    with HeldDirectory.open(place) as above, above.make("new") as held:
        facts = {"path": str(held.path), **directories._inode(held.status)}
        assert directories.DIRECTORY.present(RealMachine(), facts)
        assert directories.DIRECTORY.identify(facts) == {}
        held.path.rename(place / "moved")
        held.path.mkdir()
        with pytest.raises(OutdatedEntryError):
            directories.DIRECTORY.undo(RealMachine(), facts)
    assert (place / "new").is_dir()


def test_a_place_that_others_may_change_is_not_safe(place: Path) -> None:
    assert owners.untrusted(place) == ""
    place.chmod(0o777)
    assert re.search(f"^every.*{place}", owners.untrusted(place))
    (place / "below").mkdir()
    assert owners.untrusted(place / "below") == owners.untrusted(place)
    place.chmod(0o1777)
    assert owners.untrusted(place) == ""
    place.chmod(0o777)
    assert directories.safe_place(place) != place


def test_a_place_that_others_may_change_by_its_acl_is_not_safe(place: Path) -> None:
    # include/uapi/linux/posix_acl_xattr.h: the owner, the user 65534, the group, the mask and others.
    entries = (1, 7, 2**32 - 1), (2, 7, 65534), (4, 5, 2**32 - 1), (16, 7, 2**32 - 1), (32, 5, 2**32 - 1)
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(place, "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("the filesystem has no ACLs")
    assert re.search(f"ACL.*{place}", owners.untrusted(place))


def test_a_workplace_is_in_a_safe_place_and_goes_with_all_that_is_in_it(place: Path) -> None:
    book = Journal(place.parent / "journal", RealMachine())
    with directories.workplace(place, book) as made:
        assert made.files.parent == place
        assert stat.S_IMODE(made.files.stat().st_mode) == 0o700
        assert stat.S_IMODE(made.mountpoints.stat().st_mode) == 0o711
        (made.mountpoints / "1-ext4").mkdir()
    assert list(place.iterdir()) == []
    assert not made.mountpoints.exists()
    assert book.close() == []
