"""Owners of paths: the users who may change one, and the directories of this program.

Only this module follows paths that other users may have made. It holds each directory on the way, and follows links of
root and this user only. A path that only these two may change stays the same path when it is used by name afterwards.

It imports nothing of this package, because a laboratory sends its text to hosts without the package.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import stat
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

_SEARCH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: The kernel's limit of links in a path.
MAX_LINKS = 40


class UntrustedError(PermissionError):
    """A path that another user may change. `strerror` names the user and the place."""


# -- the way to a file or directory ------------------------------------------------------------------------------------


def trusted_users() -> set[int]:
    """Return the users with trusted files: root and this user."""
    users = {0, os.geteuid()}
    try:
        first = Path("/proc/self/uid_map").read_text().split()
    except FileNotFoundError:
        return users  # the kernel has no user namespaces (CONFIG_USER_NS)
    if first != ["0", "0", str(2**32 - 1)]:
        # In a user namespace, files of the machine's root have the overflow id.
        users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return users


def located(path: Path, *, trusted: bool = False) -> int:
    """Return an O_PATH descriptor of the file or directory to which a path leads. Raises OSError.

    Only links of root and this user are followed. With `trusted`, `UntrustedError` is raised if another user may change
    the file, or a directory on the way.
    """
    users, names, links = trusted_users(), list(reversed(path.absolute().parts[1:])), 0
    place = os.open("/", _SEARCH)
    try:
        _refuse_if(trusted, place, users)
        while names:
            below = os.open(names.pop(), _SEARCH, dir_fd=place)
            if not stat.S_ISLNK(os.fstat(below).st_mode):
                place = exchanged(place, below)
                _refuse_if(trusted, place, users)
                continue
            try:
                target = _target(below, users)
            finally:
                os.close(below)
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            if target.startswith("/"):
                place = exchanged(place, os.open("/", _SEARCH))
            names += reversed([part for part in target.split("/") if part])
        return place
    except OSError as error:
        os.close(place)
        if error.filename == os.fspath(path):
            raise
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def exchanged(old: int, new: int) -> int:
    """Close the first descriptor, and return the second."""
    os.close(old)
    return new


def link_target(directory: int, name: str) -> str | None:
    """Return the target of a link of root or this user, or None for other files. Raises OSError."""
    link = os.open(name, _SEARCH, dir_fd=directory)
    try:
        return _target(link, trusted_users()) if stat.S_ISLNK(os.fstat(link).st_mode) else None
    finally:
        os.close(link)


def _target(link: int, users: set[int]) -> str:
    owner = os.fstat(link).st_uid
    if owner not in users:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{link}"))
        raise UntrustedError(
            errno.EPERM, f"{name} is a link of user {owner}, which is not followed: name what it leads to"
        )
    return os.readlink("", dir_fd=link)


def who_may_change(descriptor: int, users: set[int] | None = None) -> str:
    """Describe which other user may change an open file or directory. Empty if only root and this user may.

    In a directory with the sticky bit, such as /tmp, other users cannot rename what they do not own.
    """
    status = os.fstat(descriptor)
    place = f"/proc/self/fd/{descriptor}"
    if status.st_uid not in (users or trusted_users()):
        return f"user {status.st_uid} owns {os.readlink(place)}"
    by_acl = status.st_mode & stat.S_IWGRP and _has_acl(place)
    by_group = status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid())
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if (by_acl or by_group or status.st_mode & stat.S_IWOTH) and not sticky:
        who = "by its ACL, others" if by_acl else f"group {status.st_gid}" if by_group else "every user"
        return f"{who} may write to {os.readlink(place)}"
    return ""


def _refuse_if(trusted: bool, descriptor: int, users: set[int]) -> None:
    if not trusted:
        return
    if reason := who_may_change(descriptor, users):
        raise UntrustedError(errno.EPERM, reason)
    server = fuse_owner(descriptor)
    if server is not None and server not in users:
        # The server of a FUSE filesystem decides on the owners and modes that it shows.
        raise UntrustedError(errno.EPERM, f"user {server} mounted {os.readlink(f'/proc/self/fd/{descriptor}')}")


def fuse_owner(descriptor: int) -> int | None:
    """Return the user who mounted the FUSE filesystem of an open file, or None for other filesystems."""
    lines = Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines()
    mount = next(line.split()[1] for line in lines if line.startswith("mnt_id:"))
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        number, _, fields = line.partition(" ")
        if number == mount:
            kind, *_, options = fields.partition(" - ")[2].split(" ")
            user = re.search(r"(?:^|,)user_id=(\d+)", options) if kind.startswith("fuse") else None
            return int(user[1]) if user else None
    return None


def _has_acl(place: str) -> bool:
    """Whether a file has an access control list. Then the bits of its group are those of all whom the list names."""
    try:
        return "system.posix_acl_access" in os.listxattr(place)
    except OSError:  # its filesystem has no extended attributes
        return False


def untrusted(path: Path) -> str:
    """Describe who could replace or change an existing path. Empty if only root and this user could. Raises OSError."""
    try:
        os.close(located(path, trusted=True))
    except UntrustedError as error:
        return error.strerror or ""
    return ""


def held(path: Path, *, trusted: bool = False) -> int:
    """Return a descriptor of a directory that can list it. See `located`. Raises OSError."""
    place = located(path, trusted=trusted)
    try:
        return os.open(".", _LIST, dir_fd=place)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None
    finally:
        os.close(place)


def made(path: Path) -> int:
    """Return a descriptor of a directory that only root and this user may change. Missing directories are created.

    Raises OSError.
    """
    path, missing = path.absolute(), []
    while True:
        try:
            directory = held(path, trusted=True)
            break
        except FileNotFoundError:
            missing.append(path.name)
            path = path.parent
    for name in reversed(missing):
        try:
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.mkdir(name, dir_fd=directory)
            directory = exchanged(directory, os.open(name, _LIST, dir_fd=directory))
            _refuse_if(True, directory, trusted_users())
        except BaseException:
            os.close(directory)
            raise
    return directory


# -- the marker of this program's directories --------------------------------------------------------------------------

#: The file in a directory that shows that this program made it, and under which name.
MARKER = ".pytest-fsstack"
#: Flags of statx(2), from include/uapi/linux.
_EMPTY_PATH, _BTIME = 0x1000, 0x800
#: A longer marker is none of this program's.
_LONGEST = 4096


def marker_of(directory: int, name: str) -> dict[str, object]:
    """Return what the marker of a directory says. A copy of it in another directory, or after a rename, is none.

    The kernel may number devices anew with each boot, so their number counts in the same boot only. A directory that
    was restored from a backup may get the inode of the removed one, but not its time of birth.
    """
    status, boot = os.fstat(directory), Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"name": name, "device": status.st_dev, "inode": status.st_ino, "born": _birth(directory), "boot": boot}


def _birth(descriptor: int) -> int | None:
    """Return when a file was made, in ns since 1970 (statx(2)). None if its filesystem does not know it."""
    libc, result = ctypes.CDLL(None), bytearray(256)
    if not hasattr(libc, "statx"):
        return None
    buffer = (ctypes.c_char * len(result)).from_buffer(result)
    if (
        libc.statx(descriptor, b"", _EMPTY_PATH, _BTIME, buffer)
        or not int.from_bytes(result[:4], sys.byteorder) & _BTIME
    ):
        return None
    # The fields stx_mask, and stx_btime with seconds and nanoseconds.
    seconds, nanoseconds = struct.unpack_from("=qI", result, 80)
    return int(seconds * 10**9 + nanoseconds)


def why_not_own(directory: int, name: str, more: Mapping[str, object] | None = None) -> str:
    """Return why nothing proves that this program made an open directory under this name. Empty if its marker does.

    The marker must also have the facts in `more`. Raises OSError.
    """
    try:
        marker = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise
        return f"it has no marker ({MARKER})"
    try:
        status, owner = os.fstat(marker), os.fstat(directory).st_uid
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_mode & 0o022:
            return f"its marker ({MARKER}) is not a file that only its owner may write"
        if not {status.st_uid, owner} <= {os.geteuid()}:
            return f"it belongs to user {owner}, and its marker to user {status.st_uid}"
        try:
            facts = json.loads(os.read(marker, _LONGEST))
        except ValueError:
            facts = None
    finally:
        os.close(marker)
    if not isinstance(facts, dict):
        return f"its marker ({MARKER}) is damaged"
    expected = {**marker_of(directory, name), **(more or {})}
    if facts.get("boot") != expected["boot"]:
        expected = {key: value for key, value in expected.items() if key not in ("boot", "device")}
    differing = [key for key in expected if facts.get(key) != expected[key]]
    return f"its marker is of another directory (its {', '.join(differing)} differs)" if differing else ""


def own(parent: int, name: str) -> int:
    """Return a descriptor of a marked directory in an open one. Create it if it is missing. Raises OSError.

    It gets its name once it has its marker, because another process may look for it at the same time. `UntrustedError`
    is raised for an existing directory without a valid marker.
    """
    place = os.path.join(os.readlink(f"/proc/self/fd/{parent}"), name)
    try:
        directory = os.open(name, _LIST, dir_fd=parent)
    except FileNotFoundError:
        _make_marked(parent, name)
        directory = os.open(name, _LIST, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        raise UntrustedError(errno.EPERM, "it is a link or a file", place) from None
    try:
        if reason := why_not_own(directory, name):
            raise UntrustedError(
                errno.EPERM, f"this program did not make it, because {reason}: move it away, or name another", place
            )
    except BaseException:
        os.close(directory)
        raise
    return directory


def _make_marked(parent: int, name: str) -> None:
    unfinished = f".fsstack-{os.urandom(8).hex()}"
    os.mkdir(unfinished, 0o700, dir_fd=parent)
    directory = os.open(unfinished, _LIST, dir_fd=parent)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        marker = os.open(MARKER, flags, 0o600, dir_fd=directory)
        try:
            os.write(marker, json.dumps(marker_of(directory, name)).encode())
            os.fsync(marker)
        finally:
            os.close(marker)
        try:
            os.rename(unfinished, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # Another process was faster.
            os.unlink(MARKER, dir_fd=directory)
            os.rmdir(unfinished, dir_fd=parent)
    finally:
        os.close(directory)


def main(top: str, below: str, *programs: str) -> None:
    """Create the directories `below` a `top` as this program's own. Check that no other user may change `programs`.

    Raises OSError.
    """
    directory = made(Path(top))
    for name in below.split("/"):
        directory = exchanged(directory, own(directory, name))
    for program in programs:
        os.close(located(Path(program), trusted=True))


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except OSError as error:
        sys.exit(f"{error.filename or sys.argv[1]} is not used: {error.strerror}")
