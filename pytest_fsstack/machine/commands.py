"""Run the system's tools on this machine: the only module that knows `sh`.

Nothing secret may stand in `argv`: `sh` and the error below repeat it. Secrets go through `secret_fd`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_fsstack.machine import descriptors, signals
from pytest_fsstack.machine.libc import failure, libc
from pytest_fsstack.units import reason_of

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_PR_SET_PDEATHSIG = 1

#: Seconds that a command may take unless its caller says otherwise: --fsstack-timeout.
limit = 600.0

#: Descriptors that a command needs while it starts.
_PIPES = 16

#: Seconds after which a command that was killed counts as one that the kernel does not let go.
_DEATH = 10.0


class CommandError(Exception):
    """A command failed: what ran, how it ended, what it said on stderr.

    `returncode` is None where the command did not end by itself.
    """

    def __init__(self, argv: Sequence[str], returncode: int | None, stderr: str, how: str = "") -> None:
        self.argv, self.returncode, self.stderr = tuple(argv), returncode, stderr.strip()
        self.how = how or f"exit code {returncode}"
        super().__init__(f"`{shlex.join(self.argv)}` failed ({self.how}){': ' + self.stderr if self.stderr else ''}")


def search_path() -> str:
    """Return PATH with the directories that it often lacks: of administration tools, and of this very Python.

    Under sudo, the scripts of a virtual environment are in no PATH.
    """
    path = os.environ.get("PATH", os.defpath)
    more = [*_SBIN, os.path.dirname(sys.executable)]
    return os.pathsep.join([path, *(directory for directory in more if directory not in ("", *path.split(os.pathsep)))])


def which(tool: str) -> str | None:
    """The path of an installed tool, or None."""
    path = search_path()
    # With cold caches, a search costs milliseconds. What is missing may be installed meanwhile.
    executable = _found.get((tool, path)) or shutil.which(tool, path=path)
    if executable:
        _found[tool, path] = executable
    return executable


_found: dict[tuple[str, str], str] = {}


@functools.cache
def _sh() -> Any:
    import logging

    import sh

    # At DEBUG and INFO it logs what is written to a command's stdin, and every argv.
    logging.getLogger("sh").setLevel(logging.WARNING)
    return sh


@dataclass
class Process:
    """A process that was started here, held by a descriptor: its number may be somebody else's once it has ended."""

    argv: tuple[str, ...]
    running: Any
    #: None if it had ended before it could be had.
    pidfd: int | None

    @property
    def alive(self) -> bool:
        return self.pidfd is not None and not select.select([self.pidfd], [], [], 0)[0]

    def send(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Let go of it."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def ended(self) -> tuple[int, str, str]:
        """Wait for its end; its exit code, stdout and stderr."""
        # Waiting on the process object and not on the command: the latter raises for a signal.
        process = self.running.process
        code = process.wait()
        return code, process.stdout.decode(errors="replace"), process.stderr.decode(errors="replace")


#: Where commands are noted as they start, by those who want to know.
_noted: list[list[str]] = []


@contextlib.contextmanager
def noted() -> Iterator[list[str]]:
    """The commands that start until the block's end, each as a line for a shell. No secret is among them."""
    lines: list[str] = []
    _noted.append(lines)
    try:
        yield lines
    finally:
        _noted[:] = [other for other in _noted if other is not lines]


@contextlib.contextmanager
def started(
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    outlives: bool = False,
) -> Iterator[Process]:
    """Start a command, which the kernel kills if this process dies unless it `outlives` that; until the block's end
    it can be signalled.

    It has a session of its own: Ctrl-C at a terminal, and the end of the terminal, do not reach it. It leaves no core
    dump, which might hold a key. Raises `CommandError` if it is not installed.
    """
    words = [os.fspath(word) for word in argv]
    path = which(words[0])
    if path is None:
        raise not_installed(words)
    for lines in _noted:
        lines.append(
            " ".join([*(f"{name}={shlex.quote(value)}" for name, value in (env or {}).items()), shlex.join(words)])
        )
    parent, prctl, set_limit = os.getpid(), libc().prctl, resource.setrlimit

    def prepare() -> None:
        # One byte: with none, a core dump that is piped to a program would not be held back (core(5)).
        # A hard limit of 0 is refused, and then files are held back already.
        with contextlib.suppress(ValueError, OSError):
            set_limit(resource.RLIMIT_CORE, (1, 1))
        if not outlives:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)

    with contextlib.ExitStack() as undo:
        source = undo.enter_context(os.fdopen(os.dup(stdin), "rb")) if stdin is not None else None
        with _starting(words):
            _spare_descriptors()
            running = _sh().Command(path)(
                *words[1:],
                _in=source,
                _bg=True,
                _bg_exc=False,
                _new_session=True,
                _preexec_fn=prepare,
                _tty_out=False,
                _return_cmd=True,
                _pass_fds=list(fds),
                _cwd=cwd,
                _env={**os.environ, "PATH": search_path(), "LC_ALL": "C", **(env or {})},
            )
            process = Process(tuple(words), running, _descriptor(running))
        undo.callback(process.close)
        yield process


