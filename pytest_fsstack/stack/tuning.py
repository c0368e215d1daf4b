"""Settings of the machine during measurements, which are restored afterwards.

A stack has settings after the @ in its text. A session has settings for the I/O scheduler and read-ahead of block
devices, and for the CPUs' governor. A setting is restored only if it still has the value that was written here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fsstack.machine import journal as journals
from pytest_fsstack.machine.journal import Facts, Journal, OutdatedEntryError, UndoError
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Root, load_module, not_in_kernel
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack import keys
from pytest_fsstack.stack.spec import Setting
from pytest_fsstack.units import parse_size

#: The sysfs files of settings, by the form of the key.
_FORMS = {
    r"block/[^/]+/queue/(\w+)": r"queue/\1",
    r"devices/system/cpu/cpu\d+/cpufreq/(\w+)": r"cpu/\1",
    r"module/(\w+)/parameters/(\w+)": r"\1/\2",
}
#: Pairs of a limit in bytes and in percent. Writing one sets the other to 0.
_PAIRS = {"dirty_bytes": "dirty_ratio", "dirty_background_bytes": "dirty_background_ratio"}
_PAIRS |= {ratio: size for size, ratio in _PAIRS.items()}
#: The kernel's representation of switches (kstrtobool in lib/kstrtox.c).
_SWITCHES = {"1": "Y", "y": "Y", "on": "Y", "0": "N", "n": "N", "off": "N"}


def is_setting(machine: Machine, path: Path) -> bool:
    """Return whether this module may write to a file."""
    if path.is_relative_to(machine.sysctls):
        return keys.why_refused(".".join(path.relative_to(machine.sysctls).parts)) is None
    inside = str(path.relative_to(machine.sysfs)) if path.is_relative_to(machine.sysfs) else ""
    matches = ((match, key) for form, key in _FORMS.items() if (match := re.fullmatch(form, inside)))
    return any(keys.why_refused(match.expand(key)) is None for match, key in matches)


def current(machine: Machine, path: Path) -> str | None:
    """Return the current value of a setting, or None if it does not exist."""
    text = machine.setting(path)
    if text is None:
        return None
    match = re.search(r"\[(\S+)\]", text)
    return match[1] if match else text


def offered(machine: Machine, path: Path) -> list[str]:
    """Return the allowed words of a setting. Empty for numbers, or if it does not exist."""
    listed = {
        "scaling_governor": "scaling_available_governors",
        "energy_performance_preference": "energy_performance_available_preferences",
    }
    text = machine.setting(path.with_name(listed.get(path.name, path.name)))
    return text.replace("[", "").replace("]", "").split() if text and (path.name in listed or "[" in text) else []


def equal(value: str, now: str | None) -> bool:
    """Return whether the kernel shows a value as `now`."""
    return value == now or (now in ("Y", "N") and _SWITCHES.get(value.lower()) == now)


def _way_back(machine: Machine, path: Path, old: str | None) -> tuple[Path, str | None]:
    """Return the file and the text that restore a setting."""
    if old == "0" and path.name in _PAIRS:
        pair = path.with_name(_PAIRS[path.name])
        if (other := current(machine, pair)) not in (None, "0"):
            return pair, other
    return path, old


@contextlib.contextmanager
def written(path: Path, value: str, journal: Journal) -> Iterator[None]:
    """Write a setting, and restore it afterwards. Raises OSError with the allowed values."""
    machine = journal.machine
    old = current(machine, path)
    back, text = _way_back(machine, path, old)
    # Also without a change: otherwise the cleanup of a dead session could restore it during this one.
    facts = {"path": str(path), "old": old, "value": value, "back": str(back), "text": text}
    with journal.entry(SETTING, **facts, diskseq=_diskseq(machine, path)):
        try:
            machine.set(path, value)
            if not equal(value, now := current(machine, path)):
                raise OSError(f"the kernel changed it to {now}")
        except OSError as error:
            choice = f"; the kernel offers {', '.join(words)}" if (words := offered(machine, path)) else ""
            was = "" if words or old is None else f"; it is {old}"
            raise OSError(f"{path} cannot be set to {value}: {error.strerror or error}{choice or was}") from error
        try:
            yield
        finally:
            if text is not None and equal(value, current(machine, path)):
                machine.set(back, text)


def _diskseq(machine: Machine, path: Path) -> str | None:
    """Return what tells a device with this setting from a later one with its name, since Linux 5.15."""
    return machine.setting(path.parents[1] / "diskseq")


def _still_set(machine: Machine, facts: Facts) -> bool:
    path, old, value = Path(journals.text(facts, "path")), journals.text(facts, "old"), journals.text(facts, "value")
    if not is_setting(machine, path) or not is_setting(machine, Path(journals.text(facts, "back"))):
        raise UndoError("this plugin does not set it")
    now, device = current(machine, path), path.parents[1]
    if now in (None, old) or equal(value, old):
        return False
    if not equal(value, now):
        raise OutdatedEntryError(f"it was changed to {now} since the session set it to {value}")
    # A loop device gets a new number when it is detached, as by a kill.
    is_free = device.name.startswith("loop") and machine.setting(device / "loop/backing_file") is None
    if not is_free and facts.get("diskseq") != _diskseq(machine, path):
        raise OutdatedEntryError("another device has the name now")
    return True


def _set_back(machine: Machine, facts: Facts) -> str:
    path, text = Path(journals.text(facts, "back")), journals.text(facts, "text")
    machine.set(path, text)
    return f"set {path} back to {text}"


SETTING = journals.Kind("setting", _still_set, _set_back)


# -- block devices -----------------------------------------------------------------------------------------------------


def queue(machine: Machine, device: Path) -> Path:
    """Return the sysfs queue of a block device. Partitions have that of their disk."""
    directory = (machine.sysfs / "dev/block" / machine.number(device)).resolve()
    whole = directory.parent if (directory / "partition").exists() else directory
    return machine.sysfs / "block" / whole.name / "queue"


@dataclass(frozen=True)
class Queue:
    """The session's settings for block devices. Those of stacks take precedence. None keeps the kernel's choice."""

    scheduler: str | None = None
    #: In bytes.
    read_ahead: int | None = None

    def why_not_offered(self, machine: Machine, queue: Path) -> str | None:
        """Return why devices with such a queue cannot have the scheduler, or None."""
        path = queue / "scheduler"
        if self.scheduler is None or not path.exists() or is_offered(machine, path, self.scheduler):
            return None
        words = ", ".join(offered(machine, path))
        return f"the kernel has no scheduler {self.scheduler!r} for {queue.parent.name}; it offers {words}"

    @property
    def above(self) -> dict[str, str]:
        """Return the settings for devices that layers create. These have no scheduler."""
        return {} if self.read_ahead is None else {"read_ahead_kb": str(self.read_ahead // 1024)}

    @property
    def bottom(self) -> dict[str, str]:
        """Return the settings for a stack's lowest device."""
        return self.above if self.scheduler is None else {"scheduler": self.scheduler, **self.above}


