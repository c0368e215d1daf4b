"""Tools and archives that stay in memory, so that measurements do not wait for the disk that holds them.

A cold start also evicts tools from the page cache. On a fast disk, loading ``du`` then takes some milliseconds, and fio
a tenth of a second. This adds to every stack, so each overhead looks too small. Mapped files are not evicted.
"""

from __future__ import annotations

import contextlib
import functools
import locale
import mmap
import os
import re
from pathlib import Path

from pytest_fsstack.machine import commands, descriptors
from pytest_fsstack.machine.libc import failure, libc

#: Read first by every dynamically linked command.
_LOADER_CACHE = "/etc/ld.so.cache"
#: Read by libc to choose a locale, and to look up names of users.
_OF_LIBC = ("/usr/share/locale/locale.alias", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group")
#: Looked up by each command, and mostly missing.
_OFTEN_MISSING = ("/etc/ld.so.preload", "/usr/lib/locale/locale-archive")

_kept: set[str] = set()
#: The names of kept files. A link in one is not kept.
_names: dict[str, None] = dict.fromkeys(_OFTEN_MISSING)


#: Commands that tests have run, to be kept from the end of their timed block on.
_wanted: set[str] = set()


def want(command: str) -> None:
    """Keep a command from the next `keep_wanted` on.

    A path is left out: it may be on a stack, which could then not be unmounted.
    """
    if os.sep not in command:
        _wanted.add(command)


def keep_wanted() -> None:
    """Keep the commands that were run. Inside a timed block, loading them would be measured."""
    while _wanted:
        keep(_wanted.pop())


@functools.cache
def keep(command: str) -> None:
    """Load a command and its libraries, and keep them loaded until the end of this process.

    `command` is a name or path. Missing commands and unreadable files are ignored.
    """
    path = commands.which(command)
    if path is None:
        return
    for file in [_LOADER_CACHE, path, *_libraries(path)]:
        keep_file(file)


@functools.cache
def keep_locales() -> None:
    """Keep what libc reads at the start of a command: the files of the user's locale, and of that of ready-made tools.

    In C.UTF-8, these are 400 KiB on Debian, of which a command reads most.
    """
    import ctypes

    choose = libc().newlocale
    choose.restype = ctypes.c_void_p
    for name in "", commands.ENGLISH["LC_ALL"]:
        # This maps the files into this process without changing its locale. One that is not installed has none.
        choose(1 << locale.LC_ALL, name.encode(), None)
    mapped = re.findall(r" (/\S*/(?:locale|gconv)/\S+)$", Path("/proc/self/maps").read_text(), re.M)
    for file in dict.fromkeys([*_OF_LIBC, *mapped]):
        keep_file(file)


def keep_file(path: str | os.PathLike[str]) -> None:
    """Keep a file in memory until the end of this process, unless it exceeds 1/64 of the memory.

    It must not be on a stack, which could then not be unmounted. Unreadable files are ignored.
    """
    _names[os.fspath(path)] = None
    file = os.path.realpath(path)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if file not in _kept:
        with contextlib.suppress(OSError):
            if os.path.getsize(file) <= memory // 64:
                _load(file)
                _kept.add(file)


def look_up() -> None:
    """Look up the names of kept files, as commands will. After a cold start, each link would be read from the disk."""
    for name in _names:
        os.path.exists(name)


def _libraries(path: str) -> list[str]:
    """Return the shared libraries of an executable. Empty for scripts, static executables, and if ldd fails."""
    try:
        output = commands.run("ldd", path)
    except commands.CommandError:
        return []
    return re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", output, re.M)


def _load(path: str) -> None:
    """Map a file into memory until the end of this process (mmap(2)). Raises OSError.

    Python's mmap would keep a descriptor for each.
    """
    import ctypes

    with descriptors.opened(path) as fd:
        size = ctypes.c_size_t(os.fstat(fd).st_size)
        load = libc().mmap
        load.restype = ctypes.c_void_p
        place = load(None, size, mmap.PROT_READ, mmap.MAP_SHARED | mmap.MAP_POPULATE, fd, ctypes.c_longlong(0))
        if place == ctypes.c_void_p(-1).value:
            raise failure(f"cannot map {path}")
