"""Remaining processes of a killed session.

Most end with their session, by the parent-death signal. Background processes of tests or tools do not, and keep the
session's mounts and disk busy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_fsstack.machine import journal
from pytest_fsstack.machine.commands import stat_fields
from pytest_fsstack.machine.descriptors import closing, opened
from pytest_fsstack.machine.journal import Fact, Facts, Journal, Kind, UndoError, start_time
from pytest_fsstack.machine.port import Machine

PROC = Path("/proc")

#: An environment variable with a unique number, inherited by all processes of a session.
VARIABLE = "PYTEST_FSSTACK_SESSION"
#: The same for a measured command.
COMMAND = "PYTEST_FSSTACK_COMMAND"


def end(
    pid: int, start: int | None, signals: Iterable[int] = (signal.SIGTERM, signal.SIGKILL), patience: float = 2.0
) -> bool:
    """Terminate a process with that start time, by signals that are `patience` seconds apart.

    Return whether it existed. Raises `UndoError` if it survives.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    with closing(pidfd):
        # With a pidfd, a reused number cannot be hit.
        for number in signals:
            if start_time(pid) != start:
                return False
            try:
                signal.pidfd_send_signal(pidfd, number)
            except ProcessLookupError:
                return True  # it ended in between
            if select.select([pidfd], [], [], patience)[0]:
                return True
    raise UndoError(f"process {pid} survived {signal.Signals(number).name}")


# -- one that the journal names ----------------------------------------------------------------------------------------


def _started(facts: Facts) -> dict[str, Fact]:
    return {"start": start_time(journal.whole_number(facts, "pid"))} if "pid" in facts else {}


def _running(machine: Machine, facts: Facts) -> bool:
    # Without a start time, it was never seen running. If it did run, the parent-death signal has killed it.
    if facts.get("start") is None:
        return False
    return start_time(journal.whole_number(facts, "pid")) == facts["start"]


def _end(machine: Machine, facts: Facts) -> str:
    pid = journal.whole_number(facts, "pid")
    ended = end(pid, journal.whole_number(facts, "start"))
    return f"ended process {pid}" if ended else f"process {pid} has just ended"


DAEMON = Kind("daemon", _running, _end, _started)


# -- all that carry a mark ---------------------------------------------------------------------------------------------


def end_marked(entry: str, signals: Iterable[int] = (signal.SIGTERM, signal.SIGKILL)) -> list[str]:
    """Terminate the processes with this entry in their environment. Return each as ``name (process 123)``."""
    ended: dict[int, str] = {}
    # They may start others meanwhile.
    while processes := [process for process in PROC.glob("[0-9]*") if _has_variable(process, entry.encode())]:
        for process in processes:
            with contextlib.suppress(OSError):  # it may end meanwhile
                name, start = (process / "comm").read_text(errors="replace").strip(), start_time(int(process.name))
                if end(int(process.name), start, signals):
                    ended[int(process.name)] = name
    return [f"{name} (process {pid})" for pid, name in ended.items()]


class Work(NamedTuple):
    """Work of the processes that a session started."""

    #: CPU seconds.
    seconds: float
    #: Whether one waits for a disk: the state D of proc_pid_stat(5).
    on_disk: bool


def work() -> Work | None:
    """Return the work of this session's processes so far, or None if there are none."""
    entry = f"{VARIABLE}={os.environ.get(VARIABLE)}".encode()
    parents, ours = {}, set()
    for process in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # it is hidden from this user, or has ended
            parents[process] = PROC / stat_fields(process)[1]
            ours |= {process} if _has_variable(process, entry) else set()
    # Some, such as sshd, overwrite their environment.
    while children := {process for process, parent in parents.items() if parent in ours} - ours:
        ours |= children
    ticks, states = 0, set()
    for process in ours:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, stat_fields(process)[11:13]))
            states |= {field for thread in process.glob("task/*") for field in stat_fields(thread)[:1]}
    return Work(ticks / os.sysconf("SC_CLK_TCK"), "D" in states) if ours else None


def _has_variable(process: Path, entry: bytes) -> bool:
    """Whether a process has an entry in its environment, as far as it is readable."""
    try:
        return entry in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # the process has ended, or is another user's
        return False


# -- all that descend from a session -----------------------------------------------------------------------------------


def _descendants(facts: Facts) -> dict[int, int]:
    """Return the processes that carry a session's mark or see its private mounts, with their start times."""
    mark = f"{VARIABLE}={journal.text(facts, 'mark')}".encode()
    # Before Linux 6.11, nothing tells the session's namespace from a later one with its inode.
    private = facts.get("namespace") if facts.get("namespace_id") is not None else None
    # The namespaces of the machine and of this process belong to no session.
    shared = {_inode(PROC / "self")}
    with contextlib.suppress(OSError):
        shared.add(_inode(PROC / "1"))
    descendants: dict[int, int] = {}
    for process in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or is another user's
            start = start_time(int(process.name))
            inside = private is not None and private not in shared and _inode(process) == private
            inside = inside and _number(process) == facts["namespace_id"]
            if start is not None and (inside or _has_variable(process, mark)):
                descendants[int(process.name)] = start
    return descendants


def _inode(process: Path) -> int:
    """Return the inode of a process's mount namespace, which can be reused."""
    return int(os.readlink(process / "ns/mnt").removeprefix("mnt:[").removesuffix("]"))


#: ioctl_nsfs(2)
_NS_GET_MNTNS_ID = 0x8008B705


def _number(process: Path) -> int | None:
    """Return a mount namespace number that is unique until the next boot, or None before Linux 6.11."""
    number = bytearray(8)
    with opened(process / "ns/mnt") as namespace:
        try:
            fcntl.ioctl(namespace, _NS_GET_MNTNS_ID, number)
        except OSError:
            return None
    return int.from_bytes(number, sys.byteorder)


def _ancestry() -> Iterable[int]:
    """Yield this process and its ancestors."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        try:
            pid = int(stat_fields(PROC / str(pid))[1])
        except (OSError, IndexError):
            return


def _has_descendants(machine: Machine, facts: Facts) -> bool:
    return bool(_descendants(facts))


def _end_all(machine: Machine, facts: Facts) -> str:
    ended: list[str] = []
    # They may start others meanwhile.
    while processes := _descendants(facts):
        if ancestors := processes.keys() & set(_ancestry()):
            raise UndoError(
                f"this very command was started by it (process {min(ancestors)}); run the clean-up from elsewhere"
            )
        ended += [str(pid) for pid, start in sorted(processes.items()) if end(pid, start)]
    return f"ended {'process' if len(ended) == 1 else 'processes'} {', '.join(ended)}"


#: They use the other leftovers, so they are undone first.
PROCESSES = Kind("processes", _has_descendants, _end_all, first=True)


@contextlib.contextmanager
def marked(book: Journal, *, private: bool) -> Iterator[None]:
    """Mark all processes that this one starts, so that they can be found after a kill.

    `private` says that this process has created its mount namespace itself. Then all processes in it are found as well,
    since Linux 6.11.
    """
    before = os.environ.get(VARIABLE)
    mark = os.environ[VARIABLE] = os.urandom(16).hex()
    facts = {"namespace": _inode(PROC / "self"), "namespace_id": _number(PROC / "self")} if private else {}
    try:
        with book.entry(PROCESSES, mark=mark, **facts):
            yield
    finally:
        if before is None:
            # A test may have cleared the environment.
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
