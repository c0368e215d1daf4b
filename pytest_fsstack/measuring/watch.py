"""Detection of steps that change their stack. Only steps that read can be repeated.

The bytes written to the device are no evidence: reading 5,300 files wrote 1.3 to 9.9 MB of access times and journal.
The facts compared here stayed the same on ext2, ext3, ext4, XFS, Btrfs, ntfs-3g, gocryptfs, EncFS, CryFS and securefs,
except for directory sizes on ntfs-3g.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from pytest_fsstack.machine import blockdev, signals
from pytest_fsstack.stack.build import Built


class Watch:
    """A comparison of a stack before and after a timed block: sizes and change times of all files, or bytes written.

    Create it before the cold start, because it fills caches. Call `begin` after that. Only the block writes to a stack
    that ends in a block device, so the kernel's counter is enough there.
    """

    def __init__(self, stack: Built) -> None:
        self._stack, started = stack, time.monotonic()
        with signals.shielded():
            stack.sync()
        self._files = _files(stack.path)
        self._written = 0
        #: The duration of the comparison so far.
        self.seconds = time.monotonic() - started

    def begin(self) -> None:
        """Begin after the cold start, because the device may have got another name."""
        self._written = _written(self._stack.path)

    def change(self) -> str:
        """Describe the changes to the stack by the block, or return an empty text."""
        started = time.monotonic()
        try:
            return self._change()
        finally:
            self.seconds += time.monotonic() - started

    def _change(self) -> str:
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
    """Return the facts about all files in a directory, by relative path. Empty for a device."""
    facts: dict[str, tuple[int, ...]] = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue  # removed by another program
            # Directory sizes depend on the driver: ntfs-3g changes them between reads.
            size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
            facts[os.path.relpath(path, top)] = (status.st_mode, size, status.st_mtime_ns, status.st_ctime_ns)
    return facts


def _written(path: Path) -> int:
    """Return the bytes written so far to a block device; 0 for a directory."""
    number = blockdev.number(path)
    return blockdev.transferred(number)[1] if number else 0
