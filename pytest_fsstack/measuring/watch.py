"""Whether a timed block changed its stack: a step that only reads does the same work each time that it runs.

Bytes written at the device do not tell: a step that only read 5,300 files wrote 1.3 to 9.9 MB, for times of access and
the journal. But on ext2, ext3, ext4, XFS, Btrfs, ntfs-3g, gocryptfs, EncFS, CryFS and securefs it left what is compared
here as it was, apart from the sizes of directories on ntfs-3g.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from pytest_fsstack.machine import blockdev, signals
from pytest_fsstack.stack.build import Built


class Watch:
    """Compares a stack before and after a timed block: all files by size and times of change, or bytes written to it.

    Make it before the block starts cold, because it fills caches; call `begin` after that. Nothing writes to a stack
    that ends in a block device but the block itself, so the kernel's counter of that device tells.
    """

    def __init__(self, stack: Built) -> None:
        self._stack = stack
        with signals.shielded():
            stack.sync()
        self._files = _files(stack.path)
        self._written = 0

    def begin(self) -> None:
        """The block begins. Only now, because a device may have another name after a cold start."""
        self._written = _written(self._stack.path)

    def change(self) -> str:
        """What the block, which was synced, did to the stack; empty if nothing."""
        if written := _written(self._stack.path) - self._written:
            return f"{written:,} bytes were written"
        now = _files(self._stack.path)
        for verb, names in (
            ("created", now.keys() - self._files.keys()),
            ("removed", self._files.keys() - now.keys()),
            ("changed", {name for name, facts in now.items() if self._files.get(name) != facts}),
        ):
            if names:
                return f"{min(names)} was {verb}"
        return ""


def _files(top: Path) -> dict[str, tuple[int, ...]]:
    """What there is below a directory, by its path from there; nothing for a device."""
    found: dict[str, tuple[int, ...]] = {}
    for directory, names, others in os.walk(top):
        for name in (*names, *others):
            path = os.path.join(directory, name)
            try:
                known = os.lstat(path)
            except FileNotFoundError:
                continue  # whoever removed it meanwhile is no timed block
            # The size of a directory is the driver's own affair: that of ntfs-3g changes when it is read again.
            size = 0 if stat.S_ISDIR(known.st_mode) else known.st_size
            found[os.path.relpath(path, top)] = (known.st_mode, size, known.st_mtime_ns, known.st_ctime_ns)
    return found


def _written(path: Path) -> int:
    """Bytes written so far to a block device, which the kernel counts in sectors of 512 bytes; 0 for a directory."""
    known = path.stat()
    if not stat.S_ISBLK(known.st_mode):
        return 0
    return int(Path("/sys/dev/block", blockdev.major_minor(known.st_rdev), "stat").read_text().split()[6]) * 512
