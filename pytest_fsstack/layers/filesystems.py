"""Filesystems on a block device, and tmpfs.

None of them discards blocks, at mkfs or while mounted, unless the user's options ask for it. Defaults differ, and a
discard would shrink a sparse file during a measurement.
"""

from __future__ import annotations

import contextlib
import errno
import shlex
import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.layers.stacked import served
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.journal import Kind
from pytest_fsstack.machine.needs import FUSE, KernelFilesystem, Need, Root, Tool
from pytest_fsstack.machine.orphans import DAEMON
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.layer import BlockLayer, Limit, OptionError, PoolLayer, Provides, Sized, Spread, option
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Directory, Place
from pytest_fsstack.stack.program import ToolLayer
from pytest_fsstack.stack.words import (
    FLAG,
    FUSE_MOUNT,
    INSIDE,
    KEYWORD,
    KEYWORDS,
    MOUNT,
    NUMBER,
    OUTSIDE,
    SIZE,
    TEXT,
    CommandLine,
    Grammar,
    Items,
    Refused,
)

_KIB, _MIB = 1 << 10, 1 << 20

#: Writes the journal back (EXT4_IOC_CHECKPOINT in include/uapi/linux/ext4.h). The argument has flags.
_EXT4_IOC_CHECKPOINT, _NO_FLAGS = 0x4004662B, bytes(4)
#: Frees preallocated blocks of closed files, and waits until deleted files are freed (XFS_IOC_FREE_EOFBLOCKS in
#: fs/xfs/libxfs/xfs_fs.h, with struct xfs_fs_eofblocks: version 1, no flags, all files).
_XFS_IOC_FREE_EOFBLOCKS = 0x8080583A
_XFS_EOFBLOCKS = struct.pack("=IIIII108x", 1, 0, 0, 0, 0)


@dataclass(frozen=True)
class Filesystem(ToolLayer, Provides, BlockLayer):
    """A filesystem of the kernel: mkfs, mount, unmount."""

    leaves: ClassVar[tuple[Kind, ...]] = (mounts.MOUNT,)
    gives: ClassVar = Directory
    #: Always passed to mkfs: quiet, overwrite, no discard.
    always: ClassVar[tuple[str, ...]] = ()
    #: Options of mkfs that change how small the device can be. With one of them, `smallest` does not apply.
    sizing: ClassVar[tuple[str, ...]] = ()
    #: The kernel's name, if it differs from the layer's.
    driver: ClassVar[str] = ""
    #: Its history, if current kernels have dropped it.
    removal: ClassVar[str] = ""
    #: The checker from mkfs's package, with options for a read-only check. Empty if there is none.
    checker: ClassVar[tuple[str, ...]] = ()
    #: Mount options that are set unless the user's mount options have their key in them.
    defaults: ClassVar[Mapping[str, str]] = {}
    #: The mount option for each further device, such as that of the log, and the checker's option for it.
    device_option: ClassVar[str] = ""
    checked_device: ClassVar[str] = ""
    grammar: ClassVar[Mapping[str, Grammar]] = {"mkfs": CommandLine({}), "mount": MOUNT}

    mkfs: str = option("", "options of mkfs, verbatim")
    mount: str = option("", "mount options, verbatim")

    def needs(self) -> list[Need]:
        kernel = KernelFilesystem(self.driver or self.name, removal=self.removal)
        return [Root("mounting"), kernel, *super().needs()]

    def least_sizes(self, count: int) -> tuple[int, ...]:
        changed = any(word.startswith(self.sizing) for word in shlex.split(self.mkfs)) if self.sizing else False
        return (0,) * count if changed else super().least_sizes(count)

    def mkfs_choices(self) -> list[str]:
        """Return the options for mkfs that the layer's other options stand for."""
        return []

    def mount_choices(self) -> list[str]:
        """Return the mount options that the layer's other options stand for."""
        return []

    def mkfs_words(self) -> list[str]:
        """Return the options for mkfs: the plugin's, then the user's, which take precedence."""
        return [*self.always, *self.mkfs_choices(), *shlex.split(self.mkfs)]

    def mount_words(self) -> list[str]:
        """Return the mount options, in the same order."""
        defaults = [default for key, default in self.defaults.items() if key not in self.mount]
        return [*defaults, *self.mount_choices(), *([self.mount] if self.mount else [])]

    def with_features(self, words: list[str], wanted: Iterable[str]) -> list[str]:
        """Return the options for mkfs, extended by the features that layers above need."""
        added = [name for feature in wanted for name in self.provides[feature]]
        return [*words, "-O", ",".join(added)] if added else words

    def create(self, below: Block, context: BuildContext) -> None:
        below.overwrite(self.program.command, *self.with_features(self.mkfs_words(), context.required_features))

    def fsck(self, below: Block, context: BuildContext) -> CheckResult | None:
        if not self.checker:
            return None
        device, *further = context.remaining(below)
        tool, *words = self.checker
        logs = [word for part in further if self.checked_device for word in (self.checked_device, part.path)]
        return CheckResult.of(*context.machine.ended(self.beside(Tool(tool)).command, *words, *logs, device.path))

    def opened(self, below: Block, context: BuildContext) -> AbstractContextManager[Directory]:
        device, *further = context.remaining(below)
        degraded = ["degraded"] if context.lost_device is not None else []
        words = [*self.mount_words(), *degraded, *(f"{self.device_option}={part.path}" for part in further)]
        return context.mounted(self.name, device.path, self.driver or self.name, ",".join(words))


