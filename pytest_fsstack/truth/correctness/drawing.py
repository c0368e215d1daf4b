"""Random sequences of calls. Each theme combines calls with conditions that they seldom meet by chance."""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.truth.correctness.calls import LONG, Side

GiB = 1 << 30
#: A user who is not root.
USER = 1000


#: A placeholder for the longest name that the stack allows.
LONGEST = "N"


@dataclass(frozen=True)
class Call:
    """A call of a method of `Side`, by root or by another user."""

    name: str
    arguments: tuple[Any, ...] = ()
    user: int = 0
    #: The process that makes the call: 0 is this process, 1 and 2 are others.
    process: int = 0
    #: Whether the other process makes calls at the same time.
    at_once: bool = False

    def __str__(self) -> str:
        by = f" by user {self.user}" if self.user else ""
        by += f" by process {self.process}" if self.process else ""
        arguments = zip_longest(self.arguments, PARAMETERS.get(self.name, ())[: len(self.arguments)])
        return f"{self.name}({', '.join(_shown(argument, name) for argument, name in arguments)}){by}"

    @property
    def kind(self) -> str:
        """Return the name and the variant of the call, such as "synced O_DSYNC"."""
        parameters = dict(zip(PARAMETERS.get(self.name, ()), self.arguments))
        return " ".join([self.name, *(str(parameters[key]) for key in _VARIANTS if parameters.get(key))])


#: Arguments that select a variant of a call.
_VARIANTS = ("which", "how", "what", "owner", "kind")


def _shown(argument: Any, name: str | None) -> str:
    if isinstance(argument, int) and name:
        return f"{name}={argument:#o}" if name in ("mode", "mask") else f"{name}={argument:,}".replace(",", "_")
    if isinstance(argument, str) and len(argument) > 40 and len(set(argument)) == 1:
        return f"{argument[0]!r} * {len(argument)}"
    return repr(argument)


REMOUNT = Call("remount")


@dataclass(frozen=True, eq=False)
class Theme:
    """A set of calls from which a sequence is drawn. The sequence starts with the calls of `begin`.

    `calls` are names, with a weight as in ``rename*4``. `domains` has the values of arguments, by the name of an
    argument or by ``call.argument``.
    """

    name: str
    calls: str
    begin: tuple[Call, ...] = ()
    domains: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    length: int = 20
    #: The number of calls, of ten, that another user makes.
    users: int = 0
    #: Whether each call of `calls` is made once, instead of `length` random ones.
    each: bool = False
    #: Whether the times of all names are compared after each call.
    times: bool = False
    #: The number of calls, of ten, that one of two other processes makes.
    others: int = 0
    #: The number of sequences in which both other processes make calls at once. With 0 there is one ordinary sequence.
    at_once: int = 0
    #: A slow theme is drawn only in every n-th turn.
    every: int = 1
    #: The theme is left out on stacks that lack this feature.
    needs: Limit | None = None


_EDGES = [0, 0, 1, 511, 512, 4079, 4095, 4096, 4097, 8192, 12288, 32767, 65536, 131071]
#: Whatever of the upper bits is lost, a write at such an offset ends where `content_of` looks.
_FAR = [2 * GiB - 1, 2 * GiB, 2 * GiB + 4096, 4 * GiB - 4096, 4 * GiB - 1, 4 * GiB, 4 * GiB + 5000, 8 * GiB + 9000]
_FARTHER = [4 * GiB + 5000, 8 * GiB + 9000, 1024 * GiB + 13_000, 2048 * GiB + 17_000]
_LENGTHS = [1, 16, 4095, 4096, 4097, 20_000, 65_536, 100_000, 131_072]
_TIMES = [10**18 + 123456789, 1, 981173106 * 10**9 + 987654321, 4102444800 * 10**9 + 5]
_FALLOCATE = ["", "KEEP_SIZE", "PUNCH_HOLE KEEP_SIZE", "ZERO_RANGE", "ZERO_RANGE KEEP_SIZE"]
_OPENING = ["RDWR", "RDWR CREAT", "RDWR CREAT", "RDWR CREAT EXCL", "RDWR CREAT TRUNC", "RDWR TRUNC", "RDWR APPEND"]
_OPENING += ["RDONLY", "WRONLY CREAT", "RDONLY NOFOLLOW", "RDONLY DIRECTORY", "RDWR CREAT NOFOLLOW"]

