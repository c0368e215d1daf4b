"""Run the system's tools on this machine: the only module that knows `sh`.

Nothing secret may stand in `argv`: `sh` and the error below repeat it. Secrets go through `secret_fd`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
_CLONE_NEWNS = 0x20000
_MS_REC, _MS_SLAVE = 0x4000, 0x80000


class CommandError(Exception):
    """A command failed: what ran, how it ended, what it said on stderr.

    `returncode` is None where the command did not end by itself.
    """

    def __init__(self, argv: Sequence[str], returncode: int | None, stderr: str, how: str = "") -> None:
        self.argv, self.returncode, self.stderr = tuple(argv), returncode, stderr.strip()
        how = how or f"exit code {returncode}"
        super().__init__(f"`{shlex.join(self.argv)}` failed ({how}){': ' + self.stderr if self.stderr else ''}")


def search_path() -> str:
    """PATH and the directories of administration tools, which an ordinary user's PATH lacks."""
    path = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([path, *(directory for directory in _SBIN if directory not in path.split(os.pathsep))])


def which(tool: str) -> str | None:
    """The path of an installed tool, or None."""
    path = search_path()
    # With cold caches, a search costs milliseconds. What is missing may be installed meanwhile.
    found = _found.get((tool, path)) or shutil.which(tool, path=path)
    if found:
        _found[tool, path] = found
    return found


_found: dict[tuple[str, str], str] = {}


@functools.cache
def _sh() -> Any:
    import logging

    import sh

    # At DEBUG and INFO it logs what is written to a command's stdin, and every argv.
    logging.getLogger("sh").setLevel(logging.WARNING)
    return sh


def _options(env: Mapping[str, str] | None, fds: Sequence[int]) -> dict[str, Any]:
    return {
        "_tty_out": False,
        "_return_cmd": True,
        "_pass_fds": list(fds),
        "_env": {**os.environ, "PATH": search_path(), "LC_ALL": "C", **(env or {})},
    }


def run(
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    timeout: float = 600.0,
) -> str:
    """Run a command to its end and return what it wrote to stdout.

    `stdin` is a file descriptor to read from (by default there is nothing to read), `fds` are passed on under their
    own numbers, `timeout` is in seconds. Raises `CommandError`.
    """
    sh = _sh()
    words = [os.fspath(word) for word in argv]
    path = which(words[0])
    if path is None:
        raise CommandError(words, None, "", "not installed")
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(os.fdopen(os.dup(stdin), "rb")) if stdin is not None else None
        running = sh.Command(path)(*words[1:], _in=source, _bg=True, _bg_exc=False, **_options(env, fds))
        overdue = threading.Event()

        def kill() -> None:
            overdue.set()
            with contextlib.suppress(ProcessLookupError):
                running.signal(signal.SIGKILL)

        # Not `_timeout`: with it, `sh` returns only at the next multiple of 0.1 s.
        timer = threading.Timer(timeout, kill)
        timer.start()
        try:
            done = running.wait()
        except sh.ErrorReturnCode as error:
            if overdue.is_set():
                raise CommandError(words, None, "", f"no answer within {timeout:g} s, killed") from None
            said = error.stderr or error.stdout
            raise CommandError(words, error.exit_code, said.decode(errors="replace")) from None
        except BaseException:
            # A signal ends this session. What the command is about to make must be there when that is undone.
            Daemon(words, running).stop()
            raise
        finally:
            timer.cancel()
    return str(done.stdout.decode(errors="replace"))


class Daemon:
    """A server process that stays in the foreground, and that the kernel kills when this process dies."""

    def __init__(self, argv: Sequence[str], running: Any) -> None:
        self.argv, self._running = tuple(argv), running
        self.pid: int = running.pid

    @property
    def alive(self) -> bool:
        return bool(self._running.is_alive())

    def error(self, how: str = "") -> CommandError:
        """Why it is not there any more."""
        # Waiting on the process object and not on the command: the latter raises for a signal.
        code = self._running.process.wait()
        stderr = self._running.process.stderr.decode(errors="replace")
        return CommandError(self.argv, code, stderr, how or f"it ended at once, exit code {code}")

    def stop(self, patience: float = 10.0) -> None:
        """Wait until it has ended by itself, as it does when it is unmounted; kill it after `patience` seconds."""
        for number, seconds in (None, patience), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0):
            if number and self.alive:
                self._running.signal(number)
            if wait_until(lambda: not self.alive, seconds):
                self._running.process.wait()
                return
        raise CommandError(self.argv, None, "", f"process {self.pid} survived SIGKILL")

    def kill(self) -> None:
        """End it at once, where nothing that it still does matters any more."""
        if self.alive:
            self._running.signal(signal.SIGKILL)
        self.stop(patience=2.0)


