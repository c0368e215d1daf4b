"""Detection of users of a block device or of a part of it."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from pytest_fsstack.machine import blockdev, commands, mounts
from pytest_fsstack.machine.blockdev import node, partitions, read, whole
from pytest_fsstack.machine.guard import sharing
from pytest_fsstack.machine.guard.disk import Disk, Refused, refusing_errors
from pytest_fsstack.machine.guard.sharing import Area, overlapping
from pytest_fsstack.machine.libc import libc

PROC = Path("/proc")

#: Devices that share bytes with another, by number.
Areas = Mapping[str, Area]

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in linux/proc_ns.h

#: udev opens a device for a moment after a writer has closed it: in an emulated guest on a busy host, for seconds.
PATIENCE = 10.0
#: A terminating thread loses its namespaces before it is shown as ended. In between, the kernel may unmount them.
TERMINATION = 30.0


def check_unused(disk: Disk, ours: frozenset[int], patience: float) -> None:
    """Raise `Refused` unless nothing uses a device, in whole or in part.

    Uses are: mounted in any mount namespace, swap, a member of a device mapper, md or btrfs device, behind a loop
    device, exported by NVMe over fabrics, open in a process, held by the kernel, under the root filesystem, or
    read-only. Descriptors in `ours` are allowed; other processes get `patience` to close theirs. A check that cannot
    run counts as an objection.
    """
    with refusing_errors(disk.user_path):
        areas = overlapping(disk)
        for look in _CHECKS:
            if use := look(disk, areas):
                raise Refused(disk.user_path, use)
        if commands.wait_until(lambda: not _busy(disk, areas, ours), patience):
            return
        if use := _busy(disk, areas, ours):
            raise Refused(disk.user_path, use)


def _out_of_sight(disk: Disk, areas: Areas) -> str | None:
    namespace = PROC / "self/ns/pid"
    if os.path.lexists(namespace) and os.readlink(namespace) != _INITIAL_PID_NAMESPACE:
        return "the processes that may use it are out of sight in this container; run outside it, or with --pid=host"
    return None


def _read_only(disk: Disk, areas: Areas) -> str | None:
    if read(disk.sysfs / "ro") != "0":
        return "it is read-only; `blockdev --setrw` makes it writable, unless the medium itself is locked"
    return None


def _under_root(disk: Disk, areas: Areas) -> str | None:
    views = (_mounts(PROC / process) for process in ("self", "1"))
    todo = [number for view in views for target, number in view if target == "/" and number]
    visited: set[str] = set()
    while todo:
        number = todo.pop()
        if number in visited:
            continue
        visited.add(number)
        sysfs = blockdev.sysfs(number)
        todo += [read(slave / "dev") for slave in (sysfs / "slaves").glob("*")]
        todo.append(read(whole(sysfs) / "dev"))
    return "the root filesystem is on it; name another device" if disk.number in visited else None


def _mounted(disk: Disk, areas: Areas) -> str | None:
    visited: set[tuple[str, ...]] = set()

    def look(thread: Path) -> str | None:
        view = _mount_view(thread)
        if view in visited:
            return None
        for target, number in _mounts(thread):
            if number in areas and number:
                user = _process_text(thread)
                return f"{areas[number].subject} is mounted on {target} (seen by {user}); unmount it first"
        visited.add(view)
        return None

    return _first_of_threads(look)


def _mount_view(thread: Path) -> tuple[str, ...]:
    """Return the identity of a thread's view of the mounts."""
    try:
        # A chroot hides mounts, so the root directory matters too.
        return os.readlink(thread / "ns/mnt"), os.readlink(thread / "root")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG):
            raise
        return (thread.name,)


def _in_btrfs(disk: Disk, areas: Areas) -> str | None:
    # mountinfo names only one of the devices of a btrfs.
    for member in (blockdev.SYS / "fs/btrfs").glob("*/devices/*/dev"):
        with contextlib.suppress(FileNotFoundError):  # unmounted in between
            if (number := read(member)) in areas:
                filesystem = member.parts[-4]
                return f"{areas[number].subject} is part of the mounted btrfs {filesystem}; unmount that first"
    return None


def _swapped(disk: Disk, areas: Areas) -> str | None:
    files = sharing.media_of(whole(disk.sysfs))
    for source in mounts.swaps(PROC):
        if (number := blockdev.number_of_name(source)) in areas and number:
            return f"{areas[number].subject} is swap space; `swapoff {source}` first"
        with contextlib.suppress(OSError):  # its name does not exist in this mount namespace
            status = os.stat(source)
            if sharing.name_of_file(status.st_dev, status.st_ino) in files:
                return f"the file behind it is swap space; `swapoff {source}` first"
    return None


