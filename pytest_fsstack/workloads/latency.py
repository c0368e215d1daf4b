"""Latencies of single operations: the slowest of millions shows what an average hides."""

from __future__ import annotations

import functools
import os
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_fsstack.data.archive import Corpus
from pytest_fsstack.data.noise import noise
from pytest_fsstack.machine.descriptors import opened
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import drawn, existing, verify_files, verify_gone

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

_Item = TypeVar("_Item")

#: The order in which the files of one directory are taken: as the filesystem lists them, by name, by inode number.
Order = Literal["listed", "name", "inode"]

#: Metrics, and what share of the operations was at least as fast, per mille.
_SHARES = {"latency_p50": 500, "latency_p95": 950, "latency_p99": 990, "latency_p999": 999}
#: In seconds: below this, the interpreter between the two readings of the clock is most of what is measured.
_RESOLUTION = 1e-7
_POINTS = 200
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Latencies:
    """Notes how long each of many operations takes: 8 bytes of memory for each, and well below 1 µs of time."""

    def __init__(self) -> None:
        self._durations = array("q")
        #: Nanoseconds since the start, and how many operations were done by then; every second one is dropped when
        #: there are too many.
        self._marks: list[tuple[int, int]] = []
        self._every = self._due = 1
        self._started = self._ended = time.perf_counter_ns()

    def each(self, operation: Callable[[_Item], object], items: Iterable[_Item]) -> None:
        """Call the operation with each item; what it takes to produce an item is not counted to any operation."""
        clock, durations, note = time.perf_counter_ns, self._durations, self._durations.append
        ended = self._ended
        for item in items:
            started = clock()
            operation(item)
            ended = clock()
            note(ended - started)
            if len(durations) == self._due:
                self._mark(ended)
        self._ended = ended

    def _mark(self, now: int) -> None:
        count = len(self._durations)
        self._marks.append((now - self._started, count))
        if len(self._marks) == _POINTS:
            self._marks = self._marks[1::2]
            self._every *= 2
        self._due = count + self._every

    def __len__(self) -> int:
        return len(self._durations)

    def curve(self) -> list[list[float]]:
        """``[seconds, operations completed by then]``, from the start to the last one, some 200 points at most.

        The points are equally many operations apart, so that a stall shows as a gap.
        """
        last = self._ended - self._started, len(self._durations)
        marks = [(0, 0), *self._marks, *([last] if self._marks and self._marks[-1] != last else [])]
        return [[elapsed / 1e9, count] for elapsed, count in marks]

    def record(self, timed: Timed) -> None:
        """Add to the sample, in seconds: ``latency_p50``, ``_p95``, ``_p99``, ``_p999`` and ``longest_stall``.

        The curve is kept as ``operations_over_time``. Raises `ValueError` where there was no operation.
        """
        record_durations(timed, self._durations)
        timed.keep("operations_over_time", self.curve())


def record_durations(timed: Timed, durations: Iterable[int]) -> None:
    """Add the percentiles of durations in nanoseconds to the sample, and the longest one, as `Latencies.record` does.

    Raises `ValueError` if there are none.
    """
    ordered = sorted(durations)
    for name, share in _SHARES.items():
        timed.record(name, percentile(ordered, share) / 1e9, unit="s", better="lower", resolution=_RESOLUTION)
    timed.record("longest_stall", ordered[-1] / 1e9, unit="s", better="lower", resolution=_RESOLUTION)


