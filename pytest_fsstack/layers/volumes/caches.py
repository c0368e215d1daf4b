"""A fast device in front of a slow one: bcache and dm-writecache."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.devices import RamDevice
from pytest_fsstack.layers.mapper import MAPPING, SECTOR, MapperLayer, mapping
from pytest_fsstack.layers.volumes import udev
from pytest_fsstack.machine import journal, mounts
from pytest_fsstack.machine.journal import Facts, Kind, UndoError
from pytest_fsstack.machine.needs import DeviceNode, Need, Root, Tool
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.layer import BlockLayer, OptionError, Spread, option
from pytest_fsstack.stack.places import Block, BuildContext, Pool
from pytest_fsstack.stack.words import KEYWORD, SIZE
from pytest_fsstack.units import parse_size

#: Bytes of the smallest cache in memory.
_LEAST = 16 << 20
#: Buckets of the smallest cache: bcache refuses 512 or fewer (cache_alloc in drivers/md/bcache/super.c).
_BUCKETS = 1024
#: Sectors of a bucket by make-bcache's own choice.
_BUCKET = 1024
#: Seconds that a cache may take to come or go.
_PATIENCE = 60.0

# -- after a kill ------------------------------------------------------------------------------------------------------


def _registered(machine: Machine, identity: str) -> list[Path]:
    """Return the directories of a cache set in sysfs: its own, and those of disks that wait for it."""
    if not identity:
        raise UndoError("an empty name is that of no cache set")
    own = machine.sysfs / "fs/bcache" / identity
    directories = [own] if own.is_dir() else []
    for directory in (machine.sysfs / "class/block").glob("*/bcache"):
        # A cache may still be in use when its set has disappeared.
        if not (directory / "cache").exists():
            _, output, _ = machine.ended("bcache-super-show", Path("/dev", directory.parent.name))
            directories += [directory] if identity in output.split() else []
    return directories


def _stop(machine: Machine, identity: str) -> None:
    """Stop a cache set, also one that udev starts when it finds the devices free. The cache keeps its contents."""

    def stop(directory: Path) -> None:
        with contextlib.suppress(OSError):  # it may be gone by now
            machine.set(directory / "stop", "1")

    def stopped() -> bool:
        udev.settle(machine)
        directories = _registered(machine, identity)
        for directory in directories:
            stop(directory)
        return not directories

    stop(machine.sysfs / "fs/bcache" / identity)
    if not machine.wait_until(stopped, _PATIENCE):
        raise OSError(f"the cache set {identity} is still in use")


def _stopped(machine: Machine, facts: Facts) -> str:
    _stop(machine, identity := journal.text(facts, "uuid"))
    return f"stopped the cache set {identity}"


CACHE_SET = Kind("bcache", lambda machine, facts: bool(_registered(machine, journal.text(facts, "uuid"))), _stopped)


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Cached(Spread, BlockLayer):
    """A device of the session, with a second one or memory as its cache."""

    gives: ClassVar = Block
    lowest: ClassVar = True
    grammar: ClassVar = {"cache": KEYWORD}

    cache: str = option("", "'ram:256M' caches in memory of that size. The default is the second device of the session")

    @property
    def members(self) -> int:
        return 1 if self.cache else 2

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        return below[:1]

    @property
    def _memory(self) -> RamDevice:
        kind, _, size = self.cache.partition(":")
        try:
            if kind == "ram" and (memory := parse_size(size)) >= _LEAST:
                return RamDevice(memory)
        except ValueError:
            pass
        raise OptionError("cache", f"must be ram: and a size, as in ram:256M (got {self.cache!r})")

    def check_options(self) -> None:
        if self.cache:
            assert self._memory

    def needs(self) -> list[Need]:
        return [*super().needs(), *(self._memory.needs() if self.cache else [])]

    @contextlib.contextmanager
    def bottom(self, device: Block, context: BuildContext) -> Iterator[Block]:
        if not self.cache:
            yield device
            return
        with self._memory.opened(context) as memory:
            yield Pool.of([*device.parts, memory])


@dataclass(frozen=True)
class Bcache(_Cached):
    """bcache: a cache of reads, and of writes with `mode='writeback'`.

    It is the lowest layer, on two devices of the session: the files are on the first one, and the second one caches
    them. So in a group (`--fsstack-device=/dev/sdb+/dev/nvme0n1`) the slow disk comes first. `written_bytes` leaves a
    cache in memory out. Udev may start the cache by itself when its devices are free. It is stopped before the next
    step.
    """

    leaves: ClassVar = (CACHE_SET, mounts.MOUNT)
    name: ClassVar = "bcache"
    example: ClassVar = "bcache(cache='ram:256M') | xfs"
    grammar: ClassVar = {**_Cached.grammar, "sequential_cutoff": SIZE}

    mode: str = option("writethrough", "how it writes", choices=("writethrough", "writeback", "writearound"))
    sequential_cutoff: str = option(
        "", "longer sequential reads and writes bypass the cache. 0 caches all. The default is the kernel's, 4M"
    )

    def check_options(self) -> None:
        super().check_options()
        self.size_of("sequential_cutoff")

    def needs(self) -> list[Need]:
        kernel = DeviceNode("/sys/fs/bcache", "bcache", "bcache")
        tools = [Tool(command, "bcache-tools") for command in ("make-bcache", "bcache-super-show")]
        return [Root("bcache"), kernel, *tools, Tool("udevadm", "udev"), *super().needs()]

    @contextlib.contextmanager
    def bottom(self, device: Block, context: BuildContext) -> Iterator[Block]:
        with super().bottom(device, context) as pool, context.journal.entry(CACHE_SET, uuid=_identity(context)):
            with udev.kept_free(pool, lambda: _stop(context.machine, _identity(context))) as parts:
                yield parts

    def create(self, below: Block, context: BuildContext) -> None:
        origin, cache = below.parts
        bucket = min(_BUCKET, 1 << max(cache.sectors // _BUCKETS, 1).bit_length() - 1) * SECTOR
        words = ["--cset-uuid", _identity(context), "--bucket", str(bucket), "--cache", str(cache.path), "--bdev"]
        origin.overwrite("make-bcache", *words, beside=[cache])
        _stop(context.machine, _identity(context))

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Block]:
        machine, (origin, cache) = context.machine, below.parts
        directory = machine.sysfs / "dev/block" / origin.number / "bcache"
        settings = {"cache_mode": self.mode}
        if (cutoff := self.size_of("sequential_cutoff")) is not None:
            settings["sequential_cutoff"] = str(cutoff)

        def device() -> Path:
            link = directory / "dev"
            return Path("/dev", os.path.basename(os.readlink(link)) if link.is_symlink() else "bcacheN")

        try:
            for part in cache, origin:
                # `register_quiet` is no error if udev was faster.
                machine.set(machine.sysfs / "fs/bcache/register_quiet", str(part.path))
            if not machine.wait_until((directory / "cache").exists, _PATIENCE):
                raise OSError(f"{cache.path} did not become the cache of {origin.path}")
            for name, value in settings.items():
                machine.set(directory / name, value)
            path = device()

            def check() -> None:
                if device() != path:
                    raise OSError(f"{path} is not this session's cache set any more; nothing was written to it")

            yield Block(path, check, machine)
        finally:
            _stop(machine, _identity(context))


def _identity(context: BuildContext) -> str:
    """Return the UUID of a stack's cache set: no other stack has its directory."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{context.directory}/{context.name('bcache')}"))


@dataclass(frozen=True)
class Writecache(_Cached, MapperLayer):
    """dm-writecache: writes go to the cache, and from there to the device in the background.

    It is the lowest layer, on two devices of the session: the files are on the first one, and the second one caches
    their writes. Reads are cached in memory only. `written_bytes` leaves a cache in memory out.
    """

    leaves: ClassVar = (MAPPING, mounts.MOUNT)
    name: ClassVar = "writecache"
    example: ClassVar = "writecache(cache='ram:256M') | ext4"

    block_size: int = option(4096, "bytes of a block of the cache", choices=(512, 1024, 2048, 4096))

    def create(self, below: Block, context: BuildContext) -> None:
        below.wipe()
        # Without a superblock, the kernel makes an empty cache.
        below.parts[1].write([(0, bytes(4096))])

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Block]:
        origin, cache = below.parts
        name, length = context.name(self.name), origin.sectors // 8 * 8
        table = f"0 {length} writecache s {origin.path} {cache.path} {self.block_size} 0"
        # The files are on both devices, so a signature on the first one proves nothing (`devices.DISK`).
        with mapping(name, context, "dmsetup", "create", name, "--table", table) as place:
            yield place