#: The values of arguments for which a theme has no domain.
DOMAINS: Mapping[str, Sequence[Any]] = {
    "slot": [0, 0, 1],
    "source": [0, 1],
    "path": ["a", "a", "b", "d/a", "s"],
    "old": ["a", "b", "d/a", "d", "e", "s"],
    "new": ["a", "b", "d/a", "d", "e", "e/a", "s"],
    "mkdir.path": ["d", "e", "d/e"],
    "rmdir.path": ["d", "e", "d/e", "a"],
    "readdir.path": ["d", "e", "", "a"],
    "symlink.path": ["s", "b"],
    "readlink.path": ["s", "a"],
    "target": ["a", "d/a", "s", "nowhere", "t" * 100, "t" * 100],
    "flags": _OPENING,
    "mode": [0o644, 0o600, 0o755, 0o700],
    "offset": _EDGES,
    "to": _EDGES,
    "size": _EDGES,
    "length": _LENGTHS,
    "fill": [*range(0, 250, 7), 251, 251, 251],
    "whence": ["SET", "CUR", "END"],
    "lseek.offset": [0, 0, 1, 4096, 70_000],
    "pwritev.how": ["", "", "APPEND", "DSYNC", "SYNC"],
    "what": ["size", "nlink", "mode"],
    "owner": ["OFD"],
    "fallocate.how": _FALLOCATE,
    "renameat2.how": ["EXCHANGE", "NOREPLACE"],
    "setxattr.how": ["", "", "CREATE", "REPLACE"],
    "setxattr.path": ["a", "b", "d"],
    "setxattr.length": [0, 1, 100, 260],
    "name": ["user.x", "user.x", "user.y", "trusted.x"],
    "access.how": ["F", "R", "W"],
    "access_time.how": ["chmod", "read", "write", "write", "truncate"],
    "uid": [0, USER],
    "gid": [0, USER],
    "mask": [0o022, 0o022, 0o077, 0o027, 0],
    "which": ["atime", "mtime", "mtime"],
    "utime_one.how": ["SET", "SET", "NOW"],
    "atime": _TIMES,
    "mtime": _TIMES,
    "kind": ["access", "access", "default"],
    "digits": ["75575", "64464", "70071", "66460"],
    "flock.how": ["SH", "EX", "UN"],
    "lock.how": ["RDLCK", "WRLCK", "WRLCK", "UNLCK"],
    "lock.offset": [0, 10, 100],
    "lock.length": [1, 10, 90, 0],
    "count": [0, 1, 100, 500, 700],
    "synced.how": ["fsync", "fdatasync", "O_SYNC", "O_DSYNC", "directory"],
    "synced.path": [f"d/n{number}" for number in range(50)],
    "used.path": ["u"],
    "name_max.path": [LONGEST],
    "leave": [0],
}


def _made(path: str, length: int, slot: int = 0, flags: str = "RDWR CREAT") -> tuple[Call, ...]:
    """Return the calls that create a file and leave it open."""
    write = (Call("pwrite", (slot, 0, length, 1 + slot)),) if length else ()
    return (Call("open", (slot, path, flags, 0o644)), *write)


def _directories(*paths: str) -> tuple[Call, ...]:
    return tuple(Call("mkdir", (path, 0o755)) for path in paths)


def _in(process: int, *calls: Call) -> tuple[Call, ...]:
    """Return the calls, made by another process."""
    return tuple(replace(call, process=process) for call in calls)


_OPENED_BY_BOTH = (
    *_made("a", 8192),
    *(call for process in (1, 2) for call in _in(process, Call("open", (0, "a", "RDWR", 0)))),
)
_AT_ONCE: dict[str, Any] = {"length": 7, "others": 10, "at_once": 12}
_FILLS = list(range(1, 250))

