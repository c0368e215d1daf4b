"""Mounting and unmounting. Only this module reads mountinfo.

Anybody who may mount (with FUSE every user) controls bytes in that table. So it is read as bytes. Names are decoded
like Python's file names (`os.fsdecode`), which can represent every file name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import re
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pytest_fsstack.machine import blockdev, commands, descriptors, journal, processes, signals
from pytest_fsstack.machine.journal import Fact, Facts, Kind, UndoError
from pytest_fsstack.machine.libc import failure, libc
from pytest_fsstack.machine.port import Machine, Mount

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 0x80000
_MNT_FORCE, _MNT_DETACH, _UMOUNT_NOFOLLOW = 1, 2, 8
_FITHAW = 0xC0045878  # linux/fs.h

PROC = Path("/proc")
#: The kernel's list of FUSE connections, if fusectl is mounted (Documentation/filesystems/fuse.rst).
FUSE_CONNECTIONS = Path("/sys/fs/fuse/connections")
#: Seconds for a FUSE server to answer when the session must end.
_GRACE = 3
#: Error numbers of each call to a FUSE mount without a server.
DISCONNECTED = (errno.ENOTCONN, errno.ECONNABORTED)


def parse(table: bytes) -> list[Mount]:
    """Parse a mountinfo table. Mounts come before those that hide them. Raises ValueError if the table is invalid."""
    mounts = []
    # Split only at characters that the kernel escapes in names. Python knows more kinds of blanks and line ends.
    for line in table.split(b"\n"):
        if not line:
            continue
        fields = line.split(b" ")
        try:
            # A hyphen ends the optional fields.
            _, _, device, root, target, options, *further = fields
            kind, source, super_options = further[further.index(b"-") + 1 :]
        except ValueError:
            raise ValueError(f"not a line of mountinfo: {line!r}") from None
        mounts.append(Mount(*map(unescape, (device, root, target, options, kind, source, super_options))))
    return mounts


def unescape(text: bytes) -> str:
    """Decode a name in a table of the kernel, where blanks and the like are octal numbers."""
    return os.fsdecode(re.sub(rb"\\([0-3][0-7]{2})", lambda octal: bytes([int(octal[1], 8)]), text))


def table(process: Path | None = None) -> list[Mount]:
    """Return the mounts of a process (a directory in /proc), by default of this one. Raises OSError."""
    return parse(((process or PROC / "self") / "mountinfo").read_bytes())


def at(path: str | os.PathLike[str]) -> Mount | None:
    """Return the topmost mount at exactly `path`, or None."""
    return next((mount for mount in reversed(table()) if mount.target == os.fspath(path)), None)


def below(path: str | os.PathLike[str]) -> list[str]:
    """Return the mount points at or below a directory, given as a path without links."""
    directory = os.fspath(path)
    return [mount.target for mount in table() if mount.target == directory or mount.target.startswith(directory + "/")]


@contextlib.contextmanager
def changes() -> Iterator[Callable[[float], object]]:
    """Yield a function that sleeps for some seconds, or until something is mounted or unmounted (proc_pid_mounts(5)).

    What has changed since the beginning of the block, or the last call, ends a call at once.
    """
    with descriptors.opened(PROC / "self/mountinfo") as fd:
        poll = select.poll()
        poll.register(fd, select.POLLPRI)
        yield lambda seconds: poll.poll(1000 * seconds)


def holding(path: Path) -> Mount | None:
    """Return the mount that contains a file or directory."""
    resolved, innermost = path.resolve(), None
    for mount in table():
        # Of two mounts at the same place, the later one hides the earlier.
        if resolved.is_relative_to(mount.target) and (innermost is None or len(mount.target) >= len(innermost.target)):
            innermost = mount
    return innermost


@functools.cache
def private_namespace() -> bool:
    """Move this process to its own mount namespace, once. Return False without the permission (CAP_SYS_ADMIN).

    Later mounts disappear with the process, even after SIGKILL. Propagation is *slave*, so mounts and unmounts of the
    host still take effect here.
    """
    if libc().unshare(_CLONE_NEWNS) != 0:
        return False
    _call(
        "mount", b"none", b"/", None, _MS_REC | _MS_SLAVE, None, failed="cannot make the mounts of this session private"
    )
    return True


def _call(function: str, *arguments: object, failed: str) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(libc(), function)(*arguments) != 0:
        raise failure(failed)


@contextlib.contextmanager
def bound(directory: int, target: Path) -> Iterator[Path]:
    """Bind-mount an open directory at `target`. Raises OSError, also if it was unmounted meanwhile.

    It uses the descriptor, because a tool would look up the name again. Unmounting is lazy.
    """
    source, place = f"/proc/self/fd/{directory}".encode(), os.fsencode(target)
    _call("mount", source, place, None, _MS_BIND, None, failed=f"cannot mount a directory on {target}")
    try:
        yield target
    finally:
        _call("umount2", place, _MNT_DETACH | _UMOUNT_NOFOLLOW, failed=f"cannot unmount {target}")


@contextlib.contextmanager
def mounted(
    machine: Machine,
    source: str | os.PathLike[str],
    target: Path,
    kind: str = "",
    options: str = "",
    cwd: Path | None = None,
    by: Sequence[str] = ("mount",),
    fds: Sequence[int] = (),
) -> Iterator[Path]:
    """Mount, and unmount afterwards. Relative paths in the options are relative to `cwd`. Raises `CommandError`.

    `by` is the mount command, and `fds` are descriptors that it reads.
    """
    words = [*(["-t", kind] if kind else []), *(["-o", options] if options else [])]
    machine.run(*by, *words, source, target, cwd=cwd, fds=fds)
    try:
        yield target
    finally:
        frozen = _thawed(machine, source, target)
        unmount(machine, target, shares="bind" in options.split(","))
        if frozen:
            what_to_do = f"`fsfreeze -u {target}` before the test ends; the teardown has done so"
            raise commands.CommandError(
                ["umount", os.fspath(target)], None, what_to_do, "its filesystem was left frozen"
            )


def _thawed(machine: Machine, source: str | os.PathLike[str], target: Path) -> bool:
    """Thaw a filesystem, and return whether it was frozen.

    A frozen filesystem can be unmounted, but keeps its device forever. Only mounts from a device are touched, because
    the filesystem below a bind mount belongs to somebody else.
    """
    mount = machine.mount_at(target)
    try:
        if mount is None or (number := blockdev.number(source)) is None:
            return False
        if blockdev.number_of_name(mount.source) != number:
            return False
        with descriptors.opened(target, os.O_RDONLY | os.O_DIRECTORY) as directory:
            fcntl.ioctl(directory, _FITHAW, bytes(4))
    except OSError:  # EINVAL if it is not frozen
        return False
    return True


def unmount(
    machine: Machine, target: Path, patience: float = 10.0, *, served: bool = False, shares: bool = False
) -> None:
    """Unmount. If it is in use, raise `CommandError` with its users.

    A busy mount is retried for `patience` seconds: programs that scan all files use one for a moment, and FUSE releases
    a file some time after its last close. After that, it is detached lazily, and the error mentions that. If another
    program has unmounted it, that is an error too, because later reads and writes went to another directory.

    Swap space, mounts and loop devices that a test has left on it are ended, and raise an error that names them. So are
    mounts of its filesystem at other places, unless it `shares` the filesystem of another mount. What uses the mount
    and cannot change while this waits is not waited for.

    `served` means that the session runs the FUSE server of this mount. Its connection is aborted before the lazy
    unmount.
    """
    # Also during a build: mounts must be undone after an error, even if the user interrupts again.
    with signals.during(signals.State.UNDOING):
        filesystem = None if shares else machine.mount_at(target)
        places = _places_of(filesystem)
        ended = _unmount(machine, target, patience, served)
        # The number of a filesystem that is gone may be another's by now, but not at one of these places.
        ended += _unmount_all(machine, [place for place in _places_of(filesystem) if place in places])
    if ended:
        what_to_do = f"`{'; '.join(ended)}` before the test ends; the teardown has done so"
        raise commands.CommandError(["umount", os.fspath(target)], None, what_to_do, "it was left in use")


def _unmount(machine: Machine, target: Path, patience: float, served: bool) -> list[str]:
    """Unmount, and return the commands that ended what a test has left on it."""
    deadline = time.monotonic() + patience
    tries = 0
    ended: list[str] = []
    while True:
        tries += 1
        try:
            machine.run("umount", target)
            break
        except commands.CommandError as error:
            if machine.mount_at(target) is None:
                if tries == 1:
                    raise unmounted_by_others(error.argv) from None
                break
            # Once the mount is detached, a swap file has no name for swapoff.
            if tries == 1 and error.returncode is not None and (ended := _end_leftovers(machine, target)):
                continue
            # Without an exit code, umount got no answer, and would get none again.
            if error.returncode is None or time.monotonic() > deadline or _will_stay(target):
                # Searching for users may query the filesystem.
                users = "" if error.returncode is None else in_use(machine, target)
                if served:
                    abort_fuse(machine, target)
                if mount := machine.mount_at(target):
                    machine.run("umount", "-l", target)
                    _detached.add(blockdev.number_of_name(mount.source) or mount.device)
                detached = "detached: it is unmounted once all who use it have ended"
                text = "; ".join(filter(None, (error.stderr, users, detached)))
                raise commands.CommandError(error.argv, error.returncode, text, error.how) from None
        time.sleep(0.05)
    return ended


def _places_of(filesystem: Mount | None) -> list[str]:
    """Return where a filesystem is mounted, the latest mount first."""
    mounts_of_it = [mount.target for mount in table() if filesystem is not None and mount.device == filesystem.device]
    return mounts_of_it[::-1]


def _unmount_all(machine: Machine, places: Sequence[str]) -> list[str]:
    """End mounts that a test has left at other places. Return the commands for that."""
    for place in places:
        with contextlib.suppress(commands.CommandError):  # it will be listed as a user
            machine.run("umount", place)
    return [f"umount {place}" for place in places]


#: Numbers of devices with a filesystem that was unmounted lazily, because it was in use.
_detached: set[str] = set()


def patience(device: Path, seconds: float) -> float:
    """Return how long to wait until a device is free: not at all if its filesystem could not be unmounted."""
    return 0.0 if blockdev.number_of_name(os.fspath(device)) in _detached else seconds


def note_new(device: Path) -> None:
    """Note that a device is new. An earlier one may have had its number."""
    _detached.discard(blockdev.number_of_name(os.fspath(device)) or "")


def _end_leftovers(machine: Machine, target: Path) -> list[str]:
    """End swap space, mounts and loop devices on a mount. Return the commands for that, also of those that failed."""
    what_ends = [
        *(["swapoff", name] for name in swap_space(target)),
        *(["umount", place] for place in reversed(below(target)) if place != os.fspath(target)),
        *(["losetup", "-d", f"/dev/{loop}"] for loop in _loops_on(target)),
    ]
    for argv in what_ends:
        with contextlib.suppress(commands.CommandError):  # it will be listed as a user
            machine.run(*argv)
    return [" ".join(argv) for argv in what_ends]


def _loops_on(target: Path) -> dict[str, str]:
    """Return the loop devices on files below a mount, with the files."""
    files = {}
    for entry in (blockdev.SYS / "block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it may be detached meanwhile
            if (file := entry.read_text().strip()).startswith(f"{target}/"):
                files[entry.parent.parent.name] = file
    return files


def _will_stay(target: Path) -> bool:
    """Whether a mount has a user that cannot end while this process waits."""
    own = processes.own_files(target, ()) if threading.active_count() == 1 else []
    return bool(own or _loops_on(target) or below(target)[1:])


def abort_fuse(machine: Machine, target: Path) -> bool:
    """Fail all calls that wait for the FUSE server of a mount. Return whether FUSE is mounted there.

    Such calls, even of the server itself, are stuck in the kernel, and SIGKILL does not end them. Without fusectl, a
    forced unmount does the same. Raises OSError.
    """
    mount = machine.mount_at(target)
    if mount is None or not mount.kind.startswith("fuse"):
        return False
    major, minor = map(int, mount.device.split(":"))
    # The directory's name is the kernel's number of the filesystem.
    control = FUSE_CONNECTIONS / str(major << 20 | minor) / "abort"
    if control.exists():
        control.write_text("1")
    else:
        # This aborts the connection, and then fails if the mount is still in use.
        libc().umount2(os.fsencode(target), _MNT_FORCE | _UMOUNT_NOFOLLOW)
    return True


def aborted(argv: Sequence[str]) -> commands.CommandError:
    """Return the error for a FUSE server whose connection was aborted."""
    text = "all that waited for it has ended with an error"
    return commands.CommandError(argv, None, text, "it did not answer, so its connection was aborted")


class FuseWatch(threading.Thread):
    """A watchdog that aborts the connection to a hanging FUSE server when the session, or a step, must end.

    It is a thread, because the main thread may be blocked in a call to this server.
    """

    def __init__(self, machine: Machine, target: Path) -> None:
        super().__init__(daemon=True, name=f"fsstack: {target}")
        self.machine, self.target, self.aborted = machine, target, False
        self._over = threading.Event()

    def __enter__(self) -> FuseWatch:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join(2.0 * _GRACE)

    def run(self) -> None:
        # Block the signals here, so that they stay pending for the process while the main thread hangs.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.END_SIGNALS)
        seconds = 0
        while not self._over.wait(1.0):
            seconds = seconds + 1 if signals.must_end() else 0
            if seconds >= _GRACE and self.answer() is None:
                self.aborted = abort_fuse(self.machine, self.target)
                return

    def abort_if_hanging(self, patience: float) -> None:
        """Abort the connection if the server does not answer. Each command that uses the mount would wait for it."""
        # The mount may vanish meanwhile. What it stands for must be taken down in any case.
        with signals.shielded(), contextlib.suppress(OSError):
            if self.answer(patience) is None:
                self.aborted = abort_fuse(self.machine, self.target)
            signals.progress()

    def answer(self, patience: float = _GRACE) -> int | None:
        """Return the error number of statfs(2), 0 if there is no error or no FUSE mount, None if there is no answer.

        It is in `DISCONNECTED` after an abort, or after the end of the server.
        """
        mount = self.machine.mount_at(self.target)
        if mount is None or not mount.kind.startswith("fuse"):
            return 0
        answers: list[int] = []
        question = threading.Thread(target=_ask_for_space, args=(self.target, answers), daemon=True)
        question.start()
        question.join(patience)
        return answers[0] if answers else None


def _ask_for_space(target: Path, answers: list[int]) -> None:
    try:
        os.statvfs(target)
        answers.append(0)
    except OSError as error:
        answers.append(error.errno or 0)


def in_use(machine: Machine, place: Path) -> str:
    """Describe who uses a mount or a block device."""
    swap = [f"swap space ({name}), which `swapoff` ends" for name in swap_space(place)]
    loops = [f"/dev/{loop} on {file}{_users_of_loop(loop)}" for loop, file in _loops_on(place).items()]
    nested = [f"a mount at {other}, which `umount` ends" for other in below(place) if other != os.fspath(place)]
    if users := [*processes.users(place, machine.daemons), *swap, *loops, *nested, *_mounts_of(place)]:
        return f"in use by: {', '.join(users)}"
    if blockdev.number_of_name(os.fspath(place)) in _detached:
        return "in use by its filesystem, which could not be unmounted"
    if _lives_without_mount(place):
        return (
            f"in use by a filesystem that is not mounted any more, as a frozen one is: mount {place} again and thaw it "
            "(fsfreeze -u)"
        )
    return "in use, but no process that uses it was found"


def _mounts_of(place: Path) -> Iterator[str]:
    """Yield the mounts of a block device, once for each mount namespace, with a process of it."""
    if (number := blockdev.number_of_name(os.fspath(place))) is None:
        return
    views: set[str] = set()
    for process in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # the process may end meanwhile
            if (view := os.readlink(process / "ns/mnt")) not in views:
                views.add(view)
                for mount in table(process):
                    if number in (mount.device, blockdev.number_of_name(mount.source)):
                        command = blockdev.read(process / "comm")
                        yield f"{process.name} ({command}), which sees it mounted at {mount.target}"


def _users_of_loop(loop: str) -> str:
    """Return what uses a loop device: mounts and devices on it."""
    device = blockdev.SYS / "block" / loop
    number = blockdev.read(device / "dev")
    users = [mount.target for mount in table() if mount.device == number]
    users += sorted(holder.name for holder in (device / "holders").iterdir())
    return f", which {' and '.join(users)} use" if users else ", which `losetup -d` ends"


def swaps(proc: Path) -> list[str]:
    """Return the names of all swap space. Raises OSError, also if `proc` shows only processes (``subset=pid``)."""
    try:
        lines = (proc / "swaps").read_bytes().split(b"\n")[1:]
    except FileNotFoundError:
        if (proc / "filesystems").exists():
            return []  # the kernel has no swap (CONFIG_SWAP)
        raise
    return [unescape(line.split(maxsplit=1)[0]) for line in lines if line]


def swap_space(place: Path) -> list[str]:
    """Return the swap space at or below a path."""
    try:
        return [name for name in swaps(PROC) if name == os.fspath(place) or name.startswith(f"{place}/")]
    except FileNotFoundError:  # /proc shows only processes
        return []


def _lives_without_mount(device: Path) -> bool:
    """Whether a device has an active filesystem without a mount. ext4, XFS and f2fs show that in sysfs."""
    number = blockdev.number(device)
    has_sysfs = any((blockdev.SYS / "fs").glob(f"*/{device.name}"))
    return number is not None and has_sysfs and all(mount.device != number for mount in table())


def unmounted_by_others(argv: Sequence[str]) -> commands.CommandError:
    """Return the error for a mount that somebody else has unmounted."""
    what_to_do = "what ran since did not run on it; find what unmounts it in the middle of a test"
    return commands.CommandError(argv, None, what_to_do, "it is not mounted any more")


# -- after a kill ------------------------------------------------------------------------------------------------------


def real_target(facts: Facts) -> dict[str, Fact]:
    """Resolve links in the target of a mount, so that it can be found later."""
    return {"target": os.path.realpath(journal.text(facts, "target"))}


def _is_mounted(machine: Machine, facts: Facts) -> bool:
    return machine.mount_at(Path(journal.text(facts, "target"))) is not None


def _unmounted(machine: Machine, facts: Facts) -> str:
    target = Path(journal.text(facts, "target"))
    try:
        while mount := machine.mount_at(target):
            # Without root, only FUSE's own tool may unmount, and `umount` fails if the daemon is dead.
            if os.geteuid() != 0 and mount.kind.startswith("fuse"):
                machine.run("fusermount3" if machine.which("fusermount3") else "fusermount", "-u", target)
            else:
                machine.run("umount", target)
    except commands.CommandError as error:
        raise UndoError(f"{error.stderr}; {in_use(machine, target)}") from error
    return f"unmounted {target}"


MOUNT = Kind("mount", _is_mounted, _unmounted, real_target)
