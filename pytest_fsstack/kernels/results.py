"""Files that the command in a guest hands back to the host. The guest is not trusted, so they are copied as data.

The guest writes an archive to a disk of its own, an image without a name. The host reads regular files and directories
from it, up to a size and a number, and writes them with its own modes to a new directory.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from pytest_fsstack.kernels import packages
from pytest_fsstack.kernels.packages import Member, PackageError
from pytest_fsstack.machine.blockdev import RESULTS_DISK
from pytest_fsstack.machine.directories import HeldDirectory

#: The variable in the environment of a guest's command with the directory for results.
VARIABLE = "FSSTACK_RESULTS"

#: The maximum size of the archive in bytes, and the maximum number of its members.
MAX_BYTES = 256 << 20
MAX_MEMBERS = 10_000

#: The first bytes of a disk without results.
_EMPTY = bytes(512)


@contextlib.contextmanager
def disk() -> Iterator[IO[bytes]]:
    """Yield the image of a disk for the archive, a sparse file without a name."""
    with tempfile.TemporaryFile(dir="/var/tmp") as image:
        image.truncate(MAX_BYTES)
        yield image


def hand_over(directory: Path) -> list[str]:
    """Return the shell commands of a guest that write the archive, if the directory has files."""
    return [
        f'[ -z "$(ls -A {directory})" ] || for disk in /sys/block/vd?; do',
        f'[ "$(cat $disk/serial)" != {RESULTS_DISK} ] ||',
        f"busybox tar -cf /dev/${{disk##*/}} -C {directory} . && sync || echo 'fsstack: results are lost' >&2",
        "done",
    ]


def copy(image: IO[bytes], directory: Path) -> int:
    """Copy the files in the image of an ended guest to a new directory, if there are any. Return their number.

    Raises `PackageError` if the archive is damaged, too large, or holds other things than files and directories. The
    files before are kept. Raises OSError.
    """
    # A new file object, because the guest has written behind the buffer of the other one.
    with open(os.dup(image.fileno()), "rb") as archive:
        archive.seek(0)
        if archive.read(len(_EMPTY)) == _EMPTY:
            return 0
        archive.seek(0)
        with HeldDirectory.open(directory.parent) as parent, parent.make(directory.name) as top:
            try:
                packages.write_all(_data(archive), top.fileno())
            except (tarfile.TarError, ValueError, OverflowError) as error:
                raise PackageError(f"the archive is damaged: {error}") from None
            return sum(len(files) for _, _, files, _ in os.fwalk(dir_fd=top.fileno()))


def _data(archive: IO[bytes]) -> Iterator[Member]:
    """Yield the members of an archive without their modes. Raises `PackageError` for all but files and directories."""
    for number, member in enumerate(packages.read_tar(archive)):
        if number == MAX_MEMBERS:
            raise PackageError(f"it has more than {MAX_MEMBERS:,} files")
        if member.kind not in (stat.S_IFREG, stat.S_IFDIR):
            raise PackageError(f"{packages.quoted(member.name)} is not a file or directory")
        yield replace(member, mode=0o644)
