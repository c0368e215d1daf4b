"""Commands of the system.

Secrets must not be in `argv`, because error messages and the list of processes repeat it. Use `secret_fd` instead.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pytest_fsstack.machine import descriptors, signals
from pytest_fsstack.machine.libc import failure, libc
from pytest_fsstack.machine.locked import locked_memory
from pytest_fsstack.units import counted, reason_of, visible

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_PF_EXITING = 0x4

#: The default time limit of a command in seconds: --fsstack-timeout.
limit = 600.0
#: The time limit of commands that read or write all data of a workload.
DAY = 86_400.0

#: The environment for a command that gets the user's locale, if its messages are read: English, and any name as it is.
ENGLISH = {"LC_ALL": "C.UTF-8", "LANGUAGE": "en"}

#: A killed command that still runs after this many seconds is considered stuck in the kernel.
_DEATH = 10.0


#: The number of lines of an output that an error shows, from its beginning and again from its end.
_SHOWN = 20
#: Processes that had not ended when they were last waited for. Without a reference, Python would print warnings.
_left_behind: list[subprocess.Popen[Any]] = []


class CommandError(Exception):
    """A failed command, with its exit code and stderr.

    `returncode` is None if the command did not exit by itself.
    """

    def __init__(self, argv: Sequence[str], returncode: int | None, stderr: str, how: str = "") -> None:
        self.argv, self.returncode, self.stderr = tuple(argv), returncode, stderr.strip()
        self.how = how or f"exit code {returncode}"
        text = f": {visible(_shortened(self.stderr))}" if self.stderr else ""
        super().__init__(f"`{shlex.join(self.argv)}` failed ({self.how}){text}")


def _shortened(text: str) -> str:
    """Return the first and last lines of an output. A daemon that crashes may repeat a line thousands of times."""
    lines = text.splitlines()
    left_out = len(lines) - 2 * _SHOWN
    if left_out <= 0:
        return text
    return "\n".join([*lines[:_SHOWN], f"[{counted(left_out, 'line')} left out]", *lines[-_SHOWN:]])


def search_path() -> str:
    """Return PATH with directories that are often missing: administration tools, and scripts of this Python.

    sudo removes the scripts of a virtual environment from PATH.
    """
    path = os.environ.get("PATH", os.defpath)
    more = [*_SBIN, os.path.dirname(sys.executable)]
    return os.pathsep.join([path, *(directory for directory in more if directory not in ("", *path.split(os.pathsep)))])


def which(tool: str) -> str | None:
    """Return the path of an installed tool, or None."""
    path = search_path()
    # With cold caches, a search takes milliseconds. Tools that are missing are searched again.
    executable = _paths.get((tool, path))
    if not (executable and os.access(executable, os.X_OK)):
        executable = shutil.which(tool, path=path)
    if executable:
        _paths[tool, path] = executable
    return executable


_paths: dict[tuple[str, str], str] = {}


@dataclass
class Process:
    """A child process with its pidfd, because its number can be reused once it has ended."""

    argv: tuple[str, ...]
    running: subprocess.Popen[bytes]
    #: Files without a name that hold its stdout and stderr.
    output: IO[bytes]
    errors: IO[bytes]
    #: None if it ended before the descriptor could be opened.
    pidfd: int | None
    _result: tuple[int, str, str] | None = None

    @property
    def gone(self) -> bool:
        """Whether it has ended, so that waiting for it does not block."""
        return self.pidfd is None or bool(select.select([self.pidfd], [], [], 0)[0])

    @property
    def alive(self) -> bool:
        """Whether it can still serve. Its clients notice the closed files of an exiting process first."""
        return not _exiting(self.running.pid) and not self.gone

    def send(self, number: int) -> None:
        """Send a signal if it still runs."""
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Close the pidfd. A process that has not ended is left behind."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        if self.running.poll() is None:
            _left_behind.append(self.running)

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end. Return the exit code, stdout and stderr. Later calls return the same."""
        if self._result is None:
            code = self.running.wait()
            texts = []
            for file in (self.output, self.errors):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
            self._result = code, texts[0], texts[1]
        return self._result