def start(
    *argv: str | os.PathLike[str],
    stdin: int | None = None,
    fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
) -> Daemon:
    """Start a server in its foreground mode. Call it from the main thread.

    The parent-death signal fires when the *thread* that started the server ends, and a server that forks itself away
    loses it: hence the foreground mode.
    """
    words = [os.fspath(word) for word in argv]
    for tool in words[0], "setpriv":
        if which(tool) is None:
            raise CommandError([tool], None, "", "not installed")
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(os.fdopen(os.dup(stdin), "rb")) if stdin is not None else None
        running = _sh().Command(which("setpriv"))(
            "--pdeathsig",
            "KILL",
            *words,
            _in=source,
            _bg=True,
            _bg_exc=False,
            **_options(env, fds),
        )
    return Daemon(words, running)


def outlive(pid: int) -> Daemon:
    """Start a process that ends after that one has, and that nothing else ends: it keeps the mount namespace alive."""
    words = ["tail", f"--pid={pid}", "-f", "/dev/null"]
    options = {**_options(None, ()), "_bg": True, "_bg_exc": False, "_new_session": True}
    return Daemon(words, _sh().Command(which("tail"))(*words[1:], **options))


def wait_until(condition: Any, seconds: float) -> bool:
    """Poll a condition for at most that long; whether it came true."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
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
        os.close(fd)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def syncfs(path: str | os.PathLike[str]) -> None:
    """Write out everything of the filesystem that holds `path` (syncfs(2)). Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc().syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fspath(path))
    finally:
        os.close(fd)


def map_file(path: str | os.PathLike[str]) -> None:
    """Load a file into memory, and keep it there to the end of this process (mmap(2)). Raises OSError.

    Not by Python's mmap, which keeps a descriptor for each.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = ctypes.c_size_t(os.fstat(fd).st_size)
        load = _libc().mmap
        load.restype = ctypes.c_void_p
        place = load(None, size, mmap.PROT_READ, mmap.MAP_SHARED | mmap.MAP_POPULATE, fd, ctypes.c_longlong(0))
        if place == ctypes.c_void_p(-1).value:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), os.fspath(path))
    finally:
        os.close(fd)


@functools.cache
def private_mounts() -> bool:
    """Give this process a mount namespace of its own, once; False where it may not (no CAP_SYS_ADMIN).

    Whatever is mounted afterwards vanishes with the process, even after SIGKILL. Propagation is *slave*: mounts of the
    host still arrive, and can still be unmounted there, which *private* would prevent.
    """
    libc = _libc()
    if libc.unshare(_CLONE_NEWNS) != 0:
        return False
    if libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot make the mounts of this session private: {os.strerror(number)}")
    return True


def mapper_environment() -> dict[str, str]:
    """For device-mapper's tools: without a running udevd they would wait for it for ever."""
    import socket

    # Its socket outlives it, so that there is one proves nothing.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        try:
            control.connect("/run/udev/control")
        except OSError:
            return {"DM_DISABLE_UDEV": "1"}
    return {}


def mount_options(path: str | os.PathLike[str]) -> str | None:
    """``type source options`` of the mount at exactly `path` as the kernel reports them, or None."""
    found = None
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, source, super_options) = left.split(), right.split(" ", 2)
        if _unescape(fields[4]) == os.fspath(path):
            options = dict.fromkeys([*fields[5].split(","), *super_options.split(",")])
            found = f"{kind} {_unescape(source)} {','.join(options)}"
    return found


def _unescape(text: str) -> str:
    """Mountinfo writes blanks and backslashes as octal escapes."""
    for octal, char in ("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\"):
        text = text.replace(octal, char)
    return text


@contextlib.contextmanager
def mounted(source: str | os.PathLike[str], target: Path, kind: str = "", options: str = "") -> Iterator[Path]:
    """Mount, and unmount afterwards. Raises `CommandError`."""
    run("mount", *(["-t", kind] if kind else []), *(["-o", options] if options else []), source, target)
    try:
        yield target
    finally:
        unmount(target)


def unmount(target: Path, patience: float = 3.0) -> None:
    """Unmount; where it is in use, say by whom, detach it and raise `CommandError`.

    Where nobody shows, it is tried again for `patience` seconds: FUSE lets go of a file some time after its last close.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            run("umount", target)
            return
        except CommandError as error:
            if mount_options(target) is None:
                return
            holders = users(target)
            if holders or time.monotonic() > deadline:
                run("umount", "-l", target)
                text = f"{error.stderr}; in use by: {', '.join(holders) or 'nobody that shows'}"
                raise CommandError(error.argv, error.returncode, text) from None
        time.sleep(0.05)


def users(target: Path) -> list[str]:
    """The processes with a working directory or an open file at or below `target`, as ``pid (command) file``."""
    prefix, found = os.fspath(target), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # processes end while one looks
            for link in [process / "cwd", *(process / "fd").iterdir()]:
                name = os.readlink(link)
                if name == prefix or name.startswith(prefix + "/"):
                    found.append(f"{process.name} ({(process / 'comm').read_text().strip()}) {name}")
                    break
    return found
