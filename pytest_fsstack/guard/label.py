"""The scratch label: by it, a device that a session has emptied says so to the next one."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.guard.disk import KIB, MIB, Disk, Refused, identify, or_refused, shown_size
from pytest_fsstack.guard.reading import fresh, looked_at, pread, probe
from pytest_fsstack.machine import blockdev, commands
from pytest_fsstack.machine.blockdev import partitions
from pytest_fsstack.machine.descriptors import write_all
from pytest_fsstack.units import reason_of

#: Too small for any filesystem worth testing, and for the samples below to make sense.
_SMALLEST = 16 * MIB
LABEL_BLOCK = 4 * KIB
_LABEL = (
    "pytest-fsstack scratch device: holds nothing worth keeping and may be overwritten.\n"
    "format 2\nsize {size}\nid {id}\ndigest {digest}\n"
)

#: Format 1 had no digest, so it proves nothing of what is on the device beside it.
_LABEL_PATTERN = re.compile(
    re.escape(_LABEL.partition("format")[0])
    + r"format (?:1\nsize (?P<old_size>\d+)\nid [0-9a-f]{32}"
    + r"|2\nsize (?P<size>\d+)\nid (?P<id>[0-9a-f]{32})\ndigest (?P<digest>[0-9a-f]{64}))\n"
)


@dataclass(frozen=True)
class _Label:
    """The contents of a label. Without a digest it is of format 1."""

    size: int
    id: str = ""
    digest: str = ""


def write_label(path: Path) -> None:
    """Empty a device but for a label that says it may be overwritten. For a device that has been checked.

    Raises `Refused` if it is too small or busy, `commands.CommandError` and OSError if it cannot be written.
    """
    write_label_on(identify(path))


#: Is told what proves that a device was left in the middle of being emptied: facts for the journal.
Tell = Callable[[Mapping[str, str]], None]


def write_label_on(disk: Disk, tell: Tell | None = None) -> None:
    check_size(disk)
    if partitions(disk.sysfs):
        commands.run("wipefs", "-aq", disk.path)  # has the kernel forget them
    name = os.urandom(16).hex()
    with _alone(disk) as fd:
        blockdev.forget_cache(fd)
        digest = digest_of(fd, disk.size, name, emptied=True)
        if tell:
            tell({"label": name, "digest": digest})
        for offset in (disk.size - MIB, 0):
            write_all(fd, bytes(MIB), offset)
        blockdev.forget_cache(fd)  # the label must not reach the medium before the zeros do
    wiped = commands.run("wipefs", "-a", disk.path)
    with _alone(disk) as fd:
        if wiped:  # signatures that were not at the ends
            digest = digest_of(fd, disk.size, name)
        text = _LABEL.format(size=disk.size, id=name, digest=digest)
        write_all(fd, text.encode().ljust(LABEL_BLOCK, b"\0"), 0)
        os.fsync(fd)


@contextlib.contextmanager
def _alone(disk: Disk) -> Iterator[int]:
    with ExitStack() as undo:
        try:
            fd = undo.enter_context(blockdev.opened(disk.path, disk.number, os.O_RDWR | os.O_EXCL))
        except OSError as error:
            raise Refused(disk.named, f"it is in use again: {reason_of(error)}") from error
        yield fd


def labelled(path: Path) -> bool:
    """Whether a device is as `write_label` left it. Raises `Refused` if it cannot tell."""
    disk = identify(path)
    with or_refused(path), fresh(disk) as fd:
        label = label_on(fd, disk.size)
        return (
            label is not None
            and label.size == disk.size
            and not probe(disk.path)
            and label.digest == digest_of(fd, disk.size, label.id)
        )


def label_on(fd: int, size: int) -> _Label | None:
    """The label, if the ends of the device hold it and nothing else.

    Tools that leave room for a boot loader may leave the first bytes as they were, so the text alone proves nothing.
    """
    if size < _SMALLEST:
        return None
    text = pread(fd, MIB, 0).rstrip(b"\0")
    match = _LABEL_PATTERN.fullmatch(text.decode(errors="replace"))
    if match is None or pread(fd, MIB, size - MIB) != bytes(MIB):
        return None
    if match["old_size"]:
        return _Label(int(match["old_size"]))
    return _Label(int(match["size"]), match["id"], match["digest"])


def digest_of(fd: int, size: int, name: str, *, emptied: bool = False) -> str:
    """Return the digest of all examined places except the label, which reveals later writes.

    With `emptied`, it is what it will be once the ends of the device, where the label goes, are zeros.
    """
    digest = hashlib.sha256(name.encode())
    for offset, data in looked_at(fd, size):
        if emptied:
            first = min(max(MIB - offset, 0), len(data))
            last = min(max(offset + len(data) - (size - MIB), 0), len(data) - first)
            data = bytes(first) + data[first : len(data) - last] + bytes(last)
        digest.update(data if offset else data[LABEL_BLOCK:])
    return digest.hexdigest()


def half_emptied(path: Path, proof: Mapping[str, object]) -> bool:
    """Whether the ends of a device are zeros, and nothing was written to the rest since a session began to empty it.

    That is by what `Held.claimed` told then. Raises `Refused`.
    """
    disk, name = identify(path), proof.get("label")
    with or_refused(path), fresh(disk) as fd:
        if not isinstance(name, str) or probe(disk.path):
            return False
        empty = not any(pread(fd, MIB, offset).strip(b"\0") for offset in (0, disk.size - MIB))
        return empty and digest_of(fd, disk.size, name) == proof.get("digest")


def check_size(disk: Disk) -> None:
    if disk.size < _SMALLEST:
        raise Refused(disk.named, f"it is too small: {shown_size(disk.size)}, where {shown_size(_SMALLEST)} are needed")
