"""Directories that are opened once and then used only through their descriptors, never by name.

Another user may own the parent directory, as with ``--fsstack-dir`` of root's session. That user may rename entries or
replace them by links at any time. Operations on a descriptor still reach the directory that was opened.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from pytest_fsstack.machine import identity, journal, mounts, owners
from pytest_fsstack.machine.descriptors import closing, opened, write_all
from pytest_fsstack.machine.journal import Fact, Facts, Kind, OutdatedEntryError
from pytest_fsstack.machine.owners import MARKER, exchanged, untrusted
from pytest_fsstack.machine.port import Machine

if TYPE_CHECKING:
    from pytest_fsstack.machine.journal import Journal

_SEARCH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HeldDirectory:
    """An open directory. Names are resolved in it. Commands do not inherit its descriptor."""

    #: All open descriptors. They belong to the session, not to a test.
    descriptors: ClassVar[set[int]] = set()

    def __init__(self, descriptor: int, path: Path) -> None:
        self.descriptors.add(descriptor)
        #: The path when it was opened. `where` returns the current one.
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path) -> HeldDirectory:
        """Open a directory by name, following only links of root or this user. Raises OSError."""
        return cls(owners.held(path), path.absolute())

    @classmethod
    def made(cls, path: Path) -> HeldDirectory:
        """Open a directory that only root and this user may change. Create what is missing of it. Raises OSError."""
        return cls(owners.made(path), path.absolute())

    def __enter__(self) -> HeldDirectory:
        return self

    def __exit__(self, *error: object) -> None:
        self.descriptors.discard(self._descriptor)
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor, for `fcntl.flock` and `os.fsync`."""
        return self._descriptor

    @property
    def status(self) -> os.stat_result:
        """Return owner, mode and inode of the directory itself."""
        return os.fstat(self._descriptor)

    @property
    def where(self) -> Path:
        """Return the current path of the directory."""
        return Path(os.readlink(f"/proc/self/fd/{self._descriptor}"))

    def chmod(self, mode: int) -> None:
        """Change the mode of the directory itself."""
        os.fchmod(self._descriptor, mode)

    def subdirectory(self, name: str) -> HeldDirectory:
        """Open a directory in this one. Raises OSError if the name is a link."""
        return HeldDirectory(os.open(name, _LIST, dir_fd=self._descriptor), self.path / name)

    def make(self, name: str, mode: int = 0o700) -> HeldDirectory:
        """Create and open a directory in this one. Raises OSError, also if another user replaced it immediately."""
        os.mkdir(name, 0o700, dir_fd=self._descriptor)
        directory = self.subdirectory(name)
        try:
            status = directory.status
            if status.st_uid != os.geteuid() or status.st_mode & 0o077 or os.listdir(directory.fileno()):
                raise PermissionError(errno.EPERM, f"{directory.path} was exchanged while it was made")
            directory.chmod(mode)
        except BaseException:
            directory.__exit__()
            raise
        return directory

    def open_file(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a regular file in this directory. Raises OSError if it is a link or another kind of file."""
        # Without O_NONBLOCK, opening a pipe would wait for its other end.
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, mode, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno == errno.ENXIO:
                raise self._irregular(name) from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise self._irregular(name)
        return descriptor

    def _irregular(self, name: str) -> OSError:
        return OSError(errno.EINVAL, f"{self.path / name} is not a regular file")

    def new_file(self, prefix: str = ".fsstack-") -> tuple[int, str]:
        """Create an empty private file. Return its descriptor and name."""
        name = _random_name(prefix)
        return self.open_file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL), name

    def rename(self, old: str, new: str) -> None:
        """Rename a file in this directory, replacing an existing one."""
        os.rename(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file atomically. Keep its mode and owner."""
        with self._successor(name) as (descriptor, new):
            write_all(descriptor, content)
            os.fsync(descriptor)
            self.rename(new, name)

    def begin(self, name: str) -> int:
        """Replace a file by an empty one with the same mode and owner. Return the new descriptor."""
        with self._successor(name) as (descriptor, new):
            self.rename(new, name)
            return os.dup(descriptor)

    def check_replace(self, name: str) -> None:
        """Check that a file with this name could be written, without touching it. Raises OSError."""
        with self._successor(name):
            pass

    @contextlib.contextmanager
    def _successor(self, name: str) -> Iterator[tuple[int, str]]:
        # A name based on the file's could be too long.
        descriptor, new = self.new_file()
        try:
            with closing(descriptor):
                self._inherit(name, descriptor)
                yield descriptor, new
        finally:
            with contextlib.suppress(FileNotFoundError):  # it was renamed
                self.unlink(new)

    def _inherit(self, name: str, descriptor: int) -> None:
        try:
            status = self.status_of(name)
        except FileNotFoundError:
            os.fchmod(descriptor, 0o666 & ~_umask())
            return
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o777)
        # A user who may write to another user's file may be unable to give a file away.
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, status.st_uid, status.st_gid)

    def link(self, name: str) -> str | None:
        """Return the target of a link of root or this user, or None for other files. Raises OSError."""
        try:
            return owners.link_target(self._descriptor, name)
        except FileNotFoundError:
            return None

    def unlink(self, name: str) -> None:
        """Remove a file or a link."""
        os.unlink(name, dir_fd=self._descriptor)

    def status_of(self, name: str) -> os.stat_result:
        """Return owner, mode and inode of an entry. Links are not followed."""
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def leads_to(self, name: str, held: HeldDirectory) -> bool:
        """Whether a name in this directory refers to another open directory."""
        try:
            return os.path.samestat(self.status_of(name), held.status)
        except FileNotFoundError:
            return False

    def remove(self, name: str, held: HeldDirectory) -> None:
        """Empty the open directory, and remove it if it still has this name.

        Nothing on another filesystem is removed: OSError (EBUSY) is raised if anything is mounted at or below it. If
        the name now refers to another directory, that is left alone, and OSError (ESTALE) is raised.
        """
        if targets := mounts.below(held.where):
            raise OSError(
                errno.EBUSY, f"something is mounted on {targets[0]}, so nothing was removed; unmount it first"
            )
        _empty(held, _mount_of(self._descriptor))
        if not self.leads_to(name, held):
            raise OSError(
                errno.ESTALE,
                f"{self.path / name} was exchanged for something else, which was left alone; the directory of this "
                f"session was emptied and is {held.where}",
            )
        os.rmdir(name, dir_fd=self._descriptor)


