"""Detection of option words that refer to files or devices outside of the stack.

Many tools format or write to any path that a word names: `mkfs.xfs -l logdev=/dev/sdb`, `zpool create pool sdb`. Words
that a layer declares (`stack.words`) are not checked here; all other text is.
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
#: The working directories of tools and daemons.
_WORKING = (Path(), Path("/"))
#: null, zero, full, random, urandom (Documentation/admin-guide/devices.txt). Writing to them is harmless.
_HARMLESS = {(1, minor) for minor in (3, 5, 7, 8, 9)}

_DELIMITERS = re.compile(r"[,=:;|\"'(){}\[\]<>@+~\\]+")
#: A limit, because each name is looked up in a dozen places.
_MAX_NAMES = 5_000
#: Syntax of mount, libblkid and ext4 that finds a device by its contents or number.
_INDIRECT = re.compile(r"(?<![A-Za-z])(?:(?:PART)?(?:UUID|LABEL)|ID)=|(?<!\w)journal_dev=")
#: Paths that differ between the tool and this process.
_DESCRIPTOR = re.compile(r"/dev/(fd/|std(in|out|err)$)|/proc/[^/]+/(task/[^/]+/)?fd/")


def find_escape(text: str, own: Container[str] = ()) -> str | None:
    """Describe the first thing outside of the stack that the text refers to, or return None.

    `own` are the numbers (``major:minor``) of the stack's devices, which may have names from its options.
    """
    if tag := _INDIRECT.search(text):
        return f"the device that {tag[0]}... names"
    names = list(itertools.islice(_names(text), _MAX_NAMES + 1))
    if len(names) > _MAX_NAMES:
        return f"more names than can be looked up (over {_MAX_NAMES})"
    places = [_DEV, _DEV / "mapper", _DEV / "zvol", *(_DEV / "disk").glob("by-*")]
    # No tool looks up a bare word among these numbers, and `zstd:3` would match the third disk.
    places = [place for place in places if place.name != "by-diskseq"]
    escapes = (_named_path(name, own) or _named_device(name, places, own) for name in dict.fromkeys(names))
    return next(filter(None, escapes), None)


def goes_up(path: str) -> bool:
    """Whether a component of the path is ``..``."""
    return ".." in path.split("/")


def can_be_passed(text: str) -> bool:
    """Whether a command can get the text as an argument: it has no NUL byte and no lone surrogate."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _names(text: str) -> Iterator[str]:
    """Yield everything that a tool may take for a name: each word, and each part between two delimiters."""
    for word in _words(text):
        matches = list(_DELIMITERS.finditer(word))
        starts = [0, *(match.end() for match in matches)]
        ends = [*(match.start() for match in matches), len(word)]
        for start, end in itertools.product(starts, ends):
            if start < end:
                yield from _endings(word[start:end])


def _words(text: str) -> Iterable[str]:
    """Return the words of the text as it is, and as a shell would split it."""
    words = [text, *text.split()]
    with suppress(ValueError):  # not valid shell syntax
        words += shlex.split(text)
    return dict.fromkeys(words)


def _endings(word: str) -> Iterator[str]:
    """Yield a word, and possible values of a short option in it: ``disk`` for ``-qcdisk``."""
    yield word
    if re.match("-[^-]", word):
        yield from (word[start:] for start in range(1, len(word)))
    if f"{_DEV}/" in word:
        yield word[word.index(f"{_DEV}/") :]


def _named_path(name: str, own: Container[str]) -> str | None:
    """Describe the target of a path, from each possible working directory of a tool."""
    if goes_up(name):
        return f"the path {name}, which goes up"
    if _DESCRIPTOR.match(name):
        return f"the descriptor {name}"
    escapes = [_leads_to(directory / name, own) for directory in _WORKING]
    if any(escapes) or "" in escapes:
        return next(filter(None, escapes), None)
    # A tool may create a missing file, but only words that begin like a path are certain to be one.
    return f"the path {name}" if name.startswith(("/", "./")) else None


def _named_device(name: str, places: Iterable[Path], own: Container[str]) -> str | None:
    """Describe the device that tools find by a bare name in a device directory, or by its number."""
    if re.fullmatch(r"\d+:\d+", name) and (blockdev.SYS / "dev/block" / name).exists():
        return f"the block device {name}"
    devices = (place / name for place in places if not os.path.isdir(place / name))
    return next(filter(None, (_leads_to(device, own) for device in devices)), None)


def _leads_to(path: Path, own: Container[str]) -> str | None:
    """Describe the target. Return "" if it is harmless, None if it does not exist."""
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
