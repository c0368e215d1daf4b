"""Devices that hold stacks: a sparse loop file, memory, a real block device, or an existing directory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import sys
import typing
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import blockdev, directories, guard, journal, mounts
from pytest_fsstack.machine.blockdev import Identity
from pytest_fsstack.machine.journal import Fact, Facts, Kind, OutdatedEntryError
from pytest_fsstack.machine.needs import LOOP_DEVICES, KernelFilesystem, Need, Root, Tool
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack import tuning
from pytest_fsstack.stack.model import Device
from pytest_fsstack.stack.places import Block, BuildContext, Directory, PlaceType, Pool


@contextlib.contextmanager
def _sparse_file(machine: Machine, directory: Path, size: int) -> Iterator[Block]:
    """Attach a loop device to an unlinked file, so that no file stays behind."""
    with machine.unnamed_file(directory, size) as image, machine.attached(image) as loop:
        yield Block.on_loop(loop, machine)


@contextlib.contextmanager
def _joined(openings: Iterable[contextlib.AbstractContextManager[Block]]) -> Iterator[Block]:
    """Open the devices in order. Yield a single one as it is, and several as a pool."""
    with contextlib.ExitStack() as undo:
        blocks = [undo.enter_context(opening) for opening in openings]
        yield blocks[0] if len(blocks) == 1 else Pool.of(blocks)


class _Single:
    """A device that belongs to no group."""

    @property
    def members(self) -> tuple[Device, ...]:
        return (typing.cast("Device", self),)


class _SessionDevice(_Single):
    """A device that only this session uses, so no lock is needed."""

    #: One file is made for each stack that asks for one.
    max_devices: ClassVar[int] = sys.maxsize

    def held(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@dataclass(frozen=True)
class LoopDevice(_SessionDevice):
    """A sparse file of `size` bytes in the session's directory."""

    size: int
    spec: ClassVar[str] = "loop"
    id: ClassVar[str] = "loop"
    gives: ClassVar[PlaceType] = Block

    def needs(self) -> list[Need]:
        return [Root("attaching a loop device"), LOOP_DEVICES]

    def room(self, directory: Path) -> int:
        return min(self.size, shutil.disk_usage(directory).free)

    def sizes(self, count: int) -> tuple[int, ...]:
        return (self.size,) * count

    def advice(self, space: int) -> str:
        if space > self.size:
            return f"give --fsstack-size={_size_word(space)} or a disk as --fsstack-device"
        return "its file lies where too little is free; name another place with --fsstack-dir"

    def opened(self, context: BuildContext, count: int = 1) -> contextlib.AbstractContextManager[Block]:
        return _joined(_sparse_file(context.machine, context.directory, self.size) for _ in range(count))


@dataclass(frozen=True)
class RamDevice(_SessionDevice):
    """A loop device of `size` bytes, backed by a file on its own tmpfs."""

    size: int
    spec: ClassVar[str] = "ram"
    id: ClassVar[str] = "ram"
    gives: ClassVar[PlaceType] = Block

    def needs(self) -> list[Need]:
        return [Root("mounting a tmpfs"), KernelFilesystem("tmpfs"), LOOP_DEVICES]

    def room(self, directory: Path) -> int:
        memory = next(
            line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")
        )
        return min(self.size, int(memory.split()[1]) * 1024)

    def sizes(self, count: int) -> tuple[int, ...]:
        return (self.size,) * count

    def advice(self, space: int) -> str:
        if space > self.size:
            return f"give --fsstack-size={_size_word(space)}, if there is that much memory"
        return "this machine has no more memory available"

    @contextlib.contextmanager
    def opened(self, context: BuildContext, count: int = 1) -> Iterator[Block]:
        with context.mounted("ram", "tmpfs", "tmpfs", f"size={count * self.size + 2**20}") as directory:
            files = (_sparse_file(context.machine, directory.path, self.size) for _ in range(count))
            with _joined(files) as block:
                yield block


