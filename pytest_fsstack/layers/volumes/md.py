"""Linux's software RAID, by mdadm, over several devices of the session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.layers.volumes import udev
from pytest_fsstack.layers.volumes.raid import check_chunk_size, copies
from pytest_fsstack.machine import directories, journal
from pytest_fsstack.machine.journal import Facts, Kind, UndoError
from pytest_fsstack.machine.needs import DeviceNode, Need, Root, Tool
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.layer import BlockLayer, OptionError, Spread, option
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Place

#: The fewest devices of each level.
_LEVELS = {0: 2, 1: 2, 5: 3, 6: 4, 10: 4}

# -- after a kill ------------------------------------------------------------------------------------------------------


def _arrays(machine: Machine, name: str) -> list[Path]:
    """Return the arrays of this name. Udev may have assembled one as another device."""
    if not name.startswith("fsstack-"):
        raise UndoError("that is no name that this plugin gives to an array")
    arrays = []
    for directory in (machine.sysfs / "block").glob("md*"):
        device = Path("/dev", directory.name)
        # mdadm prints nothing for an array that ends at this moment.
        _, details, _ = machine.ended("mdadm", "--detail", "--export", device)
        if device == _device(name) or f"MD_NAME=any:{name}" in details.splitlines():
            arrays.append(device)
    return arrays


def _device(name: str) -> Path:
    return Path("/dev", f"md_{name}")


def _stopped(machine: Machine, facts: Facts) -> str:
    _stop_all(machine, name := journal.text(facts, "name"))
    return f"stopped the array {name}"


def _stop_all(machine: Machine, name: str, own: Path | None = None) -> None:
    """Stop an array, and each one that udev makes of its devices when it finds them free. `own` keeps running."""

    def stopped() -> bool:
        udev.settle(machine)
        arrays = [array for array in _arrays(machine, name) if array != own]
        for array in arrays:
            machine.ended("mdadm", "--stop", array)
        return not arrays

    if not machine.wait_until(stopped, 30.0):
        raise OSError(f"the array {name} is still in use")


ARRAY = Kind("md", lambda machine, facts: bool(_arrays(machine, journal.text(facts, "name"))), _stopped)


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Md(Spread, BlockLayer):
    """Linux's software RAID of mdadm, on several devices of the session.

    It is the lowest layer, and takes `devices` of them: files, memory, or the first ones of a group
    (`--fsstack-device=/dev/sdb+/dev/sdc`). Without `initial='sync'`, copies and parity count as right from the start,
    so nothing is synchronised during a measurement. The test id shows which of the two it was. On disks that were not
    blank, `scrub` then also reports differences where nothing was written. Udev may assemble the devices by itself when
    they are free. Such arrays are stopped before the next step.
    """

    leaves: ClassVar = (ARRAY,)
    name: ClassVar = "md"
    gives: ClassVar = Block
    example: ClassVar = "md(level=10, devices=4) | ext4"
    level: int = option(1, "RAID level", choices=tuple(_LEVELS))
    devices: int | None = option(None, "number of devices. The default is the fewest of the level, for 10 it is 4")
    chunk_size: int | None = option(None, "bytes of a chunk, a power of 2 from 4096 on. The default is mdadm's, 524288")
    initial: str = option(
        "assume-clean",
        "'sync' waits until all copies and parity are written, when the stack is made. That takes as long as writing "
        "all of a device",
        choices=("assume-clean", "sync"),
    )
    bitmap: bool = option(False, "keep a bitmap of the parts that are being written")

    def needs(self) -> list[Need]:
        kernel = DeviceNode("/proc/mdstat", "software RAID", "md_mod")
        return [Root("software RAID"), kernel, Tool("mdadm", "mdadm"), Tool("udevadm", "udev")]

    @property
    def members(self) -> int:
        return self.devices if self.devices is not None else _LEVELS[self.level]

    @property
    def label(self) -> str:
        return super().label if self.initial == "sync" else f"{super().label}-{self.initial}"

    def check_options(self) -> None:
        if self.members < (fewest := _LEVELS[self.level]):
            raise OptionError("devices", f"level {self.level} takes at least {fewest} (got {self.devices})")
        check_chunk_size(self.level, self.chunk_size)
        if self.level == 0 and (self.initial == "sync" or self.bitmap):
            name = "bitmap" if self.bitmap else "initial"
            raise OptionError(name, "level 0 has nothing to synchronise")

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        parity = {5: 1, 6: 2}.get(self.level, 0)
        return (min(below) * (self.members - parity) // copies(self.level, self.members),) if below else ()

    @contextlib.contextmanager
    def bottom(self, device: Block, context: BuildContext) -> Iterator[Block]:
        machine, name = context.machine, context.name(self.name)
        with context.journal.entry(ARRAY, name=name):
            # A degraded array runs while a device is added to it.
            with udev.kept_free(device, lambda: _stop_all(machine, name, _device(name))) as pool:
                try:
                    yield pool
                finally:
                    _stop_all(machine, name)

    def create(self, below: Block, context: BuildContext) -> None:
        machine, name = context.machine, context.name(self.name)
        words = ["--run", "--metadata=1.2", f"--level={self.level}", f"--raid-devices={self.members}"]
        words += [f"--chunk={self.chunk_size // 1024}K"] if self.chunk_size else []
        words += ["--assume-clean"] if self.initial == "assume-clean" and self.level else []
        if self.level:
            # Without the option, mdadm adds a bitmap to arrays of more than 100 GB by itself.
            words.append(f"--bitmap={'internal' if self.bitmap else 'none'}")
        with _configuration(context) as config:
            below.overwrite("mdadm", "--create", f"/dev/md/{name}", config, "--homehost=any", *words)
            with _closing(machine, name):
                _wait_until_idle(machine, _device(name))

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Block]:
        machine, name = context.machine, context.name(self.name)
        with _configuration(context) as config:
            _stop_all(machine, name)
            paths = [part.path for part in context.remaining(below)]
            degraded = ["--run"] if len(paths) < self.members else []
            machine.run("mdadm", "--assemble", f"/dev/md/{name}", config, *degraded, *paths)
            with _closing(machine, name) as device:
                number = machine.number(device)

                def check() -> None:
                    if machine.number(device) != number:
                        raise OSError(f"{device} is not this session's array any more; nothing was written to it")

                yield Block(device, check, machine)

    def scrub(self, place: Place, below: Block, context: BuildContext) -> CheckResult | None:
        """Compare all copies, or parity with data. What a device cannot read is written anew from the others."""
        if not self.level:
            return None
        machine, directory = context.machine, _sysfs(context.machine, place.path)
        machine.set(directory / "sync_action", "check")
        _wait_until_idle(machine, place.path)
        mismatches = machine.setting(directory / "mismatch_cnt")
        return CheckResult(mismatches == "0", f"{mismatches} sectors differ")

    def check_loss(self) -> None:
        if not self.level:
            raise OptionError("level", "level 0 has no copies")
        if self.level in (5, 6) and self.initial != "sync":
            raise OptionError("initial", "parity that was never written restores nothing: write initial='sync'")

    def regain(self, place: Place, below: Block, context: BuildContext, number: int) -> None:
        below.parts[number].overwrite("mdadm", "--add", place.path)

    def regained(self, place: Place, below: Block, context: BuildContext) -> None:
        _wait_until_idle(context.machine, place.path)


@contextlib.contextmanager
def _configuration(context: BuildContext) -> Iterator[str]:
    """Yield the option that names a configuration of its own. With it, mdadm names the device after the array."""
    with directories.scratch(context.directory, "mdadm-") as directory:
        context.machine.make_file(directory / "mdadm.conf", b"CREATE names=yes\n")
        yield f"--config={directory / 'mdadm.conf'}"


@contextlib.contextmanager
def _closing(machine: Machine, name: str) -> Iterator[Path]:
    try:
        yield _device(name)
    finally:
        machine.run("mdadm", "--stop", _device(name))
        _stop_all(machine, name)


def _sysfs(machine: Machine, device: Path) -> Path:
    return machine.sysfs / "block" / device.name / "md"


def _wait_until_idle(machine: Machine, device: Path) -> None:
    """Wait until all devices of an array hold what they should."""
    directory = _sysfs(machine, device)

    def idle() -> bool:
        # Level 0 has neither file. A rebuild that has not begun is no action yet.
        return machine.setting(directory / "sync_action") in ("idle", None) and (
            machine.setting(directory / "degraded") in ("0", None)
        )

    scrubs.wait_for(machine, device, idle)
