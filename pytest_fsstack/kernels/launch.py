"""The program that xdist starts instead of a Python. It boots a guest, and connects xdist to a Python in it.

    python -m pytest_fsstack.kernels.launch DESCRIPTION -u -c ...

If the guest does not boot, a Python on the host replaces it. All its tests fail with the output of the guest's console.
So the results of other kernels are kept, and reports arrive on the usual way.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from pytest_fsstack.kernels import vm
from pytest_fsstack.kernels.packages import PackageError
from pytest_fsstack.machine.descriptors import write_all
from pytest_fsstack.options import GUEST_DOWN
from pytest_fsstack.units import counted, reason_of


class Description(msgspec.Struct):
    """The request of the controller, in a JSON file.

    `log` gets the reason if the guest dies. `results` is a new directory for files that the guest hands back.
    """

    machine: vm.Machine
    disk_size: int
    silent_seconds: float
    log: Path
    results: Path

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.encode(self, enc_hook=str))

    @classmethod
    def read(cls, path: Path) -> Description:
        return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=lambda kind, text: kind(text))


#: Seconds for a guest to shut down after its command has ended.
SHUTDOWN_SECONDS = 60.0
#: Seconds of silence after this end until a guest counts as halted. A kernel without ACPI does not switch its VM off.
_HALTED_SECONDS = 10.0


def forward(guest: vm.Guest, silent_seconds: float) -> str | None:
    """Forward bytes in both directions until the guest's command ends. Return what went wrong, or None.

    A guest that is silent for `silent_seconds`, or that has halted, is killed.
    """
    process = guest.process
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    own_input, output, errors = sys.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()
    guest_input, pending = process.stdin.fileno(), b""
    # A guest that hangs does not read its input.
    os.set_blocking(guest_input, False)
    watched = {own_input, output, errors}
    last_word = time.monotonic()
    while output in watched:
        readers, writers = (watched - {own_input}, [guest_input]) if pending else (watched, [])
        ready, writable, _ = select.select(list(readers), writers, [], 1.0)
        if writable:
            try:
                pending = pending[os.write(guest_input, pending) :]
            except BrokenPipeError:
                pending = b""
                watched.discard(own_input)
        for fd in ready:
            data = os.read(fd, 1 << 16)
            if not data:
                watched.discard(fd)
                if fd == own_input:
                    process.stdin.close()
            elif fd == own_input:
                last_word, pending = time.monotonic(), data
            else:
                last_word = time.monotonic() if fd == output else last_word
                write_all(1 if fd == output else 2, data)
        silence = time.monotonic() - last_word
        if silence > _HALTED_SECONDS and guest.ended:
            guest.kill()
            return None
        if silence > silent_seconds:
            guest.kill()
            return f"was silent for {silent_seconds:g} s, and was killed"
    try:
        process.wait(SHUTDOWN_SECONDS)
    except subprocess.TimeoutExpired:
        guest.kill()
        return f"did not end within {SHUTDOWN_SECONDS:g} s after its output, and was killed"
    return None if guest.ended else f"went down (virtme-run: exit code {process.returncode})"


def stand_in(argv: list[str], reason: str) -> None:
    """Replace this process by a Python on the host that reports why there is no guest."""
    # The environment has no zero bytes, and at most 128 KiB for each variable.
    os.execve(argv[0], argv, {**os.environ, GUEST_DOWN: reason.replace("\0", "")[:30_000]})


_PR_SET_PDEATHSIG = 1


def main() -> int:
    # The guest dies with this process, so this one must die with the session.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Ctrl-C ends the session, which still needs the guest.
    os.setsid()
    description = Description.read(Path(sys.argv[1]))
    argv = [sys.executable, *sys.argv[2:]]
    log = description.log
    if log.exists():
        stand_in(argv, log.read_text())
    try:
        env = vm.guest_environment()
        guest = vm.Guest(description.machine, argv, disk_size=description.disk_size, env=env, talks=True)
    except OSError as error:
        stand_in(argv, f"kernel {description.machine.kernel.name}: cannot be started: {error}")
    if story := guest.boot():
        stand_in(argv, story)
    problem = forward(guest, description.silent_seconds)
    _copy_results(guest, description.results)
    if problem:
        log.write_text(guest.story(problem))
        return 1
    return 0


def _copy_results(guest: vm.Guest, directory: Path) -> None:
    """Copy the results of a guest, and print a line if there were any."""
    try:
        if files := guest.copy_results(directory):
            print(f"\nfsstack: {directory.name} has {counted(files, 'file')} of the guest", file=sys.stderr)
    except (PackageError, OSError) as error:
        print(f"\nfsstack: not all results of the guest are in {directory.name}: {reason_of(error)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