def percentile(ordered: Sequence[int], per_mille: int) -> int:
    """The least of the ascending figures that so many per mille of them do not exceed (nearest rank, no interpolation).

    Raises `ValueError` where there are none.
    """
    if not len(ordered):
        raise ValueError("there is no percentile of nothing")
    # In whole numbers: 0.999 is not a float, and would be off by one at some counts.
    return ordered[max(0, -(-len(ordered) * per_mille // 1000) - 1)]


def remove(latencies: Latencies, top: Path, order: Order = "listed") -> None:
    """Remove a directory with everything in it, noting how long each unlink takes; removing directories is not noted.

    The files of a directory go before its subdirectories. Raises OSError.
    """
    with opened(top, _DIRECTORY) as descriptor:
        _empty(latencies, descriptor, order)
    top.rmdir()


def _empty(latencies: Latencies, directory: int, order: Order) -> None:
    with os.scandir(directory) as iterator:
        entries = list(iterator)
    if order == "name":
        entries.sort(key=lambda entry: entry.name)
    elif order == "inode":
        entries.sort(key=lambda entry: entry.inode())
    subdirectories = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    files = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    latencies.each(functools.partial(os.unlink, dir_fd=directory), files)
    for name in subdirectories:
        with opened(name, _DIRECTORY, dir_fd=directory) as descriptor:
            _empty(latencies, descriptor, order)
        os.rmdir(name, dir_fd=directory)


@workload()
def delete_files(
    timed: Timed,
    fsstack: Built,
    *,
    tree: str = "tree",
    order: Order = "listed",
    corpus: Corpus | None = None,
    cold: bool = True,
) -> None:
    """Remove the tree file by file, noting how long each unlink takes.

    See `Latencies.record` for what is recorded. Listing and removing directories is part of the time, but of no
    latency. Afterwards the tree must be gone, also from the device. `corpus`, where given, says how many files those
    were, for a rate, and that many must have been there.
    """
    top = existing(fsstack, tree, "delete_files")
    with timed(files=corpus.files, cold=cold) if corpus else timed(cold=cold):
        latencies = Latencies()
        remove(latencies, top, order)
    if not len(latencies):
        raise AssertionError(f"delete_files: there was no file in {tree}")
    if corpus and len(latencies) != corpus.files + corpus.links:
        raise AssertionError(
            f"delete_files: removed {len(latencies):,} files from {tree}, which was to hold "
            f"{corpus.files + corpus.links:,} with its links"
        )
    latencies.record(timed)
    verify_gone(top, "delete_files")
    fsstack.remount()
    verify_gone(top, "delete_files", ", after a remount")


@workload()
def create_files(
    timed: Timed,
    fsstack: Built,
    *,
    count: int,
    size: int = 0,
    into: str = "created",
    per_directory: int = 1000,
    durable: bool = False,
    cold: bool = True,
) -> None:
    """Create `count` files of `size` incompressible bytes in new directories, noting how long each takes.

    That is opening it new, writing it with one call, and closing it; where it shall be `durable`, fsync as well. See
    `Latencies.record` for what is recorded. Afterwards, from the device: their number, the sum of sizes, and the
    content of a sample. Raises `FileExistsError` where `into` is there already, and `ValueError` where there is nothing
    to do.
    """
    if count <= 0 or per_directory <= 0 or size < 0:
        raise ValueError(
            f"create_files: count and per_directory must be above 0, and size 0 or more "
            f"(got {count}, {per_directory} and {size})"
        )
    base = noise(size, "create_files")
    top = fsstack.path / into
    top.mkdir()

    def create(job: tuple[str, bytes]) -> None:
        name, content = job
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=directory)
        try:
            if content:
                os.write(descriptor, content)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    with timed(bytes=count * size, files=count, cold=cold):
        latencies = Latencies()
        for start in range(0, count, per_directory):
            subdirectory = top / str(start // per_directory)
            subdirectory.mkdir()
            with opened(subdirectory, _DIRECTORY) as directory:
                indices = range(start, min(count, start + per_directory))
                latencies.each(create, ((str(index), _created(base, index)) for index in indices))
    latencies.record(timed)
    fsstack.remount()
    sample = [(f"{index // per_directory}/{index}", _created(base, index)) for index in drawn(range(count))]
    verify_files(top, count, count * size, sample, "create_files")


def _created(base: bytes, index: int) -> bytes:
    """Return the content of a file. Its start is its own, so that no two files are the same block."""
    return index.to_bytes(8, "little")[: len(base)] + base[8:]
