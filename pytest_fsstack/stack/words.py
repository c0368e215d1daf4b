"""Grammars of options: the words that a layer allows.

A `Grammar` parses the whole text of an option. It refuses words that write, read or run something outside of the stack,
even if that does not exist. Unknown words are checked by `stack.outside`, and must not refer to anything.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from pytest_fsstack.stack import outside


class WordError(ValueError):
    """A word that refers to something outside of the stack, or stops the machine. The message explains it."""


#: Words of filesystems and device-mapper that stop or restart the machine at the first error (errors=panic of ext4 and
#: bcachefs, failmode=panic of ZFS, fatal_errors=bug of Btrfs, restart_on_corruption of dm-verity).
_STOPPING = re.compile(r"panic|restart.on|reboot|(?<![a-z])bug(?![a-z])", re.IGNORECASE)


def _check_running(text: str) -> None:
    """Raise `WordError` for a word that stops the machine."""
    if match := _STOPPING.search(text):
        raise WordError(
            f"{match[0]} stops the whole machine at the first error; choose another reaction, such as remount-ro"
        )


class Grammar(Protocol):
    """The grammar of an option's text."""

    def undeclared(self, text: str) -> Iterator[str]:
        """Yield the undeclared parts of a text, which are checked as paths. Raises `WordError` for refused ones."""
        ...


@dataclass(frozen=True)
class Value:
    """A text of a known form, which the tool never takes for a path outside of the stack.

    A `free` text is only stored or shown. Other texts have a meaning, and must not stop the machine.
    """

    pattern: str
    free: bool = False

    def undeclared(self, text: str) -> Iterator[str]:
        if not self.free:
            _check_running(text)
        if not re.fullmatch(self.pattern, text):
            yield text


#: An option without a value.
FLAG = Value("")
NUMBER = Value(r"[+-]?(0[xX][0-9A-Fa-f]+|\d+(\.\d+)?)")
#: A number with a unit, such as 64K, 100%FREE or 1.5g, or several, as in 4096:8192.
SIZE = Value(r"[+-]?\d[\w.%:]*")
#: A keyword of the tool, with a level or a sign: zstd:3, ^has_journal, aes-xts-plain64, xts(aes).
KEYWORD = Value(r"[\^+-]?\w[\w.:^%+()*-]*")
#: Several keywords, separated by commas.
KEYWORDS = Value(rf"{KEYWORD.pattern}(,{KEYWORD.pattern})*")
#: Free text that is stored or shown, such as a label.
TEXT = Value(r"[^\n\0]*", free=True)
#: The name of a file in the directory below, without a slash.
NAME = Value(r"(?!\.{1,2}$)[^/\n\0]+", free=True)
#: A path within the filesystem itself, such as that of a subvolume.
INSIDE = Value(r"(?!(.*/)?\.\.(/.*)?$)[^\n\0]*", free=True)
#: Any text. It is checked as a path. For options without a declared meaning.
LOOKED_UP = Value(r"(?!)")


@dataclass(frozen=True)
class Refused(Value):
    """An option that is never allowed, with the reason, which follows its name."""

    pattern: str = r"(?!)"
    reason: str = ""

    def refuse(self, name: str) -> None:
        raise WordError(f"{name} {self.reason}")


#: The option always writes, reads or runs something outside of the stack.
OUTSIDE = Refused(reason="would let the tool write, read or run something outside of the stack")
#: The daemon ends by itself.
UNMOUNTS = Refused(reason="unmounts the filesystem by itself, which only the session may do")


def check(grammar: Grammar, text: str, own: Container[str] = ()) -> None:
    """Raise `WordError` if the text stops the machine, or refers to something outside of a stack with these devices."""
    if not outside.can_be_passed(text):
        raise WordError("has a zero byte or half a character, which no command accepts")
    for part in grammar.undeclared(text):
        if escape := outside.find_escape(part, own):
            raise WordError(f"reaches {escape}; a stack may write to the device below it and to nothing else")


@dataclass(frozen=True)
class Items:
    """Comma-separated settings, ``key`` or ``key=value``. Keys with the same values share one text.

    A key without a value is never a path. A key that ends in ``*`` is a prefix.
    """

    keys: Mapping[str, Grammar]

    def undeclared(self, text: str) -> Iterator[str]:
        if quote := re.search(r"""["'\\]""", text):
            raise WordError(f"tools differ in how they read {quote[0]} in {text[:60]}; leave it out")
        for item in text.split(","):
            key, equals, value = item.partition("=")
            grammar = self._grammar(key.strip())
            if key not in self._by_name:
                _check_running(key)
            if isinstance(grammar, Refused):
                grammar.refuse(key.strip())
            if equals:
                yield from grammar.undeclared(value)
            if key and not re.fullmatch(KEYWORD.pattern, key):
                yield item

    def _grammar(self, key: str) -> Grammar:
        families = (name for name in self._by_name if name.endswith("*") and key.startswith(name[:-1]))
        return self._by_name.get(key) or self._by_name.get(max(families, key=len, default=""), LOOKED_UP)

    @functools.cached_property
    def _by_name(self) -> dict[str, Grammar]:
        return _by_name(self.keys)

    def __or__(self, keys: Mapping[str, Grammar]) -> Items:
        """Return a copy with additional keys."""
        return Items({**self._by_name, **_by_name(keys)})