@dataclass(frozen=True)
class _Logged(Spread, Filesystem):
    """A filesystem that can have its log on another device."""

    #: The bytes of the smallest device for the log.
    smallest_log: ClassVar[int] = 0

    external_log: bool = option(False, "put the log onto a second device of the session. It is the lowest layer then")

    @property
    def members(self) -> int:
        return 2 if self.external_log else 1

    def least_sizes(self, count: int) -> tuple[int, ...]:
        data = super().least_sizes(1)
        return (*data, self.smallest_log) if self.external_log else data

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        return below[:1]

    def make_logged(self, data: Block, log: Block, words: list[str]) -> None:
        """Format with these options of mkfs, and with the log on the second device."""
        raise NotImplementedError

    def create(self, below: Block, context: BuildContext) -> None:
        if self.external_log:
            data, log = below.parts
            self.make_logged(data, log, self.with_features(self.mkfs_words(), context.required_features))
        else:
            super().create(below, context)


@dataclass(frozen=True)
class _Ext(Filesystem):
    always: ClassVar = ("-q", "-F")
    checker: ClassVar = ("e2fsck", "-f", "-n")
    superblock: ClassVar = range(1024, 2048)
    #: Initialisation in the background would run during the measurement (65 MB in the first 12 s, measured).
    extended: ClassVar = ("lazy_itable_init=0", "lazy_journal_init=0", "nodiscard")
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-c -D -F -j -K -n -q -S -v -V": FLAG,
                "-b -C -g -G -i -I -m -N -r": SIZE,
                "-e -o -t -T -U": KEYWORD,
                "-L -M": TEXT,
                "-O -R": KEYWORDS,
                "-J": Items({"device": OUTSIDE, "size fast_commit_size location": SIZE}),
                "-E": Items(
                    {
                        "mount_opts": OUTSIDE,
                        "encoding encoding_flags hash_seed quotatype root_owner root_perms": KEYWORD,
                        "*": SIZE,
                    }
                ),
                "-d -l -z": OUTSIDE,
            }
        ),
        "mount": MOUNT
        | {
            "journal_dev journal_path": OUTSIDE,
            "jqfmt usrjquota grpjquota prjquota": KEYWORD,
            "commit resuid resgid sb inode_readahead_blks journal_ioprio max_batch_time min_batch_time": SIZE,
            "debug_want_extra_isize init_itable max_dir_size_kb mb_optimize_scan auto_da_alloc": SIZE,
        },
    }

    def mkfs_words(self) -> list[str]:
        # mke2fs only uses the last -E, so merge our options with the user's.
        further, extended = _without_option(shlex.split(self.mkfs), "-E")
        keys = {item.partition("=")[0].removeprefix("no") for item in extended}
        defaults = [item for item in self.extended if item.partition("=")[0].removeprefix("no") not in keys]
        # mke2fs chooses the filesystem by its own name, which may be mkfs.ext4-1.46.
        kind = ["-t", self.name] if self.binary else []
        return [*self.always, *kind, "-E", ",".join([*defaults, *extended]), *further]

    def check_wanted(self, feature: str) -> None:
        super().check_wanted(feature)
        _, features = _without_option(self.mkfs_words(), "-O")
        for name in self.provides[feature]:
            if f"^{name}" in features:
                raise OptionError("mkfs", f"{self.mkfs!r} disables it: leave ^{name} out")

    def with_features(self, words: list[str], wanted: Iterable[str]) -> list[str]:
        # mke2fs only uses the last -O as well.
        further, features = _without_option(words, "-O")
        added = [name for feature in wanted for name in self.provides[feature] if name not in features]
        return [*further, "-O", ",".join([*features, *added])] if added else words

    def checkpoint(self, place: Place, context: BuildContext) -> None:
        """Write the journal back. Until then it keeps metadata in memory: after unpacking a tree, `du` read nothing."""
        try:
            context.machine.ioctl(place.path, _EXT4_IOC_CHECKPOINT, _NO_FLAGS)
        except OSError as error:
            # There is no journal, or the kernel is older than 5.14, or has a driver of its own for ext2.
            if error.errno not in (errno.ENODEV, errno.ENOTTY):
                raise


