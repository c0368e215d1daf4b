"""Processes of a session that was killed, and their end.

Most end with their session, by the parent-death signal. What a test or a tool started in the background does not, and
keeps the session's mounts and disk in use.
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

from pytest_fsstack.machine import journal
from pytest_fsstack.machine.descriptors import closing, opened
from pytest_fsstack.machine.journal import Fact, Facts, Journal, Kind, Unproved, start_time
from pytest_fsstack.machine.port import Machine

PROC = Path("/proc")

#: In the environment of every process that descends from a session: a number that no other session has.
VARIABLE = "PYTEST_FSSTACK_SESSION"
#: The same of a command that is measured.
COMMAND = "PYTEST_FSSTACK_COMMAND"


def end(pid: int, start: int | None, signals: Iterable[int] = (signal.SIGTERM, signal.SIGKILL)) -> bool:
    """End a process that started at that time, politely at first; whether it was there. Raises `Unproved`."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    with closing(pidfd):
        # From here on the number cannot be given to another process unnoticed.
        for number in signals:
            if start_time(pid) != start:
                return False
            try:
                signal.pidfd_send_signal(pidfd, number)
            except ProcessLookupError:
                return True  # it ended in between, as it should
            if select.select([pidfd], [], [], 2.0)[0]:
                return True
    raise Unproved(f"process {pid} survived SIGKILL")


# -- one that the journal names ----------------------------------------------------------------------------------------


def _started(facts: Facts) -> dict[str, Fact]:
    return {"start": start_time(journal.whole_number(facts, "pid"))} if "pid" in facts else {}


def _running(machine: Machine, facts: Facts) -> bool:
    # Without its number it was never seen to run; the parent-death signal has ended it if it did.
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
    """End the processes with this entry in their environment; returns each as ``name (process 123)``."""
    ended: dict[int, str] = {}
    # One may start another meanwhile.
    while processes := [process for process in PROC.glob("[0-9]*") if _has(process, entry.encode())]:
        for process in processes:
            with contextlib.suppress(OSError):  # it ends while one looks
                name, start = (process / "comm").read_text(errors="replace").strip(), start_time(int(process.name))
                if end(int(process.name), start, signals):
                    ended[int(process.name)] = name
    return [f"{name} (process {pid})" for pid, name in ended.items()]


def _has(process: Path, entry: bytes) -> bool:
    """Whether a process has an entry in its environment, as far as this one may see it."""
    try:
        return entry in (process / "environ").read_bytes().split(b"\0")
    except OSError:  # processes end while one looks, and others' are not ours to see
        return False


# -- all that descend from a session -----------------------------------------------------------------------------------


def _descendants(facts: Facts) -> dict[int, int]:
    """Return the processes that carry a session's mark or see its private mounts, with their start."""
    mark = f"{VARIABLE}={journal.text(facts, 'mark')}".encode()
    private = facts.get("namespace")
    # What the machine or this process is in is private to no session.
    shared = {_inode(PROC / "self")}
    with contextlib.suppress(OSError):
        shared.add(_inode(PROC / "1"))
    descendants: dict[int, int] = {}
    for process in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # processes end while one looks, and others' are not ours to see
            start = start_time(int(process.name))
            inside = private is not None and private not in shared and _inode(process) == private
            inside = inside and _number(process) == facts.get("namespace_id")
            if start is not None and (inside or mark in (process / "environ").read_bytes().split(b"\0")):
                descendants[int(process.name)] = start
    return descendants


def _inode(process: Path) -> int:
    """Return the inode of a process's mount namespace, which another may get once that is gone."""
    return int(os.readlink(process / "ns/mnt").removeprefix("mnt:[").removesuffix("]"))


#: ioctl_nsfs(2)
_NS_GET_MNTNS_ID = 0x8008B705


def _number(process: Path) -> int | None:
    """Return a number that no other mount namespace gets until the next boot; None before Linux 6.11."""
    number = bytearray(8)
    with opened(process / "ns/mnt") as namespace:
        try:
            fcntl.ioctl(namespace, _NS_GET_MNTNS_ID, number)
        except OSError:
            return None
    return int.from_bytes(number, sys.byteorder)


def _ancestry() -> Iterable[int]:
    """This process and those that it descends from."""
    pid = os.getpid()
    while pid > 0:
        yield pid
        try:
            text = (PROC / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            return
        pid = int(text.rpartition(")")[2].split()[1])


def _any(machine: Machine, facts: Facts) -> bool:
    return bool(_descendants(facts))


def _end_all(machine: Machine, facts: Facts) -> str:
    ended: list[str] = []
    # One may start another meanwhile.
    while processes := _descendants(facts):
        if ancestors := processes.keys() & set(_ancestry()):
            raise Unproved(
                f"this very command was started by it (process {min(ancestors)}); run the clean-up from elsewhere"
            )
        ended += [str(pid) for pid, start in sorted(processes.items()) if end(pid, start)]
    return f"ended {'process' if len(ended) == 1 else 'processes'} {', '.join(ended)}"


#: What else is left is in use by these, and goes after them.
PROCESSES = Kind("processes", _any, _end_all, first=True)


@contextlib.contextmanager
def marked(book: Journal, *, private: bool) -> Iterator[None]:
    """Mark what this process starts meanwhile as its own, so that it can be found after a kill.

    `private` says that this process has made its mount namespace itself. Then all who are in it are found as well.
    """
    before = os.environ.get(VARIABLE)
    mark = os.environ[VARIABLE] = os.urandom(16).hex()
    facts = {"namespace": _inode(PROC / "self"), "namespace_id": _number(PROC / "self")} if private else {}
    try:
        with book.entry(PROCESSES, mark=mark, **facts):
            yield
    finally:
        if before is None:
            # A test may have emptied the environment.
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = before
