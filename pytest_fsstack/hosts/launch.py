"""What xdist starts in place of a Python: boots a guest, and lets xdist talk to a Python in there.

    python -m pytest_fsstack.hosts.launch DESCRIPTION -u -c ...

Where the guest does not boot, a Python of the host stands in for it, whose tests all fail with what the guest's console
said: so the other kernels' results are kept, and the reports come by the same way.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pytest_fsstack.hosts import vm
from pytest_fsstack.hosts.kernels import Kernel
from pytest_fsstack.options import GUEST_DOWN


@dataclass(frozen=True)
class Description:
    """What the controller asks for, in a JSON file. `log` is where the reason goes if the guest dies."""

    name: str
    image: str
    tree: str | None
    directory: str
    memory: str
    cpus: int
    kvm: bool
    disk_size: int
    boot_seconds: float
    silent_seconds: float
    log: str

    @property
    def machine(self) -> vm.Machine:
        kernel = Kernel(self.name, Path(self.image), Path(self.tree) if self.tree else None)
        return vm.Machine(kernel, Path(self.directory), self.memory, self.cpus, self.kvm)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.__dict__))

    @classmethod
    def read(cls, path: Path) -> Description:
        return cls(**json.loads(path.read_text()))


class Guest:
    """A guest that runs one command, with the console's log and the disk in files without a name."""

    def __init__(self, description: Description, argv: list[str]) -> None:
        self.description = description
        with contextlib.ExitStack() as files:
            # Not in /tmp: a tmpfs has no room, and may refuse O_DIRECT.
            disk = files.enter_context(tempfile.TemporaryFile(dir="/var/tmp"))
            command = files.enter_context(tempfile.TemporaryFile())
            self._console: BinaryIO = files.enter_context(tempfile.TemporaryFile())
            disk.truncate(description.disk_size)
            directory = Path(description.directory)
            command.write(vm.script(argv, directory, vm.guest_environment(), stdin=True).encode())
            command.flush()
            fds = {"disk": disk.fileno(), "console": self._console.fileno(), "command": command.fileno()}
            # stdout and stderr must be pipes: QEMU truncates files.
            self.process = subprocess.Popen(
                description.machine.argv(**fds),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=list(fds.values()),
                env=vm.environment(),
            )
            self._files = files.pop_all()

    @property
    def console(self) -> str:
        size = os.fstat(self._console.fileno()).st_size
        return os.pread(self._console.fileno(), size, 0).decode(errors="replace").replace("\r\n", "\n")

    def booted(self) -> bool:
        """Wait until its command starts; False where it has ended or the time is over."""
        deadline = time.monotonic() + self.description.boot_seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if vm.STARTED in self.console:
                return True
            time.sleep(0.1)
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def story(self, outcome: str) -> str:
        """What a reader wants of a failure: the panic if there was one, and the last words."""
        console = self.console
        panic = [line for line in console.splitlines() if "Kernel panic" in line or "BUG:" in line]
        tail = console.splitlines()[-30:] or ["(the console is empty: is this a kernel for this machine?)"]
        return "\n".join(
            [f"kernel {self.description.name}: {outcome}", *panic[:1], "--- the console's last lines", *tail]
        )


def talk(guest: Guest) -> str | None:
    """Pass bytes both ways until the guest's command ends; what went wrong, or None."""
    process = guest.process
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    ours, theirs, errors = sys.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()
    watched = {ours, theirs, errors}
    heard = time.monotonic()
    while theirs in watched:
        ready, _, _ = select.select(list(watched), [], [], 1.0)
        for fd in ready:
            data = os.read(fd, 1 << 16)
            if not data:
                watched.discard(fd)
                if fd == ours:
                    process.stdin.close()
            elif fd == ours:
                heard = time.monotonic()
                process.stdin.write(data)
                process.stdin.flush()
            else:
                heard = time.monotonic() if fd == theirs else heard
                _write(1 if fd == theirs else 2, data)
        if time.monotonic() - heard > guest.description.silent_seconds:
            guest.kill()
            return f"was silent for {guest.description.silent_seconds:g} s, and was ended"
    process.wait()
    return None if vm.ENDED in guest.console else f"went down (virtme-run: exit code {process.returncode})"


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def stand_in(argv: list[str], reason: str) -> None:
    """Become a Python of the host that says why there is no guest."""
    os.execve(argv[0], argv, {**os.environ, GUEST_DOWN: reason})


_PR_SET_PDEATHSIG = 1


def main() -> int:
    # The guest dies with this process, so this one must die with the session.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    description = Description.read(Path(sys.argv[1]))
    argv = [sys.executable, *sys.argv[2:]]
    log = Path(description.log)
    if log.exists():
        stand_in(argv, log.read_text())
    try:
        guest = Guest(description, argv)
    except OSError as error:
        stand_in(argv, f"kernel {description.name}: cannot be started: {error}")
    if not guest.booted():
        ended = guest.process.poll()
        outcome = f"did not boot (virtme-run: exit code {ended})" if ended is not None else "did not boot"
        guest.kill()
        stand_in(argv, guest.story(f"{outcome} within {description.boot_seconds:g} s"))
    if problem := talk(guest):
        log.write_text(guest.story(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
