"""Settling between two stacks: the device finishes its delayed work before the next stack is built."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine import blockdev

_SYS = Path("/sys")
#: Kernel threads always dirty a few pages. This amount does not show in measurements.
ABOUT_ZERO = 4 * 2**20
#: Seconds without any read, write or discard.
WINDOW = 1.0
#: The time limit for waiting, in seconds.
PATIENCE = 60.0
#: Fields in a device's `stat`: reads, writes, in flight, discards and flushes. Old kernels only have the first three.
_COUNTS = (0, 4, 8, 11, 15)


@dataclass(frozen=True)
class Settle:
    """The way to settle between stacks: a pause in seconds, a discard, or a wait for a quiet device."""

    seconds: float = 0.0
    discard: bool = False
    idle: bool = False

    @classmethod
    def parse(cls, text: str) -> Settle:
        """Parse the value of `--fsstack-settle`. Raises `ValueError`."""
        if text in ("discard", "idle"):
            return cls(discard=text == "discard", idle=text == "idle")
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= 3600:
            raise ValueError(f"must be discard, idle, or a number of seconds from 0 to 3600 (got {text})")
        return cls(seconds)

    def __str__(self) -> str:
        return f"{self.seconds:g} s" if self.seconds else "discard" if self.discard else "idle" if self.idle else ""

    def describe(self) -> str:
        """Describe the way to settle. Empty if there is none."""
        if self.idle:
            return f"wait until the device is quiet for {WINDOW:g} s, at most {PATIENCE:g} s"
        return "discard all of the device" if self.discard else f"pause for {self}" if self.seconds else ""

    def rest(self, *places: Path) -> str:
        """Pause, or wait for the disks of devices or directories. Return why waiting failed, or an empty text.

        The discard happens when the next stack is built.
        """
        if self.seconds:
            time.sleep(self.seconds)
        return wait_until_quiet(*places) if self.idle else ""


def wait_until_quiet(*places: Path, patience: float = PATIENCE, window: float = WINDOW) -> str:
    """Wait until nothing is read, written or discarded. Return what is still busy at the time limit."""
    disks, deadline = [disk for place in places for disk in disks_of(place)], time.monotonic() + patience
    before = _activity(disks)
    while True:
        time.sleep(window)
        now = _activity(disks)
        busy = _busy(before, now)
        if not busy or time.monotonic() > deadline:
            return f"not quiet within {patience:g} s: {busy}" if busy else ""
        before = now


def disks_of(place: Path) -> list[Path]:
    """Return the sysfs directories of the disks below a device or directory, as far as the kernel knows them."""
    status = os.stat(place)
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    block = _SYS / "dev/block" / blockdev.major_minor(number)
    return _below(block.resolve()) if block.exists() else []


def _below(block: Path) -> list[Path]:
    whole = blockdev.whole(block)
    slaves = sorted((whole / "slaves").glob("*"))
    return [whole, *(disk for slave in slaves for disk in _below(slave.resolve()))]


def unwritten() -> int:
    """Return the Dirty and Writeback bytes of /proc/meminfo."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Dirty:", "Writeback:")))


def _activity(disks: list[Path]) -> dict[str, list[int]]:
    """Return the counters of each disk by name. The empty name has the unwritten bytes."""
    held_back = unwritten()
    activity = {"": [held_back if held_back > ABOUT_ZERO else 0]}
    for disk in disks:
        numbers = [int(word) for word in (disk / "stat").read_text().split()]
        activity[disk.name] = [numbers[index] for index in _COUNTS if index < len(numbers)]
    return activity


def _busy(before: dict[str, list[int]], now: dict[str, list[int]]) -> str:
    """Return what was busy between two readings, or an empty text."""
    reasons = [f"{now[''][0] // 1024} KiB in memory are not written"] if now[""] != before[""] else []
    for name in now.keys() - {""}:
        if now[name] != before[name] or now[name][2]:
            reasons.append(f"{name} reads, writes or discards")
    return ", ".join(sorted(reasons))
