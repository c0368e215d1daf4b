"""Layers without a transformation: controls, directories, overlays and container files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.needs import LOOP_DEVICES, KernelFilesystem, Root
from pytest_fsstack.stack.layer import BlockLayer, DirectoryLayer, Limit, OptionError, Sized, Spread, option
from pytest_fsstack.stack.places import Block, BuildContext, Directory, Place, PlaceType, Pool
from pytest_fsstack.stack.words import KEYWORD, MOUNT, OUTSIDE, SIZE, Directories

#: They show the data below unchanged, including corrupted bytes.
_SHOWS_ALL = dict.fromkeys((Limit.CHECKSUMS, Limit.NAME_CHECKSUMS), "it shows what is below")


@dataclass(frozen=True)
class Raw(BlockLayer):
    """The block device as it is, without a filesystem."""

    name: ClassVar = "raw"
    example: ClassVar = "luks | raw"
    gives: ClassVar[PlaceType] = Block

    def create(self, below: Block, context: BuildContext) -> None:
        """Do nothing."""

    def opened(self, below: Block, context: BuildContext) -> AbstractContextManager[Place]:
        return contextlib.nullcontext(below)


@dataclass(frozen=True)
class PoolOfDevices(Spread, Raw):
    """Several devices of the session for a layer that takes more than one: `pool(2) | btrfs(data='raid1')`.

    A session makes that many loop or ram devices. Real ones are named as one group
    (`--fsstack-device=/dev/sdb+/dev/sdc`). The stack gets the first ones of the group, and writes to no others.
    """

    name: ClassVar = "pool"
    example: ClassVar = "pool(2) | btrfs(data='raid1', metadata='raid1')"
    gives: ClassVar = Pool
    counts: ClassVar = "devices"

    devices: int = option(2, "number of devices", least=2)

    @property
    def members(self) -> int:
        return self.devices

    @property
    def label(self) -> str:
        return f"{self.name}-{self.devices}"

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        return below

    def __str__(self) -> str:
        return f"{self.name}({self.devices})"


@dataclass(frozen=True)
class PlainDirectory(DirectoryLayer):
    """A new directory in the directory below: the baseline of stacked encryption, without root."""

    name: ClassVar = "directory"
    limits: ClassVar = _SHOWS_ALL

    def opened(self, below: Directory, context: BuildContext) -> AbstractContextManager[Directory]:
        return contextlib.nullcontext(Directory(self.own_directory(below)))


@dataclass(frozen=True)
class Bind(DirectoryLayer):
    """A bind mount of a directory. It shows the cost of one more mount."""

    leaves: ClassVar = (mounts.MOUNT,)
    name: ClassVar = "bind"
    requires: ClassVar = (Root("mounting"),)
    limits: ClassVar = _SHOWS_ALL

    def opened(self, below: Directory, context: BuildContext) -> AbstractContextManager[Directory]:
        return context.mounted(self.name, self.own_directory(below), options="bind")


@dataclass(frozen=True)
class Overlay(DirectoryLayer):
    """An overlay mount, as of containers. Writes go to an upper directory in the directory below.

    The lower directories are on the machine or on the stack itself. `lower='app:base'` makes two empty directories in
    the directory below. Fill them at `fsstack.below`, and call `fsstack.remount()` to see their contents. If the place
    below is a read-only image, such as `squashfs`, it is the lowest directory, and writes go to the place below it.
    """

    leaves: ClassVar = (mounts.MOUNT,)
    name: ClassVar = "overlay"
    requires: ClassVar = (Root("mounting"), KernelFilesystem("overlay"))
    limits: ClassVar = _SHOWS_ALL
    example: ClassVar = "ext4 | overlay(lower='/usr')"
    grammar: ClassVar = {
        "lower": Directories(),
        "mount": MOUNT | {"lowerdir* upperdir* workdir* datadir*": OUTSIDE, "index metacopy nfs_export xino": KEYWORD},
    }

    lower: str = option(
        "",
        "the lower directory, or several with colons between, the topmost first: absolute, or a name in the directory "
        "below. The default is an empty one",
    )
    mount: str = option("", "further mount options, verbatim, such as metacopy=on")

    def check_options(self) -> None:
        for path in self._lower:
            if not Path(path).is_absolute() and (path in (".", "..", "overlay") or "/" in path):
                raise OptionError("lower", f"must be absolute, or a name for a directory in the one below (got {path})")
        # Documentation/filesystems/overlayfs.rst of Linux; newer kernels have fsync=volatile.
        if word := next((item for item in self.mount.split(",") if item.strip() in ("volatile", "fsync=volatile")), ""):
            raise OptionError(
                "mount", f"{word} leaves an upper directory that cannot be mounted again, as cold steps do"
            )

    @property
    def _lower(self) -> list[str]:
        return [path for path in self.lower.split(":") if path]

    def create(self, below: Directory, context: BuildContext) -> None:
        directories = [Path("overlay", name) for name in ("lower", "upper", "work")]
        for directory in [*directories, *(Path(name) for name in self._lower if not Path(name).is_absolute())]:
            context.machine.mkdir((below.writable or below.path) / directory, parents=True)

    def opened(self, below: Directory, context: BuildContext) -> AbstractContextManager[Directory]:
        # Relative paths, because directory names may contain commas and colons, which kernels and tools unescape
        # differently.
        lower = [path if Path(path).is_absolute() else f"../{path}" for path in self._lower]
        base = below.path
        if below.writable:
            base = below.writable
            lower = [*lower, os.path.relpath(below.path.resolve(), base.resolve() / self.name)]
        options = [f"lowerdir={':'.join(lower) or 'lower'}", "upperdir=upper", "workdir=work"]
        options += [self.mount] if self.mount else []
        return context.mounted(self.name, "overlay", "overlay", ",".join(options), cwd=base / self.name)


@dataclass(frozen=True)
class Loop(Sized):
    """A container file in the directory below, as a block device."""

    name: ClassVar = "loop"
    requires: ClassVar = (Root("attaching a loop device"), LOOP_DEVICES)
    limits: ClassVar = _SHOWS_ALL
    example: ClassVar = "ext4 | loop(size='2G') | luks | ext4"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Block
    grammar: ClassVar = {"size": SIZE}

    size: str = option("", "size of the sparse file, such as 2G. The default is 90 % of the free space")
    direct_io: bool = option(True, "bypass the page cache of the filesystem below, if it can")

    def check_options(self) -> None:
        if (size := self.size_of("size")) is not None and size < 4096:
            raise OptionError("size", f"must be at least 4096 bytes (got {self.size})")

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        size = self.size_of("size")
        return (size,) if size else tuple(free * 9 // 10 for free in super().sizes_above(*below))

    def create(self, below: Directory, context: BuildContext) -> None:
        size = self.size_of("size") or context.machine.free(below.path) * 9 // 10
        context.machine.make_file(self._image(below), size=size // 4096 * 4096)

    @contextlib.contextmanager
    def opened(self, below: Directory, context: BuildContext) -> Iterator[Block]:
        with (
            open(self._image(below), "r+b") as image,
            context.machine.attached(image.fileno(), direct_io=self.direct_io) as loop,
        ):
            yield Block.on_loop(loop, context.machine)

    def _image(self, below: Directory) -> Path:
        return below.path / "container.img"