def _empty(held: HeldDirectory, mount: str) -> None:
    """Remove the contents of a directory, files last: a marker stays until nothing else is left. Raises OSError.

    Only one directory is open at a time, however deep they are.
    """
    above: list[tuple[os.stat_result, list[str], list[str]]] = []

    def where() -> Path:
        return held.path.joinpath(*(directories[-1] for _, directories, _ in above))

    def listed(directory: int) -> int:
        # A bind mount of the same filesystem has the same device number. Subvolumes of btrfs have others.
        if _mount_of(directory) != mount:
            raise OSError(errno.EBUSY, f"something is mounted on {where()}, so nothing in it was removed")
        if os.fstat(directory).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            with contextlib.suppress(PermissionError):  # of another user
                os.chmod(f"/proc/self/fd/{directory}", stat.S_IRWXU)
        # Opened again, because btrfs lists only what was there when a directory was opened.
        return os.open(".", _LIST, dir_fd=directory)

    current = listed(held.fileno())
    try:
        while True:
            with os.scandir(current) as entries:
                kinds = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            directories = [name for name, is_directory in kinds if is_directory]
            files = [name for name, is_directory in kinds if not is_directory]
            status = os.fstat(current)
            while not directories:
                for name in files:
                    os.unlink(name, dir_fd=current)
                if not above:
                    return
                current = exchanged(current, os.open("..", _LIST, dir_fd=current))
                status, directories, files = above.pop()
                if _mount_of(current) != mount or not os.path.samestat(os.fstat(current), status):
                    raise OSError(errno.ESTALE, f"a directory below {held.path} was moved while it was removed")
                os.rmdir(directories.pop(), dir_fd=current)
            above.append((status, directories, files))
            with opened(directories[-1], _SEARCH | os.O_DIRECTORY, dir_fd=current) as below:
                current = exchanged(current, listed(below))
    finally:
        os.close(current)


def _mount_of(directory: int) -> str:
    """Return the mount id of an open directory."""
    lines = Path(f"/proc/self/fdinfo/{directory}").read_text().splitlines()
    return next(line for line in lines if line.startswith("mnt_id:"))


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _random_name(prefix: str) -> str:
    return f"{prefix}{os.urandom(4).hex()}"


# -- places for directories -------------------------------------------------------------------------------------------


def traversable(directory: Path) -> bool:
    """Whether every user can traverse a directory."""
    resolved = directory.resolve()
    return all(parent.stat().st_mode & stat.S_IXOTH for parent in (resolved, *resolved.parents))


