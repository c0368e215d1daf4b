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
        words = [
            self.kind,
            f"{self.length} bytes at {self.offset} of" if self.length else "",
            repr(self.name) if self.name else "",
            f"to {self.to!r}" if self.to else "",
            f"by {self.how}" if self.how else "",
        ]
        return " ".join(filter(None, words))

    @property
    def syncs(self) -> bool:
        """Return whether the operation syncs something."""
        return bool(self.how) or self.kind == "sync directory"

    @property
    def words(self) -> list[str | int]:
        """Return the operation as `perform` reads it."""
        return [self.kind, self.name, self.to, self.offset, self.length, self.how]


def plan(seed: int, count: int, without: Collection[str] = (), *, of_all: bool = False) -> list[Operation]:
    """Draw at least `count` operations. The last one syncs the directory.

    Calls in `without` are never used to sync. Only with `of_all` are all files synced at once.
    """
    planner = _Planner(random.Random(f"plan/{seed}"), without)
    # Begin with synced files: even the first cut can lose something then.
    for _ in range(2):
        planner.replace()
    planner.sync_directory()
    weighted = {
        **{planner.create: 4, planner.append: 4, planner.overwrite: 4, planner.sync: 5, planner.sync_directory: 2},
        **{planner.rename: 2, planner.replace: 3, planner.unlink: 1, planner.write_back: 3, planner.make_directory: 2},
        **({planner.sync_all: 2, planner.sync_all_late: 15} if of_all else {}),
    }
    while len(planner.operations) < count - 1:
        (step,) = planner.draw.choices(list(weighted), list(weighted.values()))
        step()
    planner.sync_directory()
    return planner.operations


class _Planner:
    """The operations drawn so far, with the sizes of the files and the directories that they leave."""

    def __init__(self, draw: random.Random, without: Collection[str]) -> None:
        self.draw = draw
        self.operations: list[Operation] = []
        self._without = without
        self._sizes: dict[str, int] = {}
        self._directories: list[str] = []

    def _write(self, name: str, offset: int, length: int, how: str = "") -> None:
        self.operations.append(Operation("write", name, "", offset, length, how))
        self._sizes[name] = max(self._sizes.get(name, 0), offset + length)

    def _one_of(self, *calls: str) -> str:
        return self.draw.choice([call for call in calls if call not in self._without])

    def _length(self, at: int) -> int:
        kinds = (
            self.draw.randint(1, 600),
            self.draw.randint(1, 6000),
            self.draw.randint(1, 24 << 10),
            4096 * self.draw.randint(1, 4),
        )
        return max(1, min(self.draw.choice(kinds), _LARGEST - at))

    def _name(self) -> str:
        return f"f{self.draw.randrange(_NAMES)}"

    def create(self) -> None:
        new = self._name()
        if new not in self._sizes:
            self._write(new, 0, self._length(0), self._one_of("", "", "O_SYNC", "O_DSYNC"))

    def append(self) -> None:
        old = self.draw.choice(sorted(self._sizes))
        if self._sizes[old] < _LARGEST:
            self._write(
                old, self._sizes[old], self._length(self._sizes[old]), self._one_of("", "", "", "O_SYNC", "O_DSYNC")
            )

    def overwrite(self) -> None:
        old = self.draw.choice(sorted(self._sizes))
        self._overwrite(old, self._one_of("", "", "", "O_SYNC", "O_DSYNC", "msync", "msync"))

    def _overwrite(self, old: str, how: str = "") -> None:
        offset = self.draw.randrange(self._sizes[old])
        self._write(old, offset, min(self._length(offset), self._sizes[old] - offset), how)

    def sync(self) -> None:
        self.operations.append(
            Operation("sync", self.draw.choice(sorted(self._sizes)), how=self._one_of("fsync", "fdatasync"))
        )

    def sync_all(self) -> None:
        self.operations.append(Operation("sync all", how=self._one_of("sync", "syncfs")))

    def sync_all_late(self) -> None:
        # The sync of another file may leave a clean journal, although the overwritten file is not written yet.
        self.sync_all()
        self._overwrite(self.draw.choice(sorted(self._sizes.keys() - {"other"})))
        self._write("other", 0, self._length(0), self._one_of("O_SYNC", "O_DSYNC"))
        self.sync_all()

    def sync_directory(self) -> None:
        self.operations.append(Operation("sync directory"))

    def rename(self) -> None:
        old, new = self.draw.choice(sorted(self._sizes)), self._name()
        if old != new:
            self.operations.append(Operation("rename", old, new))
            self._sizes[new] = self._sizes.pop(old)

    def replace(self) -> None:
        # Editors and package managers replace files in this way.
        new = self._name()
        self._write("new", 0, self._length(0))
        self.operations.append(Operation("sync", "new", how=self._one_of("fsync", "fdatasync")))
        self.operations.append(Operation("rename", "new", new))
        self._sizes[new] = self._sizes.pop("new")
        if self.draw.random() < 0.7:
            self.sync_directory()

    def unlink(self) -> None:
        if len(self._sizes) > 3:
            old = self.draw.choice(sorted(self._sizes))
            self.operations.append(Operation("unlink", old))
            del self._sizes[old]

    def make_directory(self) -> None:
        new = f"d{self.draw.randrange(_NAMES)}"
        if new in self._directories:
            self._directories.remove(new)
            self.operations.append(Operation("remove directory", new))
            return
        self._directories.append(new)
        self.operations.append(Operation("make directory", new))
        if self.draw.random() < 0.7:
            self.sync_directory()

    def write_back(self) -> None:
        self.operations.append(Operation("write back", self.draw.choice(sorted(self._sizes))))
