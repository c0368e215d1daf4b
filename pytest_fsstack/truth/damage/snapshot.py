"""Known files on a stack, and a snapshot of what reading them returns: names, attributes, contents and errors."""

from __future__ import annotations

import contextlib
import enum
import errno
import hashlib
import os
import random
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fsstack.units import first_names

#: More levels than any written tree has. A corrupted directory may contain itself.
_DEPTH = 16
#: Errors of a filesystem without extended attributes.
_HAS_NONE = (errno.EOPNOTSUPP, errno.ENOSYS)


class Effect(enum.Enum):
    """The effect of a flip, by the data read after it."""

    #: Something failed: the mount, or reading a name, an attribute or contents.
    REPORTED = "reported"
    #: Contents or an attribute differ from what was written, without an error for that file.
    WRONG = "wrong"
    #: A file is gone, or has a wrong name. There was no error, and no other file is wrong.
    MISSING = "missing"
    #: Everything is as it was written.
    UNNOTICED = "unnoticed"


@dataclass(frozen=True)
class Shape:
    """The numbers of files: `large` ones of `size` bytes, and in directories `small` ones of up to 3000 bytes."""

    large: int
    size: int
    small: int

    @property
    def bytes(self) -> int:
        """Return the largest number of bytes that the files have together."""
        return self.large * self.size + self.small * 3000


def files(shape: Shape, seed: int | str) -> dict[str, bytes]:
    """Return the contents of all files by path, the large ones first. All sectors of large files differ."""
    contents = {
        f"large-{number}": random.Random(f"{seed} {number}").randbytes(shape.size) for number in range(shape.large)
    }
    draw = random.Random(f"small {seed}")
    for number in range(shape.small):
        name = f"small-{number}-{draw.randrange(10**9)}"
        contents[f"directory-{number % 4}/below/{name}"] = draw.randbytes(draw.randrange(1, 3000))
    return contents


def plant(top: Path, shape: Shape, seed: int | str) -> None:
    """Write the files of a shape, and a link and an attribute if the filesystem has these.

    The same seed gives the same files.
    """
    for name, content in files(shape, seed).items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    with contextlib.suppress(OSError):  # FAT has no links
        (top / "link").symlink_to("large-0")
    with contextlib.suppress(OSError):
        os.setxattr(top / "large-0", "user.rot", b"kept with the file")


def overwrite(top: Path, shape: Shape, seed: int | str) -> None:
    """Overwrite the large files in place with the contents of another seed."""
    for name, content in list(files(shape, seed).items())[: shape.large]:
        with (top / name).open("r+b", buffering=0) as file:
            file.write(content)
            os.fsync(file.fileno())


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """The status, contents and attributes of a file, a directory or a link."""

    mode: int
    owner: tuple[int, int]
    #: Empty for a directory: its size and time depend on the filesystem, and not on its entries.
    size: int = 0
    modified: int = 0
    #: The digest of a file, or the target of a link.
    contents: str = ""
    attributes: tuple[tuple[str, bytes], ...] = ()


@dataclass
class Snapshot:
    """The entries that were read of a tree, and the errors, by path relative to its top ("." is the top itself)."""

    entries: dict[str, Entry] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def look(top: Path, *, most: int, longest: int) -> Snapshot:
    """Read a tree: at most `most` names, and of each file at most `longest` bytes. A corrupted tree may have no end.

    Raises TimeoutError if `signals.limited` ends it. All other errors are part of the snapshot.
    """
    snapshot = Snapshot()
    for path in _names(top, "", snapshot, 0):
        if len(snapshot.entries) + len(snapshot.errors) > most:
            snapshot.errors["."] = f"there are more than {most} names"
            break
        with _noted(snapshot, path):
            snapshot.entries[path] = _entry(top / path, longest)
    return snapshot


@contextlib.contextmanager
def _noted(snapshot: Snapshot, path: str) -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise
    except (OSError, ValueError) as error:  # ValueError is for a null byte in a name
        snapshot.errors[path] = getattr(error, "strerror", None) or str(error)


def _names(top: Path, directory: str, snapshot: Snapshot, depth: int) -> Iterator[str]:
    yield directory or "."
    paths: list[str] = []
    with _noted(snapshot, directory or "."), os.scandir(top / directory) as listed:
        for entry in listed:
            path = os.path.join(directory, entry.name)
            with _noted(snapshot, path):
                if entry.is_dir(follow_symlinks=False) and depth < _DEPTH:
                    paths.append(path)
                    continue
            yield path
    for path in sorted(paths):
        yield from _names(top, path, snapshot, depth + 1)


def _entry(path: Path, longest: int) -> Entry:
    status = path.lstat()
    attributes = tuple((name, os.getxattr(path, name, follow_symlinks=False)) for name in _attributes(path))
    owner = status.st_uid, status.st_gid
    if stat.S_ISDIR(status.st_mode):
        return Entry(status.st_mode, owner, attributes=attributes)
    contents = ""
    if stat.S_ISLNK(status.st_mode):
        contents = os.readlink(path)
    elif stat.S_ISREG(status.st_mode):
        with path.open("rb", buffering=0) as file:
            contents = _digest(file.fileno(), longest)
    return Entry(status.st_mode, owner, status.st_size, status.st_mtime_ns, contents, attributes)


def _attributes(path: Path) -> list[str]:
    try:
        return sorted(os.listxattr(path, follow_symlinks=False))
    except OSError as error:
        if error.errno in _HAS_NONE:
            return []
        raise


def digest_of(content: bytes) -> str:
    """Return `Entry.contents` of a file with this content."""
    return f"{len(content)} {hashlib.sha256(content).hexdigest()}"


def _digest(descriptor: int, longest: int) -> str:
    digest, length = hashlib.sha256(), 0
    # One byte more than expected shows that the file is too long.
    while length <= longest and (data := os.read(descriptor, min(1 << 20, longest + 1 - length))):
        digest.update(data)
        length += len(data)
    return f"{length} {digest.hexdigest()}"


# -- judging -----------------------------------------------------------------------------------------------------------


def judge(expected: Mapping[str, Entry], snapshot: Snapshot) -> tuple[Effect, str]:
    """Return the effect of a flip, and the affected files in a few words.

    A wrong file counts even if others have errors. A missing or renamed file counts only without any error.
    """
    gone = {path: entry for path, entry in expected.items() if path not in snapshot.entries}
    renamed = {path for path, entry in snapshot.entries.items() if path not in expected and entry in gone.values()}
    wrong = [path for path, entry in snapshot.entries.items() if expected.get(path) != entry and path not in renamed]
    if wrong:
        path = min(wrong)
        return Effect.WRONG, f"{_shown(wrong)}: {_difference(expected.get(path), snapshot.entries[path])}"
    if snapshot.errors:
        path = min(snapshot.errors)
        return Effect.REPORTED, f"{_shown(snapshot.errors)}: {snapshot.errors[path]}"
    if gone:
        return Effect.MISSING, _shown(gone) + (f"; other names are there: {_shown(renamed)}" if renamed else "")
    return Effect.UNNOTICED, "all as written"


def _shown(paths: Iterable[str]) -> str:
    return first_names([path if path.isprintable() else repr(os.fsencode(path))[2:-1] for path in sorted(paths)])


def _difference(expected: Entry | None, actual: Entry) -> str:
    if expected is None:
        return "nobody has written it"
    names = [name for name in Entry.__dataclass_fields__ if getattr(expected, name) != getattr(actual, name)]
    return f"other {', '.join(names)}"