def _without_option(words: list[str], option: str) -> tuple[list[str], list[str]]:
    """Remove a repeatable option from the words. Return the other words, and the option's comma-separated values."""
    words, remaining, values = list(words), [], []
    while words:
        word = words.pop(0)
        if word == option and words:
            values += words.pop(0).split(",")
        elif word.startswith(option) and len(word) > len(option):
            values += word[len(option) :].split(",")
        else:
            remaining.append(word)
    return remaining, values


def _no_fallocate(module: str) -> dict[Limit, str]:
    """Return the limits of a filesystem without fallocate in the kernel."""
    return dict.fromkeys((Limit.ALLOCATION, Limit.HOLES), f"fs/{module} of Linux: no fallocate")


#: Features that FAT directories cannot store (fs/fat, fs/exfat).
_FAT_LIMITS: dict[Limit, str] = dict.fromkeys(
    (
        *(Limit.HARD_LINKS, Limit.SYMBOLIC_LINKS, Limit.ATTRIBUTES, Limit.HOLES, Limit.SPARSE, Limit.MODES),
        Limit.CASES,
    ),
    "the on-disk format has no inodes",
) | {Limit.POWER_CUTS: "the on-disk format has no journal"}


def _e2fsprogs(command: str) -> Tool:
    return Tool(command, "e2fsprogs")


@dataclass(frozen=True)
class Ext2(_Ext):
    """The ext2 filesystem, without a journal."""

    name: ClassVar = "ext2"
    limits: ClassVar = {
        Limit.ALLOCATION: "fs/ext4/extents.c of Linux, which serves it: for files with extents only",
        Limit.HOLES: "fs/ext2/file.c of Linux, where that serves it: no fallocate",
        Limit.POWER_CUTS: "Documentation/filesystems/ext2.rst of Linux: no journal, so e2fsck repairs it after a crash",
    }
    tool: ClassVar = _e2fsprogs("mkfs.ext2")


@dataclass(frozen=True)
class Ext3(_Ext):
    """The ext3 filesystem: ext2 with a journal."""

    name: ClassVar = "ext3"
    #: On a smaller one, mkfs leaves out the journal, and the kernel does not mount it as ext3.
    smallest: ClassVar = 2 * _MIB
    sizing: ClassVar = ("-b", "-J", "-O")
    limits: ClassVar = {Limit.ALLOCATION: "fs/ext4/extents.c of Linux, which serves it: for files with extents only"}
    tool: ClassVar = _e2fsprogs("mkfs.ext3")


@dataclass(frozen=True)
class Ext4(_Logged, _Ext):
    """The ext4 filesystem. mkfs initialises it completely by default."""

    name: ClassVar = "ext4"
    smallest_log: ClassVar = 4 * _MIB
    device_option: ClassVar = "journal_path"
    checked_device: ClassVar = "-j"
    example: ClassVar = "ext4(mkfs='-b 4096 -E stride=128', mount='noatime')"
    tool: ClassVar = _e2fsprogs("mkfs.ext4")
    provides: ClassVar = {"encryption": ("encrypt", "stable_inodes")}

    def make_logged(self, data: Block, log: Block, words: list[str]) -> None:
        further, sizes = _without_option(words, "-b")
        # Both need the same block size, which mke2fs would choose by the size of the device.
        block = ["-b", sizes[-1] if sizes else "4096"]
        log.overwrite(self.program.command, "-q", "-F", *block, "-O", "journal_dev")
        log.check()
        data.overwrite(self.program.command, *further, *block, "-J", f"device={log.path}")
        log.verify()
        log.written()

    def limited(self) -> Mapping[Limit, str]:
        """Return the limits. With data=writeback, a crash may show old data in files that were not synced."""
        writeback = "data=writeback" in self.mount
        cuts = {Limit.POWER_CUTS: "Documentation/admin-guide/ext4.rst of Linux, data=writeback"} if writeback else {}
        return {**super().limited(), **cuts}


