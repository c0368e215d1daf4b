"""Layers that change nothing but the place: controls for what a layer costs by itself, and container files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers import loopback
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.needs import LOOP_DEVICES, KernelFilesystem, Need, Root
from pytest_fsstack.stack.model import Block, Directory, Layer, OptionError, Place, Site, option
from pytest_fsstack.stack.words import KEYWORD, MOUNT, OUTSIDE, SIZE, Directories
from pytest_fsstack.units import parse_size


@dataclass(frozen=True)
class Raw(Layer):
    """The block device as it is, without a filesystem."""

    name: ClassVar = "raw"
    example: ClassVar = "luks | raw"
    takes: ClassVar = (Block,)
    gives: ClassVar = Block

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Place]:
        yield below


@dataclass(frozen=True)
class PlainDirectory(Layer):
    """A new directory in the directory below: the baseline of stacked encryption, without root."""

    name: ClassVar = "directory"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    def create(self, below: Place, site: Site) -> None:
        (below.path / self.name).mkdir()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        yield Directory(below.path / self.name)


@dataclass(frozen=True)
class Bind(Layer):
    """A bind mount of a directory: what one more mount costs that does nothing."""

    leaves: ClassVar = (mounts.MOUNT,)
    name: ClassVar = "bind"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory

    def needs(self) -> list[Need]:
        return [Root("mounting")]

    def create(self, below: Place, site: Site) -> None:
        (below.path / "bind").mkdir()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        target = site.mountpoint(self.name, depth)
        with site.journal.entry(mounts.MOUNT, target=str(target)):
            commands.run("mount", "--bind", below.path / "bind", target)
            try:
                yield Directory(target)
            finally:
                mounts.unmount(target)


@dataclass(frozen=True)
class Overlay(Layer):
    """An overlay mount, as containers have it: what is written goes to an upper directory in the directory below.

    What shows through is either on the machine already or on the stack itself: `lower='app:base'` makes two empty
    directories in the directory below, to be filled at `fsstack.below`; `fsstack.remount()` then shows what is in them.
    """

    leaves: ClassVar = (mounts.MOUNT,)
    name: ClassVar = "overlay"
    example: ClassVar = "ext4 | overlay(lower='/usr')"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Directory
    grammar: ClassVar = {
        "lower": Directories(),
        "mount": MOUNT | {"lowerdir* upperdir* workdir* datadir*": OUTSIDE, "index metacopy nfs_export xino": KEYWORD},
    }

    lower: str = option(
        "",
        "the directory that shows through, or several with colons between, the topmost first: absolute, or a name in "
        "the directory below; by default an empty one",
    )
    mount: str = option("", "further mount options, verbatim, such as metacopy=on")

    def needs(self) -> list[Need]:
        return [Root("mounting"), KernelFilesystem("overlay")]

    def check_options(self) -> None:
        for path in self._lower:
            if not Path(path).is_absolute() and (path in (".", "..", "overlay") or "/" in path):
                raise OptionError("lower", f"must be absolute, or a name for a directory in the one below (got {path})")

    @property
    def _lower(self) -> list[str]:
        return [path for path in self.lower.split(":") if path]

    def create(self, below: Place, site: Site) -> None:
        for name in "lower", "upper", "work":
            (below.path / "overlay" / name).mkdir(parents=True)
        for name in self._lower:
            if not Path(name).is_absolute():
                (below.path / name).mkdir()

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        target = site.mountpoint(self.name, depth)
        # Relative, because what is above may hold commas and colons, which kernels and tools unescape in several ways.
        lower = [path if Path(path).is_absolute() else f"../{path}" for path in self._lower]
        options = [
            f"lowerdir={':'.join(lower) or 'lower'}",
            "upperdir=upper",
            "workdir=work",
            *([self.mount] if self.mount else []),
        ]
        with (
            site.journal.entry(mounts.MOUNT, target=str(target)),
            mounts.mounted("overlay", target, "overlay", ",".join(options), cwd=below.path / "overlay"),
        ):
            yield Directory(target)


@dataclass(frozen=True)
class Loop(Layer):
    """A container file in the directory below, as a block device."""

    name: ClassVar = "loop"
    example: ClassVar = "ext4 | loop(size='2G') | luks | ext4"
    takes: ClassVar = (Directory,)
    gives: ClassVar = Block
    grammar: ClassVar = {"size": SIZE}

    size: str = option("", "size of the sparse file, such as 2G; by default 90 % of what is free")
    direct_io: bool = option(True, "bypass the page cache of the filesystem below, if it can")

    def needs(self) -> list[Need]:
        return [Root("attaching a loop device"), LOOP_DEVICES]

    def check_options(self) -> None:
        if self.size:
            try:
                parse_size(self.size)
            except ValueError as error:
                raise OptionError("size", str(error)) from None

    def create(self, below: Place, site: Site) -> None:
        status = os.statvfs(below.path)
        size = parse_size(self.size) if self.size else status.f_bavail * status.f_frsize * 9 // 10
        with open(self._image(below), "xb") as image:
            image.truncate(size // 4096 * 4096)

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Block]:
        with (
            open(self._image(below), "r+b") as image,
            loopback.attached(image.fileno(), self.direct_io) as block,
        ):
            yield block

    def _image(self, below: Place) -> Path:
        return below.path / "container.img"