def safe_place(*wishes: Path) -> Path:
    """Return the first of some directories, or of the usual ones, in which no other user can replace entries.

    Directories that every user can traverse come first. Raises PermissionError if there is none.
    """
    places = {place: _why_unsafe(place) for place in (*wishes, Path(tempfile.gettempdir()), Path("/tmp"))}
    safe = [place for place, reason in places.items() if not reason]
    if not safe:
        reasons = "; ".join(places.values())
        raise PermissionError(errno.EPERM, f"no directory for mount points: {reasons}; name a safe one in TMPDIR")
    return next(filter(traversable, safe), safe[0])


def _why_unsafe(place: Path) -> str:
    """Return why this user cannot write to a directory, or who else could replace what is in it."""
    try:
        return untrusted(place) or ("" if os.access(place, os.W_OK) else f"this user may not write to {place}")
    except OSError as error:
        return f"{place}: {error.strerror}"


# -- for the time of a block -------------------------------------------------------------------------------------------


def remove(path: Path) -> None:
    """Remove a directory with its contents, but nothing on other filesystems. Raises OSError."""
    with HeldDirectory.open(path.parent) as parent, parent.subdirectory(path.name) as directory:
        parent.remove(path.name, directory)


@contextlib.contextmanager
def scratch(parent: Path, prefix: str = "fsstack-") -> Iterator[Path]:
    """Create a directory in a `parent` that is cleaned up itself, and remove it afterwards with its contents."""
    with HeldDirectory.open(parent) as above, above.make(_random_name(prefix)) as directory:
        try:
            yield directory.path
        finally:
            above.remove(directory.path.name, directory)


@contextlib.contextmanager
def temporary(parent: Path, book: Journal, prefix: str = "fsstack-") -> Iterator[Path]:
    """Create a directory in `parent`, and remove it afterwards with its contents. The journal has an entry for it."""
    with held_temporary(parent, book, prefix) as directory:
        yield directory.path


@contextlib.contextmanager
def held_temporary(parent: Path, book: Journal, prefix: str = "fsstack-", mode: int = 0o700) -> Iterator[HeldDirectory]:
    """Create a directory like `temporary`, and yield it with its descriptor."""
    with HeldDirectory.open(parent) as above, above.make(_random_name(prefix), mode) as directory:
        name = directory.path.name
        with contextlib.ExitStack() as unwritten:
            unwritten.callback(above.remove, name, directory)
            with book.entry(DIRECTORY, path=str(directory.path), **_inode(directory.status)):
                unwritten.pop_all()
                try:
                    yield directory
                finally:
                    above.remove(name, directory)


class Workplace(NamedTuple):
    """Two directories of a stack: a private one for the files of layers, and one for mount points."""

    files: Path
    mountpoints: Path


@contextlib.contextmanager
def workplace(parent: Path, book: Journal) -> Iterator[Workplace]:
    """Create the directories of a stack, with its files in `parent`. Raises OSError.

    No other user can replace their contents. If that were possible in `parent`, the directory is bind-mounted to a safe
    place, and used only there.
    """
    # Files that are already open could not be mounted in the namespace.
    mounts.private_namespace()
    with (
        held_temporary(safe_place(parent), book, mode=0o711) as mountpoints,
        held_temporary(parent, book) as files,
    ):
        if untrusted(parent):
            with reachable(files, mountpoints.path / "files") as place:
                yield Workplace(place, mountpoints.path)
        else:
            yield Workplace(files.path, mountpoints.path)


@contextlib.contextmanager
def reachable(held: HeldDirectory, target: Path) -> Iterator[Path]:
    """Yield a path that leads to the open directory, whatever other users do. Raises OSError.

    That is `target`, in the session's mount namespace. Without a namespace, it is the directory's own path, if only
    root and this user could redirect it.
    """
    if mounts.private_namespace():
        target.mkdir(exist_ok=True)
        with mounts.bound(held.fileno(), target):
            yield target
    elif reason := untrusted(held.path.parent):
        raise PermissionError(
            errno.EPERM,
            f"{reason}, so other users could exchange what this session has in {held.path.parent}; name a directory "
            "that only root and you may change",
        )
    else:
        yield held.path