def is_offered(machine: Machine, scheduler: Path, name: str) -> bool:
    """Return whether a device can have a scheduler, after loading its module."""
    if not (words := offered(machine, scheduler)) or name in words:
        return bool(words)
    load_module(f"{name}-iosched")
    return name in offered(machine, scheduler)


# -- stacks ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SettingNeed:
    """A setting that a stack requires. Settings of devices can only be checked once the device exists."""

    key: str
    machine: Machine = field(default_factory=RealMachine, repr=False, compare=False)

    def missing(self) -> MissingRequirement | None:
        if lack := Root(f"setting {self.key}").missing():
            return lack
        space, _, name = self.key.partition("/")
        if space in ("queue", "top") or _files(self.machine, self.key):
            return None
        if space == "cpu":
            what = f"the CPUs here have no {name}, as in most virtual machines"
            return MissingRequirement(Missing.OTHER, what, f"leave {self.key} out")
        if name and load_module(space) and _files(self.machine, self.key):
            return None
        return not_in_kernel(f"setting {self.key}")


def _files(machine: Machine, key: str) -> list[Path]:
    """Return the existing files of a setting that belongs to no device."""
    space, slash, name = key.partition("/")
    if space == "cpu":
        return _of_cpus(machine, name)
    path = machine.sysfs / "module" / space / "parameters" / name if slash else machine.sysctls / key.replace(".", "/")
    return [path] if machine.setting(path) is not None else []


