"""Mappings of the device-mapper, and the layers that are a single target of it: linear, delay, flakey.

A mapping is marked for deferred removal as soon as it is held open here: when this process dies, also by SIGKILL, the
kernel unmounts what stands on it and then removes it, and those that it stood on.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import blockdev, commands, journal, mounts
from pytest_fsstack.machine.journal import Facts, Kind
from pytest_fsstack.machine.needs import DMSETUP, DeviceMapper, Need, Root
from pytest_fsstack.stack.model import Block, Layer, OptionError, Place, Site, option
from pytest_fsstack.stack.words import KEYWORD, SIZE, Words
from pytest_fsstack.units import parse_size

#: Bytes; all that the device-mapper counts is in these.
SECTOR = 512

SYS = Path("/sys")


# -- mappings ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def held(ours: Callable[[str], bool], make: Callable[[], object]) -> Iterator[dict[str, Path]]:
    """Hold what mappings `make` makes, of the names that are `ours`: yields their /dev/dm-N by name, and removes them.

    The journal must have them already. Raises `commands.CommandError`, and OSError where somebody else still uses one.
    """
    with removed_on_error(ours), contextlib.ExitStack() as opening:
        make()
        found = mappings(ours)
        for device in found.values():
            opening.callback(os.close, os.open(device, os.O_RDONLY | os.O_CLOEXEC))
        _remove(found)
        hold = opening.pop_all()
    try:
        yield found
    finally:
        hold.close()
        _wait_for_the_end(found)


@contextlib.contextmanager
def removed_on_error(ours: Callable[[str], bool]) -> Iterator[None]:
    """Where an error passes, remove the mappings of these names: a tool may have failed after it had made some."""
    try:
        yield
    except BaseException:
        if left := mappings(ours):
            _remove(left)
            _wait_for_the_end(left)
        raise


def _remove(mappings: Mapping[str, Path]) -> None:
    """Each goes once it has no user left: those that nobody uses at once, and then those that they stood on."""
    commands.run("dmsetup", "remove", "--deferred", *mappings, env=commands.mapper_environment())


def _wait_for_the_end(mappings: Mapping[str, Path]) -> None:
    def left() -> dict[str, Path]:
        return {name: device for name, device in mappings.items() if _name(device) in (name, _ENDING)}

    if not commands.wait_until(lambda: not left(), 15.0):
        for name, device in left().items():
            raise OSError(f"{device} ({name}) is still {mounts.in_use(device)}")


_ENDING = ""


def _name(device: Path) -> str | None:
    """The name of the mapping that is /dev/dm-N now: `_ENDING` while the kernel takes one apart, None without one."""
    try:
        return (SYS / "block" / device.name / "dm/name").read_text().strip()
    except OSError as error:
        # drivers/md/dm-sysfs.c: what is below is still in use then. The file goes after that.
        return _ENDING if error.errno == errno.EINVAL else None


def mappings(ours: Callable[[str], bool]) -> dict[str, Path]:
    """The /dev/dm-N of each mapping whose name is ours."""
    devices = [Path("/dev", shown.name) for shown in (SYS / "block").glob("dm-*")]
    return {name: device for device in devices if (name := _name(device)) and ours(name)}


def _left(facts: Facts) -> bool:
    return bool(mappings(journal.text(facts, "name").__eq__))


def _removed(facts: Facts) -> str:
    name = journal.text(facts, "name")
    commands.run("dmsetup", "remove", name, env=commands.mapper_environment())
    return f"removed the device-mapper device {name}"


MAPPING = Kind("dm", _left, _removed)


def block(name: str, device: Path, written: Callable[[], object] = lambda: None) -> Block:
    """The place that a mapping is; it may be written to as long as it is that mapping."""

    def check() -> None:
        if _name(device) != name:
            raise OSError(f"{device} is not this session's {name} any more; nothing was written to it")

    return Block(device, check, written)


@contextlib.contextmanager
def mapping(
    name: str,
    site: Site,
    *create: str | os.PathLike[str],
    fds: tuple[int, ...] = (),
    below: Sequence[str] = (),
    written: Callable[[], object] = lambda: None,
) -> Iterator[Block]:
    """Make the mapping `name` with the command `create`, which makes those of `below` too, and yield its device."""
    with contextlib.ExitStack() as undo:
        names = [*below, name]
        for each in names:
            undo.enter_context(site.journal.entry(MAPPING, name=each))
        run = functools.partial(commands.run, *create, fds=fds, env=commands.mapper_environment())
        found = undo.enter_context(held(names.__contains__, run))
        if name not in found:
            raise FileNotFoundError(errno.ENOENT, f"{create[0]} made no such mapping", name)
        yield block(name, found[name], written)


def table(name: str, site: Site, text: str, below: Block) -> contextlib.AbstractContextManager[Block]:
    """The mapping `name` of one table, on `below`: it shows the bytes there as they are."""
    return mapping(name, site, "dmsetup", "create", name, "--table", text, written=_seen_on(below))


@contextlib.contextmanager
def slices(name: str, site: Site, below: Block, extents: Sequence[tuple[int, int]]) -> Iterator[list[Block]]:
    """Parts of a device as devices of their own, each from its first sector and as many long."""
    tables = {
        f"{name}-{number}": f"0 {length} linear {below.path} {start}" for number, (start, length) in enumerate(extents)
    }
    # One command makes them all; name, UUID, minor number, mode, table.
    concise = ";".join(f"{each},,,rw,{text}" for each, text in tables.items())
    with contextlib.ExitStack() as undo:
        for each in tables:
            undo.enter_context(site.journal.entry(MAPPING, name=each))
        create = functools.partial(
            commands.run, "dmsetup", "create", "--concise", concise, env=commands.mapper_environment()
        )
        found = undo.enter_context(held(tables.__contains__, create))
        yield [block(each, found[each], _seen_on(below)) for each in tables]


def _seen_on(below: Block) -> Callable[[], None]:
    """What tells `below` that it was written to: by way of a mapping, which its own page cache knows nothing of."""

    def written() -> None:
        with blockdev.opened(below.path, below.number) as fd:
            blockdev.forget_cache(fd)
        below.written()

    return written


def sectors(place: Block) -> int:
    """The size of a device."""
    return int(Path("/sys/dev/block", place.number, "size").read_text())


# -- targets -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Linear(Layer):
    """dm-linear: the device below, or a part of it. What the device-mapper costs by itself."""

    leaves: ClassVar = (MAPPING,)
    name: ClassVar = "linear"
    takes: ClassVar = (Block,)
    gives: ClassVar = Block
    grammar: ClassVar = {"offset": SIZE, "size": SIZE}

    offset: str = option("0", "where it begins, such as 1M; with 512 nothing above is aligned to the device's blocks")
    size: str = option("", "how long it is, such as 4G; by default it ends where the device below does")

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper("linear"), DMSETUP]

    def check_options(self) -> None:
        for name, text in ("offset", self.offset), ("size", self.size or "512"):
            try:
                size = parse_size(text)
            except ValueError as error:
                raise OptionError(name, str(error)) from None
            if size % SECTOR or (name == "size" and not size):
                raise OptionError(name, f"must be a multiple of 512 bytes (got {text})")

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        below.wipe()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Block]:
        assert isinstance(below, Block)
        start, there = parse_size(self.offset) // SECTOR, sectors(below)
        length = parse_size(self.size) // SECTOR if self.size else there - start
        if length <= 0 or start + length > there:
            raise OSError(f"{self} does not fit on {below.path}, which has {there * SECTOR} bytes")
        with table(site.name(f"{depth}-linear"), site, f"0 {length} linear {below.path} {start}", below) as place:
            yield place


@dataclass(frozen=True)
class Delay(Layer):
    """dm-delay: every request waits. A slow device made of a fast one, and a difference of known size to find."""

    leaves: ClassVar = (MAPPING,)
    name: ClassVar = "delay"
    takes: ClassVar = (Block,)
    gives: ClassVar = Block

    read: int = option(10, "milliseconds that a read waits")
    write: int = option(10, "milliseconds that a write waits")
    flush: int | None = option(None, "milliseconds that a flush waits; by default as a write")

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper("delay"), DMSETUP]

    def check_options(self) -> None:
        for name in "read", "write", "flush":
            if (getattr(self, name) or 0) < 0:
                raise OptionError(name, f"must be a number of milliseconds (got {getattr(self, name)})")

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        below.wipe()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Block]:
        assert isinstance(below, Block)
        times = [self.read, self.write, *([self.flush] if self.flush is not None else [])]
        words = " ".join(f"{below.path} 0 {milliseconds}" for milliseconds in times)
        with table(site.name(f"{depth}-delay"), site, f"0 {sectors(below)} delay {words}", below) as place:
            yield place


@dataclass(frozen=True)
class Flakey(Layer):
    """dm-flakey: a device that fails now and then, to see that a test notices.

    It works for `up` seconds and fails for `down`, in turns from when it is opened, which a remount does anew. While it
    is down all requests fail, unless an option says what happens instead.
    """

    leaves: ClassVar = (MAPPING,)
    name: ClassVar = "flakey"
    takes: ClassVar = (Block,)
    gives: ClassVar = Block
    grammar: ClassVar = {"features": Words(KEYWORD)}

    up: int = option(60, "seconds during which it works")
    down: int = option(5, "seconds during which it does not")
    drop_writes: bool = option(False, "while it is down, forget what is written and say nothing; reads work")
    error_writes: bool = option(False, "while it is down, writes fail; reads work")
    features: str = option("", "further features, verbatim, as dm-flakey's table has them: 'corrupt_bio_byte 32 r 1 0'")

    def needs(self) -> list[Need]:
        return [Root("device-mapper"), DeviceMapper("flakey"), DMSETUP]

    def check_options(self) -> None:
        for name in "up", "down":
            if getattr(self, name) < 0:
                raise OptionError(name, f"must be a number of seconds (got {getattr(self, name)})")
        if not self.up + self.down:
            raise OptionError("down", "up and down cannot both be 0")
        if self.drop_writes and self.error_writes:
            raise OptionError("error_writes", "does not go with drop_writes")

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        below.wipe()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Block]:
        assert isinstance(below, Block)
        features = [name for name in ("drop_writes", "error_writes") if getattr(self, name)]
        features += shlex.split(self.features)
        words = " ".join([str(below.path), "0", str(self.up), str(self.down), str(len(features)), *features])
        with table(site.name(f"{depth}-flakey"), site, f"0 {sectors(below)} flakey {words}", below) as place:
            yield place
