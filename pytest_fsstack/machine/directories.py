"""Directories that this plugin makes, and their removal: never of what is mounted in them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.machine import journal, mounts
from pytest_fsstack.machine.journal import Fact, Facts, Gone, Kind

if TYPE_CHECKING:
    from pytest_fsstack.machine.journal import Journal

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(path: Path) -> None:
    """Remove a directory and all that is in it, but nothing of another filesystem.

    Raises OSError (EBUSY) while anything is mounted at or below it, before anything is removed. What is mounted
    meanwhile stops it: each step is made in a directory that is held open and known to be on the same filesystem.
    """
    real = path.parent.resolve() / path.name
    if found := mounts.below(real):
        raise OSError(errno.EBUSY, f"something is mounted on {found[0]}, so nothing was removed; unmount it first")
    parent = os.open(real.parent, _OPEN)
    try:
        _remove(parent, real.name, (os.lstat(real).st_dev, _mount_of(parent)), real)
    finally:
        os.close(parent)


def _remove(parent: int, name: str, where: tuple[int, str], shown: Path) -> None:
    directory = os.open(name, _OPEN, dir_fd=parent)
    try:
        # A bind mount of the same filesystem has the same number of a device.
        if (os.fstat(directory).st_dev, _mount_of(directory)) != where:
            raise OSError(errno.EBUSY, f"something is mounted on {shown}, so nothing in it was removed")
        with os.scandir(directory) as entries:
            found = list(entries)
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                _remove(directory, entry.name, where, shown / entry.name)
            else:
                os.unlink(entry.name, dir_fd=directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=parent)


def _mount_of(directory: int) -> str:
    """Which mount an open directory was reached through."""
    lines = Path(f"/proc/self/fdinfo/{directory}").read_text().splitlines()
    return next(line for line in lines if line.startswith("mnt_id:"))


@contextlib.contextmanager
def temporary(parent: Path, book: Journal, prefix: str = "fsstack-") -> Iterator[Path]:
    """A new directory in `parent`, removed afterwards with all that is in it; the journal has it meanwhile."""
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    with book.entry(DIRECTORY, path=str(path)):
        try:
            yield path
        finally:
            remove(path)


@contextlib.contextmanager
def scratch(parent: Path, prefix: str = "fsstack-") -> Iterator[Path]:
    """A new directory in a `parent` that is cleaned up itself; removed afterwards with all that is in it."""
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        yield path
    finally:
        remove(path)


def traversable(directory: Path) -> bool:
    """Whether every user can reach what is in a directory, if it lets them."""
    real = directory.resolve()
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (real, *real.parents))


# -- that outlive a reboot ---------------------------------------------------------------------------------------------

_MARKER = ".pytest-fsstack"


@contextlib.contextmanager
def lasting(parent: Path, book: Journal) -> Iterator[Path]:
    """As `temporary`, and found again by `remove_stale` if nothing is left of the journal, as after a reboot."""
    path = Path(tempfile.mkdtemp(prefix="fsstack-", dir=parent))
    with book.entry(DIRECTORY, path=str(path)), contextlib.ExitStack() as undo:
        undo.callback(remove, path)
        # Locked before it has its name: without a lock, it says that its session is dead.
        unfinished = path / f"{_MARKER}.new"
        marker = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unfinished.rename(path / _MARKER)
            data = path / "data"
            data.mkdir()
            # What is in it may be for others; its name is not to be guessed.
            data.chmod(0o755)
            path.chmod(0o711)
            yield data
            undo.close()
        finally:
            undo.close()
            os.close(marker)


def remove_stale(parent: Path) -> list[str]:
    """Remove what sessions that were killed have left of `lasting`; a line for each that was, or could not be."""
    said = []
    for marker in sorted(parent.glob(f"fsstack-*/{_MARKER}")):
        # Another user's, or one that a living session has locked, or that has just been removed.
        with contextlib.suppress(OSError):
            if {marker.lstat().st_uid, marker.parent.lstat().st_uid} != {os.geteuid()}:
                continue
            fd = os.open(marker, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                try:
                    remove(marker.parent)
                except OSError as error:
                    said.append(f"left alone: {marker.parent}: {error.strerror}")
                else:
                    said.append(f"removed {marker.parent}, of a session that was killed")
            finally:
                os.close(fd)
    return said


# -- after a kill ------------------------------------------------------------------------------------------------------


def _inode(facts: Facts) -> dict[str, Fact]:
    try:
        status = os.lstat(journal.text(facts, "path"))
    except FileNotFoundError:
        return {}
    return {"dev": status.st_dev, "ino": status.st_ino}


def _exists(facts: Facts) -> bool:
    now = _inode(facts)
    if not now:
        return False
    if not stat.S_ISDIR(os.lstat(journal.text(facts, "path")).st_mode):
        raise Gone("it is no directory any more")
    if "ino" not in facts:
        raise Gone("the session did not live to see it made, so nothing proves that it made it; is it of any use?")
    if now != {name: facts.get(name) for name in now}:
        raise Gone("it is another one now")
    return True


def _removed(facts: Facts) -> str:
    path = Path(journal.text(facts, "path"))
    remove(path)
    return f"removed {path}"


DIRECTORY = Kind("directory", _exists, _removed, _inode, outlives_boot=True)
