"""Ageing of a filesystem."""

from __future__ import annotations

import errno
import itertools
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import drawn, verify_files
from pytest_fsstack.workloads.data.noise import noise
from pytest_fsstack.workloads.extents import extents, fragments

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

_BLOCK = 4096
#: Files begin with 4 KiB to 2 MiB, and grow by 4 to 128 KiB. All powers of two are equally likely.
_CREATED, _APPENDED = 9, 5
_LARGEST = _BLOCK << _CREATED
_FILES_PER_DIRECTORY = 1000
#: Operations between two measurements of the fragmentation.
_BETWEEN_PROBES = 1000
_PROBE = "probe-of-fragmentation"
_PROBE_BYTES = 256 << 20


@dataclass(frozen=True)
class Operation:
    """An operation on a file of `start` bytes: append `size` bytes, or delete the file."""

    kind: Literal["create", "append", "delete"]
    file: int
    start: int
    size: int = 0


def churn(seed: int, budget: int) -> Iterator[Operation]:
    """Yield endless operations that create, append to and delete files in random order.

    The files grow until they take nearly `budget` bytes in blocks of 4 KiB, and then keep that size. The same arguments
    give the same operations on every machine. Raises `ValueError` if the budget is smaller than the largest file.
    """
    if budget < 2 * _LARGEST:
        raise ValueError(f"ageing needs room for {2 * _LARGEST:,} bytes, and there is room for {budget:,}")
    # Only this method is guaranteed to give the same numbers in every version of Python.
    draw = random.Random(seed).random
    live: list[tuple[int, int]] = []
    used = 0
    for file in itertools.count():
        while live and (used + _LARGEST > budget or draw() < 0.25):
            index = int(draw() * len(live))
            which, size = live[index]
            if used + _LARGEST <= budget and draw() < 0.4:
                more = int((_BLOCK << int(draw() * _APPENDED)) * (1 + draw()))
                live[index] = which, size + more
                used += _taken(size + more) - _taken(size)
                yield Operation("append", which, size, more)
            else:
                live[index] = live[-1]
                live.pop()
                used -= _taken(size)
                yield Operation("delete", which, size)
        size = int((_BLOCK << int(draw() * _CREATED)) * (1 + draw()))
        live.append((file, size))
        used += _taken(size)
        yield Operation("create", file, 0, size)


def _taken(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


@workload()
def age(
    timed: Timed,
    fsstack: Built,
    *,
    operations: int = 20_000,
    target: float | None = None,
    percent: float = 90.0,
    seed: int = 1,
    probe: int | None = None,
    into: str = "aged",
) -> None:
    """Fragment the free space: create, append to and delete files in a seeded order, in the directory `into`.

    The files fill `percent` of the space that is available at the start. The work ends after `operations`, which are
    the same on every stack. With a `target`, it ends as soon as the fragmentation reaches it, which is measured every
    1000 operations.

    To measure the fragmentation, `probe` bytes are written to a new file in the directory `Built.stored`, and synced.
    The metric ``fragments_per_mib`` is the number of its fragments on the device per MiB. The default `probe` is half
    of the space that the other files leave, and at most 256 MiB. A smaller one would fit into a single piece for a long
    time. With blocks of 4 KiB, 256 is the worst result. With a target, the fragmentation over the operations is
    recorded as ``fragmentation``, and the probes are part of the time. If the filesystem does not support FIEMAP,
    nothing is recorded, and all operations run.

    Checked afterwards, from the device: the number of files, the sum of their sizes, and a sample of the contents.
    Raises `ValueError` if there is too little space, and `FileExistsError` if `into` exists.
    """
    if operations <= 0:
        raise ValueError(f"age: operations must be above 0 (got {operations})")
    if not 0 < percent < 100:
        raise ValueError(f"age: percent must be between 0 and 100 (got {percent:g})")
    status = os.statvfs(fsstack.path)
    available = status.f_bavail * status.f_frsize
    budget = int(available * percent / 100)
    if probe is None:
        probe = min(_PROBE_BYTES, (available - budget) // 2)
    if not 1 << 20 <= probe < available - budget:
        raise ValueError(f"age: cannot probe with {probe:,} bytes where the files leave {available - budget:,}")
    steps = itertools.islice(churn(seed, budget), operations)
    top = fsstack.path / into
    top.mkdir()
    base = _base()
    course: list[list[float]] = []
    sizes: dict[int, int] = {}
    with timed():
        for count, step in enumerate(steps, 1):
            _do(top, step, base)
            if step.kind == "delete":
                del sizes[step.file]
            else:
                sizes[step.file] = step.start + step.size
            if target is not None and count % _BETWEEN_PROBES == 0:
                fragmentation = _fragmentation(fsstack, probe)
                if fragmentation is None:
                    target = None
                    continue
                course.append([count, fragmentation])
                if fragmentation >= target:
                    break
    timed.keep("operations", count)
    if course:
        timed.keep("fragmentation", course)
    if (fragmentation := _fragmentation(fsstack, probe)) is not None:
        timed.record("fragments_per_mib", fragmentation, unit="1/MiB", better="lower", resolution=(1 << 20) / probe)
    fsstack.remount()
    sample = [(_path(file), _content(base, file, 0, sizes[file])) for file in drawn(sorted(sizes))]
    verify_files(top, len(sizes), sum(sizes.values()), sample, "age")


def _path(file: int) -> str:
    return f"{file // _FILES_PER_DIRECTORY}/{file}"


def _base() -> bytes:
    """Return the source of all contents: a block of noise twice, so that slices can start anywhere in the first."""
    return noise(_LARGEST, "age") * 2


def _content(base: bytes, file: int, start: int, size: int) -> bytes:
    """Return the content of a file from byte `start`. Each file starts at another offset of the base."""
    first = (file * 4099 + start) % _LARGEST
    piece = base[first : first + size]
    return piece if len(piece) == size else piece + _content(base, file, start + len(piece), size - len(piece))


def _do(top: Path, step: Operation, base: bytes) -> None:
    path = top / _path(step.file)
    if step.kind == "delete":
        path.unlink()
        return
    if step.kind == "create" and step.file % _FILES_PER_DIRECTORY == 0:
        path.parent.mkdir()
    flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if step.kind == "create" else os.O_APPEND)
    descriptor = os.open(path, flags, 0o644)
    try:
        os.write(descriptor, _content(base, step.file, step.start, step.size))
    finally:
        os.close(descriptor)


def _fragmentation(fsstack: Built, size: int) -> float | None:
    """Return the fragments per MiB of a new file of `size` bytes. None if the filesystem does not support that."""
    path = fsstack.stored / _PROBE
    fsstack.sync()
    piece = noise(1 << 20, "probe")
    try:
        with path.open("xb", buffering=0) as file:
            for start in range(0, size, len(piece)):
                file.write(piece[: size - start])
            os.fsync(file.fileno())
        return fragments(extents(path)) / (size / (1 << 20))
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOTTY):
            raise
        return None
    finally:
        path.unlink(missing_ok=True)
