"""Promises about the state after a power cut, as an oracle for the operations of a plan.

These are the promises of POSIX, the manual pages and the usual practice of Linux:

- **Contents.** After fsync or fdatasync of a file, or sync or syncfs, the file has the bytes and size of that moment,
  or those of later writes. A write with O_SYNC or O_DSYNC, or through a mapping with msync, promises this for its own
  bytes only.
- **Names.** After fsync of the directory, or sync or syncfs, each name leads to the file of that moment, or of a later
  operation. An fsync of a file does not promise its name.
- **Renames** are atomic. The target name leads to the old file or to the new one, never to none. The renamed file has
  its old name or its new one.
- **Unsynced writes** may be complete, partial or missing, in any order. So a file has only bytes that were written to
  it at that place, and zeros. A file that was never synced may be empty.
- **Empty directories** can be listed if their name is promised.
- **No other names exist.** A name that was removed before the last fsync of the directory belongs to an older state, so
  synced data is lost. A name that never existed is invented.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from pytest_fsstack.truth.damage.perform import content
from pytest_fsstack.truth.damage.plan import Operation


class Kind(Enum):
    """The way in which a promise was broken."""

    LOST = "lost"  # synced data is missing, or older data is there again
    INVENTED = "invented"  # there is data that was never written
    UNREADABLE = "unreadable"  # reading fails


@dataclass(frozen=True)
class Broken:
    """A broken promise, with a text for people. `what` is broken: bytes or a name, and the call that promised it."""

    kind: Kind
    text: str
    what: str

    @property
    def finding(self) -> str:
        """Return the kind of finding, such as "lost: bytes (fsync)"."""
        return f"{self.kind.value}: {self.what}"


@dataclass(frozen=True)
class Unreadable:
    """A placeholder for the bytes of a file that cannot be read."""

    why: str


#: A placeholder for the bytes of an empty directory that can be listed.
EMPTY_DIRECTORY = b"an empty directory"

#: The contents after a cut, by name.
Found = Mapping[str, bytes | Unreadable]


@dataclass
class _File:
    #: For each write, the number of its operation, the offset and the bytes.
    writes: list[tuple[int, int, bytes]] = field(default_factory=list)
    #: The numbers of the operations that synced the file.
    syncs: list[int] = field(default_factory=list)
    #: The numbers of writes that synced their own bytes (O_SYNC, O_DSYNC, msync).
    lasting: set[int] = field(default_factory=set)

    def promised(self, count: int) -> tuple[bytes, list[tuple[int, int, bytes]]]:
        """Return the promised bytes after `count` operations, and the `lasting` writes after the last sync."""
        last, content = self.synced(count), bytearray()
        alone = [write for write in self.writes if last <= write[0] < count and write[0] in self.lasting]
        for _, offset, data in [*(write for write in self.writes if write[0] < last), *alone]:
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            content[offset : offset + len(data)] = data
        return bytes(content), alone

    def synced(self, count: int) -> int:
        """Return the number of operations up to the last sync among the first `count`, 0 without one."""
        return max((index + 1 for index in self.syncs if index < count), default=0)


class History:
    """The history of a plan's operations in a directory that was empty and synced at the beginning."""

    def __init__(self, seed: int, operations: Sequence[Operation]) -> None:
        self.seed, self.steps = seed, operations
        self._files: list[_File] = []
        #: The number of the file behind each name, before each operation and after the last one.
        self._names: list[dict[str, int]] = [{}]
        self._directory_syncs: list[int] = []
        for index, operation in enumerate(operations):
            names = dict(self._names[-1])
            if operation.kind == "write":
                if operation.name not in names:
                    names[operation.name] = len(self._files)
                    self._files.append(_File())
                data = content(seed, index, operation.length)
                file = self._files[names[operation.name]]
                file.writes.append((index, operation.offset, data))
                file.lasting |= {index} if operation.how else set()
            elif operation.kind == "make directory":
                # The directory is synced from the start: it can be listed wherever its name is promised.
                names[operation.name] = len(self._files)
                self._files.append(_File([(index, 0, EMPTY_DIRECTORY)], [index]))
            elif operation.kind == "sync":
                self._files[names[operation.name]].syncs.append(index)
            elif operation.kind == "sync directory":
                self._directory_syncs.append(index)
            elif operation.kind == "sync all":
                self._directory_syncs.append(index)
                for number in names.values():
                    self._files[number].syncs.append(index)
            elif operation.kind == "rename":
                names[operation.to] = names.pop(operation.name)
            elif operation.kind in ("unlink", "remove directory"):
                del names[operation.name]
            self._names.append(names)

    def broken(self, contents: Found, count: int) -> list[Broken]:
        """Return the promises that the contents after a cut break.

        The first `count` operations had returned before the cut, and the next one may have begun.
        """
        begun = min(count + 1, len(self.steps))
        synced = max((index for index in self._directory_syncs if index < count), default=-1)
        states = self._names[synced + 1 : begun + 1]
        broken: list[Broken] = []
        #: For each name, the numbers of the files whose promises its contents keep.
        fits: dict[str, set[int]] = {}
        for name in sorted({*contents, *(name for state in states for name in state)}):
            allowed = [state.get(name) for state in states]
            files = dict.fromkeys(file for file in allowed if file is not None)
            if name not in contents:
                if None not in allowed:
                    text = f"{name} is gone, which was there since {self._when(synced)}"
                    broken.append(Broken(Kind.LOST, text, self._promise("name", synced)))
                continue
            troubles = {
                file: list(self._troubles(name, self._files[file], contents[name], count, begun)) for file in files
            }
            fits[name] = {file for file, trouble in troubles.items() if not trouble}
            if not fits[name]:
                misplaced = self._misplaced(name, contents[name], synced, begun)
                fewest = min(troubles.values(), key=len, default=[])
                broken += misplaced or fewest
        # A file that had a name in all states must still have one of its names.
        for file in set.intersection(*(set(state.values()) for state in states)):
            names = sorted({name for state in states for name, other in state.items() if other == file})
            # A damaged file fits nothing. The loop above has reported it.
            there = any(name in contents and (file in fits[name] or not fits[name]) for name in names)
            if len(names) > 1 and not there:
                text = f"what was renamed is gone: it is neither of {', '.join(names)}"
                broken.append(Broken(Kind.LOST, text, "name (rename)"))
        return broken

    def _misplaced(self, name: str, content: bytes | Unreadable, synced: int, begun: int) -> list[Broken]:
        """Return the broken promise of a name that leads to a wrong file. Empty if the bytes are wrong instead."""
        former = {state[name] for state in self._names[: synced + 1] if name in state}
        now = {state[name] for state in self._names[synced + 1 : begun + 1] if name in state}
        if any(not list(self._troubles(name, self._files[file], content, 0, begun)) for file in former - now):
            text = f"{name} is the old file again, from before {self._when(synced)}"
            return [Broken(Kind.LOST, text, self._promise("name", synced))]
        if now:
            return []
        if former:
            text = f"{name} is there, which was gone since {self._when(synced)}"
            return [Broken(Kind.LOST, text, self._promise("name", synced))]
        return [Broken(Kind.INVENTED, f"{name} is there, a name that never was", "name")]

    def _promise(self, what: str, index: int) -> str:
        """Return what an operation promised, with the call that it made."""
        step = self.steps[index] if index >= 0 else None
        return f"{what} ({step.how or step.kind})" if step else what

    def _when(self, index: int) -> str:
        return f"the sync of the directory (operation {index})" if index >= 0 else "the beginning"

    def _troubles(
        self, name: str, file: _File, content: bytes | Unreadable, count: int, begun: int
    ) -> Iterator[Broken]:
        """Yield the promises that these contents of a file break, the first one of each kind."""
        last = file.synced(count)
        base, alone = file.promised(count)
        synced_by = max([last - 1, *(index for index, _, _ in alone)])
        when, what = f"its sync (operation {synced_by})", self._promise("bytes", synced_by)
        if isinstance(content, Unreadable):
            yield Broken(Kind.UNREADABLE, f"{name} cannot be read ({content.why})", "file")
            if base:
                yield Broken(Kind.LOST, f"{name}: {len(base)} bytes of {when} cannot be read", what)
            return
        begun_writes = [write for write in file.writes if write[0] < begun]
        later = [write for write in begun_writes if write[0] >= last]
        largest = max([len(base), *(offset + len(data) for _, offset, data in later)])
        lost = invented = ""
        if len(content) > largest:
            invented = f"{name} has {len(content)} bytes, and never had more than {largest}"
        if len(content) < len(base):
            lost = f"{name} has {len(content)} of the {len(base)} bytes of {when}"
        expected = base.ljust(len(content), b"\0")
        for start in range(0, len(content), 512):
            if content[start : start + 512] == expected[start : start + 512]:
                continue
            for place in range(start, min(start + 512, len(content), largest)):
                value = content[place]
                synced = max((index for index, offset, data in alone if 0 <= place - offset < len(data)), default=-1)
                if value == expected[place] or _written((write for write in later if write[0] > synced), place, value):
                    continue
                if place < len(base):
                    lost = lost or f"{name}: byte {place} is not as in {when}"
                if not (place < len(base) and (value == 0 or _written(begun_writes, place, value))):
                    invented = invented or f"{name}: byte {place} is one that was never written there"
            if lost and invented:
                break
        if lost:
            yield Broken(Kind.LOST, lost, what)
        if invented:
            yield Broken(Kind.INVENTED, invented, "bytes")


def _written(writes: Iterable[tuple[int, int, bytes]], place: int, value: int) -> bool:
    return any(0 <= place - offset < len(data) and data[place - offset] == value for _, offset, data in writes)
