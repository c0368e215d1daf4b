"""The known faults of built-in layers, as the scenarios found them. docs/truth.md describes them."""

from __future__ import annotations

from pytest_fsstack.records.findings import Fault
from pytest_fsstack.truth.correctness.findings import Faults

_GOCRYPTFS = ("gocryptfs 2.3",)
_ENCFS = ("encfs 1.9.5",)
_CRYFS = ("cryfs 0.11.3",)
_SECUREFS = ("securefs 0.13.1",)
_SSHFS = ("sshfs 3.7.3",)
_NFS = ("Linux 6.12",)
_SAMBA = ("Linux 6.12",)


def _groups(names: str) -> tuple[str, ...]:
    """Return the kinds of all cases of pjdfstest in these groups."""
    return tuple(f"{name}::*" for name in names.split())


#: The groups of pjdfstest in which all filesystems fail that lack special files, or the checks of permissions.
_MOST = _groups("chmod chown link mkdir mkfifo mknod open rename rmdir symlink truncate unlink utimensat")
_ALL = (*_MOST, *_groups("ftruncate posix_fallocate"))

FAULTS: Faults = {
    "gocryptfs": (
        Fault("contents", ("*write*: content (linked*",), "an append after link() leaves zeros", _GOCRYPTFS),
        Fault(
            "contents",
            ("f*sync: ENOENT (unlinked*", "pwritev *SYNC: ENOENT (unlinked*", "mmap_write: ENOENT (unlinked*"),
            "fsync and msync of an unlinked file fail",
            _GOCRYPTFS,
        ),
        Fault("contents", ("fchmod: ENOENT (unlinked*",), "fchmod of an unlinked file fails", _GOCRYPTFS),
        Fault("contents", ("access_time *: answer*",), "a write sets the time of access to the present", _GOCRYPTFS),
        Fault("contents", ("mkdir: mode*",), "mkdir adds permissions of the owner", _GOCRYPTFS),
        Fault(
            "contents",
            ("*: size (no space, full)",),
            "a file that cannot grow for lack of space grows to a whole block",
            _GOCRYPTFS,
        ),
        Fault("posix", ("mkdir::*", "utimensat::*"), "modes of mkdir, and times of symbolic links", _GOCRYPTFS),
        Fault(
            "power_cut",
            ("lost: *", "unreadable: *", "not clean: gocryptfs"),
            "synced bytes in the last block are lost, and directories (its issue 1033)",
            _GOCRYPTFS,
        ),
        Fault(
            "xfstests",
            ("generic/184", "generic/375"),
            "generic/184 (mknod) and generic/375 (the set-group-ID bit)",
            _GOCRYPTFS,
        ),
    ),
    "encfs": (
        Fault(
            "contents",
            ("*: links*", "*: inode*", "*: content (linked*", "*: size (linked*"),
            "numbers of links are wrong, and another name of a file shows its old contents",
            _ENCFS,
        ),
        Fault("contents", ("removexattr: no ENODATA*",), "removing an attribute that is missing succeeds", _ENCFS),
        Fault("contents", ("utimens: answer*", "*: mtime*"), "times lose their nanoseconds", _ENCFS),
        Fault("contents", ("utime_one *: answer*",), "a time that is set alone is ignored", _ENCFS),
        Fault("contents", ("synced directory: answer*",), "fsync of a directory writes nothing", _ENCFS),
        Fault(
            "contents",
            ("*: content (*full)", "*: size (*full)"),
            "without space, a write damages bytes that it is not to write",
            _ENCFS,
        ),
        Fault(
            "contents",
            ("rename*: content (*directory*",),
            "a rename over a directory that is not empty removes the contents of files",
            _ENCFS,
        ),
        Fault(
            "posix",
            _MOST,
            "links, permissions and times, in 59 cases",
            _ENCFS,
        ),
        Fault(
            "power_cut",
            ("lost: *", "invented: bytes", "unreadable: *"),
            "synced bytes in the last block come back altered, and no directory is synced",
            _ENCFS,
        ),
    ),
    "cryfs": (
        Fault(
            "contents",
            ("rename*: no *", "rename*: names*"),
            "rename over a directory that is not empty removes it (its issue 566)",
            _CRYFS,
        ),
        Fault(
            "contents",
            ("*: hang*", "stack: *", "*: ENOTCONN*", "*: ECONNABORTED*", "*: unreadable, ENOTCONN*"),
            "renames of directories and a lack of space hang or end the daemon",
            _CRYFS,
        ),
        Fault("contents", ("utime_one *: answer*",), "a time that is set alone is ignored", _CRYFS),
        Fault("posix", _MOST, "creates no FIFOs, devices and sockets, and no links", _CRYFS),
        Fault("power_cut", ("lost: *", "unreadable: *", "not mounted"), "a sync writes nothing", _CRYFS),
    ),
    "securefs": (
        Fault(
            "contents",
            (
                "unlink*: names*",
                "rename*: names*",
                "unlink*: unreadable*",
                "rename*: unreadable*",
                "* at once: ENOENT*",
            ),
            "an open file that is unlinked stays in the listing, and cannot be read",
            _SECUREFS,
        ),
        Fault(
            "contents",
            ("*: links*", "*: inode*", "*: content (linked*", "*: size (linked*"),
            "numbers of links are wrong, and another name of a file shows an old size",
            _SECUREFS,
        ),
        Fault("contents", ("utime_one *: answer*",), "a time that is set alone is ignored", _SECUREFS),
        Fault("contents", ("*: EIO (*full)",), "a write without space fails with EIO", _SECUREFS),
        Fault("contents", ("synced directory: answer*",), "fsync of a directory writes nothing", _SECUREFS),
        Fault("contents", ("write: EPERM*",), "an append fails with EPERM", _SECUREFS),
        Fault("contents", ("access_time *: answer*",), "a write sets the time of access to the present", _SECUREFS),
        Fault("contents", ("*: size (*full)",), "a write that fails without space changes the size", _SECUREFS),
        Fault(
            "posix",
            _ALL,
            "creates no FIFOs, devices and sockets, and other users get in",
            _SECUREFS,
        ),
        Fault(
            "power_cut",
            ("lost: *", "unreadable: *", "not mounted"),
            "synced bytes in the last block are lost, and no directory is synced",
            _SECUREFS,
        ),
    ),
    "sshfs": (
        Fault("contents", ("*: links*", "*: inode*"), "a file with two names has one link", _SSHFS),
        Fault("contents", ("mmap_write: size*", "map_write: size*"), "sizes after mapped writes", _SSHFS),
        Fault("contents", ("*: content (*full)", "*: size (*full)"), "writes without space succeed", _SSHFS),
        Fault("contents", ("*: owner (*another user*",), "what another user creates belongs to root", _SSHFS),
        Fault("contents", ("mkdir: EEXIST (*full)",), "mkdir without space fails with EEXIST", _SSHFS),
        Fault("contents", ("utime_one *: answer*",), "setting one time sets the other one to the present", _SSHFS),
        Fault("contents", ("*: ctime*", "*: mtime*"), "times of changes come late", _SSHFS),
        Fault("contents", ("rename*: EPERM instead of ENOTEMPTY*",), "rename fails with another error", _SSHFS),
        Fault("posix", _ALL, "rename, link, mknod and 12 more calls, in 243 cases", _SSHFS),
        Fault("power_cut", ("lost: name (*",), "a directory is not synced, so its names are lost", _SSHFS),
    ),
    "nfs": (
        Fault(
            "contents",
            ("unlink*: names (*", "rename*: names (*"),
            "a removed file that is open has a name .nfs",
            _NFS,
        ),
        Fault("contents", ("setacl *: *", "*setxattr*: *", "fallocate*: *"), "no ACLs, trusted attributes", _NFS),
        Fault("contents", ("*: content (*full)",), "writes without space succeed, and are zeros", _NFS),
        Fault("posix", ("unlink::*",), "a removed file that is open has another name, in one case of unlink", _NFS),
    ),
    "samba": (
        Fault("contents", ("*symlink*: *", "*: kind*", "*: names*"), "symbolic links are listed as files", _SAMBA),
        Fault("contents", ("*: owner*", "chown: *"), "all files belong to root", _SAMBA),
        Fault("contents", ("*lock*: *",), "locks are those of the server", _SAMBA),
        Fault("contents", ("rename*: EACCES*", "unlink*: *"), "names of open files", _SAMBA),
        Fault("contents", ("*: EFBIG (*full)",), "a write without space fails with EFBIG", _SAMBA),
        Fault("posix", _MOST, "link, unlink, symlink, chown, rmdir and more, in 74 of 140 cases", _SAMBA),
        Fault(
            "power_cut",
            ("lost: bytes (O_*SYNC)",),
            "writes with O_SYNC or O_DSYNC are not synced by the server",
            _SAMBA,
        ),
    ),
    "overlay": (
        Fault(
            "posix", ("*::char",), "character devices 0:0 are its whiteouts, in 41 cases", ("Linux 6.12", "Linux 6.18")
        ),
    ),
    "xfs": (
        # fs/xfs/xfs_super.c: xfs_fs_sync_fs only forces the log, and a clean log is not written.
        Fault(
            "power_cut::test_sync_of_all",
            ("lost: bytes (sync*)",),
            "sync and syncfs do not flush the disk if the log is clean",
            ("Linux 6.1", "Linux 6.18"),
        ),
    ),
    "btrfs": (Fault("posix", ("rename::*",), "a case of rename", ("Linux 6.18",)),),
    "f2fs": (Fault("posix", ("link::*",), "two cases of link", ("Linux 6.12",)),),
    "jfs": (Fault("posix", ("utimensat::*",), "times after 2038", ("Linux 6.12",)),),
    "ecryptfs": (Fault("posix", ("open::*", "utimensat::*"), "a case of open and one of utimensat", ("Linux 6.12",)),),
    "zfs": (
        Fault("posix", _ALL, "53 to 55 cases", ("zfs-fuse 0.7",)),
        Fault(
            "power_cut",
            ("lost: *",),
            "a sync through another descriptor than that of the write writes nothing",
            ("zfs-fuse 0.7",),
        ),
    ),
}
