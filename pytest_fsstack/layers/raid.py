"""RAID in the device-mapper, over slices of one device."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.layers.mapper import MAPPING, SECTOR, mapping, sectors, slices
from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import DMSETUP, DeviceMapper, Need, Root
from pytest_fsstack.stack.model import Block, Checked, Layer, OptionError, Place, Site, option

#: What dm-raid calls each level, how many devices it needs, and how many devices' worth of copies or parity it keeps.
_LEVELS = {0: ("raid0", 2, 0), 1: ("raid1", 2, 0), 5: ("raid5_ls", 3, 1), 6: ("raid6_zr", 4, 2), 10: ("raid10", 4, 0)}

#: Sectors: all parts of the device begin at a multiple of it.
_MIB = (1 << 20) // SECTOR
_CHUNK = 64 << 10


@dataclass(frozen=True)
class Raid(Layer):
    """dm-raid, as LVM's RAID: the code of Linux's software RAID, on equal slices of the device below.

    What its redundancy costs in writes and in computing shows; the speed of several devices does not, for there is but
    one. Each slice has a superblock and a bitmap of what is being written, but for level 0. Nothing is synchronised
    behind a measurement: copies and parity count as right from the start. Level 6, of which dm-raid does not believe
    that, is synchronised when the stack is set up, which takes as long as writing all of it.
    """

    leaves: ClassVar = (MAPPING,)
    name: ClassVar = "raid"
    takes: ClassVar = (Block,)
    gives: ClassVar = Block

    level: int = option(1, "0, 1, 5, 6 or 10")
    devices: int | None = option(None, "number of slices; by default as few as the level can do with, for 10 it is 4")
    chunk_size: int | None = option(None, "bytes of a chunk, a power of 2 from 4096 on; by default 65536")

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper("raid"), DMSETUP]

    def check_options(self) -> None:
        if self.level not in _LEVELS:
            raise OptionError("level", f"must be 0, 1, 5, 6 or 10 (got {self.level})")
        least = _LEVELS[self.level][1]
        if self._count < least or self._count > 253:
            raise OptionError("devices", f"level {self.level} takes {least} to 253 devices (got {self.devices})")
        if self.level == 10 and self._count % 2:
            raise OptionError("devices", f"level 10 takes devices in pairs (got {self.devices})")
        if self.chunk_size is not None:
            if self.level == 1:
                raise OptionError("chunk_size", "level 1 has no chunks")
            if self.chunk_size < 4096 or self.chunk_size & (self.chunk_size - 1):
                raise OptionError("chunk_size", f"must be a power of 2 from 4096 on (got {self.chunk_size})")

    @property
    def _count(self) -> int:
        return self.devices if self.devices is not None else _LEVELS[self.level][1]

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        below.wipe()
        if self.level == 0:
            return
        with self._slices(below, site, site.depth) as (superblocks, data):
            for superblock in superblocks:
                superblock.check()
                fd = os.open(superblock.path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(fd, bytes(1 << 20))
                    os.fsync(fd)
                finally:
                    os.close(fd)
            if self.level == 6:
                with self._array(superblocks, data, site, site.depth) as array:
                    _wait_for_synchronisation(site.name(f"{site.depth}-raid"), array)

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Block]:
        assert isinstance(below, Block)
        with self._slices(below, site, depth) as (superblocks, data), self._array(superblocks, data, site, depth) as it:
            yield it

    def scrub(self, place: Place, below: Place, site: Site) -> Checked | None:
        return scrubs.raid(place.path) if self.level else None

    @contextlib.contextmanager
    def _slices(self, below: Block, site: Site, depth: int) -> Iterator[tuple[list[Block], list[Block]]]:
        """Of each device the small part for the superblock (no such parts for level 0), and the part for data."""
        step = max(_MIB, (self.chunk_size or 0) // SECTOR)
        head = step if self.level else 0
        length = sectors(below) // self._count // step * step
        if length <= head:
            raise OSError(f"{below.path} is too small for {self._count} devices of a RAID: make it larger")
        starts = range(0, self._count * length, length)
        # Data first: what stands on it can then be told from outside by its signature.
        extents = [(start, length - head) for start in starts]
        extents += [(start + length - head, head) for start in starts if head]
        with slices(site.name(f"{depth}-raid"), site, below, extents) as blocks:
            yield blocks[self._count :], blocks[: self._count]

    @contextlib.contextmanager
    def _array(self, superblocks: list[Block], data: list[Block], site: Site, depth: int) -> Iterator[Block]:
        kind, _, parity = _LEVELS[self.level]
        chunk = 0 if self.level == 1 else (self.chunk_size or _CHUNK) // SECTOR
        parameters = [str(chunk)]
        if self.level in (1, 5, 10):
            parameters.append("nosync")
        if self.level == 6:
            # It need not be polite to anybody. kB/s.
            parameters += ["min_recovery_rate", "10000000", "max_recovery_rate", "10000000"]
        if self.level == 10:
            parameters += ["raid10_format", "near", "raid10_copies", "2"]
        copies = {1: self._count, 10: 2}.get(self.level, 1)
        length = sectors(data[0]) * (self._count - parity) // copies
        pairs = [
            f"{superblocks[number].path if superblocks else '-'} {device.path}" for number, device in enumerate(data)
        ]
        words = [kind, str(len(parameters)), *parameters, str(self._count), *pairs]
        name, text = site.name(f"{depth}-raid"), f"0 {length} raid {' '.join(words)}"
        with mapping(name, site, "dmsetup", "create", name, "--table", text, written=data[0].written) as array:
            yield array


def _wait_for_synchronisation(name: str, array: Block) -> None:
    # Documentation/admin-guide/device-mapper/dm-raid.rst: start, length, "raid", type, devices, health, ratio, action.
    def synchronised() -> bool:
        ratio, action = commands.run("dmsetup", "status", name).split()[6:8]
        done, whole = map(int, ratio.split("/"))
        if action == "frozen":
            raise OSError(f"{array.path} will not be synchronised: {ratio} sectors, {action}")
        return done == whole and action == "idle"

    if not commands.wait_until(synchronised, 24 * 3600.0):
        raise OSError(f"{array.path} was not synchronised within a day")