@contextlib.contextmanager
def _starting(words: Sequence[str]) -> Iterator[None]:
    """Raise `CommandError` for a command that has gone since it was found, or that the kernel cannot start."""
    sh = _sh()
    try:
        yield
    except sh.CommandNotFound:
        raise not_installed(words) from None
    except sh.ForkException as error:
        # What it says ends with the child's traceback.
        raise CommandError(words, None, str(error).strip().splitlines()[-1], "could not be started") from None
    except OSError as error:
        raise CommandError(words, None, reason_of(error), "could not be started") from error


def not_installed(words: Sequence[str]) -> CommandError:
    """The error that a command is missing, which is looked for anew the next time."""
    _found.pop((words[0], search_path()), None)
    return CommandError(words, None, "", "not installed")


def _spare_descriptors() -> None:
    """Raise OSError if there are too few descriptors for the pipes of a command: sh leaves those open that it has."""
    descriptors: list[int] = []
    try:
        for _ in range(_PIPES):
            descriptors.append(os.dup(2))
    finally:
        for fd in descriptors:
            os.close(fd)


def _descriptor(child: Any) -> int | None:
    """A descriptor of a child; None if it has ended, and its end was noticed, already.

    Raises OSError if there can be none, and then the child has ended.
    """
    try:
        pidfd = os.pidfd_open(child.pid)
    except ProcessLookupError:
        return None
    except OSError:
        child.process.kill()
        child.process.wait()
        raise
    try:
        # Fails for what is no child, as a process that has got the number meanwhile.
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        os.close(pidfd)
        return None
    return pidfd


def run(
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> str:
    """Run a command to its end and return what it wrote to stdout.

    `stdin` is a file descriptor to read from (by default there is nothing to read), `fds` are passed on under their
    own numbers, `cwd` is where it starts, `timeout` is in seconds (by default, `limit`). Raises `CommandError`, also
    for a command that hangs in the kernel so that not even SIGKILL ends it: it is left behind.
    """
    code, stdout, stderr = ended(*argv, stdin=stdin, fds=fds, env=env, cwd=cwd, timeout=timeout)
    if code:
        raise CommandError([os.fspath(word) for word in argv], code, stderr or stdout)
    return stdout


def ended(
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> tuple[int, str, str]:
    """Run a command as `run` does, and return its exit code, stdout and stderr. Any exit code is an answer."""
    seconds = limit if timeout is None else timeout
    with signals.shielded(), started(*argv, stdin=stdin, fds=fds, env=env, cwd=cwd) as process:
        try:
            how = ""
            if process.pidfd is not None and not signals.wait(process.pidfd, seconds):
                name = signals.received() if signals.cut_short() else None
                how = f"killed because of {name.name}" if name else f"no answer within {seconds:g} s, killed"
        except BaseException:
            # Raised by a handler that is not ours. What the command is about to make must be there when it is undone.
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


#: Commands that were killed and did not end. Without a reference, Python would warn of them.
_left_behind: list[subprocess.Popen[Any]] = []


def reap(process: subprocess.Popen[Any]) -> None:
    """Wait for a command that was killed. One that hangs in the kernel is left behind."""
    with signals.shielded(), contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_DEATH)
    if process.returncode is None:
        _left_behind.append(process)


def wait_until(condition: Any, seconds: float) -> bool:
    """Poll a condition for at most that long; whether it came true."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        # What is waited for took at least so long: a tenth more, on average, is not noticed.
        pause = min(0.05, pause * 1.2)
    return True


@contextlib.contextmanager
def secret_fd(secret: bytes) -> Iterator[int]:
    """A descriptor to read a secret from, for `fds=` (as /proc/self/fd/N) or `stdin=`; it never has a name on disk."""
    fd = os.memfd_create("fsstack", 0)
    try:
        os.write(fd, secret)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        # A daemon that has read it may keep it open.
        os.pwrite(fd, bytes(len(secret)), 0)
        os.ftruncate(fd, 0)
        os.close(fd)


def syncfs(path: str | os.PathLike[str]) -> None:
    """Write out everything of the filesystem that holds `path` (syncfs(2)). Raises OSError."""
    with descriptors.opened(path) as fd:
        if libc().syncfs(fd) != 0:
            raise failure(f"cannot write out {os.fspath(path)}")


def mapper_environment() -> dict[str, str]:
    """Return the environment of device-mapper's tools. Without a running udevd they would wait for ever."""
    import socket

    # Its socket outlives it, so that there is one proves nothing.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        try:
            control.connect("/run/udev/control")
        except OSError:
            return {"DM_DISABLE_UDEV": "1"}
    return {}
