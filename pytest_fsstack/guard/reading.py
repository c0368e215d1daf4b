"""Contents of a block device: the examined places, and the signatures that blkid recognises."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_fsstack.guard.disk import KIB, MIB, Disk, or_refused
from pytest_fsstack.machine import blockdev, commands
from pytest_fsstack.machine.blockdev import node, read, whole

_SAMPLES, _SAMPLE = 1000, 4 * KIB


def signature(path: Path) -> str:
    """Return the signatures of a device from blkid, with identifiers, empty if there are none. Raises `Refused`."""
    with or_refused(path):
        facts = probe(path)
        return " ".join(facts[key] for key in ("PTTYPE", "PTUUID", "TYPE", "UUID") if key in facts)


@contextlib.contextmanager
def fresh(disk: Disk) -> Iterator[int]:
    """A descriptor for reading what is on the medium now, and not what was cached before."""
    # What was written through the whole disk is in a cache of its own, which reading a partition does not consult.
    on = whole(disk.sysfs)
    with blockdev.opened(Path(node(on)), read(on / "dev")) as fd:
        os.fsync(fd)
    with blockdev.opened(disk.path, disk.number) as fd:
        blockdev.forget_cache(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        yield fd
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def probe(path: Path) -> Mapping[str, str]:
    """Return the facts of a device from blkid by name, empty if there are none. Raises `CommandError`."""
    words = ["blkid", "-p", "-o", "export", os.fspath(path)]
    try:
        text = commands.run(*words)
    except commands.CommandError as error:
        if error.returncode == 8:
            return {"TYPE": "several signatures that contradict each other", "USAGE": "ambivalent"}
        # It says 2 for a device that it could not read as well: whoever calls this has read it, or will.
        if error.returncode == 2 and not error.stderr:
            return {}
        raise
    try:
        facts = dict(shlex.split(line)[0].split("=", 1) for line in text.splitlines() if line)
    except ValueError:
        facts = {}
    if not facts:
        raise commands.CommandError(words, 0, text[:200], "its output is not understood")
    # Of a partition it also tells what the table on the disk says about it.
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


def looked_at(fd: int, size: int) -> Iterator[tuple[int, bytes]]:
    places = list(samples(size))
    for offset, length in places:
        # All requests at once: a disk that seeks sorts them.
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_WILLNEED)
    for offset, length in places:
        yield offset, pread(fd, length, offset)


def samples(size: int) -> Iterator[tuple[int, int]]:
    """Offsets and lengths: the ends, where signatures are, blocks spread evenly between them, and backups there.

    The digest of a label is one of these, in this order: whoever changes them changes `_LABEL` too.
    """
    edge, between = 16 * MIB, size - 32 * MIB
    if between < 2 * _SAMPLES * _SAMPLE:
        yield from _chunks(0, size)
        return
    yield from _chunks(0, edge)
    yield from _chunks(size - edge, size)
    for index in range(_SAMPLES):
        yield edge + between * index // _SAMPLES // _SAMPLE * _SAMPLE, _SAMPLE
    for offset in backups(size):
        if edge <= offset < size - edge:
            yield offset, 2 * _SAMPLE


def backups(size: int) -> list[int]:
    """Yield the places of backup superblocks that are not at the ends, in whole blocks.

    All of this is of mkfs's defaults. The others that blkid knows have their copies within 16 MiB of the ends: f2fs,
    nilfs2, reiserfs, jfs, ZFS, md, LVM, LUKS2, GPT, HFS+, bcachefs.
    """
    places: set[int] = set()
    # The whole device, or a first partition whose table was lost, as old and new tools align it.
    for base in 0, 63 * 512, MIB:
        # ext2, 3 and 4 (sparse_super): groups 1 and powers of 3, 5 and 7; a group has 8 blocks for each byte of one.
        for block in KIB, 2 * KIB, 4 * KIB:
            groups = {factor**power for factor in (3, 5, 7) for power in range(32)}
            places |= {base + group * 8 * block * block for group in groups}
        # fs/btrfs/volumes.h: btrfs_sb_offset.
        places |= {base + (64 << 20), base + (256 << 30)}
        # $MFT and its copy of a large NTFS are at clusters that mkntfs and Windows choose: half-way, and 3 GiB.
        places |= {base + (3 << 30), base + (size - base) // 2}
        # Allocation groups of XFS: equal parts, rounded up to a block (xfsprogs, calc_default_ag_geometry), or 1 TiB.
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
