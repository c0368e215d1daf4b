"""Processes: daemons, users of a mount, and protection of this process against crashes, forks and limits."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from pytest_fsstack.machine import commands, descriptors, reaper
from pytest_fsstack.machine.commands import CommandError, Process
from pytest_fsstack.machine.libc import libc

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_PROC = Path("/proc")
#: Seconds for a process that has begun to exit.
_EXIT = 10.0


class Daemon:
    """A server process in the foreground. The kernel kills it when this process dies."""

    def __init__(self, process: Process, running: set[int], undo: ExitStack) -> None:
        self.argv, self._process, self._running, self._undo = process.argv, process, running, undo
        self.pid: int = process.running.pid
        running.add(self.pid)

    @property
    def alive(self) -> bool:
        return self._process.alive

    def error(self, when: str = "at once") -> CommandError:
        """Return the error for its unexpected end."""
        if not commands.wait_until(lambda: self._process.gone, _EXIT):
            return CommandError(self.argv, None, "", f"it ended {when}, and hangs in the kernel")
        code, _, stderr = self._process.ended()
        how = f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        return CommandError(self.argv, code, stderr, f"it ended {when}, {how}")

    def stop(self, patience: float = 10.0) -> None:
        """Wait for its end, as after an unmount. Kill it after `patience` seconds.

        Raises `CommandError` if it survives that.
        """
        for number, seconds in (0, patience), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0):
            if number:
                self._process.send(number)
            if commands.wait_until(lambda: self._process.gone, seconds):
                self._process.ended()
                self._undo.close()
                self._running.discard(self.pid)
                return
        raise CommandError(self.argv, None, "", f"process {self.pid} survived SIGKILL")

    def kill(self) -> None:
        """Kill it, when its work does not matter any more. Raises `CommandError`."""
        self._process.send(signal.SIGKILL)
        self.stop(patience=2.0)


def start(
    running: set[int],
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    outlives: bool = False,
) -> Daemon:
    """Start a server in its foreground mode. Call it from the main thread. Raises `CommandError`.

    Its number is in `running` while it runs. It dies with this process unless `outlives` is set. The parent-death
    signal fires when the *thread* that started the server ends, and a server that forks into the background loses it.
    Hence the foreground mode and the main thread.
    """
    with ExitStack() as undo:
        process = undo.enter_context(commands.started(*argv, stdin=stdin, fds=fds, env=env, outlives=outlives))
        return Daemon(process, running, undo.pop_all())


def own_files(target: Path, besides: Container[int]) -> list[str]:
    """Return the open files of this process at or below `target`, except the descriptors `besides`.

    Each is a path relative to `target`, or the working directory.
    """
    names = []
    for link in [Path("/proc/self/cwd"), *Path("/proc/self/fd").iterdir()]:
        if link.name.isdecimal() and int(link.name) in besides:
            continue
        with contextlib.suppress(OSError):  # the descriptor that lists the others
            path = Path(os.readlink(link))
            if path.is_relative_to(target):
                names.append("the working directory" if link.name == "cwd" else os.fspath(path.relative_to(target)))
    return sorted(names)


def users(target: Path, daemons: Container[int] = ()) -> list[str]:
    """Return the processes with a working directory or open file at or below `target`, as ``pid (command) file``.

    The session's own daemons are left out. A daemon is no user of the mount that it serves, although it may open a file
    there for a moment, as go-fuse does to test polling.
    """
    lines = []
    for process in _PROC.glob("[0-9]*"):
        if int(process.name) in daemons:
            continue
        with contextlib.suppress(OSError):  # the process may end meanwhile
            links = [process / "cwd", process / "root", *(process / "fd").iterdir()]
            if name := next(filter(None, (_name_below(link, target) for link in links)), None):
                lines.append(f"{process.name} ({(process / 'comm').read_text(errors='replace').strip()}) {name}")
    return lines


def _name_below(link: Path, target: Path) -> str | None:
    """Return the target of a link in /proc if it is at or below `target`."""
    try:
        name = os.readlink(link)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG and link.stat().st_dev == target.stat().st_dev:
            return f"a file on the filesystem of {target} whose path is too long to be shown"
        return None
    return name if name == os.fspath(target) or name.startswith(f"{target}/") else None


#: Below this, neither pytest nor the teardown of a stack can work.
_FEWEST_DESCRIPTORS = 64
#: Limits that this process needs to allocate, write, open and start anything.
_LIMITS = ("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_NPROC")


@contextlib.contextmanager
def undumpable() -> Iterator[None]:
    """Prevent core dumps of this process, which could contain a key (PR_SET_DUMPABLE)."""
    prctl = libc().prctl
    before = prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
    prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        if before == 1:
            prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


@contextlib.contextmanager
def without_returning_children() -> Iterator[None]:
    """Terminate a child that was forked in the block when it leaves the block. It would continue the session."""
    owner = os.getpid()
    try:
        yield
    finally:
        end_if_forked(owner)


_CANNOT_CONTINUE = (
    b"\nfsstack: a test took what this session cannot get back (setuid, or a hard limit of memory or open files), so "
    b"it ends without reports. The kernel takes its stacks down, and the next session or --fsstack-cleanup removes "
    b"the rest\n"
)


@contextlib.contextmanager
def keeping_depth() -> Iterator[None]:
    """Restore the recursion limit after the block. A lower one would break the teardown."""
    depth = sys.getrecursionlimit()
    try:
        yield
    finally:
        if sys.getrecursionlimit() < depth:
            sys.setrecursionlimit(depth)


@contextlib.contextmanager
def keeping_limits(errors: int = 2) -> Iterator[None]:
    """Restore the resource limits, the effective user and the root directory after the block.

    The teardown needs them for threads, commands and mount points. Limits come first, because everything else may need
    memory. If something cannot be restored, this process ends with a line to the descriptor `errors`.
    """
    import resource

    limits = [(kind, resource.getrlimit(kind)) for kind in map(resource.__dict__.__getitem__, _LIMITS)]
    user, root = os.geteuid(), os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield
    finally:
        for kind, limit in limits:
            if resource.getrlimit(kind) != limit:
                try:
                    resource.setrlimit(kind, limit)
                except ValueError:  # only root may raise a hard limit
                    hard = resource.getrlimit(kind)[1]
                    if kind == resource.RLIMIT_AS or (kind == resource.RLIMIT_NOFILE and hard < _FEWEST_DESCRIPTORS):
                        _exit_at_once(errors)
                    resource.setrlimit(kind, (hard, hard))
        try:
            _restore(user, root, errors)
        finally:
            os.close(root)


def _restore(user: int, root: int, errors: int) -> None:
    if os.geteuid() != user:
        try:
            os.seteuid(user)
        except PermissionError:  # setuid cannot be reverted
            _exit_at_once(errors)
    if not os.path.samestat(os.stat("/"), os.fstat(root)):
        with contextlib.suppress(PermissionError):
            _leave_chroot(root)


def _exit_at_once(errors: int) -> NoReturn:
    """Terminate this process immediately, as a kill would, because it cannot take anything down any more."""
    # Without memory, only an existing text can be written.
    os.write(errors, _CANNOT_CONTINUE)
    os._exit(1)


def _leave_chroot(root: int) -> None:
    with descriptors.opened(".", os.O_PATH | os.O_DIRECTORY) as working_directory:
        os.fchdir(root)
        os.chroot(".")
        os.fchdir(working_directory)


def end_if_forked(owner: int) -> None:
    """Terminate a forked child immediately, before it undoes things of its parent."""
    if os.getpid() != owner:
        text = f"fsstack: process {os.getpid()}, which a test forked, returned from the test; it was ended here\n"
        os.write(2, text.encode())
        os._exit(1)


@contextlib.contextmanager
def watched(variable: str, *, private: bool) -> Iterator[None]:
    """Have all processes with this process's value of an environment variable killed if this process dies.

    `reaper` does that, in a process without that variable. `private` says that this process has its own mount
    namespace. Then the FUSE mounts that are made in it are disconnected as well.
    """
    devices = [",".join(sorted({os.fsdecode(fields[2]) for fields in reaper.fuse_mounts()}))] if private else []
    with descriptors.closing(os.pidfd_open(os.getpid())) as pidfd:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, str(pidfd), f"{variable}={os.environ[variable]}", *devices],
            env={name: value for name, value in os.environ.items() if name != variable},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[pidfd],
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.kill()
        commands.reap(process)