def _held(disk: Disk, areas: Areas) -> str | None:
    for area in areas.values():
        for holder in sorted((area.sysfs / "holders").iterdir()):
            name = blockdev.read_if_there(holder / "dm/name")
            name_of_holder = node(holder) if name is None else f"the device-mapper device {name}"
            return f"{area.subject} is part of {name_of_holder}; take that down first"
    return None


def _behind_loop(disk: Disk, areas: Areas) -> str | None:
    for file in sorted((blockdev.SYS / "block").glob("loop*/loop/backing_file")):
        directory = file.parents[1].resolve()
        with contextlib.suppress(FileNotFoundError):  # detached in between
            if directory != whole(disk.sysfs) and (number := _behind(directory)) in areas and number:
                loop = node(directory)
                return f"{areas[number].subject} is behind the loop device {loop}; `losetup -d {loop}` first"
    return None


def _behind(loop: Path) -> str | None:
    """Return the device behind a loop device, or the one whose filesystem contains its file."""
    file = sharing.backing(loop)
    if isinstance(file, str):
        return blockdev.number_of_name(file)
    return file and (sharing.device_behind(file) or blockdev.major_minor(file.device))


def _exported(disk: Disk, areas: Areas) -> str | None:
    # drivers/nvme/target/io-cmd-bdev.c neither claims the device, nor has a descriptor of a process.
    target = blockdev.SYS / "kernel/config/nvmet"
    if (blockdev.SYS / "module/nvmet").exists() and not target.exists():
        return "the kernel may export it by NVMe over fabrics; `mount -t configfs none /sys/kernel/config` shows that"
    for enable in target.glob("subsystems/*/namespaces/*/enable"):
        with contextlib.suppress(FileNotFoundError):  # removed in between
            number = blockdev.number_of_name(read(enable.with_name("device_path")))
            if number in areas and number and read(enable) != "0":
                return f"{areas[number].subject} is exported by NVMe over fabrics; `echo 0 >{enable}` first"
    return None


_CHECKS: tuple[Callable[[Disk, Areas], str | None], ...] = (
    _out_of_sight,
    _read_only,
    _under_root,
    _mounted,
    _in_btrfs,
    _swapped,
    _held,
    _behind_loop,
    _exported,
)


def _busy(disk: Disk, areas: Areas, ours: frozenset[int]) -> str | None:
    """Return a use that may be short, or that no other check finds."""
    return _opened(areas, ours) or _mapped(areas) or _exclusive(disk, areas)


def _opened(areas: Areas, ours: frozenset[int]) -> str | None:
    tables: dict[str, Path] = {}

    def look(thread: Path) -> str | None:
        # Most threads share the descriptors of the first thread of their process.
        first = tables.setdefault(_process(thread), thread)
        if first != thread and _same_descriptors(first, thread):
            return None
        is_this_process = _process(thread) == str(os.getpid())
        with os.scandir(thread / "fd") as links:
            for link in links:
                if is_this_process and int(link.name) in ours:
                    continue
                try:
                    number = _number_behind(link.path)
                except PermissionError:
                    # Some sandboxes hide the files of init even from root. Init does not keep a disk open.
                    if _process(thread) == "1" and os.geteuid() == 0:
                        return None
                    raise
                if number is None or number not in areas:
                    continue
                area = areas[number]
                # Monitoring tools read the whole disk, and multipathd all paths to it. Only writers are dangerous.
                if (area.alias or not area.inside) and not _writable(thread / "fdinfo" / link.name):
                    continue
                return f"{area.subject} is open in {_process_text(thread)}; end that first"
        return None

    return _first_of_threads(look)


#: From asm/unistd.h of each architecture, and linux/kcmp.h.
_KCMP, _KCMP_FILES = {"x86_64": 312, "aarch64": 272, "riscv64": 272}, 2


def _same_descriptors(one: Path, other: Path) -> bool:
    """Whether two threads share their table of descriptors (kcmp(2)). False if the kernel does not say."""
    call = _KCMP.get(os.uname().machine)
    return call is not None and libc().syscall(call, int(one.name), int(other.name), _KCMP_FILES, 0, 0) == 0


