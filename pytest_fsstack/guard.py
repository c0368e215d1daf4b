"""May this device be overwritten? Only where every check was made, and none found a reason against it.

The tools' own checks are not enough: some format what is mounted, most what merely holds data. `check_idle` looks for
users of a device, `check_contents` for data on it, `claimed` does both and keeps other sessions away meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack import host

_PROC, _SYS, _LOCKS = Path("/proc"), Path("/sys"), Path("/run/lock")

_KIB, _MIB = 1 << 10, 1 << 20
_BLKFLSBUF = 0x1261  # linux/fs.h
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO in linux/proc_ns.h

#: udev opens a device for a moment whenever somebody has closed it after writing.
_PATIENCE = 2.0


class Refused(Exception):  # noqa: N818 - what happened is not an error of anything
    """A device must not be written to; in one line: which device, what was found, where, and what to do."""

    def __init__(self, device: Path, reason: str) -> None:
        self.device, self.reason = device, reason
        super().__init__(f"{device} will not be overwritten: {reason}")


# -- which device ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Disk:
    """A block device as it was when it was looked at: a whole disk or a partition."""

    #: As the user named it, and what that resolves to.
    named: Path
    path: Path
    #: ``major:minor``, as /sys/dev/block names it.
    number: str
    #: In bytes.
    size: int
    #: Grows with each medium that the kernel sees, so that no two disks share it before the next boot; None before
    #: Linux 5.15.
    diskseq: int | None

    def check(self) -> None:
        """Raise `Refused` unless this is still the same device and it is idle."""
        if identify(self.named) != self:
            raise Refused(self.named, "it is not the device any more that it was at first; was it plugged in again?")
        with _or_refused(self.named):
            for look in _LOOKS:
                if found := look(self):
                    raise Refused(self.named, found)
            if not host.wait_until(lambda: not _busy(self), _PATIENCE) and (found := _busy(self)):
                raise Refused(self.named, found)

    def facts(self) -> dict[str, str | int | None]:
        """What tells this device from others, for the journal."""
        return {"path": str(self.path), "number": self.number, "size": self.size, "diskseq": self.diskseq}

    @property
    def _sysfs(self) -> Path:
        return (_SYS / "dev/block" / self.number).resolve(strict=True)


def identify(path: Path) -> Disk:
    """The block device at `path`, symbolic links followed. Raises `Refused` where there is none."""
    with _or_refused(path):
        if not path.exists():
            raise Refused(path, "there is no such device")
        real = path.resolve(strict=True)
        number = _number(real)
        if number is None:
            raise Refused(path, "it is not a block device")
        sysfs = (_SYS / "dev/block" / number).resolve(strict=True)
        size = int(_read(sysfs / "size")) * 512
        if not size:
            raise Refused(path, "it has no medium")
        diskseq = _whole(sysfs) / "diskseq"
        return Disk(path, real, number, size, int(_read(diskseq)) if diskseq.exists() else None)


def check_idle(path: Path) -> None:
    """Raise `Refused` unless `path` is a block device that nothing uses, in whole or in part.

    Used means: mounted in any mount namespace, swap, a member of a device mapper, md or btrfs device, behind a loop
    device, open in a process, held by the kernel, under the root filesystem, or read-only. A check that cannot be made
    counts as a reason to refuse.
    """
    identify(path).check()


@contextlib.contextmanager
def _or_refused(path: Path) -> Iterator[None]:
    """What cannot be looked at is not known to be harmless."""
    try:
        yield
    except (OSError, host.CommandError) as error:
        if isinstance(error, PermissionError) and os.geteuid() != 0:
            raise Refused(path, f"that needs root ({error}); run pytest with sudo") from error
        raise Refused(path, f"it cannot be checked: {error}") from error


def _read(path: Path) -> str:
    return path.read_text().strip()


def _number(path: str | Path) -> str | None:
    """``major:minor`` of a block device; None for anything else."""
    status = os.stat(path)
    if not stat.S_ISBLK(status.st_mode):
        return None
    return f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"


def _number_of_source(text: str) -> str | None:
    """The device that the kernel shows as a path, which may lead nowhere in our own mount namespace."""
    if not text.startswith("/"):
        return None
    try:
        return _number(text)
    except OSError:
        name = text.removesuffix(" (deleted)")
        shown = _SYS / "class/block" / name.rpartition("/")[2] / "dev"
        return _read(shown) if name.startswith("/dev/") and shown.exists() else None


def _whole(sysfs: Path) -> Path:
    return sysfs.parent if (sysfs / "partition").exists() else sysfs


def _partitions(disk: Path) -> list[Path]:
    return sorted(child.parent for child in disk.glob("*/partition"))


def _node(sysfs: Path) -> str:
    # The kernel writes the slash in names such as cciss/c0d0 as an exclamation mark.
    return f"/dev/{sysfs.name.replace('!', '/')}"


def _overlapping(disk: Disk) -> dict[str, tuple[str, Path]]:
    """All devices with bytes in common with this one, by number: how to speak of each, and where sysfs has it."""
    own = disk._sysfs
    found = {disk.number: ("it", own)}
    whole = _whole(own)
    if whole == own:
        for part in _partitions(own):
            found[_read(part / "dev")] = (f"its partition {_node(part)}", part)
        return found
    found[_read(whole / "dev")] = (f"the disk {_node(whole)} that it is on", whole)
    start, end = _extent(own)
    for part in _partitions(whole):
        other_start, other_end = _extent(part)
        if part != own and other_start < end and start < other_end:
            found[_read(part / "dev")] = (f"the partition {_node(part)}, which it overlaps,", part)
    return found


def _extent(part: Path) -> tuple[int, int]:
    start = int(_read(part / "start"))
    return start, start + int(_read(part / "size"))


# -- who uses it -------------------------------------------------------------------------------------------------------


def _out_of_sight(disk: Disk) -> str | None:
    namespace = _PROC / "self/ns/pid"
    if os.path.lexists(namespace) and os.readlink(namespace) != _INITIAL_PID_NAMESPACE:
        return "the processes that may use it are out of sight in this container; run outside it, or with --pid=host"
    return None


def _read_only(disk: Disk) -> str | None:
    if _read(disk._sysfs / "ro") != "0":
        return "it is read-only; `blockdev --setrw` makes it writable, unless the medium itself is locked"
    return None


def _under_root(disk: Disk) -> str | None:
    todo = [
        number
        for process in ("self", "1")
        for mount in _mounts(_PROC / process)
        if mount.target == "/" and (number := mount.device)
    ]
    seen: set[str] = set()
    while todo:
        number = todo.pop()
        if number in seen:
            continue
        seen.add(number)
        sysfs = (_SYS / "dev/block" / number).resolve(strict=True)
        todo += [_read(slave / "dev") for slave in (sysfs / "slaves").glob("*")]
        todo.append(_read(_whole(sysfs) / "dev"))
    return "the root filesystem is on it; name another device" if disk.number in seen else None


def _mounted(disk: Disk) -> str | None:
    devices = _overlapping(disk)
    seen: set[tuple[str, ...]] = set()

    def look(process: Path) -> str | None:
        view = _view(process)
        if view in seen:
            return None
        for mount in _mounts(process):
            if mount.device in devices:
                subject, _ = devices[mount.device]
                return f"{subject} is mounted on {mount.target} (seen by {_who(process)}); unmount it first"
        seen.add(view)
        return None

    return _first(look)


def _view(process: Path) -> tuple[str, ...]:
    """What two processes share that see the same mounts."""
    try:
        # A chroot hides mounts, so the root directory counts as well as the namespace.
        return os.readlink(process / "ns/mnt"), os.readlink(process / "root")
    except PermissionError:
        return (process.name,)


def _in_btrfs(disk: Disk) -> str | None:
    # mountinfo names only one of the devices of a btrfs.
    devices = _overlapping(disk)
    for member in (_SYS / "fs/btrfs").glob("*/devices/*/dev"):
        with contextlib.suppress(FileNotFoundError):  # unmounted meanwhile
            if (number := _read(member)) in devices:
                filesystem = member.parts[-4]
                return f"{devices[number][0]} is part of the mounted btrfs {filesystem}; unmount that first"
    return None


def _swapped(disk: Disk) -> str | None:
    devices = _overlapping(disk)
    for line in (_PROC / "swaps").read_text().splitlines()[1:]:
        source = unescape(line.split()[0])
        if (number := _number_of_source(source)) in devices and number:
            return f"{devices[number][0]} is swap space; `swapoff {source}` first"
    return None


def _held(disk: Disk) -> str | None:
    for subject, sysfs in _overlapping(disk).values():
        for holder in sorted((sysfs / "holders").iterdir()):
            name = holder / "dm/name"
            shown = f"the device-mapper device {_read(name)}" if name.exists() else _node(holder)
            return f"{subject} is part of {shown}; take that down first"
    return None


def _behind_loop(disk: Disk) -> str | None:
    devices = _overlapping(disk)
    for file in sorted((_SYS / "block").glob("loop*/loop/backing_file")):
        with contextlib.suppress(FileNotFoundError):  # detached meanwhile
            if (number := _number_of_source(_read(file))) in devices and number:
                loop = _node(file.parents[1])
                return f"{devices[number][0]} is behind the loop device {loop}; `losetup -d {loop}` first"
    return None


_LOOKS: tuple[Callable[[Disk], str | None], ...] = (
    _out_of_sight,
    _read_only,
    _under_root,
    _mounted,
    _in_btrfs,
    _swapped,
    _held,
    _behind_loop,
)


def _busy(disk: Disk) -> str | None:
    """What may be over in a moment, and what shows in no other place."""
    return _opened(disk) or _exclusive(disk)


def _opened(disk: Disk) -> str | None:
    devices = _overlapping(disk)
    whole = _read(_whole(disk._sysfs) / "dev")

    def look(process: Path) -> str | None:
        for link in os.scandir(process / "fd"):
            try:
                number = _number_behind(link.path)
            except PermissionError:
                # Some sandboxes hide the files of init even from root. It is not one to hold a disk open.
                if process.name == "1" and os.geteuid() == 0:
                    return None
                raise
            if number is None or number not in devices:
                continue
            # Monitoring tools read the whole disk; only who writes to it can touch another partition.
            if number == whole != disk.number and not _writable(process / "fdinfo" / link.name):
                continue
            return f"{devices[number][0]} is open in {_who(process)}; end that first"
        return None

    return _first(look)


def _number_behind(link: str) -> str | None:
    try:
        target = os.readlink(link)
    except FileNotFoundError:  # closed meanwhile
        return None
    if not target.startswith("/"):  # a pipe, a socket
        return None
    try:
        return _number(link)
    except OSError:
        # A file on a dead network mount, or on somebody's private FUSE mount: device nodes do not work on either.
        return _number_of_source(target)


def _writable(fdinfo: Path) -> bool:
    try:
        text = fdinfo.read_text()
    except FileNotFoundError:  # closed meanwhile
        return False
    flags = next(line.split()[1] for line in text.splitlines() if line.startswith("flags:"))
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _exclusive(disk: Disk) -> str | None:
    # Reading is enough to collide with any other exclusive user, and does not wake udev at the end.
    try:
        os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return (
            "it is in use by the kernel (a filesystem on several devices, an external journal, a mount out of sight); "
            "end that first"
        )
    return None


@dataclass(frozen=True)
class _Mount:
    target: str
    device: str | None


def _mounts(process: Path) -> Iterator[_Mount]:
    for line in (process / "mountinfo").read_text(errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        number: str | None = fields[2]
        # btrfs and others have several devices or none, and so an anonymous number.
        if fields[2].startswith("0:"):
            number = _number_of_source(unescape(right.split(" ")[1]))
        yield _Mount(unescape(fields[4]), number)


def unescape(text: str) -> str:
    """A path as the kernel's tables write it, with blanks and the like as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), text)


