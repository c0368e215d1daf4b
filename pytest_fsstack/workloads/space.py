"""Space of files and filesystems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import regular_files, verify_files
from pytest_fsstack.workloads.data.noise import noise

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


@workload()
def small_file_space(
    timed: Timed,
    fsstack: Built,
    *,
    sizes: Sequence[int] = (0, 1, 1024),
    count: int = 100,
    into: str = "small-files",
) -> None:
    """Write `count` incompressible files of each size, and record the mean space of one file.

    For files of 1024 bytes, ``raw_1024`` is the apparent size of the stored file. With stacked encryption, that is the
    ciphertext. ``allocated_1024`` is its allocated size, as in ``du``. Both are in bytes. They are the difference of
    the directory `Built.stored` with and without the files, because encrypted names cannot be matched. Space of
    directories is not included.

    Before that, the files are read from the device and compared. Then they are removed. Raises `FileExistsError` if
    `into` exists.
    """
    if count <= 0 or not sizes or min(sizes) < 0 or len(set(sizes)) < len(sizes):
        raise ValueError(
            f"small_file_space: count must be above 0 (got {count}), and sizes different numbers "
            f"from 0 on (got {list(sizes)})"
        )
    top = fsstack.path / into
    top.mkdir()
    with timed(bytes=count * sum(sizes), files=count * len(sizes)):
        for size in sizes:
            (top / str(size)).mkdir()
            for index in range(count):
                (top / str(size) / str(index)).write_bytes(_content(size, index))
    fsstack.remount()
    sample = ((f"{size}/{index}", _content(size, index)) for size in sizes for index in range(count))
    verify_files(top, count * len(sizes), count * sum(sizes), sample, "small_file_space")
    raw, allocated = _taken(fsstack)
    for size in sizes:
        for index in range(count):
            (top / str(size) / str(index)).unlink()
        raw_left, allocated_left = _taken(fsstack)
        timed.record(f"raw_{size}", (raw - raw_left) / count, unit="B", better="lower", resolution=1)
        timed.record(f"allocated_{size}", (allocated - allocated_left) / count, unit="B", better="lower", resolution=1)
        raw, allocated = raw_left, allocated_left
    for size in sizes:
        (top / str(size)).rmdir()
    top.rmdir()


@workload()
def settle(timed: Timed, fsstack: Built) -> None:
    """Do nothing, so that only the metrics of every step are recorded, such as ``used_bytes``.

    As the first step of a chain, it measures the space of the empty filesystem. Afterwards the stack is remounted.
    """
    with timed(cold=False):
        pass
    fsstack.remount()


def _content(size: int, index: int) -> bytes:
    return noise(size, "small_file_space", index)


def _taken(fsstack: Built) -> tuple[int, int]:
    """Return the apparent and allocated size of all regular files where the stack stores its data."""
    # A daemon may delay the removal of files.
    fsstack.release_caches()
    statuses = [path.lstat() for path in regular_files(fsstack.stored)]
    return sum(status.st_size for status in statuses), 512 * sum(status.st_blocks for status in statuses)