#: Seconds after which the kernel has begun to write inodes back.
_BEGINS = 0.01


@dataclass(frozen=True)
class Xfs(_Logged):
    """The XFS filesystem. It needs a device of 300 MiB, with the mkfs of xfsprogs before 5.19 one of 16 MiB."""

    name: ClassVar = "xfs"
    smallest: ClassVar = 300 * _MIB
    smallest_log: ClassVar = 64 * _MIB
    device_option: ClassVar = "logdev"
    checked_device: ClassVar = "-l"
    example: ClassVar = "xfs(mkfs='-m reflink=0')"
    tool: ClassVar = Tool("mkfs.xfs", "xfsprogs")
    checker: ClassVar = ("xfs_repair", "-n")
    #: fs/xfs/xfs_super.c: xfs_fs_sync_fs only forces the log, and a clean log is not written.
    always: ClassVar = ("-q", "-f", "-K")
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-f -K -N -q -V": FLAG,
                "-L": TEXT,
                "-b -d -i -l -m -n -r -s": Items({"name file logdev rtdev": OUTSIDE, "*": KEYWORD}),
                "-c -p": OUTSIDE,
            }
        ),
        "mount": MOUNT | {"logdev rtdev": OUTSIDE, "allocsize inode64 logbufs logbsize sunit swidth": SIZE},
    }

    def least_sizes(self, count: int) -> tuple[int, ...]:
        # Another mkfs may be that of xfsprogs before 5.19.
        return (16 * _MIB,) * count if self.binary else super().least_sizes(count)

    def make_logged(self, data: Block, log: Block, words: list[str]) -> None:
        data.overwrite(self.program.command, *words, "-l", f"logdev={log.path}", beside=[log])

    def sync(self, place: Place, context: BuildContext) -> None:
        """Write everything out. Since Linux 5.14, a worker frees deleted files, and syncfs does not wait for it."""
        try:
            context.machine.ioctl(place.path, _XFS_IOC_FREE_EOFBLOCKS, _XFS_EOFBLOCKS)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
        super().sync(place, context)

    def checkpoint(self, place: Place, context: BuildContext) -> None:
        """Write the inodes back that the log keeps in memory.

        A cache that is dropped makes the kernel begin with it (fs/xfs/xfs_icache.c: xfs_reclaim_inodes_nr), so that the
        next one can drop them. To freeze the filesystem would wait for it, but a session that is killed meanwhile would
        leave it frozen.
        """
        machine = context.machine
        try:
            machine.set(machine.sysctls / "vm/drop_caches", "2")
        except OSError:
            return  # the caches stay warm without root, which the session reports
        time.sleep(_BEGINS)
        mount = machine.mount_at(place.path)
        in_flight = machine.sysfs / "dev/block" / (mount.device if mount else "") / "inflight"
        machine.wait_until(lambda: not any(map(int, (machine.setting(in_flight) or "").split())), 10.0)

    def scrub(self, place: Place, below: Block, context: BuildContext) -> CheckResult | None:
        # This checks metadata. Kernels without CONFIG_XFS_ONLINE_SCRUB cannot do it.
        return scrubs.xfs(context.machine, place.path)


#: The profiles of Btrfs, with their minimum number of devices.
_PROFILES = {
    "single": 1,
    "dup": 1,
    "raid0": 2,
    "raid1": 2,
    "raid1c3": 3,
    "raid1c4": 4,
    "raid10": 2,
    "raid5": 2,
    "raid6": 3,
}