def _first(look: Callable[[Path], str | None]) -> str | None:
    """The first answer of any process. Raises OSError where a process stays that cannot be looked into."""
    for process in sorted(_PROC.iterdir()):
        if not process.name.isdigit():
            continue
        try:
            found = look(process)
        except OSError:
            # One that is ending lets go of its namespaces before it shows as ended.
            if not host.wait_until(functools.partial(_ended, process), _PATIENCE):
                raise
            continue
        if found:
            return found
    return None


def _ended(process: Path) -> bool:
    """Whether a process is gone or a zombie, which has neither files nor mounts."""
    try:
        text = (process / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text.rpartition(")")[2].split()[0] in {"Z", "X"}


def _who(process: Path) -> str:
    try:
        return f"process {process.name} ({_read(process / 'comm')})"
    except OSError:
        return f"process {process.name}"


# -- what is on it -----------------------------------------------------------------------------------------------------

#: Too small for any filesystem worth testing, and for the samples below to make sense.
_SMALLEST = 16 * _MIB
_SAMPLES, _SAMPLE = 1000, 4 * _KIB


def check_contents(path: Path) -> None:
    """Raise `Refused` unless the device is blank or carries the label of `write_label`.

    Blank is: no partitions, no signature that blkid knows, and zeros wherever one looks. Data without any signature,
    such as that of plain dm-crypt, shows only by not being zero.
    """
    disk = identify(path)
    with _or_refused(path):
        if found := _contents(disk):
            raise Refused(path, f"{found}; `--fsstack-overwrite={path}` on the command line gives it over to testing")


def signature(path: Path) -> str:
    """What blkid recognises on a device, identifiers included; empty where nothing. Raises `Refused`."""
    with _or_refused(path):
        found = _probe(path)
        return " ".join(found[key] for key in ("PTTYPE", "PTUUID", "TYPE", "UUID") if key in found)


def _contents(disk: Disk) -> str | None:
    if parts := _partitions(disk._sysfs):
        return f"it has the partitions {', '.join(map(_node, parts))}"
    with _fresh(disk) as fd:
        if found := _in_words(_probe(disk.path)):
            return f"it holds {found}"
        labelled = _labelled_size(fd, disk.size)
        if labelled == disk.size:
            return None
        if labelled is not None:
            return f"it carries the scratch label of another device, of {_bytes(labelled)}, not {_bytes(disk.size)}"
        for offset, length in _samples(disk.size):
            data = _pread(fd, length, offset)
            if data != bytes(length):
                first = offset + length - len(data.lstrip(b"\0"))
                return f"it holds data without a known signature, at byte {first} of {disk.size}"
    return None


@contextlib.contextmanager
def _fresh(disk: Disk) -> Iterator[int]:
    """A descriptor for reading what is on the medium now, and not what was cached before."""
    # What was written through the whole disk is in a cache of its own, which reading a partition does not consult.
    whole = _open(Path(_node(_whole(disk._sysfs))))
    try:
        os.fsync(whole)
    finally:
        os.close(whole)
    fd = _open(disk.path)
    try:
        fcntl.ioctl(fd, _BLKFLSBUF)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        yield fd
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _open(path: Path, flags: int = os.O_RDONLY) -> int:
    return os.open(path, flags | os.O_CLOEXEC)


def _probe(path: Path) -> Mapping[str, str]:
    try:
        text = host.run("blkid", "-p", "-o", "export", path)
    except host.CommandError as error:
        if error.returncode == 8:
            return {"TYPE": "several signatures that contradict each other", "USAGE": "ambivalent"}
        # It says 2 for a device that it could not read as well: whoever calls this has read it, or will.
        if error.returncode == 2 and not error.stderr:
            return {}
        raise
    pairs = (shlex.split(line)[0].partition("=") for line in text.splitlines() if line)
    found = {key: value for key, _, value in pairs}
    # Of a partition it also tells what the table on the disk says about it.
    return {key: value for key, value in found.items() if key != "DEVNAME" and not key.startswith("PART_ENTRY_")}


def _in_words(found: Mapping[str, str]) -> str | None:
    if not found:
        return None
    words = []
    if kind := found.get("TYPE"):
        form = {"filesystem": "a filesystem ({})", "ambivalent": "{}"}.get(found.get("USAGE", ""), "a signature ({})")
        words.append(form.format(kind) + (f" labelled {found['LABEL']!r}" if "LABEL" in found else ""))
    if table := found.get("PTTYPE"):
        words.append(f"a partition table ({table})")
    return " and ".join(words) or f"something that blkid reports as {', '.join(sorted(found))}"


def _samples(size: int) -> Iterator[tuple[int, int]]:
    """Offsets and lengths: the ends, where signatures are, and blocks spread evenly between them."""
    edge, between = 16 * _MIB, size - 32 * _MIB
    if between < 2 * _SAMPLES * _SAMPLE:
        yield from _chunks(0, size)
        return
    yield from _chunks(0, edge)
    yield from _chunks(size - edge, size)
    for index in range(_SAMPLES):
        yield edge + between * index // _SAMPLES // _SAMPLE * _SAMPLE, _SAMPLE


def _chunks(start: int, end: int) -> Iterator[tuple[int, int]]:
    for offset in range(start, end, _MIB):
        yield offset, min(_MIB, end - offset)


def _pread(fd: int, length: int, offset: int) -> bytes:
    data = os.pread(fd, length, offset)
    if len(data) != length:
        raise OSError(errno.EIO, f"{len(data)} of {length} bytes could be read at byte {offset}")
    return data


def _bytes(size: int) -> str:
    if size < _MIB:
        return f"{size} bytes"
    unit, name = (1 << 30, "GiB") if size >= 1 << 30 else (_MIB, "MiB")
    return f"{size / unit:.1f} {name} ({size} bytes)"


# -- the scratch label -------------------------------------------------------------------------------------------------

_LABEL_BLOCK = 4 * _KIB
_LABEL = (
    "pytest-fsstack scratch device: holds nothing worth keeping and may be overwritten.\n"
    "format 1\nsize {size}\nid {id}\n"
)
_LABEL_PATTERN = re.compile(re.escape(_LABEL).replace(r"\{size\}", r"(\d+)").replace(r"\{id\}", r"[0-9a-f]{32}"))


def write_label(path: Path) -> None:
    """Empty a device but for a label that says it may be overwritten. For a device that has been checked.

    Raises `Refused` where it is too small or busy, `host.CommandError` and OSError where it cannot be written.
    """
    disk = identify(path)
    _check_size(disk, 0)
    host.run("wipefs", "-aq", disk.path)
    try:
        fd = _open(disk.path, os.O_RDWR | os.O_EXCL)
    except OSError as error:
        raise Refused(path, f"it is in use again: {error}") from error
    try:
        for offset in (disk.size - _MIB, 0):
            _pwrite(fd, bytes(_MIB), offset)
        os.fsync(fd)  # the label must not reach the medium before the zeros do
        text = _LABEL.format(size=disk.size, id=os.urandom(16).hex())
        _pwrite(fd, text.encode().ljust(_LABEL_BLOCK, b"\0"), 0)
        os.fsync(fd)
    finally:
        os.close(fd)


def labelled(path: Path) -> bool:
    """Whether a device carries the label of `write_label`, and nothing else. Raises `Refused` where it cannot tell."""
    disk = identify(path)
    with _or_refused(path), _fresh(disk) as fd:
        return _labelled_size(fd, disk.size) == disk.size and not _probe(disk.path)


def _labelled_size(fd: int, size: int) -> int | None:
    """The size that the label names, where the ends of the device hold the label and nothing else.

    Tools that leave room for a boot loader may leave the first bytes as they were, so the text alone proves nothing.
    """
    if size < _SMALLEST:
        return None
    head = _pread(fd, _MIB, 0)
    text = head.rstrip(b"\0")
    match = _LABEL_PATTERN.fullmatch(text.decode(errors="replace"))
    if match is None or _pread(fd, _MIB, size - _MIB) != bytes(_MIB):
        return None
    return int(match[1])


def _pwrite(fd: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _check_size(disk: Disk, minimum: int) -> None:
    needed = max(minimum, _SMALLEST)
    if disk.size < needed:
        raise Refused(disk.named, f"it is too small: {_bytes(disk.size)}, where {_bytes(needed)} are needed")


# -- for one session ---------------------------------------------------------------------------------------------------


def _unrecorded(disk: Disk) -> AbstractContextManager[object]:
    return contextlib.nullcontext()


@contextlib.contextmanager
def claimed(
    path: Path,
    *,
    overwrite: bool,
    minimum: int = 0,
    record: Callable[[Disk], AbstractContextManager[object]] = _unrecorded,
) -> Iterator[Disk]:
    """Keep a device for this session: nobody else claims it meanwhile, and afterwards it carries the scratch label.

    `overwrite` says that the user gave up what is on it; it must be idle and of `minimum` bytes all the same. `record`
    is entered once the device has passed and left once it is labelled (for the journal). Call `Disk.check` of
    what is yielded before each write. Raises `Refused`, also at the end where something still uses the device: it is
    left as it is then.
    """
    disk = identify(path)
    with _locked(disk):
        _check_size(disk, minimum)
        disk.check()
        if not overwrite:
            check_contents(path)
        with record(disk):
            try:
                yield disk
            finally:
                disk.check()
                write_label(path)


@contextlib.contextmanager
def _locked(disk: Disk) -> Iterator[None]:
    """Lock a file and not the device: `udevadm settle` would wait for that.

    Claims of partitions share the lock of their disk, which the claim of the whole disk takes alone.
    """
    with ExitStack() as undo:
        with _or_refused(disk.named):
            _LOCKS.mkdir(parents=True, exist_ok=True)
            whole = _read(_whole(disk._sysfs) / "dev")
            if whole != disk.number:
                undo.callback(os.close, _lock(disk, whole, fcntl.LOCK_SH))
            undo.callback(os.close, _lock(disk, disk.number, fcntl.LOCK_EX))
        yield


def _lock(disk: Disk, number: str, operation: int) -> int:
    # The file stays for ever: a lock on a name that somebody else may remove excludes nobody.
    path = _LOCKS / f"pytest-fsstack-{number}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        holders = ", ".join(_lock_holders(os.fstat(fd).st_ino)) or "another process"
        os.close(fd)
        raise Refused(disk.named, f"{holders} is testing it or a part of it ({path}); wait for its end") from None
    return fd


def _lock_holders(inode: int) -> list[str]:
    held = re.findall(rf"\d+: FLOCK +\S+ +\S+ +(\d+) [0-9a-f]+:[0-9a-f]+:{inode} ", (_PROC / "locks").read_text())
    return [_who(_PROC / pid) for pid in dict.fromkeys(held)]
