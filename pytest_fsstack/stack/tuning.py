"""Settings of the machine during measurements, which are set back afterwards.

The I/O scheduler and the read-ahead of block devices, and the CPUs' governor. Whoever changes one of them meanwhile
wins: it is set back only where it is still what was written here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fsstack.machine import journal as journals
from pytest_fsstack.machine.journal import Facts, Gone, Journal, Unproved
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Root, load_module
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.machine.real import RealMachine

_KNOWN = re.compile(r"block/[^/]+/queue/(scheduler|read_ahead_kb)|devices/system/cpu/cpu\d+/cpufreq/scaling_governor")


def is_setting(machine: Machine, path: Path) -> bool:
    """Return whether a file is one that this module writes to."""
    return path.is_relative_to(machine.sysfs) and bool(_KNOWN.fullmatch(str(path.relative_to(machine.sysfs))))


def current(machine: Machine, path: Path) -> str | None:
    """Return the present value of a setting, or None if it does not exist."""
    text = machine.setting(path)
    if text is None:
        return None
    match = re.search(r"\[(\S+)\]", text)
    return match[1] if match else text


def offered(machine: Machine, path: Path) -> list[str]:
    """Return the words that a setting accepts. The list is empty for one that takes numbers, or does not exist."""
    listed = {"scheduler": path, "scaling_governor": path.with_name("scaling_available_governors")}.get(path.name)
    text = machine.setting(listed) if listed else None
    return text.replace("[", "").replace("]", "").split() if text else []


@contextlib.contextmanager
def written(path: Path, value: str, journal: Journal) -> Iterator[None]:
    """Set it, and set it back afterwards. Raises OSError, with what it may be set to."""
    machine = journal.machine
    old = current(machine, path)
    # Also where nothing changes: what a dead session set must not be set back under this one.
    with journal.entry(SETTING, path=str(path), old=old, value=value):
        try:
            machine.set(path, value)
            if (now := current(machine, path)) != value:
                raise OSError(f"the kernel made {now} of it")
        except OSError as error:
            choice = f"; the kernel offers {', '.join(words)}" if (words := offered(machine, path)) else ""
            raise OSError(f"{path} cannot be set to {value}: {error.strerror or error}{choice}") from error
        try:
            yield
        finally:
            if old is not None and current(machine, path) == value:
                machine.set(path, old)


def _still_set(machine: Machine, facts: Facts) -> bool:
    path, old, value = Path(journals.text(facts, "path")), journals.text(facts, "old"), journals.text(facts, "value")
    if not is_setting(machine, path):
        raise Unproved("that is nothing that this plugin sets")
    now = current(machine, path)
    if now not in (None, old, value):
        raise Gone(f"it is {now} now, and not {value} as the session left it")
    return now == value != old


def _set_back(machine: Machine, facts: Facts) -> str:
    path, old = Path(journals.text(facts, "path")), journals.text(facts, "old")
    machine.set(path, old)
    return f"set {path} back to {old}"


SETTING = journals.Kind("setting", _still_set, _set_back)


# -- block devices -----------------------------------------------------------------------------------------------------


def queue(machine: Machine, device: Path) -> Path:
    """Return the queue of a block device in sysfs. A partition has that of its disk."""
    directory = (machine.sysfs / "dev/block" / machine.number(device)).resolve()
    whole = directory.parent if (directory / "partition").exists() else directory
    return machine.sysfs / "block" / whole.name / "queue"


@dataclass(frozen=True)
class Queue:
    """The settings of a stack's block devices. None leaves the kernel's choice."""

    scheduler: str | None = None
    #: In bytes.
    read_ahead: int | None = None

    def why_not_offered(self, machine: Machine, queue: Path) -> str | None:
        """Why the scheduler cannot be had for the devices like the one with this queue; None where it can."""
        path = queue / "scheduler"
        if self.scheduler is None or not path.exists() or self.scheduler in offered(machine, path):
            return None
        load_module(f"{self.scheduler}-iosched")
        if self.scheduler in (words := offered(machine, path)):
            return None
        return f"the kernel has no scheduler {self.scheduler!r} for {queue.parent.name}; it offers {', '.join(words)}"

    @contextlib.contextmanager
    def bottom(self, device: Path, journal: Journal) -> Iterator[None]:
        """Set both for the device that a stack starts on. Raises OSError."""
        with contextlib.ExitStack() as undo:
            if self.scheduler is not None:
                undo.enter_context(written(queue(journal.machine, device) / "scheduler", self.scheduler, journal))
            undo.enter_context(self.above(device, journal))
            yield

    @contextlib.contextmanager
    def above(self, device: Path, journal: Journal) -> Iterator[None]:
        """Set the read-ahead, which is the topmost device's; devices made of others have no scheduler."""
        if self.read_ahead is None:
            yield
            return
        with written(queue(journal.machine, device) / "read_ahead_kb", str(self.read_ahead // 1024), journal):
            yield


# -- CPUs --------------------------------------------------------------------------------------------------------------


def _governors(machine: Machine) -> list[Path]:
    paths = (machine.sysfs / "devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    return sorted(paths, key=lambda path: int(path.parts[-3].removeprefix("cpu")))


@dataclass(frozen=True)
class Governor:
    """The frequency governor of all CPUs, a requirement of a session."""

    name: str
    machine: Machine = field(default_factory=RealMachine, repr=False, compare=False)

    def why_not_offered(self) -> str | None:
        """Why no CPU can have it; None where they can, and where there are no governors at all."""
        for path in _governors(self.machine):
            if self.name not in (words := offered(self.machine, path)):
                return f"the kernel has no governor {self.name!r} for {path.parts[-3]}; it offers {', '.join(words)}"
        return None

    def missing(self) -> MissingRequirement | None:
        if not _governors(self.machine):
            what = "the CPUs here have no governor, as in most virtual machines"
            return MissingRequirement(Missing.OTHER, what, "leave --fsstack-governor out")
        if lack := Root("setting the CPU governor").missing():
            return lack
        reason = self.why_not_offered()
        return MissingRequirement(Missing.OTHER, reason, "name one of these") if reason else None

    @contextlib.contextmanager
    def applied(self, journal: Journal) -> Iterator[None]:
        """Set it for all CPUs, and back to each one's own afterwards. Raises OSError."""
        with contextlib.ExitStack() as undo:
            for path in _governors(self.machine):
                undo.enter_context(written(path, self.name, journal))
            yield
