"""The syntax of a stack's text, ``luks(key_size=256) | ext4(mount='noatime')``.

This module does not know which layers exist. `pytest_fsstack.stack.model` resolves the names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

#: Characters that pytest's ``-k`` accepts, so that every stack can be selected by name.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_+.:-]*")
_NAMED = re.compile(rf"\s*(?P<name>{NAME.pattern})\s*=(?!=)\s*(?P<stack>.*)", re.DOTALL)
_SETTING = re.compile(r"(?P<key>[\w./-]+)\s*=\s*(?P<value>[\w.:+-]+)", re.ASCII)


class SpecError(ValueError):
    """An error in a stack's text. The message marks the place with a caret.

    `start` and `end` are offsets in characters into `text`.
    """

    def __init__(self, message: str, text: str, start: int = 0, end: int | None = None) -> None:
        self.message, self.text, self.start = message, text, start
        self.end = max(start + 1, len(text) if end is None else end)
        super().__init__(message, text, self.start, self.end)

    def __str__(self) -> str:
        line = self.text.replace("\n", " ")
        return f"{self.message}\n  {line}\n  {' ' * self.start}{'^' * (self.end - self.start)}"


@dataclass(frozen=True)
class _Part:
    """A part of a text, from one offset to another."""

    start: int = field(default=0, compare=False, kw_only=True)
    end: int = field(default=0, compare=False, kw_only=True)

    def error(self, message: str, text: str) -> SpecError:
        """Return an error that marks this part of the text."""
        return SpecError(message, text, self.start, self.end)


@dataclass(frozen=True)
class Option(_Part):
    """A keyword of a call and its literal value. Without a keyword, the number of devices, as in pool(2)."""

    name: str
    value: object

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}" if self.name else repr(self.value)


@dataclass(frozen=True)
class Call(_Part):
    """A layer in the text: its name and its options."""

    name: str
    options: tuple[Option, ...] = ()

    def __str__(self) -> str:
        if not self.options:
            return self.name
        return f"{self.name}({', '.join(map(str, self.options))})"

    def part(self, option: str) -> _Part:
        """Return the option of this name, or the whole call."""
        return next((part for part in self.options if option and part.name == option), self)


@dataclass(frozen=True)
class Setting(_Part):
    """A setting of the machine for a stack, such as ``vm.dirty_bytes=64M``."""

    key: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}"


@dataclass(frozen=True)
class Pipe:
    """A parsed text: an optional name, the calls from the bottom up, and settings of the machine."""

    calls: tuple[Call, ...]
    name: str | None = None
    settings: tuple[Setting, ...] = ()

    def __str__(self) -> str:
        pipe = with_settings(" | ".join(map(str, self.calls)), self.settings)
        return f"{self.name} = {pipe}" if self.name else pipe


def with_settings(pipe: str, settings: tuple[Setting, ...]) -> str:
    """Join the texts of layers and settings."""
    return f"{pipe} @ {', '.join(map(str, settings))}" if settings else pipe


def parse(text: str) -> Pipe:
    """Parse ``[name =] layer [| layer ...] [@ key=value, ...]``. A layer is a name, or a call with literal keywords.

    Raises `SpecError` for any other text.
    """
    match = _NAMED.fullmatch(text)
    name, offset = (match["name"], match.start("stack")) if match else (None, 0)
    body = text[offset:]
    if not body.strip():
        raise SpecError("a stack needs at least one layer, such as ext4", text, offset)
    offset += len(body) - len(body.lstrip())
    body = body.strip()
    settings: tuple[Setting, ...] = ()
    if at := _start_of_settings(body):
        settings = tuple(_settings(text, offset + at, offset + len(body)))
        body = body[: at - 1].rstrip()
    try:
        tree = ast.parse(body.replace("\n", " "), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        column = getattr(error, "offset", None) or 1
        start = min(offset + _characters(body, column - 1), max(0, len(text) - 1))
        message = "this is not a stack; write layers from the bottom up, such as luks | ext4(mount='noatime')"
        raise SpecError(message, text, start, start + 1) from error
    reader = _Reader(text, body, offset)
    reader.check_numbers(tree)
    return Pipe(tuple(reader.calls(tree)), name, settings)


def _start_of_settings(body: str) -> int:
    """Return the offset after the first @ outside of quotes and parentheses, or 0."""
    for match in re.finditer("@", body):
        try:
            ast.parse(body[: match.start()].strip().replace("\n", " "), mode="eval")
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            continue
        return match.end()
    return 0


def _settings(text: str, start: int, end: int) -> Iterator[Setting]:
    """Parse ``key=value, ...`` between two offsets. Raises `SpecError`."""
    keys: set[str] = set()
    for part in text[start:end].split(","):
        first, word = start + len(part) - len(part.lstrip()), part.strip()
        span, start = _Part(start=min(first, end - 1), end=first + len(word)), start + len(part) + 1
        match = _SETTING.fullmatch(word)
        if not match:
            raise span.error("settings are KEY=VALUE with commas between, such as queue/scheduler=bfq", text)
        if match["key"] in keys:
            raise span.error(f"setting {match['key']!r} is given twice", text)
        keys.add(match["key"])
        yield Setting(match["key"], match["value"], start=span.start, end=span.end)


def given_by_name(layer: str) -> str:
    """Return the error message for an option without a name."""
    return f"options of {layer} are given by name, such as {layer}(option='value')"


def _characters(line: str, column: int) -> int:
    """Convert a column of `ast`, which counts UTF-8 bytes, to characters."""
    # Bytes of the command line that are not UTF-8 are surrogates, which cannot be encoded.
    return len(line.encode(errors="replace")[:column].decode(errors="ignore"))


@dataclass(frozen=True)
class _Reader:
    text: str
    body: str
    offset: int

    def span(self, node: ast.expr | ast.keyword) -> dict[str, int]:
        start = self.offset + _characters(self.body, node.col_offset)
        end = self.offset + _characters(self.body, node.end_col_offset or node.col_offset + 1)
        return {"start": start, "end": end}

    def error(self, message: str, node: ast.expr | ast.keyword) -> SpecError:
        return SpecError(message, self.text, **self.span(node))

    def check_numbers(self, tree: ast.expr) -> None:
        for node in ast.walk(tree):
            # Python cannot print more than 4300 digits, and the limits of tools and the kernel are far lower.
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value.bit_length() > 64:
                raise self.error("a number of a stack has at most 64 bits", node)

    def calls(self, node: ast.expr) -> list[Call]:
        # A pipe of n layers is a left-leaning tree of depth n. A loop avoids the recursion limit.
        calls: list[Call] = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            if isinstance(node.right, ast.BinOp):
                raise self.error("write the layers without parentheses, bottom first", node.right)
            calls.append(self.call(node.right))
            node = node.left
        calls.append(self.call(node))
        return calls[::-1]

    def call(self, node: ast.expr) -> Call:
        if isinstance(node, ast.Name):
            return Call(node.id, (), **self.span(node))
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
            raise self.error("expected a layer: a name such as ext4, or a call such as ext4(mount='noatime')", node)
        unnamed = [self.number(node.func.id, argument) for argument in node.args]
        options = (*unnamed, *(self.option(node.func.id, keyword) for keyword in node.keywords))
        names = [option.name for option in options]
        for index, option in enumerate(options):
            if option.name in names[:index]:
                raise option.error(f"option {option.name!r} is given twice", self.text)
        return Call(node.func.id, options, **self.span(node))

    def number(self, layer: str, argument: ast.expr) -> Option:
        if not (isinstance(argument, ast.Constant) and type(argument.value) is int):
            raise self.error(given_by_name(layer), argument)
        return Option("", argument.value, **self.span(argument))

    def option(self, layer: str, keyword: ast.keyword) -> Option:
        if keyword.arg is None:
            raise self.error(f"options of {layer} are given by name, not with **", keyword)
        try:
            value: object = ast.literal_eval(keyword.value)
        except (ValueError, TypeError):
            message = f"the value of {keyword.arg!r} must be a literal: text in quotes, a number, True or False"
            raise self.error(message, keyword.value) from None
        return Option(keyword.arg, value, **self.span(keyword))