@dataclass(frozen=True)
class Btrfs(PoolLayer, Filesystem):
    """The Btrfs filesystem, on one device or on a pool of them."""

    name: ClassVar = "btrfs"
    sizing: ClassVar = ("-d", "-m", "-M", "--data", "--metadata", "--mixed")
    #: With single profiles. Others need more (`least_sizes`).
    smallest: ClassVar = 45 * _MIB
    superblock: ClassVar = range(64 << 10, 68 << 10)
    example: ClassVar = "btrfs(compress='zstd:3')"
    tool: ClassVar = Tool("mkfs.btrfs", "btrfs-progs", {"zypper": "btrfsprogs"})
    checker: ClassVar = ("btrfs", "check", "--readonly")
    always: ClassVar = ("-q", "-f", "-K")
    #: Since Linux 6.2, it discards in the background if the device supports that.
    defaults: ClassVar = {"discard": "nodiscard"}
    device_option: ClassVar = "device"
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-f --force -K --nodiscard -M --mixed -q --quiet -v --verbose -V --version --help --shrink": FLAG,
                "-A --alloc-start -b --byte-count -l --leafsize -n --nodesize -s --sectorsize": SIZE,
                "-d --data -m --metadata --csum --checksum -U --uuid --device-uuid": KEYWORD,
                "-O --features -R --runtime-features": KEYWORDS,
                "-L --label": TEXT,
                "-r --rootdir -u --subvol --inode-flags --reflink": OUTSIDE,
            }
        ),
        "mount": MOUNT
        | {
            "device": OUTSIDE,
            "subvol": INSIDE,
            "compress compress-force discard fatal_errors rescue space_cache": KEYWORD,
            "check_int_print_mask max_inline metadata_ratio subvolid thread_pool": SIZE,
        },
        "quota": SIZE,
    }

    compress: str | None = option(
        None, "compression, such as zstd:3", choices=("lzo",), levels={"zlib": range(1, 10), "zstd": range(1, 16)}
    )
    quota: str = option("", "limit of the quota group of all files, such as 64M. Beyond it, writing fails with EDQUOT")
    data: str | None = option(None, "profile of data, such as raid1 on a pool of 2 devices", choices=tuple(_PROFILES))
    metadata: str | None = option(None, "profile of metadata", choices=tuple(_PROFILES))

    def check_options(self) -> None:
        self.size_of("quota")
        names = [item.partition("=")[0] for item in self.mount.split(",")] if self.compress else []
        if other := next((name for name in names if name.startswith(("compress", "nodata"))), ""):
            raise OptionError("compress", f"has no effect beside the mount option {other}: leave one of them out")

    def check_members(self, count: int) -> None:
        for name in "data", "metadata":
            if count < (fewest := _PROFILES.get(profile := getattr(self, name), 1)):
                raise OptionError(name, f"{profile!r} needs {fewest} devices: put pool({fewest}) below it")

    def least_sizes(self, count: int) -> tuple[int, ...]:
        """Return the smallest sizes by profile, as mkfs.btrfs 6.2 checks them."""
        metadata, data = self.metadata or ("dup" if count == 1 else "raid1"), self.data or "single"
        further = {"single": 0, "dup": 64}.get(metadata, 24) + {"single": 0, "dup": 120}.get(data, 56)
        return tuple(least + further * _MIB if least else 0 for least in super().least_sizes(count))

    def mkfs_choices(self) -> list[str]:
        return [f"--{name}={value}" for name in ("data", "metadata") if (value := getattr(self, name))]

    def mount_choices(self) -> list[str]:
        return [f"compress={self.compress}"] if self.compress else []

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Directory]:
        try:
            with super().opened(below, context) as place:
                if self.quota:
                    context.machine.run("btrfs", "quota", "enable", place.path)
                    context.machine.run("btrfs", "qgroup", "limit", str(self.size_of("quota")), place.path)
                yield place
        finally:
            for path in (part.path for part in below.parts) if below.parts[1:] else ():
                # The kernel remembers that the devices belong together until it is told to forget them.
                with contextlib.suppress(commands.CommandError):
                    context.machine.run("btrfs", "device", "scan", "--forget", path)

    def has_checksums(self) -> bool:
        return not {"nodatasum", "nodatacow"} & {*self.mount.split(",")}

    def scrub(self, place: Place, below: Block, context: BuildContext) -> CheckResult | None:
        # Btrfs numbers its devices from 1.
        numbers = [number for number, part in enumerate(below.parts, 1) if part in context.remaining(below)]
        return scrubs.btrfs(context.machine, place.path, numbers)

    def check_loss(self) -> None:
        for name, profile in ("data", self.data or "single"), ("metadata", self.metadata or "raid1"):
            if profile in ("single", "dup", "raid0"):
                raise OptionError(name, f"{profile!r} has no copy on another device")

    def regain(self, place: Place, below: Block, context: BuildContext, number: int) -> None:
        machine, device = context.machine, below.parts[number]
        before = _replacing(machine, place)
        device.check()
        # Btrfs numbers its devices from 1.
        machine.run("btrfs", "replace", "start", "-f", str(number + 1), device.path, place.path)
        # It goes into the background before it begins, and does not report errors.
        if not machine.wait_until(lambda: _replacing(machine, place) != before, 30.0):
            raise OSError(f"the rebuild on {device.path} has not begun: {before}")

    def regained(self, place: Place, below: Block, context: BuildContext) -> None:
        machine = context.machine
        scrubs.wait_for(machine, self.name, lambda: "% done" not in _replacing(machine, place))
        if "finished" not in (state := _replacing(machine, place)):
            raise OSError(f"the rebuild has ended early: {state}")
        # Data that was written without the device has only one copy.
        profiles = {"-d": self.data, "-m": self.metadata or "raid1"}
        convert = [f"{kind}convert={profile},soft" for kind, profile in profiles.items()]
        machine.run("btrfs", "balance", "start", "--enqueue", *convert, place.path)


