"""The program that runs a command without privileges, apart from all other processes of its user.

    python -I -S confined.py UID GID PATH_OF_COMMAND ARGUMENT ...

The command gets user, pid, network and IPC namespaces. Root owns the user namespace, so no process of the same user can
trace the command, or open its files in /proc/PID/fd. All its processes end when it ends, or when this program does.
This file imports no other module of the package, so that it starts fast.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_REMEDY = "start a container with --security-opt=seccomp=unconfined or --privileged"
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38


def _map_users(process: int, uid: int, gid: int) -> None:
    """Let one user and one group exist in the namespace of a process. Raises OSError."""
    for file, number in ("uid_map", uid), ("gid_map", gid):
        fd = os.open(f"/proc/{process}/{file}", os.O_WRONLY)
        os.write(fd, f"{number} {number} 1".encode())
        os.close(fd)


def _enter_namespaces(uid: int, gid: int) -> None:
    """Move this process to new namespaces, and become the user. Raises OSError."""
    this, (ready, begin) = os.getpid(), os.pipe()
    helper = os.fork()
    if helper == 0:  # it stays outside, because the owner of the namespace has no rights in the parent namespace
        os.close(begin)
        os.read(ready, 1)
        status = 1
        try:
            _map_users(this, uid, gid)
            status = 0
        finally:
            os._exit(status)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNET | _CLONE_NEWIPC) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot make namespaces: {os.strerror(error)}; {_REMEDY}")
    os.close(begin)
    if os.waitpid(helper, 0)[1] != 0:
        raise PermissionError("cannot map a user into the namespace")
    os.close(ready)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def _die_with_parent() -> None:
    """Let the kernel kill this process with its parent. A change of the user resets that."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(uid: int, gid: int, command: list[str]) -> int:
    """Run the command, and return its exit code."""
    _enter_namespaces(uid, gid)
    _die_with_parent()
    child = os.fork()
    if child == 0:  # the first process of the pid namespace
        _die_with_parent()
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        try:
            os.execv(command[0], command)  # execvp would import modules, which the user may be unable to read
        except OSError as error:
            os.write(2, f"cannot run {command[0]}: {error.strerror}".encode())
        finally:
            os._exit(127)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    try:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
    except OSError as error:
        sys.exit(error.strerror or str(error))
