"""ZFS, by the kernel module of OpenZFS or by the FUSE daemon zfs-fuse."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.machine import commands, directories, journal, mounts
from pytest_fsstack.machine.journal import Facts, Kind, UndoError
from pytest_fsstack.machine.needs import FUSE, KernelFilesystem, Need, Root, Tool
from pytest_fsstack.machine.orphans import DAEMON
from pytest_fsstack.machine.port import Machine
from pytest_fsstack.stack.layer import Limit, OptionError, PoolLayer, option
from pytest_fsstack.stack.places import Block, BuildContext, CheckResult, Directory, Place, Pool
from pytest_fsstack.stack.words import FLAG, FUSE_MOUNT, KEYWORD, MOUNT, OUTSIDE, SIZE, TEXT, CommandLine, Items

_OPENZFS = {"dnf": "zfs", "pacman": "zfs-utils", "zypper": "zfs"}
_CIPHERS = tuple(f"aes-{bits}-{mode}" for bits in (128, 192, 256) for mode in ("ccm", "gcm"))
#: The size in bytes of the wrapping key, for all ciphers.
_KEY = 32
#: The size in bytes of the last two labels, at the end of a device.
_LABELS = 1 << 20
#: The minimum number of devices for each redundancy.
_FEWEST = {"mirror": 2, "raidz": 2, "raidz2": 3, "raidz3": 4}
#: Directories of zfs-fuse's socket, lock, and list of pools to import.
_STATE = Path("/var/run/zfs"), Path("/var/lock/zfs"), Path("/var/lib/zfs")


# -- after a kill ------------------------------------------------------------------------------------------------------


def _imported(machine: Machine, facts: Facts) -> bool:
    name = journal.text(facts, "name")
    if not name.startswith("fsstack-"):
        raise UndoError("this plugin does not create pools with such a name")
    try:
        return name in machine.run("zpool", "list", "-H", "-o", "name").split()
    except commands.CommandError:
        return False  # without ZFS, or with a daemon of its own that died with the session


def _exported(machine: Machine, facts: Facts) -> str:
    name = journal.text(facts, "name")
    machine.run("zpool", "export", "-f", name)
    return f"exported the ZFS pool {name}"


POOL = Kind("zpool", _imported, _exported)


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zfs(PoolLayer):
    """ZFS: a pool of its own on the device, or on a pool of devices, with one filesystem.

    It uses OpenZFS if the kernel has its module, otherwise the FUSE daemon zfs-fuse, which has no encryption. Each
    stack starts a daemon of its own, which neither sees nor touches pools of the system. The mounts in the reports show
    the driver (`zfs` or `fuse.zfs`).

    With `encryption`, the whole filesystem is encrypted with a random key of 256 bits (`keyformat=raw`). The kernel has
    it for as long as the stack stands.
    """

    leaves: ClassVar = (POOL, mounts.MOUNT, DAEMON)
    name: ClassVar = "zfs"
    example: ClassVar = "zfs(compress='gzip-6', mkfs='-O recordsize=16K')"
    limits: ClassVar = dict.fromkeys(
        (Limit.ATTRIBUTES, Limit.ALLOCATION, Limit.HOLES), "zfs-fuse: no such calls in src/zfs-fuse/zfs_operations.c"
    )
    gives: ClassVar = Directory
    #: SPA_MINDEVSIZE in include/sys/fs/zfs.h.
    smallest: ClassVar = 64 << 20
    #: The kernel can drop neither the daemon's cache nor all of OpenZFS's.
    caches: ClassVar = True
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-d -f -n": FLAG,
                "-o": Items({"altroot cachefile compatibility": OUTSIDE, "comment": TEXT, "*": KEYWORD}),
                "-O": Items({"encryption keyformat keylocation mountpoint sharenfs sharesmb": OUTSIDE, "*": KEYWORD}),
                "-t": KEYWORD,
                "-m -R": OUTSIDE,
            }
        ),
        "mount": MOUNT | {"mountpoint": OUTSIDE},
        "daemon": CommandLine(
            {
                "-n --no-daemon --no-kstat-mount --disable-block-cache --disable-page-cache -h --help": FLAG,
                "--log-uberblocks --zfs-prefetch-disable -x --enable-xattr": FLAG,
                "-a --fuse-attr-timeout -e --fuse-entry-timeout -m --max-arc-size --stack-size": SIZE,
                "-u --min-uberblock-txg -v --vdev-cache-size": SIZE,
                "-o --fuse-mount-options": FUSE_MOUNT,
                "-p --pidfile": OUTSIDE,
            }
        ),
        "compress": KEYWORD,
    }

    compress: str | None = option(None, "compression of the installed ZFS, such as lz4, gzip-6 or zstd-3")
    encryption: str | None = option(None, "encryption of OpenZFS, such as aes-256-gcm", choices=_CIPHERS)
    vdev: str | None = option(
        None, "redundancy of a pool: all its devices form one. The default is none", choices=tuple(_FEWEST)
    )
    log: bool = option(
        False, "the last device of the pool, or the one before that of `cache`, takes synchronous writes"
    )
    cache: bool = option(False, "the last device of the pool caches what is read")
    mkfs: str = option("", "options of `zpool create`, verbatim, such as '-o ashift=12 -O recordsize=16K'")
    mount: str = option("", "options of `zfs mount -o`, verbatim, such as noatime")
    daemon: str = option("", "options of zfs-fuse, verbatim, such as '--max-arc-size 256'. OpenZFS ignores them")

    def limited(self) -> Mapping[Limit, str]:
        """Return the limits, without those of zfs-fuse if the kernel has OpenZFS."""
        limits, of_fuse = super().limited(), self.limits if not KernelFilesystem("zfs").missing() else {}
        return {limit: source for limit, source in limits.items() if limit not in of_fuse}

    def has_checksums(self) -> bool:
        return not re.search(r"checksum=(off|noparity)\b", self.mkfs)

    def needs(self) -> list[Need]:
        kernel = KernelFilesystem("zfs", removal="zfs-fuse has no encryption")
        required = [kernel] if self.encryption else []
        return [*required, *needs_of(bool(self.encryption) or kernel.missing() is None)]

    def check_members(self, count: int) -> None:
        fewest = _FEWEST.get(self.vdev or "", 1) + len(self._further)
        if count < fewest:
            name = "vdev" if self.vdev else self._further[0]
            raise OptionError(name, f"needs {fewest} devices: put pool({fewest}) below it")

    def is_encrypting(self) -> bool:
        return self.encryption is not None

    @property
    def _further(self) -> list[str]:
        """Return the roles of the last devices."""
        return [role for role in ("log", "cache") if getattr(self, role)]

    @contextlib.contextmanager
    def _key(self, context: BuildContext) -> Iterator[int | None]:
        """Open the key, which zpool and zfs read from stdin."""
        with context.secret.key(_KEY) if self.encryption else contextlib.nullcontext() as key:
            yield key

    def create(self, below: Block, context: BuildContext) -> None:
        pool, last = context.name(self.name), len(below.parts) - len(self._further)
        properties = [
            "canmount=noauto",
            "mountpoint=none",
            *([f"compression={self.compress}"] if self.compress else []),
        ]
        if self.encryption:
            properties += [f"encryption={self.encryption}", "keyformat=raw", "keylocation=prompt"]
        with context.journal.entry(POOL, name=pool), self._driver(context), self._key(context) as key:
            words = ["-f", "-o", "cachefile=none", *(word for text in properties for word in ("-O", text))]
            words += [*shlex.split(self.mkfs), pool, *([self.vdev] if self.vdev else [])]
            Pool.of(below.parts[:last]).overwrite("zpool", "create", *words, stdin=key)
            for role, device in zip(self._further, below.parts[last:]):
                device.overwrite("zpool", "add", "-f", pool, role)
            _export(context.machine, pool)

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Directory]:
        machine, target, pool = context.machine, context.mountpoint(self.name), context.name(self.name)
        with (
            context.journal.entry(POOL, name=pool),
            self._driver(context),
            context.journal.entry(mounts.MOUNT, target=str(target)),
            mounts.FuseWatch(machine, target) as watch,
            _only([part.path for part in context.remaining(below)], context) as directory,
        ):
            machine.run("zpool", "import", "-d", directory, "-o", "cachefile=none", pool)
            try:
                if (mount := machine.mount_at(target)) and mount.source == pool:
                    # zfs-fuse mounts filesystems that were mounted when the pool was last used, as after a power cut.
                    machine.run("zfs", "unmount", pool)
                machine.run("zfs", "set", f"mountpoint={target}", pool)
                if self.encryption:
                    with self._key(context) as key:
                        machine.run("zfs", "load-key", pool, stdin=key)
                machine.run("zfs", "mount", *(["-o", self.mount] if self.mount else []), pool)
                try:
                    yield Directory(target)
                finally:
                    watch.abort_if_hanging(machine.limit)
                    mounts.unmount(machine, target, served=True)
                    if watch.aborted:
                        raise mounts.aborted(["zfs-fuse"])
                    # At the next import, zfs-fuse mounts all filesystems with a mount point, whatever `canmount` says.
                    machine.run("zfs", "set", "mountpoint=none", pool)
            except BaseException:
                # The first error explains why the pool is busy. A daemon that hangs is killed with its pools.
                with contextlib.suppress(commands.CommandError):
                    if not watch.aborted:
                        _export(machine, pool)
                raise
            _export(machine, pool)

    def sync(self, place: Place, context: BuildContext) -> None:
        """Write everything out. FUSE does not pass syncfs on, but a new property is only written after all earlier
        data.
        """
        super().sync(place, context)
        mount = context.machine.mount_at(place.path)
        kind, pool = (mount.kind, mount.source) if mount else ("-", "-")
        if kind.startswith("fuse"):
            context.machine.run("zfs", "set", "fsstack:synced=yes", pool)

    def scrub(self, place: Place, below: Block, context: BuildContext) -> CheckResult | None:
        return scrubs.zfs(context.machine, context.name(self.name))

    def check_loss(self) -> None:
        if self.vdev is None or self._further:
            raise OptionError("vdev", "only a mirror or a raidz without `log` and `cache` can lose a device")

    def regain(self, place: Place, below: Block, context: BuildContext, number: int) -> None:
        machine, pool, device = context.machine, context.name(self.name), below.parts[number]
        # Two labels are at the end. Because of them, zpool would take the device for a member of a pool in use.
        device.write([(device.sectors * 512 - _LABELS, bytes(_LABELS))])
        # A missing device is listed by its number.
        missing = re.search(r"^\t +(\d{6,}) ", machine.run("zpool", "status", pool), re.MULTILINE)
        if missing is None:
            raise OSError(f"no device of {pool} is missing")
        device.check()
        machine.run("zpool", "replace", "-f", pool, missing[1], device.path)

    def regained(self, place: Place, below: Block, context: BuildContext) -> None:
        machine, pool = context.machine, context.name(self.name)
        scrubs.wait_for(machine, pool, lambda: "in progress" not in machine.run("zpool", "status", pool))
        if (health := machine.run("zpool", "list", "-H", "-o", "health", pool).strip()) != "ONLINE":
            raise OSError(f"the rebuild has ended early: {pool} is {health}")

    @contextlib.contextmanager
    def _driver(self, context: BuildContext) -> Iterator[None]:
        """Provide a driver for zpool and zfs: the kernel module, or a daemon."""
        machine = context.machine
        if machine.knows_filesystem("zfs"):
            yield
            return
        with contextlib.ExitStack() as undo:
            for state in _STATE:
                undo.enter_context(_hidden(machine, state))
            with context.journal.entry(DAEMON, name="zfs-fuse") as entry:
                daemon = machine.start("zfs-fuse", "--no-daemon", "--no-kstat-mount", *shlex.split(self.daemon))
                try:
                    entry.update(pid=daemon.pid)
                    if not machine.wait_until(lambda: _answers(machine) or not daemon.alive, 30.0):
                        raise commands.CommandError(daemon.argv, None, "", "no answer within 30 s")
                    if not daemon.alive:
                        raise daemon.error()
                    yield
                finally:
                    # Its pools are exported, or cannot be. A regular exit would take two seconds.
                    daemon.kill()


def needs_of(in_kernel: bool) -> list[Need]:
    """Return the requirements of OpenZFS, or else of zfs-fuse."""
    if in_kernel:
        return [Root("mounting"), *(Tool(tool, "zfsutils-linux", _OPENZFS) for tool in ("zpool", "zfs"))]
    # Debian's package is the only one left.
    return [Root("mounting"), FUSE, *(Tool(tool, "zfs-fuse") for tool in ("zfs-fuse", "zpool", "zfs"))]


def _answers(machine: Machine) -> bool:
    # The socket exists a moment before the daemon listens.
    if not (_STATE[0] / "zfs_socket").exists():
        return False
    try:
        machine.run("zpool", "list", timeout=10.0)
    except commands.CommandError:
        return False
    return True


@contextlib.contextmanager
def _hidden(machine: Machine, directory: Path) -> Iterator[None]:
    """Mount an empty directory over it, for this session only.

    A new directory stays, as after a zfs-fuse of the system. Removing it would unmount what other sessions have on it.
    """
    if not machine.has_private_mounts():
        raise OSError(f"{directory} of the system's zfs-fuse cannot be hidden: this session has no mounts of its own")
    machine.mkdir(directory, exist_ok=True)
    with mounts.mounted(machine, "tmpfs", directory.resolve(), "tmpfs", "mode=700"):
        yield


@contextlib.contextmanager
def _only(devices: Iterable[Path], context: BuildContext) -> Iterator[Path]:
    """Create a directory with only these devices, because an import searches all devices in a directory."""
    directory = context.directory / f"{context.depth}-zfs-devices"
    context.machine.mkdir(directory)
    try:
        for device in devices:
            # OpenZFS partitions a whole disk, and uses the first partition.
            partitions = Path("/sys/class/block", device.resolve().name).glob("*/partition")
            for path in device, *(Path("/dev", partition.parent.name) for partition in partitions):
                context.machine.link(directory / path.name, path)
        yield directory
    finally:
        directories.remove(directory)


def _export(machine: Machine, pool: str) -> None:
    # The pool may be busy for a moment after an unmount.
    problems: list[commands.CommandError] = []

    def exported() -> bool:
        try:
            machine.run("zpool", "export", pool)
        except commands.CommandError as error:
            problems.append(error)
            return False
        return True

    if not machine.wait_until(exported, 5.0):
        raise problems[-1]
