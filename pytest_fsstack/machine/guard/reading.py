"""Reading of block devices: the places to examine, and blkid's signatures."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_fsstack.machine import blockdev, commands
from pytest_fsstack.machine.blockdev import node, read, whole
from pytest_fsstack.machine.guard.disk import KIB, MIB, Disk, refusing_errors

_SAMPLES, _SAMPLE = 1000, 4 * KIB


def signature(path: Path) -> str:
    """Return blkid's signatures of a device with their identifiers. Empty if there are none. Raises `Refused`."""
    with refusing_errors(path):
        facts = probe(path)
        return " ".join(facts[key] for key in ("PTTYPE", "PTUUID", "TYPE", "UUID") if key in facts)


@contextlib.contextmanager
def opened_uncached(disk: Disk) -> Iterator[int]:
    """Open the device for reading the medium's current contents instead of cached ones."""
    # The whole disk has a cache of its own, which is not consulted when a partition is read.
    on = whole(disk.sysfs)
    with blockdev.opened(Path(node(on)), read(on / "dev")) as fd:
        os.fsync(fd)
    with blockdev.opened(disk.path, disk.number) as fd:
        blockdev.forget_cache(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        yield fd
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def probe(path: Path) -> Mapping[str, str]:
    """Return blkid's facts about a device by name. Empty if there are none. Raises `CommandError`."""
    words = ["blkid", "-p", "-o", "export", os.fspath(path)]
    try:
        text = commands.run(*words)
    except commands.CommandError as error:
        if error.returncode == 8:
            return {"TYPE": "several signatures that contradict each other", "USAGE": "ambivalent"}
        # It also exits with 2 for an unreadable device, but all callers read the device themselves.
        if error.returncode == 2 and not error.stderr:
            return {}
        raise
    try:
        facts = dict(shlex.split(line)[0].split("=", 1) for line in text.splitlines() if line)
    except ValueError:
        facts = {}
    if not facts:
        raise commands.CommandError(words, 0, text[:200], "its output is not understood")
    # For a partition, it also returns the entry in the partition table.
    return {key: value for key, value in facts.items() if key != "DEVNAME" and not key.startswith("PART_ENTRY_")}


def in_words(facts: Mapping[str, str]) -> str | None:
    if not facts:
        return None
    words = []
    if kind := facts.get("TYPE"):
        form = {"filesystem": "a filesystem ({})", "ambivalent": "{}"}.get(facts.get("USAGE", ""), "a signature ({})")
        words.append(form.format(kind) + (f" labelled {facts['LABEL']!r}" if "LABEL" in facts else ""))
    if table := facts.get("PTTYPE"):
        words.append(f"a partition table ({table})")
    return " and ".join(words) or f"something that blkid reports as {', '.join(sorted(facts))}"


def read_samples(fd: int, size: int) -> Iterator[tuple[int, bytes]]:
    places = list(samples(size))
    for offset, length in places:
        # All requests at once, so that a disk can sort them.
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_WILLNEED)
    for offset, length in places:
        yield offset, pread(fd, length, offset)


def samples(size: int) -> Iterator[tuple[int, int]]:
    """Yield offsets and lengths to examine: the ends (signatures), evenly spread blocks, and backup superblocks.

    The digest of a label covers these places in this order, so a change of them needs a new label format.
    """
    edge, between = 16 * MIB, size - 32 * MIB
    if between < 2 * _SAMPLES * _SAMPLE:
        yield from _chunks(0, size)
        return
    yield from _chunks(0, edge)
    yield from _chunks(size - edge, size)
    for index in range(_SAMPLES):
        yield edge + between * index // _SAMPLES // _SAMPLE * _SAMPLE, _SAMPLE
    for offset in backup_superblocks(size):
        if edge <= offset < size - edge:
            yield offset, 2 * _SAMPLE


def backup_superblocks(size: int) -> list[int]:
    """Return the places of backup superblocks away from the ends, in whole blocks.

    These are mkfs's defaults. Other formats that blkid knows have their copies within 16 MiB of the ends: f2fs, nilfs2,
    reiserfs, jfs, ZFS, md, LVM, LUKS2, GPT, HFS+, bcachefs.
    """
    places: set[int] = set()
    # On the whole device, or on a first partition with a lost table, as old and new tools align it.
    for base in 0, 63 * 512, MIB:
        # ext2, 3 and 4 (sparse_super): group 1 and powers of 3, 5 and 7. A group has 8 blocks per byte of a block.
        for block in KIB, 2 * KIB, 4 * KIB:
            groups = {factor**power for factor in (3, 5, 7) for power in range(32)}
            places |= {base + group * 8 * block * block for group in groups}
        # fs/btrfs/volumes.h: btrfs_sb_offset.
        places |= {base + (64 << 20), base + (256 << 30)}
        # NTFS: $MFT of a large filesystem and its copy, at clusters that mkntfs and Windows choose: half-way, and 3
        # GiB.
        places |= {base + (3 << 30), base + (size - base) // 2}
        # XFS: allocation groups of equal size, rounded up to a block (xfsprogs, calc_default_ag_geometry), or 1 TiB.
        for count in 4, 16, 32:
            blocks = (size - base) // _SAMPLE
            places |= {base + -(-blocks // count) * number * _SAMPLE for number in range(1, count)}
        places |= {base + (number << 40) for number in range(1, (size >> 40) + 1)}
    return sorted({offset // _SAMPLE * _SAMPLE for offset in places if offset < size})


def _chunks(start: int, end: int) -> Iterator[tuple[int, int]]:
    for offset in range(start, end, MIB):
        yield offset, min(MIB, end - offset)


def pread(fd: int, length: int, offset: int) -> bytes:
    data = os.pread(fd, length, offset)
    if len(data) != length:
        raise OSError(errno.EIO, f"{len(data)} of {length} bytes could be read at byte {offset}")
    return data
