"""Mappings of the device-mapper, and layers with a single target: linear, delay, flakey.

A mapping is marked for deferred removal while it is held open here. When this process dies, even by SIGKILL, the kernel
unmounts the filesystem and then removes the mapping and those below it.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from pytest_fsstack.machine import journal, mounts
from pytest_fsstack.machine.journal import Facts, Kind
from pytest_fsstack.machine.needs import DMSETUP, DeviceMapper, Need, Root
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.layer import BlockLayer, OptionError, option
from pytest_fsstack.stack.places import Block, BuildContext
from pytest_fsstack.stack.program import ToolLayer
from pytest_fsstack.stack.words import KEYWORD, SIZE, Words

#: In bytes; the unit of the device-mapper.
SECTOR = 512

# -- mappings ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def held(machine: Machine, ours: Callable[[str], bool], make: Callable[[], object]) -> Iterator[dict[str, Path]]:
    """Hold the mappings that `make` creates (`ours` recognises their names). Yield their /dev/dm-N by name, then remove
    them.

    The journal must already have them. Raises `commands.CommandError`, and OSError if a mapping is still in use.
    """
    with removed_on_error(machine, ours), contextlib.ExitStack() as opening:
        make()
        devices = machine.mappings(ours)
        for device in devices.values():
            mounts.note_new(device)
            opening.enter_context(machine.held_open(device))
        _remove(machine, devices)
        hold = opening.pop_all()
    try:
        yield devices
    finally:
        hold.close()
        _wait_for_the_end(machine, devices)


@contextlib.contextmanager
def removed_on_error(machine: Machine, ours: Callable[[str], bool]) -> Iterator[None]:
    """Remove the mappings with these names on an error, because a tool may have failed after creating some."""
    try:
        yield
    except BaseException:
        if devices := machine.mappings(ours):
            _remove(machine, devices)
            _wait_for_the_end(machine, devices)
        raise


def _remove(machine: Machine, mappings: Iterable[str]) -> None:
    """Remove mappings once they have no users: unused ones first, then those below them."""
    machine.run("dmsetup", "remove", "--deferred", *mappings, env=machine.mapper_environment())


def _wait_for_the_end(machine: Machine, mappings: Mapping[str, Path]) -> None:
    def left() -> dict[str, Path]:
        # The name is empty while the kernel removes a mapping.
        return {name: device for name, device in mappings.items() if machine.mapping_name(device) in (name, "")}

    patience = min((mounts.patience(device, 15.0) for device in left().values()), default=0.0)
    if not machine.wait_until(lambda: not left(), patience):
        for name, device in left().items():
            raise OSError(f"{device} ({name}) is still {mounts.in_use(machine, device)}")


def _exists(machine: Machine, facts: Facts) -> bool:
    return bool(machine.mappings(journal.text(facts, "name").__eq__))


def _removed(machine: Machine, facts: Facts) -> str:
    name = journal.text(facts, "name")
    machine.run("dmsetup", "remove", name, env=machine.mapper_environment())
    return f"removed the device-mapper device {name}"


MAPPING = Kind("dm", _exists, _removed)


def block(machine: Machine, name: str, device: Path, written: Callable[[], object] = lambda: None) -> Block:
    """Return the place of a mapping. Writing is allowed while the device is that mapping."""

    def check() -> None:
        if machine.mapping_name(device) != name:
            raise OSError(f"{device} is not this session's {name} any more; nothing was written to it")

    return Block(device, check, machine, written)


@contextlib.contextmanager
def _created(
    names: Sequence[str], context: BuildContext, *create: str | os.PathLike[str], fds: tuple[int, ...] = ()
) -> Iterator[dict[str, Path]]:
    """Create mappings by a command. Yield their devices by name."""
    machine = context.machine
    with contextlib.ExitStack() as undo:
        for name in names:
            undo.enter_context(context.journal.entry(MAPPING, name=name))
        run = functools.partial(machine.run, *create, fds=fds, env=machine.mapper_environment())
        yield undo.enter_context(held(machine, names.__contains__, run))


@contextlib.contextmanager
def mapping(
    name: str,
    context: BuildContext,
    *create: str | os.PathLike[str],
    fds: tuple[int, ...] = (),
    below: Sequence[str] = (),
    written: Callable[[], object] = lambda: None,
) -> Iterator[Block]:
    """Create the mapping `name` (and those in `below`) with the command `create`, and yield its device."""
    with _created([*below, name], context, *create, fds=fds) as devices:
        if name not in devices:
            raise FileNotFoundError(errno.ENOENT, f"{create[0]} did not create the mapping", name)
        yield block(context.machine, name, devices[name], written)


@contextlib.contextmanager
def slices(name: str, context: BuildContext, below: Block, extents: Sequence[tuple[int, int]]) -> Iterator[list[Block]]:
    """Turn parts of a device into devices, given by first sector and length."""
    tables = {
        f"{name}-{number}": f"0 {length} linear {below.path} {start}" for number, (start, length) in enumerate(extents)
    }
    # One command creates them all: name, UUID, minor number, mode, table.
    concise = ";".join(f"{part},,,rw,{text}" for part, text in tables.items())
    with _created(list(tables), context, "dmsetup", "create", "--concise", concise) as devices:
        yield [block(context.machine, part, devices[part], _cache_dropper(below)) for part in tables]


def _cache_dropper(below: Block) -> Callable[[], None]:
    """Return a function that drops the page cache of `below`, which does not see writes through a mapping."""

    def written() -> None:
        below.machine.forget_cache(below.path)
        below.written()

    return written


# -- kinds of layers ---------------------------------------------------------------------------------------------------


class Key(NamedTuple):
    """The key options for a tool, and the descriptors that it reads."""

    words: list[str]
    fds: tuple[int, ...] = ()


@dataclass(frozen=True)
class MapperLayer(BlockLayer):
    """A device-mapper device on the device below."""

    leaves: ClassVar[tuple[Kind, ...]] = (MAPPING,)
    gives: ClassVar = Block
    #: The kernel's name of the target, if it differs from the layer's.
    target: ClassVar[str] = ""

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper(self.target or self.name), DMSETUP]


@dataclass(frozen=True)
class TableLayer(MapperLayer):
    """A mapping with a single table, which does not change the contents of the device below."""

    def table(self, below: Block) -> str:
        """Return the table: start, length, target and its parameters. Raises OSError."""
        raise NotImplementedError

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Block]:
        name = context.name(self.name)
        words = "dmsetup", "create", name, "--table", self.table(below)
        with mapping(name, context, *words, written=_cache_dropper(below)) as place:
            yield place


@dataclass(frozen=True)
class KeyedLayer(ToolLayer, MapperLayer):
    """A mapping that a tool of cryptsetup opens. The key's descriptor is closed before the mapping is used."""

    def key(self, context: BuildContext) -> AbstractContextManager[Key]:
        """Return the key options and their descriptors."""
        raise NotImplementedError

    def opening(self, key: list[str]) -> list[str]:
        """Return the options that open the mapping with a key."""
        raise NotImplementedError

    def parts(self, name: str) -> list[str]:
        """Return the names of additional mappings that the tool creates below this one."""
        return []

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Block]:
        name = context.name(self.name)
        with contextlib.ExitStack() as undo:
            with self.key(context) as key:
                words = [self.program.command, "--batch-mode", "open", *self.opening(key.words), str(below.path), name]
                place = mapping(name, context, *words, fds=key.fds, below=self.parts(name))
                block = undo.enter_context(place)
            yield block


