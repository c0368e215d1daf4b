"""The medium that stores a stack: its block devices, or the files of a stacked encryption in a directory.

The whole medium is read in units before the first flip, so everything that a filesystem does afterwards can be undone.
The offsets of several devices continue from one to the next.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fsstack.machine.descriptors import pieces_direct, size_of_device
from pytest_fsstack.stack.places import Block, Directory, Place

#: Bytes of a unit. The last unit of a file may be shorter.
UNIT = 4096
SECTOR = 512

_AT_ONCE = 1 << 20
_ZEROS, _MUCH_ZERO = bytes(UNIT), bytes(_AT_ONCE)


@dataclass(frozen=True, order=True)
class Unit:
    """The place of a unit: a file, relative to the directory (empty for a device), and an offset in bytes."""

    file: str
    offset: int

    def __str__(self) -> str:
        return f"{self.file} at {self.offset}" if self.file else str(self.offset)


@dataclass
class Image:
    """The contents of a medium. A device has only the units that are not zero, a directory also times and links."""

    units: dict[Unit, bytes] = field(default_factory=dict)
    #: Access and modification time of each path, in nanoseconds. Directories have no other entry.
    times: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: The target of each symbolic link.
    links: dict[str, str] = field(default_factory=dict)

    def changed(self, before: Image) -> set[Unit]:
        """Return the units that differ from an earlier image, missing ones included."""
        every = self.units.keys() | before.units.keys()
        return {unit for unit in every if self.units.get(unit) != before.units.get(unit)}

    def since(self, before: Image) -> dict[Unit, bytes]:
        """Return the units that were written since an earlier image."""
        return {unit: self.units[unit] for unit in self.changed(before) if unit in self.units}


def read(place: Place) -> Image:
    """Read the whole medium. Raises OSError."""
    return _read_device(place) if isinstance(place, Block) else _read_directory(place.path)


def put(place: Place, units: Mapping[Unit, bytes], times: Mapping[str, tuple[int, int]] | None = None) -> None:
    """Overwrite units. Files keep their lengths, and get the `times`. Raises OSError."""
    if isinstance(place, Block):
        for part, span in spans(place):
            inside = [(unit.offset - span.start, units[unit]) for unit in sorted(units) if unit.offset in span]
            if inside:
                part.write(inside)
        return
    for unit, content in sorted(units.items()):
        with (place.path / unit.file).open("r+b", buffering=0) as file:
            file.seek(unit.offset)
            file.write(content)
    _set_times(place.path, times or {})


def restore(place: Place, image: Image) -> Image:
    """Write an image back to the medium. Return the image that it replaces. Raises OSError."""
    now = read(place)
    if isinstance(place, Block):
        if changed := now.changed(image):
            put(place, {unit: image.units.get(unit, _ZEROS) for unit in changed})
        return now
    _restore_directory(place, image, now)
    return now


# -- devices -----------------------------------------------------------------------------------------------------------


def spans(place: Block) -> list[tuple[Block, range]]:
    """Return the devices of a place, each with its range of the offsets."""
    ends = list(itertools.accumulate((size_of_device(part.path) for part in place.parts), initial=0))
    return [(part, range(*span)) for part, span in zip(place.parts, itertools.pairwise(ends))]


def _read_device(place: Block) -> Image:
    # Filesystems bypass the page cache of the device, so its pages may be stale.
    image = Image()
    for part, span in spans(place):
        for start, content in pieces_direct(part.path, _AT_ONCE):
            image.units.update(_units("", span.start + start, content))
    return image


def _units(file: str, start: int, content: bytes) -> Iterator[tuple[Unit, bytes]]:
    if content == _MUCH_ZERO:
        return
    for offset in range(0, len(content), UNIT):
        if (unit := content[offset : offset + UNIT]) != _ZEROS:
            yield Unit(file, start + offset), unit


# -- directories -------------------------------------------------------------------------------------------------------


def _read_directory(top: Path) -> Image:
    image = Image()
    for path in _below(top):
        status, name = path.lstat(), os.fspath(path.relative_to(top))
        image.times[name] = status.st_atime_ns, status.st_mtime_ns
        if stat.S_ISLNK(status.st_mode):
            image.links[name] = os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
            # An empty file has one unit as well.
            for offset in range(0, max(len(content), 1), UNIT):
                image.units[Unit(name, offset)] = content[offset : offset + UNIT]
    return image


def _below(top: Path) -> Iterator[Path]:
    for path in sorted(top.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _below(path)


def _restore_directory(place: Directory, image: Image, now: Image) -> None:
    for name in {unit.file for unit in now.units} - {unit.file for unit in image.units}:
        (place.path / name).unlink()
    for name in sorted(now.times.keys() - image.times.keys(), reverse=True):
        path = place.path / name
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
    # In sorted order, parents come first.
    files = {unit.file for unit in image.units}
    for name in sorted(image.times.keys() - now.times.keys() - files):
        if name in image.links:
            (place.path / name).symlink_to(image.links[name])
        else:
            (place.path / name).mkdir()
    for name in sorted({unit.file for unit in now.changed(image)} & files):
        units = sorted((unit, content) for unit, content in image.units.items() if unit.file == name)
        with open(os.open(place.path / name, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0) as file:
            for unit, content in units:
                file.seek(unit.offset)
                file.write(content)
            file.truncate(units[-1][0].offset + len(units[-1][1]))
    _set_times(place.path, image.times)


def _set_times(top: Path, times: Mapping[str, tuple[int, int]]) -> None:
    # A directory's time changes with its entries, so they come first.
    for name in sorted(times, reverse=True):
        with contextlib.suppress(FileNotFoundError):  # a flip has renamed it
            os.utime(top / name, ns=times[name], follow_symlinks=False)


def runs(units: Iterable[Unit]) -> list[list[Unit]]:
    """Group units into runs of adjacent ones, in order."""
    groups: list[list[Unit]] = []
    for unit in sorted(units):
        last = groups[-1][-1] if groups else None
        if last and (unit.file, unit.offset) == (last.file, last.offset + UNIT):
            groups[-1].append(unit)
        else:
            groups.append([unit])
    return groups