@dataclass(frozen=True)
class DiskDevice(_Single):
    """A real block device. It is overwritten if the guard permits it."""

    path: Path
    overwrite: bool
    #: Whether to discard the whole device before each stack is built.
    discard: bool = False
    #: The name in test ids, if the last part of the path is not unique in the session.
    name: str = ""
    gives: ClassVar[PlaceType] = Block
    max_devices: ClassVar[int] = 1
    #: The device behind the path when the user named it, or why it was refused. None: resolve the path on use.
    resolved: guard.Disk | guard.Refused | None = field(default=None, repr=False, compare=False)
    #: The device that `held` locks.
    _held: list[guard.Held] = field(default_factory=list, repr=False, compare=False)

    @property
    def spec(self) -> str:
        return str(self.path)

    @property
    def id(self) -> str:
        return self.name or _last_parts(self.path, 1)

    def needs(self) -> list[Need]:
        blkdiscard = [Tool("blkdiscard", "util-linux")] if self.discard else []
        return [Root(f"formatting {self.path}"), *blkdiscard]

    def disk(self) -> guard.Disk:
        """Return the device that the user named. Raise `guard.Refused` if it was refused."""
        if isinstance(self.resolved, guard.Refused):
            raise self.resolved
        return self.resolved or guard.identify(self.path)

    def identity(self) -> tuple[object, ...] | None:
        """Return the identity of the named device as plain data, or None if it is unknown."""
        return dataclasses.astuple(self.resolved.identity) if isinstance(self.resolved, guard.Disk) else None

    def pinned_to(self, identities: Mapping[str, tuple[object, ...]]) -> DiskDevice:
        """Return this device. Using it is refused if another process resolved the same name to another device."""
        if self.identity() == identities.get(self.spec, self.identity()):
            return self
        reason = "it is not the device any more that it was when the session began; start a new session to use this one"
        return dataclasses.replace(self, resolved=guard.Refused(self.path, reason))

    def room(self, directory: Path) -> int:
        return self.disk().size

    def sizes(self, count: int) -> tuple[int, ...]:
        try:
            return (self.disk().size,)[:count]
        except guard.Refused:
            return ()  # the session refuses it before it builds anything

    def advice(self, space: int) -> str:
        return "give a larger --fsstack-device"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with guard.held(self.disk(), overwrite=self.overwrite) as device:
            device.accept()
            self._held.append(device)
            try:
                yield
            finally:
                self._held.remove(device)

    @contextlib.contextmanager
    def opened(self, context: BuildContext, count: int = 1) -> Iterator[Block]:
        if count > self.max_devices:
            raise OSError(f"{self.path} is one device, and the stack needs {count}")
        notes = []

        @contextlib.contextmanager
        def record(disk: guard.Disk) -> Iterator[guard.RecordProof]:
            with context.journal.entry(DISK, **disk.facts()) as note:
                notes.append(note)

                def record_proof(proof: Mapping[str, str]) -> None:
                    # The journal is only needed after a kill. If it cannot be written, still write the label.
                    with contextlib.suppress(OSError):
                        note.update(**proof)

                yield record_proof

        with contextlib.ExitStack() as undo:
            if self._held:
                device = self._held[0]
            else:
                device = undo.enter_context(guard.held(self.disk(), overwrite=self.overwrite))
            undo.enter_context(device.claimed(record=record))
            if self.discard:
                device.check()
                context.machine.run("blkdiscard", device.path)
                # Without this label, the user would have to permit overwriting again after a killed session.
                device.label()

            def written() -> None:
                device.settle()
                # A later cleanup compares this signature to prove that nobody has formatted the device since.
                notes[0].update(signature=guard.signature(device.path))
                opened()

            def opened() -> None:
                # It also compares the time of the last mount, to prove that nobody has mounted the filesystem since.
                if (now := blockdev.last_mount(device.path)) != notes[0].facts.get("mounted"):
                    notes[0].update(mounted=now)

            # While the session holds the device, the kernel keeps cached reads (of udev, for example) across an
            # unmount. The next mount must see the blocks that the filesystem wrote past this cache.
            yield Block(device.path, device.check, context.machine, written, verify=device.settle, opened=opened)


@dataclass(frozen=True)
class DeviceGroup:
    """A group of real block devices.

    A stack uses as many of them as it needs, in order. The others are not written to.
    """

    members: tuple[DiskDevice, ...]
    gives: ClassVar[PlaceType] = Block

    @property
    def spec(self) -> str:
        return "+".join(device.spec for device in self.members)

    @property
    def id(self) -> str:
        return "+".join(device.id for device in self.members)

    @property
    def max_devices(self) -> int:
        return len(self.members)

    def needs(self) -> list[Need]:
        return [need for device in self.members for need in device.needs()]

    def room(self, directory: Path) -> int:
        return min(device.room(directory) for device in self.members)

    def sizes(self, count: int) -> tuple[int, ...]:
        sizes = tuple(size for device in self.members[:count] for size in device.sizes(1))
        return sizes if len(sizes) == count else ()

    def advice(self, space: int) -> str:
        return "give larger devices"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        with contextlib.ExitStack() as undo:
            for device in self.members:
                undo.enter_context(device.held())
            yield

    def opened(self, context: BuildContext, count: int = 1) -> contextlib.AbstractContextManager[Block]:
        if count > self.max_devices:
            raise OSError(f"{self.spec} are {self.max_devices} devices, and the stack needs {count}")
        return _joined(device.opened(context) for device in self.members[:count])