def _mapped(areas: Areas) -> str | None:
    """Return a memory mapping of the device. It needs no descriptor, and can also be written to."""
    numbers: dict[tuple[bytes, bytes, bytes], str | None] = {}
    looked: set[str] = set()

    def look(thread: Path) -> str | None:
        if _process(thread) in looked:  # threads share their memory
            return None
        try:
            lines = (thread / "maps").read_bytes().split(b"\n")
        except PermissionError:
            if _process(thread) == "1" and os.geteuid() == 0:
                return None
            raise
        for line in filter(None, lines):
            where, *fields = line.split(maxsplit=5)
            if len(fields) < 5 or not fields[4].startswith(b"/"):  # no file
                continue
            key = fields[2], fields[3], fields[4]
            if key not in numbers:
                numbers[key] = _number_mapped(PROC / _process(thread), os.fsdecode(where), os.fsdecode(fields[4]))
            if (number := numbers[key]) in areas and number:
                return f"{areas[number].subject} is mapped into the memory of {_process_text(thread)}; end that first"
        looked.add(_process(thread))
        return None

    return _first_of_threads(look)


def _number_mapped(process: Path, where: str, name: str) -> str | None:
    # fs/proc/base.c writes these addresses without leading zeros, fs/proc/task_mmu.c with them.
    link = process / "map_files" / "-".join(f"{int(address, 16):x}" for address in where.split("-"))
    try:
        return blockdev.number(link)
    except OSError:  # unmapped in between, or a name that does not exist here
        return blockdev.number_of_name(name)


def _number_behind(link: str) -> str | None:
    # Without its name: any user can open a file below a path that is too long for a link.
    try:
        return blockdev.number(link)
    except OSError:
        # A file on a dead network mount, or on a private FUSE mount. Device nodes do not work on either.
        return blockdev.number_of_name(_name_behind(link))


def _name_behind(link: str) -> str:
    try:
        return os.readlink(link)
    except FileNotFoundError:  # closed in between
        return ""
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # and so not in /dev
            return ""
        raise


def _writable(fdinfo: Path) -> bool:
    try:
        text = fdinfo.read_text()
    except FileNotFoundError:  # closed in between
        return False
    flags = next(line.split()[1] for line in text.splitlines() if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _exclusive(disk: Disk, areas: Areas) -> str | None:
    for number, area in areas.items():
        if number != disk.number and not (area.alias and (area.inside or not partitions(area.sysfs))):
            continue
        path = disk.path if number == disk.number else Path(node(area.sysfs))
        # Reading is enough to collide with any other exclusive user, and does not trigger udev.
        try:
            with blockdev.opened(path, number, os.O_RDONLY | os.O_EXCL):
                pass
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return (
                f"{area.subject} is in use by the kernel (a filesystem on several devices, an external journal, a "
                "mount out of sight, a frozen filesystem that was unmounted); end that first"
            )
    return None


def _mounts(thread: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the mount points and devices of a thread's mounts."""
    for mount in mounts.table(thread):
        # btrfs and others have several devices or none, and so an anonymous number.
        number = blockdev.number_of_name(mount.source) if mount.device.startswith("0:") else mount.device
        yield mount.target, number


def _first_of_threads(look: Callable[[Path], str | None]) -> str | None:
    """Return the first result of any thread. Raises OSError if a living thread cannot be examined."""
    for process in sorted(PROC.iterdir()):
        if not process.name.isdigit():
            continue
        # A process whose first thread has ended lives on in the others.
        for thread in _threads(process):
            try:
                use = look(thread)
            except OSError:
                if not commands.wait_until(functools.partial(_ended, thread), TERMINATION):
                    raise
                continue
            if use:
                return use
    return None


def _threads(process: Path) -> list[Path]:
    """Return the threads of a process, the main thread first."""
    try:
        return sorted((process / "task").iterdir(), key=lambda thread: int(thread.name))
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return []


def _process(thread: Path) -> str:
    """Return the process number of a thread."""
    return thread.parent.parent.name


def _ended(thread: Path) -> bool:
    """Whether a thread is gone or a zombie, which has neither files nor mounts."""
    return commands.stat_fields(thread)[:1] in ([], ["Z"], ["X"])


def _process_text(thread: Path) -> str:
    return describe_process(PROC / _process(thread))


def describe_process(process: Path) -> str:
    try:
        return f"process {process.name} ({read(process / 'comm')})"
    except OSError:
        return f"process {process.name}"
