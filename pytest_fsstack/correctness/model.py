"""The expected tree of files after some calls, in memory, by the rules of POSIX and Linux."""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


def data(length: int, fill: int) -> bytes:
    """Bytes that are others for each `fill` below 251, and that are not the same a block further."""
    period = bytes(range(251))
    start = fill % 251
    return (period * (length // 251 + 2))[start : start + length]


def failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@dataclass(eq=False)
class _File:
    content: bytearray = field(default_factory=bytearray)
    attributes: dict[str, bytes] = field(default_factory=dict)
    mode: int = 0o644
    links: int = 1


@dataclass(eq=False)
class _Directory:
    entries: dict[str, _Node] = field(default_factory=dict)


@dataclass(eq=False)
class _Link:
    target: str


_Node = _File | _Directory | _Link
#: How many symbolic links Linux follows in one path.
_LINKS = 40


class Model:
    """A tree in memory, which answers as POSIX and Linux say. Paths are relative to it; errors are OSError."""

    def __init__(self, name_max: int = 255) -> None:
        self._root = _Directory()
        self._name_max = name_max
        self._held: dict[int, _File] = {}

    # Where a path leads.

    def _parent(self, path: str, followed: int = 0) -> tuple[_Directory, str]:
        """The directory that the last name of a path is in."""
        *names, last = path.split("/")
        node: _Node = self._root
        passed: list[str] = []
        for name in names:
            passed.append(name)
            node = self._at("/".join(passed), follow=True, followed=followed)
            if not isinstance(node, _Directory):
                raise failure(errno.ENOTDIR)
        assert isinstance(node, _Directory)
        if len(last.encode()) > self._name_max:
            raise failure(errno.ENAMETOOLONG)
        return node, last

    def _at(self, path: str, *, follow: bool, followed: int = 0) -> _Node:
        directory, name = self._parent(path, followed)
        node = directory.entries.get(name)
        if node is None:
            raise failure(errno.ENOENT)
        if follow and isinstance(node, _Link):
            if followed >= _LINKS:
                raise failure(errno.ELOOP)
            return self._at(self._beside(path, node.target), follow=True, followed=followed + 1)
        return node

    @staticmethod
    def _beside(path: str, target: str) -> str:
        return "/".join([*path.split("/")[:-1], target])

    def _file(self, path: str, *, create: bool = False) -> _File:
        """Return the file that opening for writing gives."""
        for _ in range(_LINKS + 1):
            directory, name = self._parent(path)
            node = directory.entries.get(name)
            if isinstance(node, _Link):
                path = self._beside(path, node.target)
                continue
            if node is None and create:
                node = directory.entries[name] = _File()
            if node is None:
                raise failure(errno.ENOENT)
            if isinstance(node, _Directory):
                raise failure(errno.EISDIR)
            return node
        raise failure(errno.ELOOP)

    # Calls.

    def create(self, path: str) -> None:
        """A new, empty file."""
        directory, name = self._parent(path)
        if name in directory.entries:
            raise failure(errno.EEXIST)
        directory.entries[name] = _File()

    def mkdir(self, path: str) -> None:
        directory, name = self._parent(path)
        if name in directory.entries:
            raise failure(errno.EEXIST)
        directory.entries[name] = _Directory()

    def rmdir(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            raise failure(errno.ENOENT)
        if not isinstance(node, _Directory):
            raise failure(errno.ENOTDIR)
        if node.entries:
            raise failure(errno.ENOTEMPTY)
        del directory.entries[name]

    def write(self, path: str, offset: int, length: int, fill: int) -> None:
        """Open it, made if it is not there, write `data` at an offset, close it."""
        self._write(self._file(path, create=True), offset, data(length, fill))

    @staticmethod
    def _write(file: _File, offset: int, content: bytes) -> None:
        if not content:
            return
        file.content.extend(bytes(max(0, offset - len(file.content))))
        file.content[offset : offset + len(content)] = content

    def append(self, path: str, length: int, fill: int) -> None:
        file = self._file(path)
        file.content.extend(data(length, fill))

    def truncate(self, path: str, size: int) -> None:
        node = self._at(path, follow=True)
        if not isinstance(node, _File):
            raise failure(errno.EISDIR)
        self._resize(node, size)

    @staticmethod
    def _resize(file: _File, size: int) -> None:
        del file.content[size:]
        file.content.extend(bytes(size - len(file.content)))

    def read(self, path: str, offset: int, length: int) -> bytes:
        return bytes(self._file(path).content[offset : offset + length])

    def rename(self, old: str, new: str) -> None:
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node = source.entries.get(old_name)
        if node is None:
            raise failure(errno.ENOENT)
        if isinstance(node, _Directory) and self._is_in(node, target):
            raise failure(errno.EINVAL)
        there = target.entries.get(new_name)
        if there is node:
            return
        if there is not None:
            if isinstance(node, _Directory) and not isinstance(there, _Directory):
                raise failure(errno.ENOTDIR)
            if isinstance(there, _Directory):
                if not isinstance(node, _Directory):
                    raise failure(errno.EISDIR)
                if there.entries:
                    raise failure(errno.ENOTEMPTY)
            if isinstance(there, _File):
                there.links -= 1
        del source.entries[old_name]
        target.entries[new_name] = node

    def _is_in(self, node: _Directory, other: _Directory) -> bool:
        return node is other or any(
            isinstance(entry, _Directory) and self._is_in(entry, other) for entry in node.entries.values()
        )

    def link(self, old: str, new: str) -> None:
        node = self._at(old, follow=False)
        directory, name = self._parent(new)
        if name in directory.entries:
            raise failure(errno.EEXIST)
        if isinstance(node, _Directory):
            raise failure(errno.EPERM)
        directory.entries[name] = node
        if isinstance(node, _File):
            node.links += 1

    def symlink(self, target: str, path: str) -> None:
        directory, name = self._parent(path)
        if name in directory.entries:
            raise failure(errno.EEXIST)
        directory.entries[name] = _Link(target)

    def unlink(self, path: str) -> None:
        directory, name = self._parent(path)
        node = directory.entries.get(name)
        if node is None:
            raise failure(errno.ENOENT)
        if isinstance(node, _Directory):
            raise failure(errno.EISDIR)
        if isinstance(node, _File):
            node.links -= 1
        del directory.entries[name]

    def chmod(self, path: str, mode: int) -> None:
        self._file(path).mode = mode

    def set_attribute(self, path: str, name: str, value: bytes) -> None:
        self._file(path).attributes[name] = value

    def remove_attribute(self, path: str, name: str) -> None:
        attributes = self._file(path).attributes
        if name not in attributes:
            raise failure(errno.ENODATA)
        del attributes[name]

    def write_mapped(self, path: str, offset: int, length: int, fill: int) -> int:
        """Write through a shared mapping of the whole file, as far as that goes; returns how many bytes."""
        file = self._file(path)
        content = data(length, fill)[: max(0, len(file.content) - offset)]
        self._write(file, offset, content)
        return len(content)

    def allocate(self, path: str, offset: int, length: int) -> None:
        """fallocate(2) of mode 0."""
        file = self._file(path)
        self._resize(file, max(len(file.content), offset + length))

    def punch(self, path: str, offset: int, length: int) -> None:
        """fallocate(2) that makes a hole and keeps the size."""
        file = self._file(path)
        end = min(offset + length, len(file.content))
        if offset < end:
            file.content[offset:end] = bytes(end - offset)

    def fsync(self, path: str) -> None:
        self._file(path)

    # Files that are held open.

    def hold(self, slot: int, path: str) -> None:
        """Open it, and leave it open; what the slot held before is closed."""
        self._held.pop(slot, None)
        self._held[slot] = self._file(path)

    def write_held(self, slot: int, offset: int, length: int, fill: int) -> bool:
        """Write to what is held, whether or not it has a name still; returns whether the slot holds something."""
        if slot in self._held:
            self._write(self._held[slot], offset, data(length, fill))
        return slot in self._held

    def truncate_held(self, slot: int, size: int) -> bool:
        if slot in self._held:
            self._resize(self._held[slot], size)
        return slot in self._held

    def read_held(self, slot: int) -> tuple[int, bytes] | None:
        """Return the number of names of an open file, and its content."""
        file = self._held.get(slot)
        return (file.links, bytes(file.content)) if file else None

    def let_go(self) -> None:
        """Close all that is held."""
        self._held.clear()

    # All there is.

    def everything(self) -> dict[str, Any]:
        """Return the facts by path. Files with the same number are one file."""
        numbers: dict[_Node, int] = {}
        return {path: self._facts(node, numbers) for path, node in sorted(self._walk(self._root, ""))}

    def _walk(self, directory: _Directory, prefix: str) -> Iterator[tuple[str, _Node]]:
        for name, node in directory.entries.items():
            yield prefix + name, node
            if isinstance(node, _Directory):
                yield from self._walk(node, f"{prefix}{name}/")

    @staticmethod
    def _facts(node: _Node, numbers: dict[_Node, int]) -> Any:
        if isinstance(node, _Directory):
            return "directory"
        if isinstance(node, _Link):
            return f"link to {node.target}"
        number = numbers.setdefault(node, len(numbers))
        return Facts(number, bytes(node.content), node.links, node.mode, dict(node.attributes))

    def content(self, place: str | int) -> bytes | None:
        """Return the content of a file, by its path or by the slot that holds it. None if there is none."""
        file = self._found(place)
        return bytes(file.content) if file else None

    def set_content(self, place: str | int, content: bytes) -> None:
        """Change a file that is there by other ways than a call."""
        file = self._found(place)
        assert file
        file.content[:] = content

    def _found(self, place: str | int) -> _File | None:
        if isinstance(place, int):
            return self._held.get(place)
        try:
            return self._file(place)
        except OSError:
            return None


@dataclass(frozen=True)
class Facts:
    """The readable facts of a file. `number` is the same for all names of one file."""

    number: int
    content: bytes = field(repr=False)
    links: int
    mode: int
    attributes: Mapping[str, bytes]

    def differences(self, other: Facts) -> Iterator[tuple[str, str]]:
        """Yield the differences from another one, as fields and descriptions."""
        if self.content != other.content:
            yield "content", difference(self.content, other.content)
        for part in dataclasses.fields(self):
            value, expected = getattr(self, part.name), getattr(other, part.name)
            if part.name != "content" and value != expected:
                yield part.name, f"{part.name} {value!r} instead of {expected!r}"


def difference(actual: bytes, expected: bytes) -> str:
    """Describe the first difference of two contents, and their sizes if these differ."""
    at = next((index for index, (one, two) in enumerate(zip(actual, expected)) if one != two), None)
    problems = [] if len(actual) == len(expected) else [f"{len(actual):,} bytes instead of {len(expected):,}"]
    if at is not None:
        count = sum(one != two for one, two in zip(actual, expected))
        problems.append(f"{count:,} wrong bytes from {at:,} on (found {actual[at]:#x}, not {expected[at]:#x})")
    return ", ".join(problems)
