"""Machines that this one plays: processes in namespaces of their own, with a loop disk and a machine id for each."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_fsstack.machine import commands, reaper

ENVIRONMENT = {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"}

_DISK = 1 << 30
_MARK = "FSSTACK_TRIAL_CLUSTER"

#: What outlives this process: it kills all processes of the machines, and detaches their disks.
_AFTERWARDS = '"$1" "$2" "$3" "$4"; shift 4; losetup --detach "$@"'


class Machines:
    """Machines in a directory. All of their processes end when the process that started them dies."""

    def __init__(self, directory: Path, names: Sequence[str]) -> None:
        self.directory, self.names = directory, names
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        #: A loop device for each machine.
        self.disks: dict[str, Path] = {}
        self.environment = ENVIRONMENT
        #: In the environment of all processes of the machines.
        self.mark = f"{_MARK}={directory}"

    def make_disks(self) -> None:
        """Make the directory, a disk and a machine id for each machine, and start what ends them all."""
        own = os.pidfd_open(os.getpid())
        self.directory.mkdir(mode=0o755, parents=True)
        self.disks = {name: self._new_disk(name) for name in self.names}
        words = [sys.executable, reaper.__file__, str(own), self.mark]
        words = ["sh", "-c", _AFTERWARDS, "sh", *words, *map(str, self.disks.values())]
        self._reaper = subprocess.Popen(words, pass_fds=[own], start_new_session=True)
        os.close(own)
        for name in self.names:
            (self.directory / name).mkdir()
            (self.directory / f"{name}.id").write_text(uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.directory}/{name}").hex)

    def _new_disk(self, name: str) -> Path:
        with (self.directory / f"{name}.disk").open("w+b") as image:
            image.truncate(_DISK)
        return Path(self.run("losetup", "--find", "--show", "--direct-io=on", f"{self.directory}/{name}.disk").strip())

    def start_daemon(self, name: str, *words: str) -> None:
        """Start a process that stays."""
        with (self.directory / f"{name}.output").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                words,
                env={**self.environment, _MARK: str(self.directory)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def run(self, *words: str) -> str:
        """Run a command and return what it printed. Raises `CalledProcessError`."""
        return subprocess.run(words, env=self.environment, check=True, capture_output=True, text=True).stdout

    def sessions(self) -> list[str]:
        """Return the command lines of all sessions that run on the machines."""
        lines = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if self.mark.encode() in path.read_bytes().split(b"\0"):
                    lines.append((path.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return [line for line in lines if " --fsstack-json=" in line]

    def left(self) -> str:
        """Return what is left of sessions: mounts of the disks, loop devices over their files, and processes."""
        lines = [line for path in Path("/proc").glob("[0-9]*/mounts") for line in _lines(path)]
        mounts = {line for line in lines if line.split()[0] in map(str, self.disks.values())}
        return "\n".join([*sorted(mounts), *self.loops(), *self.sessions()])

    def loops(self) -> list[str]:
        """Return the loop devices over files on the disks, with the number of the disk before each."""
        numbers = {f"{os.major(disk.stat().st_rdev)}:{os.minor(disk.stat().st_rdev)}" for disk in self.disks.values()}
        loops = self.run("losetup", "--list", "--noheadings", "--output=BACK-MAJ:MIN,NAME,BACK-FILE").splitlines()
        return [loop for loop in loops if loop.split()[0] in numbers]

    def end(self) -> None:
        """Kill all processes of the machines, and detach their disks."""
        while reaper.end(self.mark.encode()):
            time.sleep(0.02)
        for daemon in self.daemons.values():
            daemon.kill()
            daemon.wait()
        self.daemons.clear()
        os.killpg(self._reaper.pid, signal.SIGKILL)
        self._reaper.wait()
        for disk in self.disks.values():
            self.run("losetup", "--detach", str(disk))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def wait_or_fail(condition: Callable[[], bool], problem: str) -> None:
    """Wait ten minutes at most for a condition. Raises `TimeoutError` with the problem."""
    if not commands.wait_until(condition, 600):
        raise TimeoutError(problem)
