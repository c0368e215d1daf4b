"""Block devices that share bytes with another: its partitions, its disk, and other paths to the same medium."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine import blockdev
from pytest_fsstack.machine.blockdev import node, partitions, read, whole
from pytest_fsstack.machine.guard.disk import Disk

#: Names in sysfs that identify a disk. Those of the controller would also match its other disks.
_NAMES_OF_DISKS = "wwid", "device/wwid", "serial"
#: Prefixes in the notation of /lib/udev/scsi_id (and the device-mapper), by the kernel's prefixes.
_SCSI_ID = {"naa.": "3", "eui.": "2", "t10.": "1"}


@dataclass(frozen=True)
class Area:
    """A block device that shares bytes with the examined one."""

    #: A phrase for it in messages.
    subject: str
    sysfs: Path
    #: Whether it is another path to the same medium, neither the device itself, a part of it, nor its disk.
    alias: bool = False
    #: Whether all of its bytes belong to the device as well.
    inside: bool = True

    @property
    def number(self) -> str:
        """Return ``major:minor``."""
        return read(self.sysfs / "dev")


def overlapping(disk: Disk) -> dict[str, Area]:
    """Return all devices that share bytes with this one, including itself, by number. Raises OSError."""
    return {area.number: area for area in (*_aliases(disk), *_on_its_disk(disk))}


def _on_its_disk(disk: Disk) -> Iterator[Area]:
    device = disk.sysfs
    yield Area("it", device)
    on = whole(device)
    if on == device:
        yield from (Area(f"its partition {node(part)}", part) for part in partitions(device))
        return
    yield Area(f"the disk {node(on)} that it is on", on, inside=False)
    start, end = _extent(device)
    for part in partitions(on):
        other_start, other_end = _extent(part)
        if part != device and other_start < end and start < other_end:
            yield Area(f"the partition {node(part)}, which it overlaps,", part)


def _aliases(disk: Disk) -> Iterator[Area]:
    device, on = disk.sysfs, whole(disk.sysfs)
    media = media_of(on)
    below = _below(device)
    for directory in sorted((blockdev.SYS / "block").iterdir()):
        other = directory.resolve()
        # Hidden disks have no number. Disks below a mapping are held by the mapping.
        if other == on or other in below or not (other / "dev").exists():
            continue
        with contextlib.suppress(FileNotFoundError):  # unplugged in between
            offsets = media_of(other)
            for medium in sorted(media.keys() & offsets.keys())[:1]:
                yield from _common(medium, device, media[medium], other, offsets[medium])


def _common(medium: str, device: Path, own_offset: int, other: Path, offset: int) -> Iterator[Area]:
    """Yield the parts of another path to the same medium that overlap with a device."""
    start, end = (own_offset + edge for edge in _extent(device))
    for part in (other, *partitions(other)):
        other_start, other_end = (offset + edge for edge in _extent(part))
        if other_start < end and start < other_end:
            inside = start <= other_start and other_end <= end
            yield Area(f"{node(part)}, another way to the same data ({medium}),", part, alias=True, inside=inside)


def _below(directory: Path) -> set[Path]:
    """Return all whole disks below a mapping, directly or indirectly."""
    slaves = {slave.resolve() for slave in (directory / "slaves").glob("*")}
    return {whole(slave) for slave in slaves}.union(*map(_below, slaves))


def _extent(directory: Path) -> tuple[int, int]:
    """Return the first byte of a device on its disk, and the first one after it."""
    start = int(read(directory / "start")) if (directory / "partition").exists() else 0
    return start * 512, (start + int(read(directory / "size"))) * 512


def media_of(disk: Path) -> dict[str, int]:
    """Return the media that store a whole disk, by name, each with the offset on it. Raises OSError.

    A disk may have several such names: that of its medium, and its own for loop devices on it.
    """
    media = {f"the disk {node(disk)}": 0}
    for text in blockdev.serials(disk, _NAMES_OF_DISKS):
        media[f"serial number {_scsi_id(text)}"] = 0
    for text in blockdev.serials(disk, ["dm/uuid"]):
        if text.startswith("mpath-"):
            media[f"serial number {text.removeprefix('mpath-')}"] = 0
    if (disk / "loop/backing_file").exists():
        media |= _media_of_loop(disk)
    return media


def _media_of_loop(disk: Path) -> dict[str, int]:
    file = backing(disk)
    if file is None:
        return {}
    if isinstance(file, str):
        return {f"the file {file}": int(read(disk / "loop/offset"))}
    if (number := device_behind(file)) is None:
        return {name_of_file(file.device, file.inode): file.offset}
    lower = blockdev.sysfs(number)
    start, _ = _extent(lower)
    return {medium: offset + start + file.offset for medium, offset in media_of(whole(lower)).items()}


def name_of_file(device: int, inode: int) -> str:
    return f"the file with the inode {inode} on {blockdev.major_minor(device)}"


def backing(loop: Path) -> blockdev.Backing | str | None:
    """Return the file behind a loop device: only its name if that is all that is known, None if it is detached.

    The name may now lead elsewhere, so the kernel is asked first. Raises OSError.
    """
    try:
        with blockdev.opened(Path(node(loop)), read(loop / "dev")) as fd:
            return blockdev.backing(fd)
    except OSError as error:
        if error.errno == errno.ENXIO:  # detached in between
            return None
    # There is no node in this /dev.
    try:
        return read(loop / "loop/backing_file")
    except FileNotFoundError:
        return None


def device_behind(file: blockdev.Backing) -> str | None:
    """Return the device behind a loop device, or None for a file."""
    # drivers/block/loop.c: for a file, it is 0, or in older kernels the device of its filesystem.
    return None if file.rdevice in (0, file.device) else blockdev.major_minor(file.rdevice)


def _scsi_id(wwid: str) -> str:
    for prefix, digit in _SCSI_ID.items():
        if wwid.startswith(prefix):
            return digit + "_".join(wwid.removeprefix(prefix).split())
    return wwid
