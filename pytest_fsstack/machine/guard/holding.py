"""Devices that a session holds exclusively, with a fixed identity."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from pytest_fsstack.machine import blockdev
from pytest_fsstack.machine.blockdev import read, whole
from pytest_fsstack.machine.descriptors import closing, opened
from pytest_fsstack.machine.guard import users
from pytest_fsstack.machine.guard.contents import refuse_contents
from pytest_fsstack.machine.guard.disk import Disk, InUse, Refused, identify, refusing_errors
from pytest_fsstack.machine.guard.label import RecordProof, check_size, write_label_on
from pytest_fsstack.machine.guard.sharing import overlapping

LOCKS = Path("/run/lock")

#: Monitors, backups or udev may read the disk after a stack was taken down, and get this many seconds. Without a label,
#: the user would have to permit overwriting again.
_PATIENCE_AT_THE_END = 30.0

#: A context around the use of a device, from its acceptance to its label. It yields a function that records the proof.
Record = Callable[[Disk], AbstractContextManager[RecordProof | None]]


def _unrecorded(disk: Disk) -> AbstractContextManager[RecordProof | None]:
    return contextlib.nullcontext()


class Held:
    """A device that a session writes to. It stays open, so the kernel cannot reuse its number.

    `overwrite` (the user's permission) applies to this device, not to its name.
    """

    def __init__(self, disk: Disk, fd: int, overwrite: bool) -> None:
        self.disk, self.overwrite, self._fd = disk, overwrite, fd
        self._lost: Refused | None = None

    @property
    def path(self) -> Path:
        """Return the path for tools: the one that the name resolved to at first. Links may have changed since."""
        return self.disk.path

    def verify(self) -> None:
        """Raise `Refused`, now and permanently, if the name or the path now leads to another device."""
        if self._lost is None:
            try:
                now = identify(self.disk.user_path).identity
                if now == self.disk.identity:
                    self._verify_path()
                    return
                change = f"{self.disk.number} then, {now.number} now" if now.number != self.disk.number else "changed"
                raise Refused(
                    self.disk.user_path,
                    f"it is not the device any more that it was at first ({change}); was it plugged in again? Nothing "
                    "was written to this one; start a new session to use it",
                )
            except Refused as error:
                self._lost = error
        raise self._lost

    def _verify_path(self) -> None:
        with refusing_errors(self.disk.user_path):
            if (now := blockdev.identify(self.path)) != self.disk.identity:
                number = now.number if now else "no block device"
                raise Refused(
                    self.disk.user_path,
                    f"{self.path} is not the device any more that it was at first (it is {number} now)",
                )

    def check(self) -> None:
        """Raise `Refused` unless this is still the same device and it is idle. Call this before each write."""
        self.verify()
        self._check_idle(users.PATIENCE)

    def _check_idle(self, patience: float) -> None:
        users.check_unused(self.disk, frozenset({self._fd}), patience)

    def accept(self) -> None:
        """Raise `Refused` unless the device is large enough, idle, and labelled, blank or permitted by the user."""
        self.verify()
        check_size(self.disk)
        self.check()
        if not self.overwrite:
            refuse_contents(self.disk)

    def settle(self) -> None:
        """Write out and drop the cache after a tool has written, as the kernel does when the last user closes a device.

        Raises the errors of `verify`, and OSError.
        """
        self.verify()
        blockdev.forget_cache(self._fd)

    def label(self, record_proof: RecordProof | None = None) -> None:
        """Erase the device and write the scratch label. Raises the errors of `write_label_on`.

        It uses the device's number, so the device is labelled even if its name now leads elsewhere.
        """
        self._verify_path()
        self._check_idle(_PATIENCE_AT_THE_END)
        write_label_on(self.disk, record_proof)

    @contextlib.contextmanager
    def claimed(self, *, record: Record = _unrecorded) -> Iterator[Held]:
        """Lend the device to one stack, and label it afterwards.

        `record` surrounds the use, for the journal. Raises `Refused`, also at the end if the device is still in use. It
        is then left as it is.
        """
        self.accept()
        with record(self.disk) as record_proof:
            try:
                yield self
            finally:
                self.label(record_proof)


@contextlib.contextmanager
def held(disk: Disk, *, overwrite: bool) -> Iterator[Held]:
    """Hold a device for this session, and lock out other sessions.

    Raises `Refused`, also if its name leads to another device than when it was identified.
    """
    with _locked(disk), ExitStack() as undo:
        with refusing_errors(disk.user_path):
            fd = undo.enter_context(blockdev.opened(disk.path, disk.number))
            undo.enter_context(_unshared(fd))
        holding = Held(disk, fd, overwrite)
        holding.verify()
        yield holding


#: Descriptors of devices and locks. A child replaces each by one of /dev/null, which is open already: at a fork, there
#: may be no free descriptor, or no such path.
_own: dict[int, int] = {}


@contextlib.contextmanager
def _unshared(fd: int) -> Iterator[None]:
    """Take a descriptor away from children that are forked in the block, as by `multiprocessing`."""
    with opened(os.devnull) as _own[fd]:
        try:
            yield
        finally:
            del _own[fd]


def _disown() -> None:
    """Release devices and locks in a forked child: it would keep the device in use, even after this session."""
    # Their numbers stay in use, because whatever closes them was forked as well.
    for fd, null in _own.items():
        os.dup2(null, fd, inheritable=False)


os.register_at_fork(after_in_child=_disown)


@contextlib.contextmanager
def _locked(disk: Disk) -> Iterator[None]:
    """Lock files for the disk. A lock on the device itself would block `udevadm settle`.

    Partitions take a shared lock of their disk, and a whole disk takes it exclusively. The same goes for every other
    path to the same medium.
    """
    with ExitStack() as undo:
        with refusing_errors(disk.user_path):
            LOCKS.mkdir(parents=True, exist_ok=True)
            operations = {read(whole(disk.sysfs) / "dev"): fcntl.LOCK_SH}
            for area in filter(lambda area: area.alias, overlapping(disk).values()):
                shared = not area.inside and whole(area.sysfs) == area.sysfs
                operations[area.number] = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            operations[disk.number] = fcntl.LOCK_EX
            for number, operation in operations.items():
                fd = undo.enter_context(closing(_lock(disk, number, operation)))
                undo.enter_context(_unshared(fd))
        yield


def _lock(disk: Disk, number: str, operation: int) -> int:
    # The file is never removed: a lock on a removable name would exclude nobody.
    path = LOCKS / f"pytest-fsstack-{number}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        holders = _lock_holders(os.fstat(fd).st_ino)
        os.close(fd)
        if str(os.getpid()) in holders:
            reason = "this session has it already, by another name or as a part of another device; name it once"
            raise Refused(disk.user_path, reason) from None
        names = ", ".join(users.describe_process(users.PROC / pid) for pid in holders) or "another process"
        reason = f"{names} is testing it or a part of it ({path}); wait for its end, or give --fsstack-wait=SECONDS"
        raise InUse(disk.user_path, reason, names) from None
    return fd


def _lock_holders(inode: int) -> list[str]:
    pids = re.findall(rf"\d+: FLOCK +\S+ +\S+ +(\d+) [0-9a-f]+:[0-9a-f]+:{inode} ", (users.PROC / "locks").read_text())
    return list(dict.fromkeys(pids))