#: Names that differ in case, or in the form of a letter.
_CASES = ["d/a", "d/A", "d", "D", "D/a", "d/\u00e9", "d/e\u0301", "d/\u00c9"]
_ODD = ["\u00fc \u4e2d", "d/x\udcff\udc80", " ", "-a\\b\n", LONGEST]

THEMES = (
    Theme(
        "names",
        "rename*4 renameat2*3 link*3 unlink*3 symlink readlink mkdir rmdir*2 open*2 pwrite pread truncate readdir"
        " access",
        (*_directories("d", "e"), *_made("a", 5000), *_made("d/b", 10, 1), Call("symlink", ("a", "s"))),
        {
            "path": ["a", "a", "b", "d/b", "s"],
            "old": ["a", "b", "d/b", "d", "e", "s"],
            "new": ["a", "b", "d/b", "d", "e", "e/b", "s"],
            "offset": [0, 3000],
            "length": [10, 5000],
            "size": [0, 10, 9000],
        },
        length=40,
    ),
    Theme(
        "directories",
        "rename*5 renameat2*2 mkdir*3 rmdir*2 open*2 unlink link readdir",
        (*_directories("d", "e", "d/e"), *_made("e/a", 10)),
        {
            "path": ["d/a", "e/a"],
            "old": ["d", "e", "d/e", "e/d", "e/a"],
            "new": ["d", "e", "d/e", "e/d", "d/a"],
            "mkdir.path": ["d", "e", "d/e", "e/d"],
            "rmdir.path": ["d", "e", "d/e", "e/d"],
            "flags": ["RDWR CREAT"],
        },
        length=30,
    ),
    Theme(
        "open files",
        "open*3 close pread*2 pwrite*4 read write*2 preadv pwritev lseek ftruncate truncate mmap_write*3 mmap_read"
        " unlink rename link fsync fdatasync copy_file_range sendfile splice",
        _made("a", 5000),
        {"path": ["a", "a", "b"], "old": ["a", "b"], "new": ["a", "b"]},
    ),
    Theme(
        "unlinked",
        "unlink*3 rename*3 pwrite*3 pread ftruncate open mmap_write link_fd link fchmod fsync",
        (*_made("a", 5000), *_made("b", 100, 1)),
        {"path": ["a", "b"], "old": ["a", "b"], "new": ["a", "b", "c"]},
    ),
    Theme(
        "contents",
        "pwrite*5 pread write pwritev ftruncate*3 truncate mmap_write fsync open",
        _made("a", 70_000),
        {"slot": [0], "path": ["a"], "flags": ["RDWR", "RDWR TRUNC", "RDWR APPEND"]},
    ),
    Theme(
        "appending",
        "write*4 pwrite ftruncate open lseek",
        (*_made("a", 100, 0, "RDWR CREAT APPEND"), Call("open", (1, "a", "RDWR APPEND", 0))),
        {"path": ["a"], "slot": [0, 1], "flags": ["RDWR APPEND", "RDWR APPEND", "WRONLY", "RDWR TRUNC"]},
    ),
    Theme(
        "holes",
        "fallocate*5 seek_data*4 pwrite*2 ftruncate*2 pread mmap_write",
        (*_made("a", 100_000), Call("open", (1, "b", "RDWR CREAT", 0o644)), Call("pwrite", (1, 1 << 20, 5000, 3))),
        {"slot": [0, 1], "offset": [*_EDGES, 4000, 98_000, 1 << 20], "length": [1, 100, 5000, 8192, 65_536]},
    ),
    Theme(
        "far",
        "pwrite*4 pread*2 ftruncate*3 truncate seek_data copy_file_range mmap_write",
        _made("a", 5000),
        {
            "slot": [0],
            "source": [0],
            "path": ["a"],
            "offset": _FAR,
            "to": _FAR,
            "size": [*_FAR, 100],
            "length": [1, 9000],
        },
        # Otherwise gigabytes of zeros would be written.
        needs=Limit.SPARSE,
    ),
    Theme(
        "farther",
        # Without calls that cut the file, so that each write is still there after the remount.
        "pwrite pwritev pread preadv seek_data copy_file_range mmap_write mmap_read fallocate splice sendfile pwrite",
        (
            *_made("a", 5000),
            *(Call("pwrite", (0, offset, 3000, 3 + index)) for index, offset in enumerate(_FARTHER)),
            *_made("b", 5000, 1),
        ),
        {
            "slot": [0],
            "source": [1],
            "offset": _FARTHER,
            "copy_file_range.offset": [0],
            "splice.offset": [0],
            "sendfile.offset": [0],
            "to": _FARTHER,
            "length": [1, 9000],
            "pwritev.how": [""],
            # A file whose end is before, so that the new end shows.
            "fallocate.slot": [1],
            "fallocate.how": [""],
        },
        each=True,
        needs=Limit.SPARSE,
    ),
    Theme(
        "copies",
        "copy_file_range*4 sendfile*2 splice*2 pwrite ftruncate pread lseek",
        (*_made("a", 100_000), *_made("b", 5000, 1)),
        {"path": ["a", "b"]},
    ),
    Theme(
        "nameless",
        "open*2 link_fd*4 pwrite pread ftruncate unlink fchmod",
        (),
        {"flags": ["RDWR TMPFILE", "RDWR TMPFILE", "WRONLY TMPFILE EXCL"], "open.path": [""], "new": ["a", "b"]},
        length=12,
    ),
    Theme(
        "modes",
        "chmod*4 fchmod chown*3 umask*2 open*3 mkdir*2 pwrite*3 ftruncate access link rename readdir",
        (*_directories("d"), *_made("a", 100)),
        {
            "mode": [0o644, 0o600, 0o755, 0o6755, 0o4711, 0o2775, 0o1777, 0o777, 0o055, 0o444],
            # With the umask, a set-group-ID bit might be left without the permission to execute. On FUSE, the kernel
            # does not take that away at a write.
            "open.mode": [0o644, 0o600, 0o755, 0o4755, 0o777],
            "chmod.path": ["a", "d", "d/a", "d"],
            "chown.path": ["a", "d", "d/a"],
            "mkdir.path": ["e", "d/e", "e/e"],
            "offset": [0, 50],
            "length": [10],
            "size": [0, 10],
        },
        users=3,
        length=40,
    ),
    Theme(
        "times",
        "utimens*6 mtime access_time*4 pwrite*2 pread chmod rename*3 link unlink open mkdir chown",
        (*_directories("d"), *_made("a", 100), Call("utimens", ("a", _TIMES[0], _TIMES[2]))),
        {
            "path": ["a", "d", "d/a", "b"],
            "open.path": ["d/a", "b"],
            "flags": ["RDWR CREAT"],
            "old": ["a", "b", "d/a"],
            "new": ["a", "b", "d/a", "d/b"],
            "slot": [0],
            "mkdir.path": ["d/e"],
            "offset": [0, 50],
            "length": [10],
        },
        times=True,
        length=34,
    ),
    Theme("one time", "utime_one*6 utimens chmod", _made("a", 100), {"path": ["a"]}, length=8),
    Theme(
        "set-user-ID",
        "pwrite*4 chmod*4 ftruncate chown write",
        _made("a", 100),
        {
            "path": ["a"],
            "mode": [0o6755, 0o4711, 0o2755, 0o6777],
            "slot": [0],
            "offset": [0, 50],
            "length": [10],
            "size": [5, 50],
        },
        users=4,
        length=12,
    ),
    Theme(
        "attributes",
        "setxattr*6 getxattr*2 listxattr*2 removexattr*2 rename*4 link unlink open*3",
        (*_directories("d"), *_made("a", 10), *_made("b", 10, 1)),
        {
            "path": ["a", "a", "b", "b", "d"],
            "setxattr.length": [0, 1, 100, 260, 260, 2000, 65_536],
            # The second name has 255 bytes, which is the limit of the kernel.
            "name": ["user.x", "user.x", "user.y", "trusted.x", f"user.{'n' * 248}.x"],
            "open.path": ["a", "b"],
            "flags": ["RDWR CREAT"],
            "old": ["a", "b"],
            "new": ["a", "b"],
        },
        length=40,
    ),
    Theme(
        "ACLs",
        "setacl*5 chmod*2 open*2 mkdir umask access chown removexattr",
        (*_directories("d"), *_made("a", 10)),
        {
            "path": ["a", "d", "d/a"],
            "open.path": ["d/a", "a", "d/b"],
            "setacl.path": ["d", "d", "a"],
            "mkdir.path": ["d/e", "e"],
            "removexattr.path": ["d", "a"],
            "name": ["system.posix_acl_access", "system.posix_acl_default"],
        },
        users=2,
    ),
    Theme(
        "many names",
        "readdir*2 readdir_twice*3 readdir_removing unlink rename rmdir",
        (*_directories("d", "d/e"), Call("make_names", ("d", 1000))),
        {
            "path": ["d"],
            "unlink.path": [f"d/{number:04}{LONG}" for number in (0, 500, 999)],
            "rmdir.path": ["d", "d/e"],
            "old": [f"d/0333{LONG}"],
            "new": [f"d/0334{LONG}", "d/f"],
        },
        length=5,
        every=6,
    ),
    Theme(
        "odd names",
        "open*3 mkdir rename*2 link unlink symlink*2 readlink readdir pwrite",
        _directories("d"),
        {
            "path": _ODD,
            "old": _ODD,
            "new": _ODD,
            "mkdir.path": _ODD,
            "symlink.path": _ODD,
            "readlink.path": _ODD,
            "target": [*_ODD, "t" * 60, "t" * 60, "t" * 300, "t" * 300],
            "readdir.path": ["", "d"],
            "flags": ["RDWR CREAT", "RDWR CREAT EXCL"],
        },
    ),
    Theme(
        "cases",
        "open*3 mkdir*2 rename*3 link*2 symlink unlink*2 rmdir readlink access*3 status readdir pwrite",
        (
            *_directories("d"),
            *_made("d/a", 10),
            Call("access", ("d/A", "F")),
            Call("open", (1, "d/A", "RDWR CREAT EXCL", 0o644)),
            Call("mkdir", ("D", 0o755)),
        ),
        {
            "path": _CASES,
            "old": _CASES,
            "new": _CASES,
            "mkdir.path": _CASES,
            "rmdir.path": _CASES,
            "symlink.path": _CASES,
            "readlink.path": _CASES,
            "readdir.path": ["", "d", "D"],
            "target": ["nowhere"],
            "flags": ["RDWR CREAT", "RDWR CREAT EXCL"],
            "access.how": ["F"],
            "what": ["nlink"],
        },
        length=24,
        needs=Limit.CASES,
    ),
    Theme(
        "locks",
        "flock*3 lock*4 close open",
        (*_made("a", 10), Call("open", (1, "a", "RDWR", 0)), Call("open", (2, "a", "RDWR", 0))),
        {"path": ["a"], "flags": ["RDWR"], "slot": [0, 1, 2]},
    ),
    Theme(
        "locks of processes",
        "flock*2 lock*4 close open",
        tuple(
            call
            for process, slot in ((0, 0), (1, 0), (2, 0), (2, 1))
            for call in _in(process, Call("open", (slot, "a", "RDWR CREAT", 0o644)))
        ),
        {"path": ["a"], "flags": ["RDWR"], "slot": [0, 0, 1], "owner": ["POSIX", "POSIX", "OFD"]},
        others=10,
    ),
    Theme(
        "mappings of processes",
        "map_write*4 map_read*3 map pwrite*2 pread mmap_write fsync status",
        (
            *_made("a", 20_000),
            *_in(1, Call("open", (0, "a", "RDWR", 0)), Call("map", (0,))),
            *_in(2, Call("open", (0, "a", "RDWR", 0)), Call("map", (0,))),
        ),
        {
            "path": ["a"],
            "slot": [0],
            "offset": [0, 100, 4095, 4096, 12_000, 19_000],
            "length": [1, 10, 1000, 4096],
            "what": ["size"],
        },
        others=8,
    ),
    Theme(
        "contents at once",
        "pwrite*4 pread*4",
        _OPENED_BY_BOTH,
        # A write within one page is atomic. The kernel writes several pages one by one.
        {"slot": [0], "offset": [0, 100, 4000, 8000], "length": [10, 50], "pread.length": [1], "fill": _FILLS},
        **_AT_ONCE,
    ),
    Theme(
        "sizes at once",
        # Without reads. While a file is truncated, the kernel may read pages that it has cached, although the server of
        # a FUSE filesystem or a network filesystem has the new size already and `status` shows it.
        "pwrite*4 ftruncate*2 status*3",
        _OPENED_BY_BOTH,
        {
            "path": ["a"],
            "slot": [0],
            "offset": [0, 100, 4000, 9000],
            "length": [10, 50],
            "size": [0, 50, 5000, 10_000],
            "what": ["size"],
            "fill": _FILLS,
        },
        **_AT_ONCE,
    ),
    Theme(
        "appends at once",
        "write*5 pwritev status",
        (
            *_made("a", 100),
            *_in(1, Call("open", (0, "a", "RDWR APPEND", 0))),
            *_in(2, Call("open", (0, "a", "RDWR APPEND", 0))),
        ),
        {"path": ["a"], "slot": [0], "offset": [0], "length": [1, 10, 100], "what": ["size"], "pwritev.how": [""]},
        **_AT_ONCE,
    ),
    Theme(
        "names at once",
        "rename*3 unlink*2 open*2 mkdir rmdir symlink access*2 renameat2",
        (*_directories("d"), *_made("a", 10), *_made("d/b", 20, 1)),
        {
            "path": ["a", "b", "d/b"],
            "old": ["a", "b", "d/b"],
            "new": ["a", "b", "d/b", "d/c"],
            "mkdir.path": ["e", "d/e"],
            "rmdir.path": ["e", "d/e"],
            "access.how": ["F"],
            "symlink.path": ["b", "d/c"],
            # Following a link takes several steps, so no link here leads anywhere.
            "target": ["nowhere"],
            "flags": ["RDWR CREAT EXCL"],
        },
        **_AT_ONCE,
    ),
    Theme(
        "attributes at once",
        "chmod*3 setxattr*3 removexattr getxattr*4 status*4",
        (*_made("a", 10), Call("setxattr", ("a", "user.x", 10, 1, ""))),
        {
            "path": ["a"],
            "what": ["mode"],
            "mode": [0o644, 0o600, 0o755],
            "name": ["user.x"],
            "length": [1, 100],
            "how": ["", "", "CREATE", "REPLACE"],
        },
        **_AT_ONCE,
    ),
    Theme(
        "renames at once",
        "rename*3 status*5 access",
        _made("a", 10),
        # The only file has one of two names, so no rename replaces another file.
        {"path": ["a", "b"], "old": ["a", "a", "b"], "new": ["a", "b", "b"], "what": ["nlink"], "access.how": ["F"]},
        **_AT_ONCE,
    ),
    Theme("figures", "used name_max", _directories("d"), each=True, every=8),
    Theme(
        "syncs",
        "synced*8 fsync fdatasync syncfs",
        (*_directories("d"), *_made("a", 10)),
        {"slot": [0]},
        length=20,
        every=2,
    ),
    Theme(
        "everything",
        "open*4 close pread pwrite*2 read write preadv pwritev lseek seek_data truncate ftruncate fallocate"
        " copy_file_range sendfile splice mmap_write mmap_read rename*2 renameat2 link link_fd unlink symlink readlink"
        " mkdir rmdir readdir chmod fchmod chown umask access setxattr getxattr listxattr removexattr setacl flock lock"
        " fsync fdatasync syncfs",
        (*_directories("d"), *_made("a", 5000)),
        length=40,
    ),
)

