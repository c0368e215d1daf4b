"""The rest between two stacks: what one leaves behind in a device is over before the next one is built."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine import blockdev

_SYS = Path("/sys")
#: Some kernel threads dirty a few pages at any time; this much cannot be seen in a measurement.
ABOUT_ZERO = 4 * 2**20
#: For so many seconds nothing may be read, written or discarded.
WINDOW = 1.0
#: How long to wait for that, in seconds.
PATIENCE = 60.0
#: In a device's `stat`: reads, writes, those in flight, discards and flushes; old kernels have only the first three.
_COUNTS = (0, 4, 8, 11, 15)


@dataclass(frozen=True)
class Settle:
    """The rest between two stacks: a pause in seconds, a discard, or a wait until the device is quiet."""

    seconds: float = 0.0
    discard: bool = False
    idle: bool = False

    @classmethod
    def parse(cls, text: str) -> Settle:
        """Read what `--fsstack-settle` takes. Raises `ValueError`."""
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
        """Return what happens, for people; empty if nothing does."""
        if self.idle:
            return f"wait until the device is quiet for {WINDOW:g} s, at most {PATIENCE:g} s"
        return "discard all of the device" if self.discard else f"pause for {self}" if self.seconds else ""

    def rest(self, *places: Path) -> str:
        """Pause, or wait for the disks of devices or directories. Returns why it was in vain; empty if it was not.

        A discard is a part of building the next stack.
        """
        time.sleep(self.seconds)
        return wait_until_quiet(*places) if self.idle else ""


def wait_until_quiet(*places: Path, patience: float = PATIENCE, window: float = WINDOW) -> str:
    """Wait until nothing is read, written or discarded. Returns what still is after that many seconds."""
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
    """Return where sysfs has the disks that a device or directory is on; none if the kernel does not tell them."""
    status = os.stat(place)
    number = status.st_rdev if stat.S_ISBLK(status.st_mode) else status.st_dev
    block = _SYS / "dev/block" / blockdev.major_minor(number)
    return _below(block.resolve()) if block.exists() else []


def _below(block: Path) -> list[Path]:
    whole = blockdev.whole(block)
    slaves = sorted((whole / "slaves").glob("*"))
    return [whole, *(disk for slave in slaves for disk in _below(slave.resolve()))]


def unwritten() -> int:
    """Return the bytes that /proc/meminfo calls Dirty or Writeback."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Dirty:", "Writeback:")))


def _activity(disks: list[Path]) -> dict[str, list[int]]:
    """Return the counts of each disk by its name, and under an empty name what memory holds back."""
    held_back = unwritten()
    activity = {"": [held_back if held_back > ABOUT_ZERO else 0]}
    for disk in disks:
        numbers = [int(word) for word in (disk / "stat").read_text().split()]
        activity[disk.name] = [numbers[index] for index in _COUNTS if index < len(numbers)]
    return activity


def _busy(before: dict[str, list[int]], now: dict[str, list[int]]) -> str:
    """Return what was not quiet between two looks; empty if all was."""
    reasons = [f"{now[''][0] // 1024} KiB in memory are not written"] if now[""] != before[""] else []
    for name in now.keys() - {""}:
        if now[name] != before[name] or now[name][2]:
            reasons.append(f"{name} reads, writes or discards")
    return ", ".join(sorted(reasons))
