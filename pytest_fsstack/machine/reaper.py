"""Run by itself, beside a session: once that has died, end all that it has started and that carries its mark.

``python reaper.py PIDFD VARIABLE=MARK``. The parent-death signal would do that for a command as well, but
asking for it costs an exec for each command that is measured, and what a command starts itself does not inherit it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time


def end(mark: bytes) -> bool:
    """Kill the processes with this in their environment; whether there was one."""
    killed = False
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # processes end while one looks, and others' are not ours to see
            pidfd = os.pidfd_open(int(name))
            try:
                # Read after the descriptor was had, so that it is of the process that is killed.
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0") and not select.select([pidfd], [], [], 0)[0]:
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                        killed = True
            finally:
                os.close(pidfd)
    return killed


def main(pidfd: int, mark: bytes, patience: float = 10.0) -> None:
    """Wait for the death of the process behind a descriptor, then end what it left, within `patience` seconds."""
    select.select([pidfd], [], [])
    deadline = time.monotonic() + patience
    # One may start another meanwhile.
    while end(mark) and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]), os.fsencode(sys.argv[2]))