#: Themes for a filesystem that is filled first. Each call that may take space is made once.
FULL = (
    Theme(
        "no space",
        "pwrite write ftruncate fallocate copy_file_range open mkdir symlink link rename setxattr unlink pwrite",
        (
            *_directories("d"),
            *_made("a", 100_000),
            *_made("b", 5000, 1),
        ),
        {
            "offset": [0, 4096, 90_000, 200_000],
            "to": [5000, 300_000],
            "length": [4096, 100_000, 131_072],
            "size": [300_000, 1_000_000],
            "path": ["d/n" + "n" * 100, "n" * 200],
            "mkdir.path": ["e", "f", "d/e"],
            "old": ["a", "b"],
            "new": ["d/" + "l" * 200, "d/" + "m" * 150],
            "unlink.path": ["b"],
            "symlink.path": ["s"],
            "target": ["t" * 300],
            "setxattr.path": ["a", "b", "d"],
            "setxattr.length": [1000, 3000],
            "setxattr.how": [""],
            "fallocate.how": ["", "KEEP_SIZE"],
            "name": ["user.x"],
            "flags": ["RDWR CREAT"],
            "leave": [0, 0, 4096, 65_536],
            "slot": [0, 1],
            "fill": list(range(1, 250)),
        },
        each=True,
    ),
)


