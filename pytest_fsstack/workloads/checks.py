"""Checks of workloads, outside of the timed block. `step` is the name of the workload in messages."""

from __future__ import annotations

import os
import random
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.units import first_names
from pytest_fsstack.workloads.data.archive import Corpus, digest
from pytest_fsstack.workloads.direct import differing

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


_CHECKED_FILES = 64


@dataclass(frozen=True)
class Walked:
    """The contents of a directory. A regular file with two hard links counts twice."""

    files: int
    directories: int
    links: int
    bytes: int
    #: In bytes, counted like ``du``: hard-linked files once, and including the directory itself.
    allocated: int


#: The number of directories to read in parallel, because cold ones wait for the device or a daemon. With four, ext4
#: took 1.2 to 1.6 times as long, and gocryptfs 0.9 times.
_AT_ONCE = 2


def walk(top: Path) -> Walked:
    """Count the contents of a directory, with one stat call per entry."""
    files = directories = links = size = 0
    allocated = 512 * top.lstat().st_blocks
    linked: set[tuple[int, int]] = set()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        pending = deque([pool.submit(_entries, os.fspath(top))])
        while pending:
            for path, status in pending.popleft().result():
                if stat.S_ISDIR(status.st_mode):
                    directories += 1
                    pending.append(pool.submit(_entries, path))
                elif stat.S_ISLNK(status.st_mode):
                    links += 1
                elif stat.S_ISREG(status.st_mode):
                    files += 1
                    size += status.st_size
                if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                    if (status.st_dev, status.st_ino) in linked:
                        continue
                    linked.add((status.st_dev, status.st_ino))
                allocated += 512 * status.st_blocks
    return Walked(files, directories, links, size, allocated)


def _entries(directory: str) -> list[tuple[str, os.stat_result]]:
    with os.scandir(directory) as entries:
        return [(entry.path, entry.stat(follow_symlinks=False)) for entry in entries]


def regular_files(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the regular files below a directory in the order of their names, while the directories are read."""
    with os.scandir(directory) as iterator:
        entries = sorted(iterator, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from regular_files(entry)
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)


def existing(fsstack: Built, tree: str, step: str) -> Path:
    """Return the directory of an earlier step. Raises AssertionError if it is missing."""
    top = fsstack.path / tree
    if not top.is_dir():
        raise AssertionError(f"{step}: there is no directory {tree} on the stack; has the step that makes it run?")
    return top


def verify_tree(tree: Path, corpus: Corpus, step: str) -> None:
    """Compare `tree`, after rereading, with the corpus: counts, sizes, and the contents of its sample."""
    contents = walk(tree)
    wrong = _miscounted(
        ("files", contents.files, corpus.files),
        ("directories", contents.directories, corpus.directories),
        ("symbolic links", contents.links, corpus.links),
        ("bytes in files", contents.bytes, corpus.bytes),
    )
    missing, altered = [], []
    for path, expected in corpus.sample.items():
        try:
            with (tree / path).open("rb") as content:
                if digest(content) != expected:
                    altered.append(path)
        except OSError as error:
            missing.append(f"{path} ({error.strerror})")
    if missing:
        wrong.append(f"cannot be read: {first_names(missing)}")
    if altered:
        wrong.append(f"other content than in the archive: {first_names(altered)}")
    if wrong:
        raise AssertionError(f"{step}: read back, {'; '.join(wrong)}")


def verify_files(top: Path, count: int, size: int, sample: Iterable[tuple[str, bytes]], step: str) -> None:
    """Compare files below a directory after rereading: their number, the sum of sizes, and some contents by path."""
    contents = walk(top)
    wrong = _miscounted(("files", contents.files, count), ("bytes in files", contents.bytes, size))
    altered = [path for path, expected in sample if _content_of(top / path) != expected]
    if altered:
        wrong.append(f"missing or other content than was written: {first_names(altered)}")
    if wrong:
        raise AssertionError(f"{step}: after a remount, {'; '.join(wrong)}")


def _miscounted(*counts: tuple[str, int, int]) -> list[str]:
    """Describe the numbers that differ from the expected ones."""
    return [f"{have:,} {what} instead of {want:,}" for what, have, want in counts if have != want]


def _content_of(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def drawn(numbers: Sequence[int]) -> list[int]:
    """Return a sample of the numbers, in order. The same input gives the same sample."""
    return sorted(random.Random(len(numbers)).sample(numbers, min(len(numbers), _CHECKED_FILES)))


def verify_file(target: Path, source: Path, size: int, when: str, block: int = 4096) -> None:
    """Compare a big file, or a device, with the start of `source`: its size, and a sample of blocks."""
    verify_size(target, size, when)
    if (offset := differing(target, source, size, block)) is not None:
        raise AssertionError(
            f"{when}, the {block} bytes at {offset:,} of {target.name} are not the ones that were written"
        )


def verify_size(target: Path, size: int | None, when: str) -> None:
    """Check that a file exists, and has so many bytes if given. A device only has to exist."""
    if not target.exists():
        raise AssertionError(f"{when}: {target.name} is not there")
    actual = target.stat().st_size
    if target.is_file() and size not in (None, actual):
        raise AssertionError(f"{when}: {target.name} has {actual:,} bytes instead of {size:,}")


def verify_removed(timed: Timed, top: Path, step: str) -> None:
    """Check that a removed directory is gone, also on the device."""
    _verify_gone(top, step, "")
    timed.reread()
    _verify_gone(top, step, " on the device")


def _verify_gone(top: Path, step: str, when: str) -> None:
    if not os.path.lexists(top):
        return
    paths = [os.path.relpath(path, top) for path in top.rglob("*")] if top.is_dir() else []
    holds = f" and holds {first_names(sorted(paths))}" if paths else ""
    raise AssertionError(f"{step}: {top.name} is still there{when}{holds}")