def _replacing(machine: Machine, place: Place) -> str:
    return machine.run("btrfs", "replace", "status", "-1", place.path).strip()


@dataclass(frozen=True)
class F2fs(Filesystem):
    """The flash-friendly filesystem F2FS, log-structured.

    It collects no garbage in the background. `mount='background_gc=on'` restores the kernel's default, which collects
    when the filesystem is idle.
    """

    name: ClassVar = "f2fs"
    smallest: ClassVar = 52 * _MIB
    sizing: ClassVar = ("-o", "-R", "-s", "-z")
    example: ClassVar = "f2fs(compress='lz4')"
    tool: ClassVar = Tool("mkfs.f2fs", "f2fs-tools")
    checker: ClassVar = ("fsck.f2fs", "--dry-run")
    provides: ClassVar = {"encryption": ("encrypt",)}
    always: ClassVar = ("-q", "-f", "-t", "0")
    #: It discards by default if the device supports that.
    defaults: ClassVar = {"discard": "nodiscard", "background_gc": "background_gc=off"}
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-A -f -h -H -i -m -q -r -V": FLAG,
                "-a -b -d -o -R -s -S -t -T -w -z -Z": SIZE,
                "-C -e -E -g -O -U": KEYWORDS,
                "-l": TEXT,
                "-c": OUTSIDE,
            }
        ),
        "mount": MOUNT
        | {
            # Documentation/filesystems/f2fs.rst of Linux
            "checkpoint": Refused(reason="can lose all files at an unmount, which each cold step makes"),
            "active_logs compress_log_size inline_xattr_size io_bits jqfmt reserve_root resgid resuid": SIZE,
            "alloc_mode background_gc compress_algorithm compress_extension compress_mode discard_unit": KEYWORD,
            "errors fault_injection fault_type fsync_mode memory nocompress_extension test_dummy_encryption": KEYWORD,
            "grpjquota prjjquota usrjquota whint_mode": KEYWORD,
        },
    }

    compress: str | None = option(
        None,
        "compress all files, such as zstd:3. F2FS then writes less, but does not free the saved space",
        choices=("lzo", "lzo-rle"),
        levels={"lz4": range(1, 17), "zstd": range(1, 23)},
    )

    def mkfs_choices(self) -> list[str]:
        return ["-O", "extra_attr,compression"] if self.compress else []

    def mount_choices(self) -> list[str]:
        return [f"compress_algorithm={self.compress}", "compress_extension=*"] if self.compress else []


@dataclass(frozen=True)
class Nilfs2(Filesystem):
    """The log-structured filesystem NILFS2, which keeps its past as snapshots.

    Its cleaner, a daemon that copies live blocks together, does not run. Overwritten and deleted data
    keeps its space until the stack is taken down.
    """

    name: ClassVar = "nilfs2"
    smallest: ClassVar = 128 * _MIB + 4 * _KIB
    sizing: ClassVar = ("-b", "-B", "-m")
    limits: ClassVar = {
        **_no_fallocate("nilfs2"),
        Limit.ATTRIBUTES: "Documentation/filesystems/nilfs2.rst of Linux",
    }
    tool: ClassVar = Tool("mkfs.nilfs2", "nilfs-tools", {"dnf": "nilfs-utils", "pacman": "nilfs-utils"})
    always: ClassVar = ("-q", "-f", "-K")
    #: mount.nilfs2 would start the cleaner as a daemon that outlives the session.
    defaults: ClassVar = {"nogc": "nogc"}
    grammar: ClassVar = {
        "mkfs": CommandLine({"-c -f -h -K -n -q -v -V": FLAG, "-b -B -m -P": SIZE, "-L": TEXT, "-O": KEYWORDS}),
        # At an unmount, mount.nilfs2 kills the process `gcpid`.
        "mount": MOUNT | {"gcpid": OUTSIDE, "cp pp": NUMBER, "order": KEYWORD},
    }