def stat_fields(process: Path) -> list[str]:
    """Return the fields of proc_pid_stat(5) from the third one on, the state. The second may contain blanks.

    There are none if the process (or thread) has ended. Raises PermissionError if it is hidden from this user.
    """
    try:
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _exiting(pid: int) -> bool:
    """Return whether a process has begun to exit (PF_EXITING of include/linux/sched.h, in the flags)."""
    with contextlib.suppress(OSError, IndexError):  # it is hidden from this user, or has ended
        return bool(int(stat_fields(Path(f"/proc/{pid}"))[6]) & _PF_EXITING)
    return False


#: Lists that record commands as they start.
_recorders: list[list[str]] = []


@contextlib.contextmanager
def recorded_commands() -> Iterator[list[str]]:
    """Record the commands that start in the block, each as a shell command line, repetitions once.

    They contain no secrets.
    """
    lines: list[str] = []
    _recorders.append(lines)
    try:
        yield lines
    finally:
        _recorders[:] = [other for other in _recorders if other is not lines]


@contextlib.contextmanager
def started(
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    stdout: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    outlives: bool = False,
) -> Iterator[Process]:
    """Start a command, and yield it until the block's end. The kernel kills it if this process dies, unless `outlives`
    is set.

    It runs in its own session, so Ctrl-C and the end of the terminal do not reach it. It leaves no core dump, which
    could contain a key. Raises `CommandError` if it is not installed.
    """
    words = [os.fspath(word) for word in argv]
    path = which(words[0])
    if path is None:
        raise not_installed(words)
    line = " ".join([*(f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()), shlex.join(words)])
    for lines in _recorders:
        # Waiting for a synchronisation of hours repeats one command many times a second.
        if lines[-1:] != [line]:
            lines.append(line)
    with contextlib.ExitStack() as undo:
        try:
            # Files instead of pipes, because the command never has to wait until they are read.
            output, errors = (undo.enter_context(open(os.memfd_create("fsstack"), "r+b")) for _ in range(2))
            running = subprocess.Popen(
                [*wrappers(outlives), path, *words[1:]],
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=output if stdout is None else stdout,
                stderr=errors,
                start_new_session=True,
                pass_fds=fds,
                cwd=cwd,
                env={**os.environ, "PATH": search_path(), "LC_ALL": "C", **(env or {})},
            )
            process = Process(tuple(words), running, output, errors, _descriptor(running))
        except OSError as error:
            raise CommandError(words, None, reason_of(error), "could not be started") from error
        undo.callback(process.close)
        yield process


def not_installed(words: Sequence[str]) -> CommandError:
    """Return the error for a missing command."""
    return CommandError(words, None, "", "not installed")


def wrappers(outlives: bool) -> list[str]:
    """Return the commands that set the limit of core dumps and the parent-death signal, and then run another one.

    Code of Python between fork and exec could do that, but then a fork copies the page tables of the whole session,
    which takes ten times as long. They have paths, because a search for each through PATH reads its directories anew
    after a cold start.
    """
    words = [] if outlives else [which("setpriv") or "setpriv", "--pdeathsig", "KILL", "--"]
    # One byte, because with 0 a core dump could still be piped to a program (core(5)). A hard limit of 0 cannot be
    # raised, but already prevents files.
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != 0:
        words = [which("prlimit") or "prlimit", "--core=1:1", "--", *words]
    return words


def _descriptor(child: subprocess.Popen[bytes]) -> int | None:
    """Return a pidfd of a child, or None if it has already been reaped.

    Raises OSError if that is impossible. The child is then killed.
    """
    try:
        pidfd = os.pidfd_open(child.pid)
    except ProcessLookupError:
        return None
    except OSError:
        child.kill()
        child.wait()
        raise
    try:
        # Fails unless it is a child, for example if the number was reused.
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        os.close(pidfd)
        return None
    return pidfd


