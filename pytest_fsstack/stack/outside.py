"""Files and devices outside of the stack to which a word of an option leads.

Many a tool formats or writes to whatever a word names: `mkfs.xfs -l logdev=/dev/sdb`, `zpool create pool sdb`. What a
layer declares of its words (`stack.words`) is not looked up; all other text comes here.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pytest_fsstack.machine import blockdev

_DEV = Path("/dev")
#: Where tools start, and where a daemon goes.
_WORKING = (Path(), Path("/"))
#: null, zero, full, random, urandom (Documentation/admin-guide/devices.txt): writing to them does nothing.
_HARMLESS = {(1, minor) for minor in (3, 5, 7, 8, 9)}

_DELIMITERS = re.compile(r"[,=:;|\"'(){}\[\]<>@+~\\]+")
#: Each name is looked up in a dozen places.
_MOST = 5_000
#: How mount and libblkid name a device by what is on it, and ext4 one by its number.
_INDIRECT = re.compile(r"(?<![A-Za-z])(?:(?:PART)?(?:UUID|LABEL)|ID)=|(?<!\w)journal_dev=")
#: What the tool would find there is not what this process has there.
_DESCRIPTOR = re.compile(r"/dev/(fd/|std(in|out|err)$)|/proc/[^/]+/(task/[^/]+/)?fd/")


def find_escape(text: str, own: Container[str] = ()) -> str | None:
    """Return the first thing outside of the stack that a part of the text names, in words; None if there is none.

    `own` are the numbers (``major:minor``) of the stack's devices, which have the names that its options gave them.
    """
    if tag := _INDIRECT.search(text):
        return f"the device that {tag[0]}... names"
    names = list(itertools.islice(_names(text), _MOST + 1))
    if len(names) > _MOST:
        return f"more names than can be looked up (over {_MOST})"
    places = [_DEV, _DEV / "mapper", _DEV / "zvol", *(_DEV / "disk").glob("by-*")]
    # No tool looks for a bare word among the numbers there, and every `zstd:3` would be the third disk.
    places = [place for place in places if place.name != "by-diskseq"]
    escapes = (_named_path(name, own) or _named_device(name, places, own) for name in dict.fromkeys(names))
    return next(filter(None, escapes), None)


def goes_up(path: str) -> bool:
    """Whether a component of the path is ``..``."""
    return ".." in path.split("/")


def can_be_passed(text: str) -> bool:
    """Whether a command can be given the text: without a zero byte or half a character."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _names(text: str) -> Iterator[str]:
    """Yield whatever a tool may take for a name: each word, and what stands between any two delimiters in it."""
    for word in _words(text):
        matches = list(_DELIMITERS.finditer(word))
        starts = [0, *(match.end() for match in matches)]
        ends = [*(match.start() for match in matches), len(word)]
        for start, end in itertools.product(starts, ends):
            if start < end:
                yield from _endings(word[start:end])


def _words(text: str) -> Iterable[str]:
    """Return those of the text as it is, and as a shell would read it."""
    words = [text, *text.split()]
    with suppress(ValueError):  # no command line
        words += shlex.split(text)
    return dict.fromkeys(words)


def _endings(word: str) -> Iterator[str]:
    """Yield a word, and what may be the value of a short option in it: of ``-qcdisk``, ``disk`` among others."""
    yield word
    if re.match("-[^-]", word):
        yield from (word[start:] for start in range(1, len(word)))
    if f"{_DEV}/" in word:
        yield word[word.index(f"{_DEV}/") :]


def _named_path(name: str, own: Container[str]) -> str | None:
    """Return what a path leads to from each directory in which a tool may run."""
    if goes_up(name):
        return f"the path {name}, which goes up"
    if _DESCRIPTOR.match(name):
        return f"the descriptor {name}"
    escapes = [_leads_to(directory / name, own) for directory in _WORKING]
    if any(escapes) or "" in escapes:
        return next(filter(None, escapes), None)
    # A tool may create what is not there, but a word is a path for sure only if it begins like one.
    return f"the path {name}" if name.startswith(("/", "./")) else None


def _named_device(name: str, places: Iterable[Path], own: Container[str]) -> str | None:
    """Return the device that tools find by a bare name in a directory of devices, or by its number."""
    if re.fullmatch(r"\d+:\d+", name) and (blockdev.SYS / "dev/block" / name).exists():
        return f"the block device {name}"
    devices = (place / name for place in places if not os.path.isdir(place / name))
    return next(filter(None, (_leads_to(device, own) for device in devices)), None)


def _leads_to(path: Path, own: Container[str]) -> str | None:
    """Return what is there, in words: "" for what is harmless, None for nothing at all."""
    if not os.path.lexists(path):
        return None
    with suppress(OSError):
        status = path.stat()
        if stat.S_ISCHR(status.st_mode) and (os.major(status.st_rdev), os.minor(status.st_rdev)) in _HARMLESS:
            return ""
        if (number := blockdev.number(path)) is not None:
            return "" if number in own else f"the block device {path}"
        return f"the {'directory' if stat.S_ISDIR(status.st_mode) else 'file'} {path}"
    return f"the link {path}"
