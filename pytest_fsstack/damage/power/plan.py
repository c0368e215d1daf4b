"""The plan: operations on files before the power cut, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

#: The number of file names, and the size of the largest file in bytes.
_NAMES, _LARGEST = 10, 48 << 10


@dataclass(frozen=True)
class Operation:
    """An operation on a file, or on the directory of all files. `offset` and `length` are in bytes.

    The `kind` is one of these:

    - ``write``, which creates the file if necessary, ``unlink``, and ``rename`` to `to`, which may exist
    - ``sync`` of the file, ``sync directory``, ``sync all``
    - ``write back``: the kernel begins to write dirty pages of the file, as it does by itself after some seconds
    - ``make directory`` and ``remove directory`` of an empty directory below.

    `how` is the call that syncs: fsync or fdatasync for a file, sync or syncfs for all files, O_SYNC, O_DSYNC or msync
    for a single write. It is empty if the operation does not sync.
    """

    kind: str
    name: str = ""
    to: str = ""
    offset: int = 0
    length: int = 0
    how: str = ""

    def __str__(self) -> str:
        bytes_written = f" {self.length} bytes at {self.offset}" if self.length else ""
        names = f" {self.name}" * bool(self.name) + f" to {self.to}" * bool(self.to)
        return f"{self.kind}{names}{bytes_written}" + f" by {self.how}" * bool(self.how)

    @property
    def words(self) -> list[str | int]:
        """Return the operation as the worker reads it."""
        return [self.kind, self.name, self.to, self.offset, self.length, self.how]


def plan(seed: int, count: int, without: Collection[str] = ()) -> list[Operation]:
    """Draw at least `count` operations. The last one syncs the directory. Calls in `without` are never used to sync."""
    draw = random.Random(f"plan/{seed}")
    sizes: dict[str, int] = {}
    directories: list[str] = []
    operations: list[Operation] = []

    def write(name: str, offset: int, length: int, how: str = "") -> None:
        operations.append(Operation("write", name, "", offset, length, how))
        sizes[name] = max(sizes.get(name, 0), offset + length)

    def one_of(*calls: str) -> str:
        return draw.choice([call for call in calls if call not in without])

    def length(at: int) -> int:
        kinds = (draw.randint(1, 600), draw.randint(1, 6000), draw.randint(1, 24 << 10), 4096 * draw.randint(1, 4))
        return max(1, min(draw.choice(kinds), _LARGEST - at))

    def name() -> str:
        return f"f{draw.randrange(_NAMES)}"

    def create() -> None:
        new = name()
        if new not in sizes:
            write(new, 0, length(0), one_of("", "", "O_SYNC", "O_DSYNC"))

    def append() -> None:
        old = draw.choice(sorted(sizes))
        if sizes[old] < _LARGEST:
            write(old, sizes[old], length(sizes[old]), one_of("", "", "", "O_SYNC", "O_DSYNC"))

    def overwrite() -> None:
        old = draw.choice(sorted(sizes))
        offset = draw.randrange(sizes[old])
        how = one_of("", "", "", "O_SYNC", "O_DSYNC", "msync", "msync")
        write(old, offset, min(length(offset), sizes[old] - offset), how)

    def sync() -> None:
        operations.append(Operation("sync", draw.choice(sorted(sizes)), how=one_of("fsync", "fdatasync")))

    def sync_all() -> None:
        operations.append(Operation("sync all", how=one_of("sync", "syncfs")))

    def sync_directory() -> None:
        operations.append(Operation("sync directory"))

    def rename() -> None:
        old, new = draw.choice(sorted(sizes)), name()
        if old != new:
            operations.append(Operation("rename", old, new))
            sizes[new] = sizes.pop(old)

    def replace() -> None:
        # Editors and package managers replace files in this way.
        new = name()
        write("new", 0, length(0))
        operations.append(Operation("sync", "new", how=one_of("fsync", "fdatasync")))
        operations.append(Operation("rename", "new", new))
        sizes[new] = sizes.pop("new")
        if draw.random() < 0.7:
            sync_directory()

    def unlink() -> None:
        if len(sizes) > 3:
            old = draw.choice(sorted(sizes))
            operations.append(Operation("unlink", old))
            del sizes[old]

    def make_directory() -> None:
        new = f"d{draw.randrange(_NAMES)}"
        if new in directories:
            directories.remove(new)
            operations.append(Operation("remove directory", new))
            return
        directories.append(new)
        operations.append(Operation("make directory", new))
        if draw.random() < 0.7:
            sync_directory()

    def write_back() -> None:
        operations.append(Operation("write back", draw.choice(sorted(sizes))))

    # Begin with synced files: even the first cut can lose something then.
    for _ in range(2):
        replace()
    sync_directory()
    weighted = {
        **{create: 4, append: 4, overwrite: 4, sync: 5, sync_directory: 2, sync_all: 1},
        **{rename: 2, replace: 3, unlink: 1, write_back: 3, make_directory: 2},
    }
    while len(operations) < count - 1:
        (step,) = draw.choices(list(weighted), list(weighted.values()))
        step()
    sync_directory()
    return operations
