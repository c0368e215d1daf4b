"""RAID in the device-mapper, over slices of one device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.layers.mapper import SECTOR, MapperLayer, mapping, slices
from pytest_fsstack.stack.layer import OptionError, option
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Place

#: For each level: dm-raid's name, the minimum number of devices, and the number of devices with copies or parity.
_LEVELS = {0: ("raid0", 2, 0), 1: ("raid1", 2, 0), 5: ("raid5_ls", 3, 1), 6: ("raid6_zr", 4, 2), 10: ("raid10", 4, 0)}

#: In sectors. All parts of the device are aligned to it.
_MIB = (1 << 20) // SECTOR
_CHUNK = 64 << 10


def copies(level: int, devices: int) -> int:
    """Return how often a level stores all data."""
    return {1: devices, 10: 2}.get(level, 1)


def check_chunk_size(level: int, size: int | None) -> None:
    """Raise `OptionError` for a size that no chunk of this level can have. None is the default."""
    if size is not None and level == 1:
        raise OptionError("chunk_size", "level 1 has no chunks")
    check_power_of_2("chunk_size", size)


def check_power_of_2(name: str, size: int | None) -> None:
    """Raise `OptionError` for a size of blocks that is no power of 2. None is the default."""
    if size is not None and (size < 4096 or size & (size - 1)):
        raise OptionError(name, f"must be a power of 2 from 4096 on (got {size})")


@dataclass(frozen=True)
class Raid(MapperLayer):
    """dm-raid, as LVM's RAID: the code of Linux's software RAID, on equal slices of the device below.

    It shows the cost of redundancy in writes and CPU time. It does not show the speed of several devices, because all
    slices share one. Except at level 0, each slice has a superblock and a bitmap of current writes. No synchronisation
    runs during measurements, because copies and parity count as right from the start. On a device that was not blank,
    `scrub` then also reports differences where nothing was written. dm-raid does not allow that for level 6. It is
    synchronised when the stack is set up, which takes as long as writing all of it.
    """

    name: ClassVar = "raid"

    level: int = option(1, "RAID level", choices=tuple(_LEVELS))
    devices: int | None = option(None, "number of slices. The default is the fewest of the level, for 10 it is 4")
    chunk_size: int | None = option(None, "bytes of a chunk, a power of 2 from 4096 on. The default is 65536")

    def check_options(self) -> None:
        fewest = _LEVELS[self.level][1]
        if self._count < fewest or self._count > 253:
            raise OptionError("devices", f"level {self.level} takes {fewest} to 253 devices (got {self.devices})")
        if self.level == 10 and self._count % 2:
            raise OptionError("devices", f"level 10 takes devices in pairs (got {self.devices})")
        check_chunk_size(self.level, self.chunk_size)

    @property
    def _count(self) -> int:
        return self.devices if self.devices is not None else _LEVELS[self.level][1]

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        _, _, parity = _LEVELS[self.level]
        return tuple(size // self._count * (self._count - parity) // copies(self.level, self._count) for size in below)

    def create(self, below: Block, context: BuildContext) -> None:
        below.wipe()
        if self.level == 0:
            return
        with self._slices(below, context) as (superblocks, data):
            for superblock in superblocks:
                superblock.write([(0, bytes(1 << 20))])
            if self.level == 6:
                with self._array(superblocks, data, context):
                    scrubs.wait_until_raid_is_synchronised(context.machine, context.name(self.name))

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Block]:
        with self._slices(below, context) as (superblocks, data), self._array(superblocks, data, context) as array:
            yield array

    def scrub(self, place: Place, below: Block, context: BuildContext) -> CheckResult | None:
        return scrubs.raid(context.machine, place.path) if self.level else None

    @contextlib.contextmanager
    def _slices(self, below: Block, context: BuildContext) -> Iterator[tuple[list[Block], list[Block]]]:
        """Return the slices of each device: a small one for the superblock (except at level 0), and one for data."""
        step = max(_MIB, (self.chunk_size or 0) // SECTOR)
        head = step if self.level else 0
        length = below.sectors // self._count // step * step
        if length <= head:
            raise OSError(f"{below.path} is too small for {self._count} devices of a RAID: make it larger")
        starts = range(0, self._count * length, length)
        # Data first, so that its signature is visible on the device.
        extents = [(start, length - head) for start in starts]
        extents += [(start + length - head, head) for start in starts if head]
        with slices(context.name(self.name), context, below, extents) as blocks:
            yield blocks[self._count :], blocks[: self._count]

    @contextlib.contextmanager
    def _array(self, superblocks: list[Block], data: list[Block], context: BuildContext) -> Iterator[Block]:
        kind, _, parity = _LEVELS[self.level]
        chunk = 0 if self.level == 1 else (self.chunk_size or _CHUNK) // SECTOR
        parameters = [str(chunk)]
        if self.level in (1, 5, 10):
            parameters.append("nosync")
        if self.level == 6:
            # In kB/s: nothing else uses the disk.
            parameters += ["min_recovery_rate", "10000000", "max_recovery_rate", "10000000"]
        if self.level == 10:
            parameters += ["raid10_format", "near", "raid10_copies", "2"]
        length = data[0].sectors * (self._count - parity) // copies(self.level, self._count)
        pairs = [
            f"{superblocks[number].path if superblocks else '-'} {device.path}" for number, device in enumerate(data)
        ]
        words = [kind, str(len(parameters)), *parameters, str(self._count), *pairs]
        name, text = context.name(self.name), f"0 {length} raid {' '.join(words)}"
        with mapping(name, context, "dmsetup", "create", name, "--table", text, written=data[0].written) as array:
            yield array
