"""The scratch label, which marks a device that a session has erased."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine import blockdev, commands
from pytest_fsstack.machine.blockdev import partitions
from pytest_fsstack.machine.descriptors import write_all
from pytest_fsstack.machine.guard.disk import KIB, MIB, Disk, Refused, identify, refusing_errors, shown_size
from pytest_fsstack.machine.guard.reading import opened_uncached, pread, probe, read_samples
from pytest_fsstack.units import reason_of

#: Too small for a useful filesystem, and for the samples below.
_SMALLEST = 16 * MIB
LABEL_BLOCK = 4 * KIB
_LABEL = (
    "pytest-fsstack scratch device: holds nothing worth keeping and may be overwritten.\n"
    "format 2\nsize {size}\nid {id}\ndigest {digest}\n"
)
_LABEL_PATTERN = re.compile(re.escape(_LABEL.partition("{")[0]) + r"(\d+)\nid ([0-9a-f]{32})\ndigest ([0-9a-f]{64})\n")


@dataclass(frozen=True)
class _Label:
    """The contents of a label."""

    size: int
    id: str
    digest: str


#: A function that stores facts in the journal: the proof that a device was being erased.
RecordProof = Callable[[Mapping[str, str]], None]


def write_label_on(disk: Disk, record_proof: RecordProof | None = None) -> None:
    """Erase a checked device and write a label that permits later sessions to overwrite it.

    Raises `Refused` if it is too small or busy, and `commands.CommandError` or OSError if writing fails.
    """
    check_size(disk)
    if partitions(disk.sysfs):
        commands.run("wipefs", "-aq", disk.path)  # tells the kernel to forget the partitions
    name = os.urandom(16).hex()
    with _opened_exclusively(disk) as fd:
        blockdev.forget_cache(fd)
        digest = digest_of(fd, disk.size, name, emptied=True)
        if record_proof:
            record_proof({"label": name, "digest": digest})
        for offset in (disk.size - MIB, 0):
            write_all(fd, bytes(MIB), offset)
        blockdev.forget_cache(fd)  # the label must not reach the medium before the zeros
    wiped = commands.run("wipefs", "-a", disk.path)
    with _opened_exclusively(disk) as fd:
        if wiped:  # there were signatures away from the ends
            digest = digest_of(fd, disk.size, name)
        text = _LABEL.format(size=disk.size, id=name, digest=digest)
        write_all(fd, text.encode().ljust(LABEL_BLOCK, b"\0"), 0)
        os.fsync(fd)


@contextlib.contextmanager
def _opened_exclusively(disk: Disk) -> Iterator[int]:
    with ExitStack() as undo:
        try:
            fd = undo.enter_context(blockdev.opened(disk.path, disk.number, os.O_RDWR | os.O_EXCL))
        except OSError as error:
            raise Refused(disk.user_path, f"it is in use again: {reason_of(error)}") from error
        yield fd


def labelled(path: Path) -> bool:
    """Whether a device is unchanged since `write_label_on`. Raises `Refused` if that cannot be determined."""
    disk = identify(path)
    with refusing_errors(path), opened_uncached(disk) as fd:
        label = label_on(fd, disk.size)
        return (
            label is not None
            and label.size == disk.size
            and not probe(disk.path)
            and label.digest == digest_of(fd, disk.size, label.id)
        )


def label_on(fd: int, size: int) -> _Label | None:
    """Return the label if the ends of the device contain it and nothing else.

    Tools that leave room for a boot loader may keep the first bytes, so the text alone proves nothing.
    """
    if size < _SMALLEST:
        return None
    text = pread(fd, MIB, 0).rstrip(b"\0")
    match = _LABEL_PATTERN.fullmatch(text.decode(errors="replace"))
    if match is None or pread(fd, MIB, size - MIB) != bytes(MIB):
        return None
    return _Label(int(match[1]), match[2], match[3])


def digest_of(fd: int, size: int, name: str, *, emptied: bool = False) -> str:
    """Return the digest of all examined places except the label. It reveals later writes.

    With `emptied`, return the digest for a device whose ends (where the label goes) are zeros.
    """
    digest = hashlib.sha256(name.encode())
    for offset, data in read_samples(fd, size):
        if emptied:
            first = min(max(MIB - offset, 0), len(data))
            last = min(max(offset + len(data) - (size - MIB), 0), len(data) - first)
            data = bytes(first) + data[first : len(data) - last] + bytes(last)
        digest.update(data if offset else data[LABEL_BLOCK:])
    return digest.hexdigest()


def is_half_emptied(path: Path, proof: Mapping[str, object]) -> bool:
    """Whether a session was erasing a device: its ends are zeros, and the rest is unchanged since then.

    `proof` has the facts that `Held.claimed` recorded. Raises `Refused`.
    """
    disk, name = identify(path), proof.get("label")
    with refusing_errors(path), opened_uncached(disk) as fd:
        if not isinstance(name, str) or probe(disk.path):
            return False
        empty = not any(pread(fd, MIB, offset).strip(b"\0") for offset in (0, disk.size - MIB))
        return empty and digest_of(fd, disk.size, name) == proof.get("digest")


def check_size(disk: Disk) -> None:
    if disk.size < _SMALLEST:
        raise Refused(
            disk.user_path, f"it is too small: {shown_size(disk.size)}, where {shown_size(_SMALLEST)} are needed"
        )