def as_written(setting: Setting) -> str:
    """Return the text for the kernel: a size such as 64M in bytes, or in KiB depending on the key."""
    if not re.fullmatch(r"\d+[KMGT]?", setting.value):
        return setting.value
    size = parse_size(setting.value)
    return str(size // 1024 if setting.key.endswith("_kb") and not setting.value.isdigit() else size)


@dataclass
class Tuning:
    """The settings while a stack is up: its own, otherwise the session's."""

    settings: tuple[Setting, ...]
    defaults: Queue
    journal: Journal
    _values: dict[Path, str] = field(default_factory=dict)

    def bottom(self, *devices: Path, topmost: bool) -> contextlib.AbstractContextManager[None]:
        """Apply settings of the machine, and of the stack's lowest devices. Raises OSError."""
        machine = self.journal.machine
        values: dict[Path, str] = {}
        for device in devices:
            own = {**self._own("queue"), **(self._own("top") if topmost else {})}
            values |= _of_queue(machine, device, {**self.defaults.bottom, **own})
        for setting in self.settings:
            if not setting.key.startswith(("queue/", "top/")):
                if not (files := _files(machine, setting.key)):
                    raise OSError(f"{setting.key} cannot be set: this machine has no such setting")
                values |= dict.fromkeys(files, as_written(setting))
        return self._applied(values)

    def above(self, device: Path, *, topmost: bool) -> contextlib.AbstractContextManager[None]:
        """Apply settings of a device that a layer has created. Raises OSError."""
        own = self._own("top") if topmost else {}
        return self._applied(_of_queue(self.journal.machine, device, {**self.defaults.above, **own}))

    def _own(self, space: str) -> dict[str, str]:
        chosen = (setting for setting in self.settings if setting.key.startswith(f"{space}/"))
        return {setting.key.partition("/")[2]: as_written(setting) for setting in chosen}

    @contextlib.contextmanager
    def _applied(self, values: Mapping[Path, str]) -> Iterator[None]:
        machine = self.journal.machine
        with contextlib.ExitStack() as undo:
            # The scheduler first, because the kernel then changes other settings.
            for path in sorted(values, key=lambda path: path.name != "scheduler"):
                if path.name == "scheduler":
                    is_offered(machine, path, values[path])
                undo.enter_context(written(path, values[path], self.journal))
                self._values[path] = values[path]
                undo.callback(self._values.pop, path)
            self.check()
            yield

    def check(self) -> None:
        """Raise OSError if a setting no longer has its value."""
        for path, value in self._values.items():
            if not equal(value, now := current(self.journal.machine, path)):
                raise OSError(f"{path} is {now}, not {value} as it was set: something else on this machine changed it")


def _of_queue(machine: Machine, device: Path, values: Mapping[str, str]) -> dict[Path, str]:
    directory = queue(machine, device) if values else device
    return {directory / name: value for name, value in values.items()}


# -- CPUs --------------------------------------------------------------------------------------------------------------


def _of_cpus(machine: Machine, name: str) -> list[Path]:
    paths = (machine.sysfs / "devices/system/cpu").glob(f"cpu[0-9]*/cpufreq/{name}")
    return sorted(paths, key=lambda path: int(path.parts[-3].removeprefix("cpu")))


def _governors(machine: Machine) -> list[Path]:
    return _of_cpus(machine, "scaling_governor")


@dataclass(frozen=True)
class Governor:
    """The frequency governor of all CPUs, as a requirement of a session."""

    name: str
    machine: Machine = field(default_factory=RealMachine, repr=False, compare=False)

    def why_not_offered(self) -> str | None:
        """Return why no CPU supports it. None if they do, or if there are no governors at all."""
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

    def applied(self, journal: Journal) -> contextlib.AbstractContextManager[None]:
        """Set it for all CPUs, and restore each CPU's own afterwards. Raises OSError."""
        setting = Setting("cpu/scaling_governor", self.name)
        return Tuning((setting,), Queue(), journal).bottom(topmost=False)