def run(
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    stdout: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> str:
    """Run a command to its end and return its stdout.

    `stdin` is a file descriptor (default: empty input), and so is `stdout`, whose output is not returned. `fds` are
    inherited with their numbers. `cwd` is the working directory. `timeout` is in seconds (default: `limit`). Raises
    `CommandError`. A command that is stuck in the kernel and survives SIGKILL is left behind.
    """
    code, output, stderr = ended(*argv, stdin=stdin, stdout=stdout, fds=fds, env=env, cwd=cwd, timeout=timeout)
    if code:
        raise CommandError([os.fspath(word) for word in argv], code, stderr or output)
    return output


def ended(
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    stdout: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> tuple[int, str, str]:
    """Run a command like `run`, and return its exit code, stdout and stderr. Any exit code is valid."""
    seconds = limit if timeout is None else timeout
    with signals.shielded(), started(*argv, stdin=stdin, stdout=stdout, fds=fds, env=env, cwd=cwd) as process:
        try:
            how = ""
            if process.pidfd is not None and not signals.wait(process.pidfd, seconds):
                name = signals.received() if signals.cut_short() else None
                how = f"killed because of {name.name}" if name else f"no answer within {seconds:g} s, killed"
        except BaseException:
            # Raised by a foreign signal handler. Let the command finish, so that its result can be undone.
            if process.pidfd is not None and not select.select([process.pidfd], [], [], 10.0)[0]:
                process.send(signal.SIGKILL)
            raise
        if how:
            process.send(signal.SIGKILL)
            if process.pidfd is not None and not select.select([process.pidfd], [], [], _DEATH)[0]:
                signals.progress()
                raise CommandError(process.argv, None, "", f"{how}, which did not end it: it hangs in the kernel")
        result = process.ended()
        signals.progress()
    if how:
        raise CommandError(process.argv, None, "", how)
    return result


def reap(process: subprocess.Popen[Any]) -> None:
    """Wait for a killed command. One that is stuck in the kernel is left behind."""
    with signals.shielded(), contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_DEATH)
    if process.returncode is None:
        _left_behind.append(process)


def wait_until(condition: Any, seconds: float, pause: Callable[[float], object] | None = None) -> bool:
    """Poll a condition until it is true, or the seconds are over. Return whether it is true.

    `pause` waits at most so many seconds, and less if something happens that may make the condition true.
    """
    deadline = time.monotonic() + seconds
    duration = 0.05 if pause else 0.001
    while not condition():
        if time.monotonic() > deadline:
            return False
        (pause or time.sleep)(duration)
        # Pause in proportion to the elapsed time, so that polling adds a tenth on average.
        duration = min(0.05, duration * 1.2)
    return True


@contextlib.contextmanager
def secret_fd(*parts: bytes | memoryview) -> Iterator[int]:
    """Yield a descriptor with a secret for `fds=` (as /proc/self/fd/N) or `stdin=`. It has no name on any disk.

    The secret is not swapped out (`locked_memory`). Pass memoryviews of such memory, because bytes would be copies.
    """
    size = sum(map(len, parts))
    fd = os.memfd_create("fsstack", 0)
    try:
        os.ftruncate(fd, size)
        with locked_memory(size, fd) as content:
            start = 0
            for part in parts:
                content[start : start + len(part)] = part
                start += len(part)
            try:
                yield fd
            finally:
                # A daemon may keep the descriptor open.
                content[:] = bytes(size)
    finally:
        os.ftruncate(fd, 0)
        os.close(fd)


def syncfs(path: str | os.PathLike[str]) -> None:
    """Write out the filesystem that contains `path` (syncfs(2)). Raises OSError."""
    with descriptors.opened(path) as fd:
        if libc().syncfs(fd) != 0:
            raise failure(f"cannot write out {os.fspath(path)}")


def mapper_environment() -> dict[str, str]:
    """Return the environment for device-mapper's tools. Without udevd they would wait forever."""
    import socket

    # The socket outlives udevd, so its existence proves nothing.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        try:
            control.connect("/run/udev/control")
        except OSError:
            return {"DM_DISABLE_UDEV": "1"}
    return {}