@dataclass(frozen=True)
class Jfs(Filesystem):
    """IBM's journaled filesystem JFS."""

    name: ClassVar = "jfs"
    smallest: ClassVar = 16 * _MIB
    limits: ClassVar = _no_fallocate("jfs")
    tool: ClassVar = Tool("mkfs.jfs", "jfsutils")
    checker: ClassVar = ("fsck.jfs", "-n", "-f")
    always: ClassVar = ("-q",)
    grammar: ClassVar = {
        "mkfs": CommandLine({"-c -f -O -q -V": FLAG, "-b -s": SIZE, "-L": TEXT, "-j -J": OUTSIDE}),
        "mount": MOUNT | {"resize": SIZE},
    }


@dataclass(frozen=True)
class Reiserfs(Filesystem):
    """The filesystem ReiserFS, version 3.6. Linux 6.13 removed it."""

    name: ClassVar = "reiserfs"
    smallest: ClassVar = 32 * _MIB + 128 * _KIB
    sizing: ClassVar = ("-b", "--block-size", "-o", "--journal-offset", "-s", "--journal-size")
    limits: ClassVar = _no_fallocate("reiserfs")
    tool: ClassVar = Tool("mkfs.reiserfs", "reiserfsprogs", {"dnf": "reiserfs-utils", "zypper": "reiserfs"})
    always: ClassVar = ("-q", "-ff")
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-d --debug -f --force -q --quiet -V": FLAG,
                "-b --block-size -o --journal-offset -s --journal-size -t --transaction-max-size --format": SIZE,
                "-h --hash -u --uuid": KEYWORD,
                "-l --label": TEXT,
                "-B --badblocks -j --journal-device": OUTSIDE,
            }
        ),
        "mount": MOUNT | {"jdev": OUTSIDE, "alloc block-allocator hash jqfmt usrjquota grpjquota resize": KEYWORD},
    }
    removal: ClassVar = "Linux 6.13 removed it"


# -- of other systems --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exfat(Filesystem):
    """Microsoft's exFAT, as on large memory cards. It has no owners, permissions or links."""

    name: ClassVar = "exfat"
    smallest: ClassVar = 2 * _MIB + 64 * _KIB
    sizing: ClassVar = ("-b", "--boundary-align", "-c", "--cluster-size")
    limits: ClassVar = {**_FAT_LIMITS, Limit.ALLOCATION: "fs/exfat of Linux: no fallocate"}
    tool: ClassVar = Tool("mkfs.exfat", "exfatprogs")
    checker: ClassVar = ("fsck.exfat", "-n")
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-f --full-format -h --help --pack-bitmap -q --quiet -v --verbose -V --version": FLAG,
                "-b --boundary-align -c --cluster-size -s --sector-size": SIZE,
                "-U --volume-guid": KEYWORD,
                "-L --volume-label -n": TEXT,
            }
        ),
        "mount": MOUNT | {"allow_utime time_offset": NUMBER},
    }


@dataclass(frozen=True)
class Vfat(Filesystem):
    """Microsoft's FAT with long names, as on memory cards. It has no owners, permissions or links.

    mkfs.vfat chooses 12, 16 or 32 bits by the size of the device. `mkfs='-F 32'` fixes the number.
    """

    name: ClassVar = "vfat"
    limits: ClassVar = _FAT_LIMITS
    example: ClassVar = "vfat(mkfs='-F 32')"
    tool: ClassVar = Tool("mkfs.vfat", "dosfstools")
    checker: ClassVar = ("fsck.vfat", "-n")
    #: On a whole disk, it would otherwise write a partition table into its boot sector.
    always: ClassVar = ("-I", "--mbr=no")
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-a -A -c -I -v --mbr --invariant --help": FLAG,
                "-b -D -f -F -h -i -M -r -R -s -S --codepage --offset": SIZE,
                "-g -n": TEXT,
                "--variant": KEYWORD,
                "-C -l -m": OUTSIDE,
            }
        ),
        "mount": MOUNT | {"allow_utime check fat nfs shortname time_offset tz": KEYWORD},
    }


