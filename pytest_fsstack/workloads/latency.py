"""Latencies of single operations. The slowest of millions reveals stalls that a mean hides."""

from __future__ import annotations

import functools
import os
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_fsstack.machine.descriptors import opened
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import drawn, existing, verify_files, verify_removed
from pytest_fsstack.workloads.data.archive import Corpus
from pytest_fsstack.workloads.data.noise import noise

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

_Item = TypeVar("_Item")

#: The order of files in a directory: as listed by the filesystem, by name, or by inode number.
Order = Literal["listed", "name", "inode"]

#: Metrics with their percentiles, per mille.
_SHARES = {"latency_p50": 500, "latency_p95": 950, "latency_p99": 990, "latency_p999": 999}
#: In seconds. Below this, mostly the interpreter itself is measured.
_RESOLUTION = 1e-7
_POINTS = 200
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Latencies:
    """A recorder of many durations. Each takes 8 bytes, and well below 1 µs."""

    def __init__(self) -> None:
        self._durations = array("q")
        #: Nanoseconds since the start, and the number of completed operations. Every second point is dropped if there
        #: are too many.
        self._marks: list[tuple[int, int]] = []
        self._every = self._due = 1
        self._started = self._ended = time.perf_counter_ns()

    def each(self, operation: Callable[[_Item], object], items: Iterable[_Item]) -> None:
        """Call the operation with each item. The time to produce an item is not counted."""
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
        """Return ``[seconds, completed operations]`` from the start to the last one, at most some 200 points.

        The points are evenly spaced by operations, so a stall shows as a gap.
        """
        last = self._ended - self._started, len(self._durations)
        marks = [(0, 0), *self._marks, *([last] if self._marks and self._marks[-1] != last else [])]
        return [[elapsed / 1e9, count] for elapsed, count in marks]

    def record(self, timed: Timed) -> None:
        """Add to the sample, in seconds: ``latency_p50``, ``_p95``, ``_p99``, ``_p999`` and ``longest_stall``.

        The curve is recorded as ``operations_over_time``. Raises `ValueError` if there was no operation.
        """
        record_durations(timed, self._durations)
        timed.keep("operations_over_time", self.curve())


def record_durations(timed: Timed, durations: Iterable[int]) -> None:
    """Add the percentiles and the maximum of durations in nanoseconds to the sample, as `Latencies.record` does.

    Raises `ValueError` if there are none.
    """
    ordered = sorted(durations)
    for name, share in _SHARES.items():
        timed.record(name, percentile(ordered, share) / 1e9, unit="s", better="lower", resolution=_RESOLUTION)
    timed.record("longest_stall", ordered[-1] / 1e9, unit="s", better="lower", resolution=_RESOLUTION)


def percentile(ordered: Sequence[int], per_mille: int) -> int:
    """Return a percentile of ascending figures, given per mille (nearest rank, no interpolation).

    Raises `ValueError` if there are none.
    """
    if not len(ordered):
        raise ValueError("a percentile needs at least one value")
    # In integers: 0.999 is not an exact float, and would be off by one for some counts.
    return ordered[max(0, -(-len(ordered) * per_mille // 1000) - 1)]


def remove(latencies: Latencies, top: Path, order: Order = "listed") -> None:
    """Remove a directory with its contents, and record the duration of each unlink (but not of rmdir).

    Files of a directory are removed before its subdirectories. Raises OSError.
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
    """Remove the tree file by file, and record the latency of each unlink.

    See `Latencies.record` for the metrics. Listing and removing directories is part of the time, but of no latency.
    Afterwards the tree must be gone, also on the device. `corpus` gives the expected number of files, for a rate.
    """
    top = existing(fsstack, tree, "delete_files")
    with timed(files=corpus.files, cold=cold) if corpus else timed(cold=cold):
        latencies = Latencies()
        remove(latencies, top, order)
    if not len(latencies):
        raise AssertionError(f"delete_files: there was no file in {tree}")
    if corpus and len(latencies) != corpus.files + corpus.links:
        raise AssertionError(
            f"delete_files: removed {len(latencies):,} files from {tree}, which should have held "
            f"{corpus.files + corpus.links:,} with its links"
        )
    latencies.record(timed)
    verify_removed(timed, top, "delete_files")


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
    """Create `count` files of `size` incompressible bytes in new directories, and record the latency of each.

    A file is created, written with one call, and closed; if `durable`, also synced by fsync. See `Latencies.record` for
    the metrics. Checked afterwards, from the device: the number, the sum of sizes, and the contents of a sample. Raises
    `FileExistsError` if `into` exists, and `ValueError` if there is nothing to do.
    """
    if count <= 0 or per_directory <= 0 or size < 0:
        raise ValueError(
            f"create_files: count and per_directory must be above 0, and size 0 or more "
            f"(got {count}, {per_directory} and {size})"
        )
    content_of = _contents(size)
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
                latencies.each(create, ((str(index), content_of(index)) for index in indices))
    latencies.record(timed)
    fsstack.remount()
    sample = [(f"{index // per_directory}/{index}", content_of(index)) for index in drawn(range(count))]
    verify_files(top, count, count * size, sample, "create_files")


def _contents(size: int) -> Callable[[int], bytes]:
    """Return a function that makes the content of a file from its index.

    Each block of 4 KiB begins with the index, so that no two files share a block.
    """
    base = noise(size, "create_files")
    pieces = [b"", *(base[start : start + 4088] for start in range(0, size, 4088))]
    return lambda index: index.to_bytes(8, "little").join(pieces)[:size]
