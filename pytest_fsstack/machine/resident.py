"""Tools and archives that stay in memory, so that no measurement waits for the disk that they lie on.

A cold start empties the page cache of the tools too: on a fast disk that costs ``du`` some milliseconds, and fio a
tenth of a second, on every stack alike, which makes each overhead look smaller than it is. What a process has mapped
stays.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import re

from pytest_fsstack.machine import commands, descriptors
from pytest_fsstack.machine.libc import failure, libc

#: Every dynamically linked command reads it first.
_LOADER_CACHE = "/etc/ld.so.cache"

_kept: set[str] = set()


@functools.cache
def keep(command: str) -> None:
    """Load a command and the libraries that it is linked with, and keep them loaded to the end of this process.

    `command` is its name or path; nothing happens where there is none. What cannot be mapped is passed over.
    """
    path = commands.which(command)
    if path is None:
        return
    for file in [_LOADER_CACHE, path, *_libraries(path)]:
        keep_file(file)


def keep_file(path: str | os.PathLike[str]) -> None:
    """Load a file, and keep it loaded to the end of this process, unless it takes more than 1/64 of the memory.

    It must not lie on a stack, which could not be unmounted. What cannot be mapped is passed over.
    """
    file = os.path.realpath(path)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if file not in _kept:
        with contextlib.suppress(OSError):
            if os.path.getsize(file) <= memory // 64:
                _load(file)
                _kept.add(file)


def _libraries(path: str) -> list[str]:
    """The shared libraries of an executable; none where it is a script, is linked statically, or nothing tells."""
    try:
        output = commands.run("ldd", path)
    except commands.CommandError:
        return []
    return re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", output, re.M)


def _load(path: str) -> None:
    """Map a file into memory to the end of this process (mmap(2)). Raises OSError.

    Not by Python's mmap, which keeps a descriptor for each.
    """
    import ctypes

    with descriptors.opened(path) as fd:
        size = ctypes.c_size_t(os.fstat(fd).st_size)
        load = libc().mmap
        load.restype = ctypes.c_void_p
        place = load(None, size, mmap.PROT_READ, mmap.MAP_SHARED | mmap.MAP_POPULATE, fd, ctypes.c_longlong(0))
        if place == ctypes.c_void_p(-1).value:
            raise failure(f"cannot map {path}")
