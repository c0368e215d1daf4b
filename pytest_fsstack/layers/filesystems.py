"""Filesystems on a block device, and tmpfs.

None of them discards blocks, at mkfs or while mounted, unless the user's options say so: some do by default and some do
not, and it shrinks a sparse file behind the back of a measurement.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack import host
from pytest_fsstack.needs import KernelFilesystem, Need, Root, Tool
from pytest_fsstack.stack import Block, Directory, Layer, OptionError, Place, Site, option


@dataclass(frozen=True)
class Filesystem(Layer):
    """A filesystem of the kernel: mkfs, mount, unmount."""

    takes: ClassVar = (Block,)
    gives: ClassVar = Directory
    tool: ClassVar[Tool]
    #: Always passed to mkfs: quiet, overwrite, no discard.
    always: ClassVar[tuple[str, ...]]

    mkfs: str = option("", "options of mkfs, verbatim")
    mount: str = option("", "mount options, verbatim")

    def needs(self) -> list[Need]:
        return [Root("mounting"), KernelFilesystem(self.name), self.tool]

    def mkfs_words(self) -> list[str]:
        """The options for mkfs: ours, then the user's, which win where both speak."""
        return [*self.always, *shlex.split(self.mkfs)]

    def mount_words(self) -> list[str]:
        """The mount options."""
        return [self.mount] if self.mount else []

    def check_options(self) -> None:
        try:
            shlex.split(self.mkfs)
        except ValueError as error:
            raise OptionError("mkfs", f"mkfs is not a command line: {error}") from None

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        below.overwrite(self.tool.command, *self.mkfs_words())

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        target = site.mountpoint(self.name, depth)
        with (
            site.journal.entry("mount", target=str(target)),
            host.mounted(below.path, target, self.name, ",".join(self.mount_words())),
        ):
            yield Directory(target)


@dataclass(frozen=True)
class _Ext(Filesystem):
    always: ClassVar = ("-q", "-F")
    #: Background initialisation after the mount would fall into the measurement (65 MB in the first 12 s, seen).
    extended: ClassVar = ("lazy_itable_init=0", "lazy_journal_init=0", "nodiscard")

    def mkfs_words(self) -> list[str]:
        # mke2fs obeys the last -E only, so ours and the user's must become one.
        words = shlex.split(self.mkfs)
        given: list[str] = []
        rest: list[str] = []
        while words:
            word = words.pop(0)
            if word == "-E" and words:
                given += words.pop(0).split(",")
            elif word.startswith("-E") and len(word) > 2:
                given += word[2:].split(",")
            else:
                rest.append(word)
        keys = {item.partition("=")[0].removeprefix("no") for item in given}
        ours = [item for item in self.extended if item.partition("=")[0].removeprefix("no") not in keys]
        return [*self.always, "-E", ",".join([*ours, *given]), *rest]


def _e2fsprogs(command: str) -> Tool:
    return Tool(command, "e2fsprogs")


@dataclass(frozen=True)
class Ext2(_Ext):
    """The ext2 filesystem, without a journal."""

    name: ClassVar = "ext2"
    tool: ClassVar = _e2fsprogs("mkfs.ext2")


@dataclass(frozen=True)
class Ext3(_Ext):
    """The ext3 filesystem: ext2 with a journal."""

    name: ClassVar = "ext3"
    tool: ClassVar = _e2fsprogs("mkfs.ext3")


@dataclass(frozen=True)
class Ext4(_Ext):
    """The ext4 filesystem, initialised completely at mkfs unless `mkfs` says otherwise."""

    name: ClassVar = "ext4"
    tool: ClassVar = _e2fsprogs("mkfs.ext4")


@dataclass(frozen=True)
class Xfs(Filesystem):
    """The XFS filesystem; it needs a device of 300 MB."""

    name: ClassVar = "xfs"
    tool: ClassVar = Tool("mkfs.xfs", "xfsprogs")
    always: ClassVar = ("-q", "-f", "-K")


@dataclass(frozen=True)
class Btrfs(Filesystem):
    """The Btrfs filesystem."""

    name: ClassVar = "btrfs"
    tool: ClassVar = Tool("mkfs.btrfs", "btrfs-progs", {"zypper": "btrfsprogs"})
    always: ClassVar = ("-q", "-f", "-K")

    compress: str | None = option(None, "compression: zlib, lzo or zstd, with a level as in zstd:3")

    def check_options(self) -> None:
        super().check_options()
        if self.compress is not None:
            method, _, level = self.compress.partition(":")
            if method not in ("zlib", "lzo", "zstd") or (level and not level.isdecimal()):
                raise OptionError("compress", f"compress must be zlib, lzo or zstd (or zstd:3), not {self.compress!r}")

    def mount_words(self) -> list[str]:
        # Since Linux 6.2 it discards in the background where the device can.
        discard = [] if "discard" in self.mount else ["nodiscard"]
        return [*discard, *([f"compress={self.compress}"] if self.compress else []), *super().mount_words()]


@dataclass(frozen=True)
class Tmpfs(Layer):
    """Memory, whatever is below: what the machine can do without a device."""

    name: ClassVar = "tmpfs"
    volatile: ClassVar = True
    takes: ClassVar = (Block, Directory)
    gives: ClassVar = Directory

    mount: str = option("", "mount options, verbatim, such as size=2G")

    def needs(self) -> list[Need]:
        return [Root("mounting"), KernelFilesystem("tmpfs")]

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        target = site.mountpoint(self.name, depth)
        with (
            site.journal.entry("mount", target=str(target)),
            host.mounted("tmpfs", target, "tmpfs", self.mount),
        ):
            yield Directory(target)
