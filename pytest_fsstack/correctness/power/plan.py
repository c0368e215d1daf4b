"""The operations on the stack before the power cut, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

#: Files of that many names are there, at most, and none is larger, in bytes.
_NAMES, _LARGEST = 10, 48 << 10


@dataclass(frozen=True)
class Operation:
    """Something that is done to a file by its name, or to the directory of all of them.

    It is ``write`` (which makes the file if there is none), ``sync`` (fsync of the file), ``sync directory``,
    ``rename`` (to `to`, over what is there), ``unlink``, ``make directory`` and ``remove directory`` (an empty one in
    it), or ``write back``: the kernel begins to write what is dirty of the file, as it does by itself after some
    seconds. `offset` and `length` are in bytes.
    """

    kind: str
    name: str = ""
    to: str = ""
    offset: int = 0
    length: int = 0

    @property
    def words(self) -> list[str | int]:
        """Return the words for the worker."""
        return [self.kind, self.name, self.to, self.offset, self.length]


def plan(seed: int, count: int) -> list[Operation]:
    """Draw at least `count` operations. The last one syncs the directory."""
    draw = random.Random(f"plan/{seed}")
    sizes: dict[str, int] = {}
    directories: list[str] = []
    operations: list[Operation] = []

    def write(name: str, offset: int, length: int) -> None:
        operations.append(Operation("write", name, "", offset, length))
        sizes[name] = max(sizes.get(name, 0), offset + length)

    def length(at: int) -> int:
        kinds = (draw.randint(1, 600), draw.randint(1, 6000), draw.randint(1, 24 << 10), 4096 * draw.randint(1, 4))
        return max(1, min(draw.choice(kinds), _LARGEST - at))

    def name() -> str:
        return f"f{draw.randrange(_NAMES)}"

    def create() -> None:
        new = name()
        if new not in sizes:
            write(new, 0, length(0))

    def append() -> None:
        old = draw.choice(sorted(sizes))
        if sizes[old] < _LARGEST:
            write(old, sizes[old], length(sizes[old]))

    def overwrite() -> None:
        old = draw.choice(sorted(sizes))
        offset = draw.randrange(sizes[old])
        write(old, offset, min(length(offset), sizes[old] - offset))

    def sync() -> None:
        operations.append(Operation("sync", draw.choice(sorted(sizes))))

    def sync_directory() -> None:
        operations.append(Operation("sync directory"))

    def rename() -> None:
        old, new = draw.choice(sorted(sizes)), name()
        if old != new:
            operations.append(Operation("rename", old, new))
            sizes[new] = sizes.pop(old)

    def replace() -> None:
        # As editors and package managers do.
        new = name()
        write("new", 0, length(0))
        operations.append(Operation("sync", "new"))
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

    # From the first cut on there is something to lose.
    for _ in range(2):
        replace()
    sync_directory()
    weighted = {
        **{create: 4, append: 4, overwrite: 4, sync: 5, sync_directory: 2},
        **{rename: 2, replace: 3, unlink: 1, write_back: 3, make_directory: 2},
    }
    while len(operations) < count - 1:
        (step,) = draw.choices(list(weighted), list(weighted.values()))
        step()
    sync_directory()
    return operations
