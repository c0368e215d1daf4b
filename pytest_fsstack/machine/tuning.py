"""What is set on the machine while something is measured, and set back afterwards.

The I/O scheduler and the read-ahead of block devices, and the CPUs' governor. Whoever changes one of them meanwhile
wins: it is set back only where it is still what was written here.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine import blockdev
from pytest_fsstack.machine import journal as journals
from pytest_fsstack.machine.journal import Facts, Gone, Journal, Unproved
from pytest_fsstack.machine.needs import Lack, LackKind, Root, load_module

_SYS = Path("/sys")
_KNOWN = re.compile(r"block/[^/]+/queue/(scheduler|read_ahead_kb)|devices/system/cpu/cpu\d+/cpufreq/scaling_governor")


def is_setting(path: Path) -> bool:
    """Whether a file is one that this module writes to."""
    return path.is_relative_to(_SYS) and bool(_KNOWN.fullmatch(str(path.relative_to(_SYS))))


def current(path: Path) -> str | None:
    """What a setting is now; None where it is not there."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    chosen = re.search(r"\[(\S+)\]", text)
    return chosen[1] if chosen else text


def offered(path: Path) -> list[str]:
    """The words that a setting may be set to; empty for one that takes numbers, or is not there."""
    listed = {"scheduler": path, "scaling_governor": path.with_name("scaling_available_governors")}.get(path.name)
    try:
        return listed.read_text().replace("[", "").replace("]", "").split() if listed else []
    except OSError:
        return []


@contextlib.contextmanager
def written(path: Path, value: str, journal: Journal) -> Iterator[None]:
    """Set it, and set it back afterwards. Raises OSError, with what it may be set to."""
    old = current(path)
    # Also where nothing changes: what a dead session set must not be set back under this one.
    with journal.entry(SETTING, path=str(path), old=old, value=value):
        try:
            path.write_text(value)
            if (now := current(path)) != value:
                raise OSError(f"the kernel made {now} of it")
        except OSError as error:
            choice = f"; the kernel offers {', '.join(words)}" if (words := offered(path)) else ""
            raise OSError(f"{path} cannot be set to {value}: {error.strerror or error}{choice}") from error
        try:
            yield
        finally:
            if old is not None and current(path) == value:
                path.write_text(old)


def _still_set(facts: Facts) -> bool:
    path, old, value = Path(journals.text(facts, "path")), journals.text(facts, "old"), journals.text(facts, "value")
    if not is_setting(path):
        raise Unproved("that is nothing that this plugin sets")
    now = current(path)
    if now not in (None, old, value):
        raise Gone(f"it is {now} now, and not {value} as the session left it")
    return now == value != old


def _set_back(facts: Facts) -> str:
    path, old = Path(journals.text(facts, "path")), journals.text(facts, "old")
    path.write_text(old)
    return f"set {path} back to {old}"


SETTING = journals.Kind("setting", _still_set, _set_back)


# -- block devices -----------------------------------------------------------------------------------------------------


def queue(device: Path) -> Path:
    """Where sysfs has the queue of a block device; a partition's is that of its disk."""
    own = (_SYS / "dev/block" / blockdev.major_minor(os.stat(device).st_rdev)).resolve()
    whole = own.parent if (own / "partition").exists() else own
    return _SYS / "block" / whole.name / "queue"


@dataclass(frozen=True)
class Queue:
    """How the kernel shall treat the block devices of a stack; None: as it does by itself."""

    scheduler: str | None = None
    #: In bytes.
    read_ahead: int | None = None

    def why_not_offered(self, queue: Path) -> str | None:
        """Why the scheduler cannot be had for the devices like the one with this queue; None where it can."""
        path = queue / "scheduler"
        if self.scheduler is None or not path.exists() or self.scheduler in offered(path):
            return None
        load_module(f"{self.scheduler}-iosched")
        if self.scheduler in (words := offered(path)):
            return None
        return f"the kernel has no scheduler {self.scheduler!r} for {queue.parent.name}; it offers {', '.join(words)}"

    @contextlib.contextmanager
    def bottom(self, device: Path, journal: Journal) -> Iterator[None]:
        """Set both for the device that a stack starts on. Raises OSError."""
        with contextlib.ExitStack() as undo:
            if self.scheduler is not None:
                undo.enter_context(written(queue(device) / "scheduler", self.scheduler, journal))
            undo.enter_context(self.above(device, journal))
            yield

    @contextlib.contextmanager
    def above(self, device: Path, journal: Journal) -> Iterator[None]:
        """Set the read-ahead, which is the topmost device's; devices made of others have no scheduler."""
        if self.read_ahead is None:
            yield
            return
        with written(queue(device) / "read_ahead_kb", str(self.read_ahead // 1024), journal):
            yield


# -- CPUs --------------------------------------------------------------------------------------------------------------


def _governors() -> list[Path]:
    found = (_SYS / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return sorted(found, key=lambda path: int(path.parts[-3].removeprefix("cpu")))


@dataclass(frozen=True)
class Governor:
    """What chooses the clock frequency of all CPUs; something that a session needs."""

    name: str

    def why_not_offered(self) -> str | None:
        """Why no CPU can have it; None where they can, and where there are no governors at all."""
        for path in _governors():
            if self.name not in (words := offered(path)):
                return f"the kernel has no governor {self.name!r} for {path.parts[-3]}; it offers {', '.join(words)}"
        return None

    def missing(self) -> Lack | None:
        if not _governors():
            what = "the CPUs here have no governor, as in most virtual machines"
            return Lack(LackKind.OTHER, what, "leave --fsstack-governor out")
        if lack := Root("setting the CPU governor").missing():
            return lack
        reason = self.why_not_offered()
        return Lack(LackKind.OTHER, reason, "name one of these") if reason else None

    @contextlib.contextmanager
    def applied(self, journal: Journal) -> Iterator[None]:
        """Set it for all CPUs, and back to each one's own afterwards. Raises OSError."""
        with contextlib.ExitStack() as undo:
            for path in _governors():
                undo.enter_context(written(path, self.name, journal))
            yield