@dataclass(frozen=True)
class CommandLine:
    """Options of a command as getopt parses them. Options with the same values share one text.

    All other words are refused, because the tool would take them for devices or directories. Short options may be
    bundled, and long ones abbreviated. Names like ``-passfile`` select the syntax of Go programs.
    """

    options: Mapping[str, Grammar]

    def undeclared(self, text: str) -> Iterator[str]:
        #: The grammar of the next word, if the last option takes a value; LOOKED_UP if it may take one.
        expected: Grammar | None = None
        for word in _split(text):
            is_option = word.startswith("-") and word not in ("-", "--")
            if expected and (expected is not LOOKED_UP or not is_option):
                yield from expected.undeclared(word)
                expected = None
            elif is_option:
                undeclared, following = self._option(word)
                yield from undeclared
                # This option may itself be a value, and then the next word is none.
                expected = LOOKED_UP if expected and following else following
            else:
                raise WordError(f"{word[:60]!r} is not an option; the tool would treat it as a device or a directory")

    def _option(self, word: str) -> tuple[list[str], Grammar | None]:
        """Return the undeclared parts of an option, and the grammar of its value if that is the next word."""
        if word.startswith("--") or (self._is_go and len(word) > 2):
            return self._long(word)
        return self._bundle(word)

    def _long(self, word: str) -> tuple[list[str], Grammar | None]:
        name, equals, value = word.partition("=")
        grammar = self._by_name.get(_plain(name)) or self._abbreviated(name)
        if isinstance(grammar, Refused):
            grammar.refuse(name)
        if grammar is None:
            _check_running(word)
            return [word], None if equals else LOOKED_UP
        if equals:
            return list(grammar.undeclared(value)), None
        return [], None if grammar is FLAG else grammar

    def _abbreviated(self, name: str) -> Grammar | None:
        """Return the grammar of a refused option that the name may abbreviate."""
        grammars = (
            form for option, form in self._by_name.items() if len(option) > 2 and option.startswith(_plain(name))
        )
        return next((grammar for grammar in grammars if isinstance(grammar, Refused)), None)

    def _bundle(self, word: str) -> tuple[list[str], Grammar | None]:
        for index, letter in enumerate(word[1:], 2):
            grammar = self._by_name.get(f"-{letter}")
            if isinstance(grammar, Refused):
                grammar.refuse(f"-{letter}")
            if grammar is None:
                # The option may take the rest as its value, or be a bundle.
                _check_running(word)
                self._bundle_without(word, index)
                return [word], LOOKED_UP
            if grammar is not FLAG:
                value = word[index:]
                return (list(grammar.undeclared(value)), None) if value else ([], grammar)
        return [], None

    def _bundle_without(self, word: str, start: int) -> None:
        for letter in word[start:]:
            if isinstance(grammar := self._by_name.get(f"-{letter}"), Refused):
                grammar.refuse(f"-{letter} in {word}")

    @functools.cached_property
    def _by_name(self) -> dict[str, Grammar]:
        return {_plain(name): grammar for name, grammar in _by_name(self.options).items()}

    @functools.cached_property
    def _is_go(self) -> bool:
        return any(re.match("-[^-]{2}", name) for name in _by_name(self.options))


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise WordError(f"not a command line: {error}") from None


def _by_name(grammars: Mapping[str, Grammar]) -> dict[str, Grammar]:
    return {name: grammar for names, grammar in grammars.items() for name in names.split()}


def _plain(name: str) -> str:
    """Normalize an option's name: LVM ignores hyphens and underscores."""
    return name if re.fullmatch("-[^-]", name) else "--" + re.sub("[-_]", "", name).lower()


@dataclass(frozen=True)
class Words:
    """Words of one form, separated by blanks."""

    form: Grammar

    def undeclared(self, text: str) -> Iterator[str]:
        for word in _split(text):
            if re.search(r"\s", word):
                raise WordError(f"{word[:60]!r} has blanks or line breaks in it")
            yield from self.form.undeclared(word)


@dataclass(frozen=True)
class Directories:
    """Colon-separated directories: read-only ones of the machine, or names in the stack."""

    def undeclared(self, text: str) -> Iterator[str]:
        for path in text.split(":"):
            if re.search(r"""[,\\"'\n]""", path) or outside.goes_up(path):
                raise WordError(f"{path!r} is not a plain path of a directory")
            if os.path.lexists(path) and not os.path.isdir(path) and path.startswith("/"):
                yield path


#: Options of mount(8) that every filesystem has. Those with effects beyond the filesystem are refused.
MOUNT = Items(
    {
        "loop loop* offset sizelimit encryption bind rbind move remount helper uhelper x-mount* X-mount* verity* "
        "make-* shared rshared slave rslave": OUTSIDE,
        "uid gid umask dmask fmask mode iocharset codepage nls errors commit barrier data stripe context fscontext "
        "defcontext rootcontext": KEYWORD,
        "size nr_inodes nr_blocks": SIZE,
    }
)
#: Options of libfuse. `modules` runs code, and `subdir` shows another directory.
FUSE_MOUNT = MOUNT | {
    "modules subdir from_code to_code fd fsname_helper": OUTSIDE,
    "fsname subtype": TEXT,
    "uid gid umask max_read max_write max_readahead max_background congestion_threshold": NUMBER,
    "entry_timeout negative_timeout attr_timeout ac_attr_timeout blksize": NUMBER,
}
