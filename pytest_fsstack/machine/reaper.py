"""A separate process beside a session. Once the session has died, it kills all processes with its mark.

Usage: ``python reaper.py PIDFD VARIABLE=MARK``. A parent-death signal would need an additional exec for each measured
command, and its children would not inherit it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time


def end(mark: bytes) -> bool:
    """Kill the processes with this entry in their environment. Return whether there was one."""
    killed = False
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):  # the process has ended, or is another user's
            pidfd = os.pidfd_open(int(name))
            try:
                # Read after opening the pidfd, so that both refer to the same process.
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read().split(b"\0") and not select.select([pidfd], [], [], 0)[0]:
                        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                        killed = True
            finally:
                os.close(pidfd)
    return killed


def main(pidfd: int, mark: bytes, patience: float = 10.0) -> None:
    """Wait for the death of the process behind a pidfd, then kill its remains for at most `patience` seconds."""
    select.select([pidfd], [], [])
    deadline = time.monotonic() + patience
    # They may start others meanwhile.
    while end(mark) and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]), os.fsencode(sys.argv[2]))