# -- targets -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear(TableLayer):
    """dm-linear: the device below, or a part of it. It shows the cost of the device-mapper itself."""

    name: ClassVar = "linear"
    grammar: ClassVar = {"offset": SIZE, "size": SIZE}

    offset: str = option("0", "its beginning, such as 1M. 512 misaligns the layers above with the device's blocks")
    size: str = option("", "its length, such as 4G. Default: the rest of the device")

    def least_sizes(self, count: int) -> tuple[int, ...]:
        return ((self.size_of("offset") or 0) + (self.size_of("size") or SECTOR),) * count

    def check_options(self) -> None:
        for name in "offset", "size":
            size = self.size_of(name)
            if size is not None and (size % SECTOR or (name == "size" and not size)):
                raise OptionError(name, f"must be a multiple of 512 bytes (got {getattr(self, name)})")

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        start, size = self.size_of("offset") or 0, self.size_of("size")
        return (size,) if size else tuple(there - start for there in below)

    def table(self, below: Block) -> str:
        start, there = (self.size_of("offset") or 0) // SECTOR, below.sectors
        length = (self.size_of("size") or 0) // SECTOR or there - start
        if length <= 0 or start + length > there:
            raise OSError(f"{self} does not fit on {below.path}, which has {there * SECTOR} bytes")
        return f"0 {length} linear {below.path} {start}"


@dataclass(frozen=True)
class Delay(TableLayer):
    """dm-delay: every request waits. It makes a slow device of a fast one, or an effect of known size."""

    name: ClassVar = "delay"

    read: int = option(10, "delay of a read in milliseconds", least=0)
    write: int = option(10, "delay of a write in milliseconds", least=0)
    flush: int | None = option(None, "delay of a flush in milliseconds. The default is that of a write", least=0)

    def table(self, below: Block) -> str:
        times = [self.read, self.write, *([self.flush] if self.flush is not None else [])]
        words = " ".join(f"{below.path} 0 {milliseconds}" for milliseconds in times)
        return f"0 {below.sectors} delay {words}"


@dataclass(frozen=True)
class Flakey(TableLayer):
    """dm-flakey: a device that fails periodically, to check that a test notices.

    It works for `up` seconds and fails for `down` seconds, in turns from the time when it is opened. A remount opens it
    anew. While it is down, all requests fail unless an option changes that.
    """

    name: ClassVar = "flakey"
    grammar: ClassVar = {"features": Words(KEYWORD)}

    up: int = option(60, "seconds in which it works", least=0)
    down: int = option(5, "seconds in which it fails", least=0)
    drop_writes: bool = option(False, "while it is down, writes are lost without an error, and reads work")
    error_writes: bool = option(False, "while it is down, writes fail, and reads work")
    features: str = option("", "further features of dm-flakey's table, verbatim: 'corrupt_bio_byte 32 r 1 0'")

    def check_options(self) -> None:
        if not self.up + self.down:
            raise OptionError("down", "up and down cannot both be 0")
        if self.drop_writes and self.error_writes:
            raise OptionError("error_writes", "cannot be combined with drop_writes")

    def table(self, below: Block) -> str:
        features = [name for name in ("drop_writes", "error_writes") if getattr(self, name)]
        features += shlex.split(self.features)
        words = " ".join([str(below.path), "0", str(self.up), str(self.down), str(len(features)), *features])
        return f"0 {below.sectors} flakey {words}"
