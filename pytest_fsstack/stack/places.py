"""Places that layers take and give, and what a layer is given beside its place."""

from __future__ import annotations

import dataclasses
import mmap
import os
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.locked import locked_memory
from pytest_fsstack.machine.port import Loop, Machine
from pytest_fsstack.stack.tuning import Queue


@dataclass(frozen=True)
class Block:
    """A block device.

    `check` runs before each mkfs, and raises if the device must not be overwritten. `written` runs after it.
    """

    path: Path
    check: Callable[[], None]
    machine: Machine = dataclasses.field(repr=False)
    written: Callable[[], object] = lambda: None
    #: Whether nothing was written to it yet, so it need not be wiped.
    blank: bool = False
    #: Raises if `path` now leads to another device, and drops cached reads. Runs before each mount, unless a layer has
    #: the device open.
    verify: Callable[[], object] = lambda: None
    #: Runs for the lowest place each time a layer was opened, because it may have been mounted.
    opened: Callable[[], object] = lambda: None
    kind: ClassVar[str] = "block device"

    @property
    def number(self) -> str:
        """Return ``major:minor``, as in /sys/dev/block."""
        return self.machine.number(self.path)

    @property
    def parts(self) -> tuple[Block, ...]:
        """Return the devices of the place."""
        return (self,)

    @property
    def sectors(self) -> int:
        """Return the size in units of 512 bytes, as in the device-mapper."""
        return self.machine.sectors(self.path)

    @classmethod
    def on_loop(cls, loop: Loop, machine: Machine) -> Block:
        """Return the place of a loop device."""
        return cls(loop.path, loop.check, machine, blank=loop.blank, verify=loop.verify)

    def wipe(self) -> None:
        """Remove all signatures. Raises the errors of `check`, and `commands.CommandError`."""
        self.check()
        if not self.blank:
            self.machine.run("wipefs", "-aq", self.path)

    def overwrite(
        self,
        *argv: str | os.PathLike[str],
        stdin: int | None = None,
        fds: tuple[int, ...] = (),
        env: Mapping[str, str] | None = None,
        beside: Sequence[Block] = (),
    ) -> None:
        """Run a tool that formats this device, with the path as its last argument. All formatting goes through here.

        A pool adds all of its devices. `beside` are other formatted devices, which are already arguments. All are wiped
        first, so that the tool does not ask, and checked immediately before and after. Raises the errors of `check`,
        `verify` and `written`, and `commands.CommandError`.
        """
        blocks = (self, *beside)
        for block in blocks:
            block.wipe()
        for block in blocks:
            block.check()
        self.machine.run(*argv, *(part.path for part in self.parts), stdin=stdin, fds=fds, env=env)
        for block in blocks:
            block.verify()
            block.written()

    def write(self, extents: Iterable[tuple[int, bytes]]) -> None:
        """Write bytes at offsets, bypassing caches. No layer may have the device open.

        Raises the errors of `check`, `verify` and `written`, and OSError.
        """
        self.check()
        self.machine.write(self.path, extents)
        self.verify()
        self.written()


@dataclass(frozen=True)
class Pool(Block):
    """Several block devices as one place. `path` is the first of them."""

    devices: tuple[Block, ...] = ()
    kind: ClassVar[str] = "pool of block devices"

    @classmethod
    def of(cls, devices: Sequence[Block]) -> Pool:
        """Join devices. Operations on the pool apply to each of them."""

        def each(name: str) -> Callable[[], None]:
            def ask() -> None:
                for device in devices:
                    getattr(device, name)()

            return ask

        first = devices[0]
        return cls(
            first.path,
            each("check"),
            first.machine,
            each("written"),
            verify=each("verify"),
            opened=each("opened"),
            devices=tuple(devices),
        )

    @property
    def parts(self) -> tuple[Block, ...]:
        return self.devices

    def wipe(self) -> None:
        for device in self.devices:
            device.wipe()


@dataclass(frozen=True)
class Directory:
    """A directory, usually a mount point."""

    path: Path
    #: Another directory of the stack to write to, if a layer above stores its own files in `path`.
    writable: Path | None = None
    kind: ClassVar[str] = "directory"


Place = Block | Directory
#: The place below a layer: one of the classes in `takes`. That is checked when a stack's text is parsed.
Below = typing.Any
PlaceType = type[Block] | type[Directory]


