"""Tools that stay in memory, so that no measurement waits for the disk that they lie on.

A cold start empties the page cache of the tools too: on a fast disk that costs ``du`` some milliseconds, and fio a
tenth of a second, on every stack alike, which makes each overhead look smaller than it is. What a process has mapped
stays.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re

from pytest_fsstack.machine import commands

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
    for file in (os.path.realpath(name) for name in [_LOADER_CACHE, path, *_libraries(path)]):
        if file not in _kept:
            with contextlib.suppress(OSError):
                commands.map_file(file)
                _kept.add(file)


def _libraries(path: str) -> list[str]:
    """The shared libraries of an executable; none where it is a script, is linked statically, or nothing tells."""
    try:
        said = commands.run("ldd", path)
    except commands.CommandError:
        return []
    return re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", said, re.M)
