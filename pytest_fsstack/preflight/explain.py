"""The commands of a stack, without running them.

The code of a session builds, remounts and takes down the stack, in a scratch directory, on a `RecordingMachine`.
Layers and devices change the machine only through it (`tests/unit/test_port.py`).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fsstack.devices import DeviceGroup, DirectoryDevice, DiskDevice
from pytest_fsstack.machine import blockdev, commands, directories
from pytest_fsstack.machine.needs import filesystems
from pytest_fsstack.preflight.recording import RecordingJournal, RecordingMachine, nothing
from pytest_fsstack.stack.build import BuildError, build
from pytest_fsstack.stack.model import Device, Stack
from pytest_fsstack.stack.places import SESSION, Block, BuildContext, Directory

#: Names in the commands for values that are only known when they run.
LEGEND = {
    "DIR": "a directory that the session makes, for mount points",
    "ID": "a random word, new for each session",
    "SECRET": "a descriptor from which a random passphrase or key is read; it never is in a file",
    "KEYID": "the public name of a random key",
    "UUID": "the name of a cache set, which is new for each stack",
    "OLD": "the value before",
}


#: What is drawn anew each time, as regular expressions, and the names that are shown instead.
_IDS = {r"(?<![0-9a-f])[0-9a-f]{16,}(?![0-9a-f])": "KEYID", r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b": "UUID"}


@dataclass
class Explanation:
    """The lines to show, and the error if they are incomplete."""

    lines: list[str] = field(default_factory=list)
    problem: str = ""


def explained(stack: Stack, device: Device) -> Explanation:
    """Return what a session would run for the stack on the device. Nothing is run, and root is not needed."""
    with directories.scratch(directories.safe_place().resolve()) as scratch:
        (files := scratch / "files").mkdir()
        machine = _Machine(scratch)
        problem = ""
        try:
            machine.section("build")
            with build(stack, _shown(device), BuildContext(files, RecordingJournal(machine))) as built:
                machine.section("remount, so that what is read next comes from the device")
                built.remount()
                machine.section("take down")
        except (BuildError, OSError) as error:
            problem = str(error)
        lines = [f"# {stack.spec} on {device.spec}: what a session runs; nothing was run", *machine.shown()]
        names = {
            str(files): "DIR",
            str(scratch / "device"): f"{device.spec.removeprefix('dir:')}/fsstack-XXXXXXXX/data",
        }
        renamed = _named("\n".join(lines), names, str(stack)).split("\n")
        words = set(re.findall(r"\b[A-Z]+\b", "\n".join(line for line in renamed if not line.startswith("#"))))
        legend = [f"# {name}: {text}" for name, text in LEGEND.items() if name in words]
        return Explanation([renamed[0], *legend, *renamed[1:]], _named(problem, names, str(stack)))


def _named(text: str, names: dict[str, str], own: str) -> str:
    """Replace values that are only known later by names. Words in the stack's `own` text stay."""
    for path, name in names.items():
        text = text.replace(path, name)
    text = re.sub(rf"(?<![^\W_])fsstack(--?){SESSION}-", r"fsstack\1ID-", text)
    text = re.sub(r"\b(lvm|mdadm)-[a-z0-9_]{8}\b", r"\1-XXXXXXXX", text)
    for form, name in _IDS.items():
        text = re.sub(form, lambda found, name=name: found[0] if found[0] in own else name, text)  # type: ignore[misc]
    return text


class _Machine(RecordingMachine):
    """A machine that adds headings to the recorded lines."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.filesystems = filesystems()

    def setting(self, path: Path) -> str:
        """Return the value that was set, or a placeholder. Nothing is read, because most devices do not exist."""
        return self.settings.get(path, "OLD")

    def number(self, device: Path) -> str:
        """Return the name of a device, which identifies its queue."""
        return (blockdev.number(device) if device.exists() else None) or device.name

    def section(self, title: str) -> None:
        self.lines.append(f"## {title}")

    def mapper_environment(self) -> dict[str, str]:
        """Return the environment for tools on this machine, which depends on udevd."""
        return commands.mapper_environment()

    @contextlib.contextmanager
    def limited(self, layer: str, step: str) -> Iterator[None]:
        """Do as `RecordingMachine.limited`, and add a heading unless nothing is done."""
        headings = {"making": f"{layer}: make it", "opening": f"{layer}: open it"}
        before = len(self.lines)
        yield
        if step in headings and len(self.lines) > before:
            self.lines.insert(before, f"# {headings[step]}")

    def shown(self) -> list[str]:
        """Return the lines of all sections that have any."""
        lines: list[str] = []
        for line, following in zip(self.lines, [*self.lines[1:], "## "]):
            if not line.startswith("## "):
                lines.append(line)
            elif not following.startswith("## "):
                lines += ["", line]
        return lines


# -- devices that are not there ----------------------------------------------------------------------------------------


def _shown(device: Device) -> Device:
    if isinstance(device, DirectoryDevice):
        return _ShownDirectory(device.path)
    if isinstance(device, DeviceGroup):
        return DeviceGroup(tuple(_ShownDisk(member.path, False, member.discard) for member in device.members))
    return _ShownDisk(device.path, False, device.discard) if isinstance(device, DiskDevice) else device


class _ShownDirectory(DirectoryDevice):
    @contextlib.contextmanager
    def opened(self, context: BuildContext, count: int = 1) -> Iterator[Directory]:
        path = context.directory.with_name("device")
        context.machine.mkdir(path, parents=True)
        yield Directory(path)
        context.machine.run("rm", "-r", self.path / "fsstack-XXXXXXXX")


class _ShownDisk(DiskDevice):
    @contextlib.contextmanager
    def opened(self, context: BuildContext, count: int = 1) -> Iterator[Block]:
        machine = context.machine
        assert isinstance(machine, RecordingMachine)
        machine.note(f"{self.path}: checked that nobody uses it and that it is given over, held, emptied and labelled")
        size = Path("/sys/class/block", self.path.resolve().name, "size")
        if size.exists():
            machine.sizes[self.path] = int(size.read_text())
        if self.discard:
            machine.run("blkdiscard", self.path)
        yield Block(self.path, nothing, machine)
        machine.note(f"{self.path}: emptied but for its label")