def names_of(theme: Theme) -> list[str]:
    """Return the names of a theme's calls, each as often as its weight."""
    weights = re.findall(r"([a-z]\w*)(?:\*(\d))?", theme.calls)
    return [name for name, times in weights for _ in range(int(times or 1))]


#: The names of the arguments of each call.
PARAMETERS = {
    name: [*inspect.signature(getattr(Side, name)).parameters][1:]
    for theme in (*THEMES, *FULL)
    for name in [*names_of(theme), *(call.name for call in theme.begin)]
} | {"fill": ["leave"]}


#: Calls that may create their path.
_MAKING = ("open", "mkdir", "symlink", "synced", "used", "name_max")


def draw(
    theme: Theme,
    seed: str,
    *,
    name_max: int = 255,
    users: bool = False,
    full: bool = False,
    exists: Callable[[str], bool] = lambda path: True,
) -> Iterator[Call]:
    """Yield a sequence of calls of a theme. With `users`, another user makes some of them.

    A call that needs a missing path, or that renames a path to itself, is mostly drawn again.
    """
    random_ = random.Random(seed)
    names = names_of(theme)
    random_.shuffle(names)

    def call(name: str) -> Call:
        values = [_value(random_, theme, name, parameter, name_max) for parameter in PARAMETERS[name]]
        user = USER if users and random_.randrange(10) < theme.users and name != "umask" else 0
        process = random_.choice((1, 2)) if random_.randrange(10) < theme.others else 0
        return Call(name, tuple(values), user, process, theme.at_once > 0)

    def fits(call: Call) -> bool:
        paths = dict(zip(PARAMETERS[call.name], call.arguments))
        required = [paths[key] for key in ("path", "old") if key in paths and call.name not in _MAKING]
        return all(map(exists, required)) and ("old" not in paths or paths["old"] != paths["new"])

    yield from theme.begin
    if full:
        yield call("fill")
    for name in names if theme.each else range(theme.length):
        for _ in range(random_.choice((1, 6, 6, 6))):
            candidate = call(name if isinstance(name, str) else random_.choice(names))
            if fits(candidate):
                break
        yield candidate


def _value(random_: random.Random, theme: Theme, name: str, parameter: str, name_max: int) -> Any:
    for domains in (theme.domains, DOMAINS):
        for key in (f"{name}.{parameter}", parameter):
            if key in domains:
                value = random_.choice(domains[key])
                value = "n" * name_max if value == LONGEST else value
                if parameter in ("path", "old", "new"):
                    directory, slash, last = value.rpartition("/")
                    value = f"{directory}{slash}{last[:name_max]}"
                return value
    raise KeyError(f"{name}.{parameter}")
