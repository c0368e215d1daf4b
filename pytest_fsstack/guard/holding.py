"""Devices that a session holds: to be told from all others, and for itself alone."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from pytest_fsstack.guard import users
from pytest_fsstack.guard.contents import refuse_contents
from pytest_fsstack.guard.disk import Disk, InUse, Refused, identify, or_refused
from pytest_fsstack.guard.label import Tell, check_size, write_label_on
from pytest_fsstack.guard.sharing import overlapping
from pytest_fsstack.machine import blockdev
from pytest_fsstack.machine.blockdev import read, whole

LOCKS = Path("/run/lock")

#: Whoever reads the disk when a stack has been taken down (a monitor, a backup, udev on a slow disk) gets this long:
#: without its label the disk would have to be given over again.
_PATIENCE_AT_THE_END = 30.0

#: Entered once a device has passed, and left once it is labelled; what it gives is told the proof.
Record = Callable[[Disk], AbstractContextManager[Tell | None]]


def _unrecorded(disk: Disk) -> AbstractContextManager[Tell | None]:
    return contextlib.nullcontext()


class Held:
    """A device that a session writes to: what its name meant at first, held open so that the kernel gives its number
    to no other one.

    `overwrite`, that the user gave up what is on it, is said of this device and not of its name.
    """

    def __init__(self, disk: Disk, fd: int, overwrite: bool) -> None:
        self.disk, self.overwrite, self._fd = disk, overwrite, fd
        self._lost: Refused | None = None

    @property
    def path(self) -> Path:
        """The path for tools: that to which its name resolved at first. Links may lead elsewhere since."""
        return self.disk.path

    def verify(self) -> None:
        """Raise `Refused`, now and for good, if the name or the path leads to another device than at first."""
        if self._lost is None:
            try:
                now = identify(self.disk.named).identity
                if now == self.disk.identity:
                    self._verify_path()
                    return
                change = f"{self.disk.number} then, {now.number} now" if now.number != self.disk.number else "changed"
                raise Refused(
                    self.disk.named,
                    f"it is not the device any more that it was at first ({change}); was it plugged in again? Nothing "
                    "was written to this one; start a new session to use it",
                )
            except Refused as error:
                self._lost = error
        raise self._lost

    def _verify_path(self) -> None:
        with or_refused(self.disk.named):
            if (now := blockdev.identify(self.path)) != self.disk.identity:
                number = now.number if now else "no block device"
                raise Refused(
                    self.disk.named, f"{self.path} is not the device any more that it was at first (it is {number} now)"
                )

    def check(self) -> None:
        """Raise `Refused` unless this is still the same device and it is idle. To be called before each write."""
        self.verify()
        self._check_idle()

    def _check_idle(self, patience: float = users.PATIENCE) -> None:
        users.check_unused(self.disk, frozenset({self._fd}), patience)

    def accept(self) -> None:
        """Raise `Refused` unless it is large enough, is idle, and is scratch, blank or given up."""
        self.verify()
        check_size(self.disk)
        self.check()
        if not self.overwrite:
            refuse_contents(self.disk)

    def settle(self) -> None:
        """After a tool has written: write it all out and forget it, as the kernel does for a device nobody holds.

        Raises what `verify` raises, and OSError.
        """
        self.verify()
        blockdev.forget_cache(self._fd)

    def label(self, tell: Tell | None = None) -> None:
        """Empty it but for the scratch label; raises as `write_label`.

        By its number: if only a name leads elsewhere, the device that was used can still be put in order.
        """
        self._verify_path()
        self._check_idle(_PATIENCE_AT_THE_END)
        write_label_on(self.disk, tell)

    @contextlib.contextmanager
    def claimed(self, *, record: Record = _unrecorded) -> Iterator[Held]:
        """Lend the device to one stack, and write the scratch label at its end.

        `record` is entered once the device has passed and left once it is labelled (for the journal). Raises `Refused`,
        also at the end if something still uses the device: it is left as it is then.
        """
        self.accept()
        with record(self.disk) as tell:
            try:
                yield self
            finally:
                self.label(tell)


@contextlib.contextmanager
def held(disk: Disk, *, overwrite: bool) -> Iterator[Held]:
    """Keep a device for this session: nobody else claims it meanwhile.

    Raises `Refused`, also if its name leads to another device than when it was identified.
    """
    with _locked(disk), ExitStack() as undo:
        with or_refused(disk.named):
            fd = undo.enter_context(blockdev.opened(disk.path, disk.number))
        holding = Held(disk, fd, overwrite)
        holding.verify()
        yield holding


@contextlib.contextmanager
def claimed(path: Path, *, overwrite: bool, record: Record = _unrecorded) -> Iterator[Held]:
    """Hold the device that `path` means now for a single use: as `Held.claimed`."""
    with held(identify(path), overwrite=overwrite) as device, device.claimed(record=record):
        yield device


@contextlib.contextmanager
def _locked(disk: Disk) -> Iterator[None]:
    """Lock a file and not the device: `udevadm settle` would wait for that.

    Claims of partitions share the lock of their disk, which the claim of the whole disk takes alone. The same holds for
    each other way to the same medium.
    """
    with ExitStack() as undo:
        with or_refused(disk.named):
            LOCKS.mkdir(parents=True, exist_ok=True)
            operations = {read(whole(disk.sysfs) / "dev"): fcntl.LOCK_SH}
            for area in filter(lambda area: area.alias, overlapping(disk).values()):
                shared = not area.inside and whole(area.sysfs) == area.sysfs
                operations[area.number] = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            operations[disk.number] = fcntl.LOCK_EX
            for number, operation in operations.items():
                undo.callback(os.close, _lock(disk, number, operation))
        yield


def _lock(disk: Disk, number: str, operation: int) -> int:
    # The file stays for ever: a lock on a name that somebody else may remove excludes nobody.
    path = LOCKS / f"pytest-fsstack-{number}.lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        holders = _lock_holders(os.fstat(fd).st_ino)
        os.close(fd)
        if str(os.getpid()) in holders:
            reason = "this session has it already, by another name or as a part of another device; name it once"
            raise Refused(disk.named, reason) from None
        names = ", ".join(users.named(users.PROC / pid) for pid in holders) or "another process"
        reason = f"{names} is testing it or a part of it ({path}); wait for its end, or give --fsstack-wait=SECONDS"
        raise InUse(disk.named, reason, names) from None
    return fd


def _lock_holders(inode: int) -> list[str]:
    pids = re.findall(rf"\d+: FLOCK +\S+ +\S+ +(\d+) [0-9a-f]+:[0-9a-f]+:{inode} ", (users.PROC / "locks").read_text())
    return list(dict.fromkeys(pids))
