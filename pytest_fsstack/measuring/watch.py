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
        """Return the changes of the stack by the synced block in words, empty if there are none."""
        if size := _written(self._stack.path) - self._written:
            return f"{size:,} bytes were written"
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
    """Return the facts of all files below a directory, by relative path. Empty for a device."""
    facts: dict[str, tuple[int, ...]] = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue  # whoever removed it meanwhile is no timed block
            # The size of a directory is the driver's own affair: that of ntfs-3g changes when it is read again.
            size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
            facts[os.path.relpath(path, top)] = (status.st_mode, size, status.st_mtime_ns, status.st_ctime_ns)
    return facts


def _written(path: Path) -> int:
    """Return the bytes written so far to a block device; 0 for a directory."""
    number = blockdev.number(path)
    return blockdev.transferred(number)[1] if number else 0