_MKNTFS = Tool("mkntfs", "ntfs-3g", {"dnf": "ntfsprogs", "zypper": "ntfsprogs"})
_NTFS_3G = Tool("ntfs-3g", "ntfs-3g")


@dataclass(frozen=True)
class Ntfs(Filesystem):
    """Microsoft's NTFS by the kernel's own driver, ntfs3."""

    name: ClassVar = "ntfs"
    smallest: ClassVar = _MIB + 64 * _KIB
    sizing: ClassVar = ("-c", "--cluster-size", "-s", "--sector-size")
    example: ClassVar = "ntfs(mount='noatime')"
    driver: ClassVar = "ntfs3"
    tool: ClassVar = _MKNTFS
    #: Without -f, it first writes zeros to the whole device.
    always: ClassVar = ("-q", "-F", "-f")
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-C --enable-compression -f --fast -F --force -h --help -I --no-indexing -l --license": FLAG,
                "-n --no-action -q --quiet -Q --quick -T --zero-time -U --with-uuid -v --verbose -V --version": FLAG,
                "--debug": FLAG,
                "-c --cluster-size -g --volume-guid -H --heads -p --partition-start -s --sector-size": SIZE,
                "-S --sectors-per-track -z --mft-zone-multiplier": SIZE,
                "-L --label": TEXT,
            }
        ),
        "mount": MOUNT | {"windows_names": KEYWORD},
    }

    compress: bool = option(False, "compress all files")

    def mkfs_choices(self) -> list[str]:
        return ["-C"] if self.compress else []


@dataclass(frozen=True)
class Ntfs3g(Ntfs):
    """Microsoft's NTFS by the FUSE daemon ntfs-3g, for kernels without a driver that writes."""

    leaves: ClassVar = (mounts.MOUNT, DAEMON)
    name: ClassVar = "ntfs3g"
    limits: ClassVar = {
        Limit.ALLOCATION: "src/ntfs-3g.c: no fallocate",
        Limit.HOLES: "src/ntfs-3g.c: no fallocate",
        Limit.MODES: "ntfs-3g(8): all files are the user's, unless mounted with `permissions`",
    }
    caches: ClassVar = True
    #: It stays in the foreground.
    defaults: ClassVar = {"no_detach": "no_detach"}
    grammar: ClassVar = {
        **Ntfs.grammar,
        "mount": FUSE_MOUNT | {"usermapping": OUTSIDE, "locale streams_interface": KEYWORD, "max_read": NUMBER},
    }

    def needs(self) -> list[Need]:
        tools = [self.program, self.beside(_NTFS_3G)]
        return [Root("mounting"), FUSE, KernelFilesystem("fuseblk", "fuse"), *tools]

    def mount_choices(self) -> list[str]:
        return ["compression"] if self.compress else []

    def opened(self, below: Block, context: BuildContext) -> AbstractContextManager[Directory]:
        target = context.mountpoint(self.name)
        words = [self.beside(_NTFS_3G).command, "-o", ",".join(self.mount_words()), str(below.path), str(target)]
        return served(target, context, *words, on_block=True)


@dataclass(frozen=True)
class Tmpfs(Sized):
    """Memory, independent of the place below. It shows the speed of the machine without a device."""

    leaves: ClassVar[tuple[Kind, ...]] = (mounts.MOUNT,)
    name: ClassVar = "tmpfs"
    requires: ClassVar = (Root("mounting"), KernelFilesystem("tmpfs"))
    example: ClassVar = "tmpfs(mount='size=2G')"
    volatile: ClassVar = True
    takes: ClassVar = (Block, Directory)
    gives: ClassVar = Directory
    grammar: ClassVar = {"mount": MOUNT | {"huge mpol": KEYWORD}}

    mount: str = option("", "mount options, verbatim, such as size=2G")

    def sizes_above(self, *below: int) -> tuple[int, ...]:
        return ()

    def opened(self, below: Place, context: BuildContext) -> AbstractContextManager[Directory]:
        return context.mounted(self.name, "tmpfs", "tmpfs", self.mount)