# -- that outlive a reboot ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def lasting(parent: Path, book: Journal) -> Iterator[HeldDirectory]:
    """Create a directory like `temporary`. `remove_stale` finds it without a journal, as after a reboot.

    Other users cannot enter it.
    """
    mounts.private_namespace()
    with held_temporary(parent, book) as directory:
        # Lock it before it is named, because an unlocked marker means that its session is dead.
        marker, unfinished = directory.new_file(MARKER)
        with closing(marker):
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            facts = owners.marker_of(directory.fileno(), directory.path.name) | {"machine": _machine_id()}
            write_all(marker, json.dumps(facts).encode())
            directory.rename(unfinished, MARKER)
            with directory.make("data", 0o755) as data:
                yield data


def _machine_id() -> str:
    """Return the id of this machine, or else of its boot."""
    return identity.machine_id() or Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def remove_stale(parent: Path, *, asked: bool = False) -> list[str]:
    """Remove `lasting` directories of killed sessions. Return a line for each, also for those that are left alone.

    Without a request of the user (`asked`), those with files are left alone.
    """
    lines = []
    try:
        above = HeldDirectory.open(parent)
    except OSError:
        return []
    with above:
        for name in sorted(os.listdir(above.fileno())):
            # It is another user's, locked by a running session, or just removed.
            with contextlib.suppress(OSError):
                if name.startswith("fsstack-"):
                    lines.append(_remove_if_stale(above, name, asked))
    return lines


def _remove_if_stale(above: HeldDirectory, name: str, asked: bool) -> str:
    """Remove a directory of a dead session. Raises OSError if it has no marker, or belongs to a living session."""
    with above.subdirectory(name) as directory, closing(directory.open_file(MARKER, os.O_RDWR)) as marker:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Many shared filesystems do not show a lock to other machines. Without /etc/machine-id, a reboot makes another.
        if reason := owners.why_not_own(directory.fileno(), name, {"machine": _machine_id()}):
            return f"left alone: {directory.path}: {reason}; remove it by hand if nobody needs it"
        if not asked and holds_files(directory):
            return (
                f"left alone: {directory.path}, of a session that was killed: "
                f"`pytest --fsstack-cleanup --fsstack-device=dir:{above.path}` removes it with its files"
            )
        try:
            above.remove(name, directory)
        except OSError as error:
            return f"left alone: {directory.path}: {error.strerror}"
        return f"removed {directory.path}, of a session that was killed"


#: A tree with more directories is not searched for files to its end.
_SEARCHED = 200


def holds_files(directory: HeldDirectory) -> bool:
    """Whether anything but directories and a marker is in a directory, or mounted below it. Raises OSError."""
    if mounts.below(directory.where):
        return True
    for number, (_, _, files, _) in enumerate(os.fwalk(".", dir_fd=directory.fileno())):
        if number == _SEARCHED or set(files) - {MARKER}:
            return True
    return False


# -- after a kill ------------------------------------------------------------------------------------------------------


def _inode(status: os.stat_result) -> dict[str, Fact]:
    return {"dev": status.st_dev, "ino": status.st_ino}


def _identified(facts: Facts) -> dict[str, Fact]:
    """Return the identity of the directory with the name, if the entry has none yet."""
    if "ino" in facts:
        return {}
    try:
        return _inode(os.lstat(journal.text(facts, "path")))
    except FileNotFoundError:
        return {}


def _check(facts: Facts, status: os.stat_result) -> None:
    """Raise `OutdatedEntryError` unless this is the directory in the journal."""
    if not stat.S_ISDIR(status.st_mode):
        raise OutdatedEntryError("it is no longer a directory")
    if "ino" not in facts:
        raise OutdatedEntryError(
            "the session was killed before it could record this directory; remove it by hand if you do not need it"
        )
    if any(facts.get(name) != number for name, number in _inode(status).items()):
        raise OutdatedEntryError("it was replaced by another directory")


def _exists(machine: Machine, facts: Facts) -> bool:
    try:
        status = os.lstat(journal.text(facts, "path"))
    except FileNotFoundError:
        return False
    _check(facts, status)
    return True


def _removed(machine: Machine, facts: Facts) -> str:
    path = Path(journal.text(facts, "path"))
    with HeldDirectory.open(path.parent) as parent, parent.subdirectory(path.name) as directory:
        _check(facts, directory.status)
        parent.remove(path.name, directory)
    return f"removed {path}"


def _may_hold_others(facts: Facts) -> bool:
    """Whether files are in the directory, which its user may have put there since the kill."""
    path = Path(journal.text(facts, "path"))
    with HeldDirectory.open(path.parent) as parent, parent.subdirectory(path.name) as directory:
        return holds_files(directory)


DIRECTORY = Kind("directory", _exists, _removed, _identified, outlives_boot=True, only_asked=_may_hold_others)