def refusals(device: Device) -> dict[Device, guard.Refused]:
    """Return the devices of a group that would be refused now, with the reasons. Write nothing."""
    refused: dict[Device, guard.Refused] = {}
    with contextlib.ExitStack() as undo:
        # Hold all at once, as a session does: two members may share bytes.
        for member in device.members:
            try:
                undo.enter_context(member.held())
            except guard.Refused as refusal:
                refused[member] = refusal
    return refused


def pinned_to(device: Device, identities: Mapping[str, tuple[object, ...]]) -> Device:
    """Apply `DiskDevice.pinned_to` to each real device of a device or group."""
    if isinstance(device, DeviceGroup):
        return DeviceGroup(tuple(member.pinned_to(identities) for member in device.members))
    return device.pinned_to(identities) if isinstance(device, DiskDevice) else device


def disks_of(devices: Iterable[Device]) -> list[DiskDevice]:
    """Return the real block devices, with groups expanded."""
    return [member for device in devices for member in device.members if isinstance(member, DiskDevice)]


@dataclass(frozen=True)
class DirectoryDevice(_SessionDevice):
    """An existing directory. Each stack gets a new subdirectory; nothing is formatted."""

    path: Path
    #: The name in test ids, if the last part of the path is not unique in the session.
    name: str = ""
    gives: ClassVar[PlaceType] = Directory
    max_devices: ClassVar[int] = 1

    @property
    def spec(self) -> str:
        return f"dir:{self.path}"

    @property
    def id(self) -> str:
        return f"dir-{self.name or _last_parts(self.path, 1)}"

    def needs(self) -> list[Need]:
        return []

    def room(self, directory: Path) -> int:
        return shutil.disk_usage(self.path).free

    def sizes(self, count: int) -> tuple[int, ...]:
        return ()

    def advice(self, space: int) -> str:
        return "free some, or name a directory on a larger filesystem"

    @contextlib.contextmanager
    def opened(self, context: BuildContext, count: int = 1) -> Iterator[Directory]:
        with directories.lasting(self.path, context.journal) as data:
            target = context.mountpoint("directory")
            # A test may start programs as another user. Such a user reaches the data only under this path.
            with context.journal.entry(mounts.MOUNT, target=str(target)), directories.reachable(data, target) as path:
                yield Directory(path)


def _which_disk(facts: Facts) -> dict[str, Fact]:
    return guard.identify(Path(journal.text(facts, "path"))).facts()


def _same_disk(facts: Facts) -> guard.Disk:
    """Return the disk that a journal names. Raise `OutdatedEntryError` if the name now belongs to another disk."""
    disk = guard.identify(Path(journal.text(facts, "path")))
    now = disk.facts() | {"path": journal.text(facts, "path")}
    if now != {name: facts.get(name) for name in now}:
        raise OutdatedEntryError("the name belongs to another disk now, or the disk was plugged in again")
    return disk


def _unlabelled(machine: Machine, facts: Facts) -> bool:
    path = Path(journal.text(facts, "path"))
    if facts.get("diskseq") is None:
        raise OutdatedEntryError("this kernel does not number disks, so nothing proves that this is the one")
    if not path.exists():
        raise OutdatedEntryError("it is not plugged in, and if it comes back, nothing proves that it is the one")
    _same_disk(facts)
    return not guard.labelled(path)


def _relabelled(machine: Machine, facts: Facts) -> str:
    # Held from before the check until the device is empty, so that both concern the same disk.
    with guard.held(_same_disk(facts), overwrite=True) as device:
        _prove_left_by_session(device.path, facts)
        with device.claimed():
            pass
    return f"emptied {device.path} but for its scratch label"


def _prove_left_by_session(path: Path, facts: Facts) -> None:
    """Raise `OutdatedEntryError` if somebody may have written to a device since a session left it."""
    if "digest" in facts and guard.is_half_emptied(path, facts):
        return
    signature = facts.get("signature")
    if not signature or guard.signature(path) != signature:
        # Without the signature that we wrote, the device may be in use, for example by plain dm-crypt.
        raise OutdatedEntryError(
            "nothing proves that it holds what the session left and no other data; "
            f"`--fsstack-overwrite={path}` gives it over to testing if nobody needs it"
        )
    if not _out_of_reach(signature) and (not facts.get("mounted") or blockdev.last_mount(path) != facts["mounted"]):
        raise OutdatedEntryError(
            "it holds what the session left, and maybe files that were put there since: its filesystem was mounted "
            f"again, or does not record that; `--fsstack-overwrite={path}` gives it over to testing if nobody needs it"
        )


def _out_of_reach(signature: Fact) -> bool:
    """Whether nobody can have written files there. The passphrase was random, and was lost with the session."""
    return isinstance(signature, str) and signature.startswith("crypto_LUKS ")


