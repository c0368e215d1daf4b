"""ZFS, by the kernel module of OpenZFS or by the FUSE daemon zfs-fuse."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_fsstack.layers import scrubs
from pytest_fsstack.machine import commands, directories, journal, mounts, processes
from pytest_fsstack.machine.journal import Facts, Kind, Unproved
from pytest_fsstack.machine.needs import FUSE, KernelFilesystem, Need, Root, Tool
from pytest_fsstack.machine.orphans import DAEMON
from pytest_fsstack.stack.model import Block, Checked, Directory, Layer, Limit, Place, Site, option
from pytest_fsstack.stack.words import FLAG, FUSE_MOUNT, KEYWORD, MOUNT, OUTSIDE, SIZE, TEXT, CommandLine, Items

_OPENZFS = {"dnf": "zfs", "pacman": "zfs-utils", "zypper": "zfs"}
#: Where zfs-fuse has its socket, its lock and the list of pools that it imports when it starts.
_STATE = Path("/var/run/zfs"), Path("/var/lock/zfs"), Path("/var/lib/zfs")


def _in_kernel() -> bool:
    return KernelFilesystem("zfs").missing() is None


# -- after a kill ------------------------------------------------------------------------------------------------------


def _imported(facts: Facts) -> bool:
    name = journal.text(facts, "name")
    if not name.startswith("fsstack-"):
        raise Unproved("that is no name that this plugin gives to a pool")
    try:
        return name in commands.run("zpool", "list", "-H", "-o", "name").split()
    except commands.CommandError:
        return False  # without ZFS, or with a daemon of its own that died with the session


def _exported(facts: Facts) -> str:
    name = journal.text(facts, "name")
    commands.run("zpool", "export", "-f", name)
    return f"exported the ZFS pool {name}"


POOL = Kind("zpool", _imported, _exported)


# -- layers ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zfs(Layer):
    """ZFS: a pool of its own on the device, with one filesystem.

    By OpenZFS if the kernel has its module, else by the FUSE daemon zfs-fuse, which is started for each stack, apart
    from one that the system may run: the pools of the system are neither seen nor touched. The list of mounts in the
    reports says which it was (`zfs` or `fuse.zfs`).
    """

    leaves: ClassVar = (POOL, mounts.MOUNT, DAEMON)
    name: ClassVar = "zfs"
    example: ClassVar = "zfs(compress='gzip-6', mkfs='-O recordsize=16K')"
    #: OpenZFS has all of them.
    limits: ClassVar = dict.fromkeys(
        (Limit.ATTRIBUTES, Limit.ALLOCATION, Limit.HOLES), "zfs-fuse: no such calls in src/zfs-fuse/zfs_operations.c"
    )
    takes: ClassVar = (Block,)
    gives: ClassVar = Directory
    #: The kernel can drop neither the cache of the daemon nor all of that of OpenZFS.
    caches: ClassVar = True
    grammar: ClassVar = {
        "mkfs": CommandLine(
            {
                "-d -f -n": FLAG,
                "-o": Items({"altroot cachefile compatibility": OUTSIDE, "comment": TEXT, "*": KEYWORD}),
                "-O": Items({"keylocation mountpoint sharenfs sharesmb": OUTSIDE, "*": KEYWORD}),
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

    compress: str | None = option(None, "compression, such as lz4, gzip-6 or zstd-3, as the installed ZFS has them")
    mkfs: str = option("", "options of `zpool create`, verbatim, such as '-o ashift=12 -O recordsize=16K'")
    mount: str = option("", "options of `zfs mount -o`, verbatim, such as noatime")
    daemon: str = option("", "options of zfs-fuse, verbatim, such as '--max-arc-size 256'; OpenZFS ignores them")

    def needs(self) -> list[Need]:
        if _in_kernel():
            return [Root("mounting"), *(Tool(tool, "zfsutils-linux", _OPENZFS) for tool in ("zpool", "zfs"))]
        # Debian's is the one that is still packaged.
        tools = [Tool(tool, "zfs-fuse") for tool in ("zfs-fuse", "zpool", "zfs")]
        return [Root("mounting"), FUSE, *tools]

    def create(self, below: Place, site: Site) -> None:
        assert isinstance(below, Block)
        pool = site.name(self.name)
        compress = ["-O", f"compression={self.compress}"] if self.compress else []
        with site.journal.entry(POOL, name=pool), self._driver(site):
            # Neither at its creation nor at an import may it mount itself: where depends on the stack.
            words = ["-f", "-o", "cachefile=none", "-O", "canmount=noauto", "-O", "mountpoint=none"]
            below.overwrite("zpool", "create", *words, *compress, *shlex.split(self.mkfs), pool)
            _export(pool)

    @contextlib.contextmanager
    def opened(self, below: Place, site: Site, depth: int) -> Iterator[Directory]:
        target, pool = site.mountpoint(self.name, depth), site.name(self.name)
        with (
            site.journal.entry(POOL, name=pool),
            self._driver(site),
            site.journal.entry(mounts.MOUNT, target=str(target)),
            mounts.FuseWatch(target),
            _only(below.path, site) as directory,
        ):
            commands.run("zpool", "import", "-d", directory, "-o", "cachefile=none", pool)
            try:
                if (mount := mounts.at(target)) and mount.source == pool:
                    # zfs-fuse mounts what was mounted when the pool was last seen, as after a power cut.
                    commands.run("zfs", "unmount", pool)
                commands.run("zfs", "set", f"mountpoint={target}", pool)
                commands.run("zfs", "mount", *(["-o", self.mount] if self.mount else []), pool)
                try:
                    yield Directory(target)
                finally:
                    mounts.unmount(target, served=True)
                    # zfs-fuse mounts at the next import what has a mount point, whatever `canmount` says.
                    commands.run("zfs", "set", "mountpoint=none", pool)
            except BaseException:
                # What went wrong first says why the pool is busy.
                with contextlib.suppress(commands.CommandError):
                    _export(pool)
                raise
            _export(pool)

    def sync(self, place: Place) -> None:
        """Write everything out. FUSE does not pass syncfs on, but a new property is there only after all before it."""
        super().sync(place)
        mount = mounts.at(place.path)
        kind, pool = (mount.kind, mount.source) if mount else ("-", "-")
        if kind.startswith("fuse"):
            commands.run("zfs", "set", "fsstack:synced=yes", pool)

    def scrub(self, place: Place, below: Place, site: Site) -> Checked | None:
        return scrubs.zfs(site.name(self.name))

    @contextlib.contextmanager
    def _driver(self, site: Site) -> Iterator[None]:
        """Something that zpool and zfs can talk to."""
        if _in_kernel():
            yield
            return
        with contextlib.ExitStack() as undo:
            for state in _STATE:
                undo.enter_context(_hidden(state))
            daemon = processes.start("zfs-fuse", "--no-daemon", "--no-kstat-mount", *shlex.split(self.daemon))
            with site.journal.entry(DAEMON, pid=daemon.pid):
                try:
                    if not commands.wait_until(lambda: _answers() or not daemon.alive, 30.0):
                        raise commands.CommandError(daemon.argv, None, "", "no answer within 30 s")
                    if not daemon.alive:
                        raise daemon.error()
                    yield
                finally:
                    # Its pools are exported, or cannot be; a polite end would take it two seconds.
                    daemon.kill()


def _answers() -> bool:
    # The socket is there a moment before anybody listens.
    if not (_STATE[0] / "zfs_socket").exists():
        return False
    try:
        commands.run("zpool", "list", timeout=10.0)
    except commands.CommandError:
        return False
    return True


@contextlib.contextmanager
def _hidden(directory: Path) -> Iterator[None]:
    """An empty directory in its place, for this session only."""
    if not mounts.private_namespace():
        raise OSError(f"{directory} of the system's zfs-fuse cannot be hidden: this session has no mounts of its own")
    made = not directory.exists()
    directory.mkdir(exist_ok=True)
    try:
        with mounts.mounted("tmpfs", directory.resolve(), "tmpfs", "mode=700"):
            yield
    finally:
        if made:
            with contextlib.suppress(OSError):
                directory.rmdir()


@contextlib.contextmanager
def _only(device: Path, site: Site) -> Iterator[Path]:
    """A directory that holds this device and no other, for an import that looks into all that it finds."""
    directory = site.directory / "zfs-devices"
    directory.mkdir()
    # OpenZFS partitions a whole disk, and has its pool on the first partition.
    partitions = Path("/sys/class/block", device.resolve().name).glob("*/partition")
    try:
        for path in device, *(Path("/dev", found.parent.name) for found in partitions):
            (directory / path.name).symlink_to(path)
        yield directory
    finally:
        directories.remove(directory)


def _export(pool: str) -> None:
    # For a moment after an unmount it may still be busy.
    problems: list[commands.CommandError] = []

    def exported() -> bool:
        try:
            commands.run("zpool", "export", pool)
        except commands.CommandError as error:
            problems.append(error)
            return False
        return True

    if not commands.wait_until(exported, 5.0):
        raise problems[-1]
