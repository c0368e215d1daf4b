"""A separate process beside a session. Once the session has died, it kills all processes with its mark.

Usage: ``python reaper.py PIDFD VARIABLE=MARK [DEVICES]``. A parent-death signal would need an additional exec for each
measured command, and its children would not inherit it.

With DEVICES, it runs in the session's own mount namespace, and also disconnects the FUSE mounts there. DEVICES are the
numbers of those that were there before the session, with commas between. SIGKILL does not end a server that is using
its own mount, as go-fuse does for a moment after mounting: its call waits for an answer of its own dead threads.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Collection

#: Flags of umount2(2).
_MNT_FORCE, _MNT_DETACH = 1, 2
_PATIENCE = 10.0


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


def fuse_mounts() -> list[list[bytes]]:
    """Return the first fields of each FUSE mount in this namespace, oldest first (proc_pid_mountinfo(5))."""
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            place, _, filesystem = line.partition(b" - ")
            kind = filesystem.split()[0]
            if kind in (b"fuse", b"fuseblk") or kind.startswith(b"fuse."):
                found.append(place.split())
    return found


def disconnect(before: Collection[bytes]) -> None:
    """Detach the FUSE mounts of this namespace, and fail all calls that wait for their servers.

    Those of the machine are left alone. Their device numbers are in `before`, or they came later by propagation.
    """
    mounted = fuse_mounts()
    propagated = {fields[2] for fields in mounted if any(tag.startswith(b"master:") for tag in fields[6:])}
    for fields in reversed(mounted):
        if fields[2] not in before and fields[2] not in propagated:
            # Blanks are written in octal.
            unmount(fields[4].decode("unicode_escape").encode("latin-1"), fields[0])


def unmount(target: bytes, mount: bytes) -> None:
    """Detach a mount by its number, unless it is gone or another one is on top of it."""
    import ctypes

    with contextlib.suppress(OSError):  # it is gone, or lies in a filesystem whose server has ended
        # This does not ask the filesystem's server.
        descriptor = os.open(target, os.O_PATH | os.O_NOFOLLOW)
        try:
            with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
                topmost = b"mnt_id:\t" + mount + b"\n" in file
            if topmost:
                ctypes.CDLL(None).umount2(b"/proc/self/fd/%d" % descriptor, _MNT_FORCE | _MNT_DETACH)
        finally:
            os.close(descriptor)


def main(pidfd: int, mark: bytes, devices: str | None = None) -> None:
    """Wait for the death of the process behind a pidfd, then kill its remains for at most `_PATIENCE` seconds."""
    select.select([pidfd], [], [])
    deadline = time.monotonic() + _PATIENCE
    killed = True
    # They may start others meanwhile.
    while killed and time.monotonic() < deadline:
        killed = end(mark)
        if devices is not None:
            disconnect(devices.encode().split(b","))
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]), os.fsencode(sys.argv[2]), *sys.argv[3:4])