DISK = Kind(
    "disk",
    _unlabelled,
    _relabelled,
    _which_disk,
    afterwards="disks are numbered anew with each boot, so nothing proves that it is the one",
    only_asked=lambda facts: True,
)


def _last_parts(path: Path, count: int) -> str:
    """Return the last parts of a path, in characters that ``-k`` accepts."""
    words = path.parts[1:][-count:] or ("root",)
    return re.sub(r"[^A-Za-z0-9_.:-]+", ".", ".".join(words))


def with_unique_ids(devices: Iterable[Device]) -> tuple[Device, ...]:
    """Give the devices unique ids, from as few trailing parts of their paths as possible."""
    chosen = list(dict.fromkeys(devices))
    members = list(dict.fromkeys(member for device in chosen for member in device.members))
    named = dict(zip(members, _with_unique_ids(members)))
    return tuple(
        DeviceGroup(tuple(typing.cast(DiskDevice, named[member]) for member in device.members))
        if isinstance(device, DeviceGroup)
        else named[device]
        for device in chosen
    )


def _with_unique_ids(unique: list[Device]) -> list[Device]:
    unique, count = list(unique), 1
    while twice := {device.id for device in unique if [other.id for other in unique].count(device.id) > 1}:
        count += 1
        for index, device in enumerate(unique):
            if device.id in twice and isinstance(device, (DiskDevice, DirectoryDevice)):
                name = _last_parts(device.path, count)
                # Two paths may differ only in characters that are left out.
                unlike = "" if count <= len(device.path.parts) else f"-{index + 1}"
                unique[index] = dataclasses.replace(device, name=name + unlike)
    return unique


def _size_word(size: int) -> str:
    """Format a size for --fsstack-size, rounded up to whole MiB."""
    mebibytes = -(-size // 2**20)
    return f"{mebibytes}M" if mebibytes % 1024 else f"{mebibytes // 1024}G"


def _discards(device: Path) -> bool:
    try:
        return int((tuning.queue(RealMachine(), device) / "discard_max_bytes").read_text()) > 0
    except OSError:
        return False


def _names_of(text: str) -> list[str]:
    """Return the device names in a group such as ``A+B``. An existing device path is one name, even with a +."""
    return [text] if text.startswith("dir:") or os.path.exists(text) else text.split("+")


def look_up(text: str) -> guard.Disk | guard.Refused:
    """Return the block device that a command-line argument means now, or why it is refused."""
    try:
        return guard.identify(Path(text))
    except guard.Refused as refused:
        return refused


def parse_device(text: str, *, size: int, overwrite: Container[Identity], discard: bool = False) -> Device:
    """Parse the device or group in a command-line argument.

    The user permits overwriting the devices in `overwrite`. Raises ValueError for an impossible device.
    """
    if (names := _names_of(text))[1:]:
        members = [parse_device(name, size=size, overwrite=overwrite, discard=discard) for name in names]
        disks = tuple(member for member in members if isinstance(member, DiskDevice))
        if disks != tuple(members):
            raise ValueError(
                f"{text}: a group has block devices only; of loop and ram, a stack gets as many as it needs"
            )
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"{text}: {twice} is named twice")
        return DeviceGroup(disks)
    if text == "loop":
        return LoopDevice(size)
    if text == "ram":
        return RamDevice(size)
    if text.startswith("dir:"):
        path = Path(text.removeprefix("dir:")).absolute()
        if text == "dir:":
            raise ValueError("dir: names no directory, as with a variable that is not set; dir:. is this one")
        if not os.path.isdir(path):  # Path.is_dir raises for names that are too long
            raise ValueError(f"{text}: there is no directory {path}")
        return DirectoryDevice(path)
    if text.startswith("/"):
        path = Path(text)
        if not os.path.exists(path):  # Path.exists raises for names that are too long
            raise ValueError(f"{text} does not exist; `lsblk` lists the block devices")
        if path.is_dir():
            raise ValueError(f"{text} is a directory; to use it as it is, write dir:{text}")
        if not path.is_block_device():
            raise ValueError(f"{text} is not a block device; `lsblk` lists them")
        if discard and not _discards(path):
            raise ValueError(
                f"{text} cannot discard (its discard_max_bytes is 0); leave --fsstack-discard and "
                "--fsstack-settle=discard out"
            )
        disk = look_up(text)
        given_up = isinstance(disk, guard.Disk) and disk.identity in overwrite
        return DiskDevice(path, given_up, discard, resolved=disk)
    raise ValueError(
        f"{text!r} is not a device; write loop, ram, a block device such as /dev/sdb1, or dir:/a/directory"
    )