class Secret:
    """The random passphrase and key of one stack, in memory that is not swapped out. Tools get descriptors of it."""

    def __init__(self) -> None:
        self._memory = locked_memory(mmap.PAGESIZE)
        # Read into the memory, because a bytes object would be another copy.
        with open("/dev/urandom", "rb", buffering=0) as random:
            random.readinto(self._memory)
        for index in range(_DIGITS):
            self._memory[index] = b"0123456789abcdef"[self._memory[index] & 15]

    def __repr__(self) -> str:
        return "Secret(...)"

    def passphrase(self) -> AbstractContextManager[int]:
        """Return a descriptor with 64 hexadecimal digits and no newline."""
        return commands.secret_fd(self._digits)

    def replacing(self, old: Secret) -> AbstractContextManager[int]:
        """Return a descriptor with the old passphrase and this one, on a line each."""
        return commands.secret_fd(old._digits, b"\n", self._digits, b"\n")

    def key(self, size: int) -> AbstractContextManager[int]:
        """Return a descriptor with a raw key of `size` bytes, always the same for this stack."""
        return commands.secret_fd(self.part(0, size))

    def part(self, start: int, size: int) -> memoryview:
        """Return some bytes of the key, which must not be copied."""
        return memoryview(self._memory)[_DIGITS:][start : start + size]

    @property
    def _digits(self) -> memoryview:
        return memoryview(self._memory)[:_DIGITS]


#: The length of a passphrase, in hexadecimal digits.
_DIGITS = 64

#: A random word in the names of this process. They are global to the machine, but containers repeat process numbers.
SESSION = os.urandom(4).hex()


@dataclass
class BuildContext:
    """The context of a layer: the machine, an empty directory, a secret, the journal, and unique names."""

    directory: Path
    journal: Journal
    secret: Secret = dataclasses.field(default_factory=Secret)
    queue: Queue = dataclasses.field(default_factory=Queue)
    #: The number of places below the layer.
    depth: int = 0
    #: The directory of mount points, if not in `directory`, which only this user can enter.
    mountpoints: Path | None = None
    #: The features that layers above need (`Layer.wants`).
    required_features: tuple[str, ...] = ()
    #: The number of the device that was taken away from the pool (`Built.take_away`).
    lost_device: int | None = None
    #: Prints a line between the progress of tests, with information that helps if a test fails.
    notify: Callable[[str], object] = dataclasses.field(default=str, repr=False)

    @property
    def machine(self) -> Machine:
        """Return the machine that holds the stack."""
        return self.journal.machine

    def remaining(self, below: Block) -> list[Block]:
        """Return the devices of the pool without the one that was taken away."""
        return [part for number, part in enumerate(below.parts) if number != self.lost_device]

    def mountpoint(self, layer: str) -> Path:
        """Create an empty directory to mount on."""
        path = (self.mountpoints or self.directory) / f"{self.depth}-{layer}"
        # The mounted directory has a mode of its own.
        self.machine.mkdir(path, exist_ok=True, mode=0o711)
        return path

    def name(self, layer: str) -> str:
        """Return a unique name for a mapping, an array, a group or a pool for the lifetime of this stack."""
        return f"fsstack-{SESSION}-{self.depth}-{layer}"

    @contextmanager
    def mounted(
        self,
        layer: str,
        source: str | os.PathLike[str],
        kind: str = "",
        options: str = "",
        cwd: Path | None = None,
        by: Sequence[str] = ("mount",),
        fds: Sequence[int] = (),
    ) -> Iterator[Directory]:
        """Mount for a layer, and unmount afterwards. Relative paths in the options are relative to `cwd`.

        `by` is the mount command, and `fds` are descriptors that it reads. Raises `CommandError`.
        """
        target = self.mountpoint(layer)
        with (
            self.journal.entry(mounts.MOUNT, target=str(target)),
            mounts.mounted(self.machine, source, target, kind, options, cwd, by, fds),
        ):
            yield Directory(target)


class CheckResult(typing.NamedTuple):
    """The result of a layer's checker: whether it is clean, and the output."""

    clean: bool
    output: str

    @classmethod
    def of(cls, code: int, stdout: str, stderr: str) -> CheckResult:
        """Return the result of a checker that exits with 0 if it found no errors."""
        return cls(code == 0, (stdout + stderr).strip())
