"""What in the text of a layer's option leads out of the stack.

Options are handed to tools verbatim, and many a tool formats or writes to whatever a word names: `mkfs.xfs -l
logdev=/dev/sdb`, `mke2fs -z /dev/sdb`, `zpool create pool sdb`. A stack comes from an ini or a downloaded scenario, so
what it may write to is its own device and nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from pytest_fsstack.machine import blockdev

_DEV = Path("/dev")
#: null, zero, full, random, urandom (Documentation/admin-guide/devices.txt): writing to them does nothing.
_HARMLESS = {(1, minor) for minor in (3, 5, 7, 8, 9)}

_DELIMITERS = re.compile(r"[,=:;|\"'(){}\[\]<>@+~\\]+")
#: Of a word with more of them, all that a tool may take for a name would take seconds to look at.
_MOST = 60
#: How mount and libblkid name a device by what is on it, and ext4 one by its number.
_INDIRECT = re.compile(r"(?<![A-Za-z])(?:(?:PART)?(?:UUID|LABEL)|ID)=|(?<!\w)journal_dev=")
#: What the tool would find there is not what this process has there.
_DESCRIPTOR = re.compile(r"/dev/(fd/|std(in|out|err)$)|/proc/[^/]+/(task/[^/]+/)?fd/")
#: Paths in the filesystem itself.
_WITHIN = re.compile(r"(?<![\w-])subvol=([^,\s\"']*)")


def reached(text: str, directories: bool = False, own: Container[str] = ()) -> str | None:
    """The first thing outside the stack that a word of the text is or leads to, in words; None if there is none.

    With `directories`, for what is only read, directories are not counted, nor is what does not exist. `own` are the
    numbers (``major:minor``) of the stack's devices, which have the names that its options gave them.
    """
    for name in _WITHIN.findall(text):
        if found := _block_device(name, own):
            return found
    text = _WITHIN.sub("subvol", text)
    if tag := _INDIRECT.search(text):
        return f"the device that {tag[0]}... names"
    words = _words(text)
    if any(len(_DELIMITERS.findall(word)) > _MOST for word in words):
        return f"more names than can be looked at (over {_MOST} in a word)"
    for candidate in dict.fromkeys(_candidates(words)):
        if found := _leads_to(candidate, directories, own):
            return found
    return None


def _words(text: str) -> list[str]:
    """Those of the text as it is, and as a shell would read it."""
    words = text.split()
    with suppress(ValueError):  # no command line
        words += shlex.split(text)
    return list(dict.fromkeys(words))


def _candidates(words: Iterable[str]) -> Iterator[str]:
    """Whatever a tool may take for a name: each word, and what stands between any two delimiters in it."""
    for word in words:
        found = list(_DELIMITERS.finditer(word))
        starts = [0, *(match.end() for match in found)]
        ends = [*(match.start() for match in found), len(word)]
        for start in starts:
            for end in ends:
                if start < end:
                    yield from _attached(word[start:end])


def _attached(word: str) -> Iterator[str]:
    """A word, and what may be the value of a short option in it."""
    yield word
    if word.startswith("-"):
        yield word[2:]
        if "/" in word:
            yield word[word.index("/") :]
    if f"{_DEV}/" in word:
        yield word[word.index(f"{_DEV}/") :]


def _leads_to(word: str, directories: bool, own: Container[str]) -> str | None:
    if not word:
        return None
    if not _can_be_passed(word):
        return "what no command can be given (a zero byte, or half a character)"
    if found := _block_device(word, own):
        return found
    if _DESCRIPTOR.match(word):
        return f"the descriptor {word}"
    try:
        status = os.stat(word)
    except OSError:
        # A tool may create what is not there, but a word is a path for sure only if it begins like one.
        return f"the path {word}" if word.startswith(("/", "./", "../")) and not directories else None
    if stat.S_ISDIR(status.st_mode):
        return None if directories or "/" not in word else f"the directory {word}"
    if stat.S_ISCHR(status.st_mode) and (os.major(status.st_rdev), os.minor(status.st_rdev)) in _HARMLESS:
        return None
    return f"the file {word}"


def _can_be_passed(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _block_device(word: str, own: Container[str]) -> str | None:
    """A device by its path, by what tools look up in /dev, or by its number."""
    if not word or not _can_be_passed(word):
        return None
    places = [Path(word)]
    if not word.startswith("/"):
        # No tool looks for a bare word among the numbers there, and every `zstd:3` would be the third disk.
        named = (each for each in _DEV.glob("disk/by-*") if each.name != "by-diskseq")
        places += [_DEV / word, _DEV / "mapper" / word, *(each / word for each in named)]
    for place in places:
        with suppress(OSError):
            if (number := blockdev.number(place)) is not None and number not in own:
                return f"the block device {place}"
    if re.fullmatch(r"\d+:\d+", word) and (blockdev.SYS / "dev/block" / word).exists():
        return f"the block device {word}"
    return None
