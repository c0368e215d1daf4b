"""Checks of command lines in the docs: split like in a shell, then parsed by the programs that they call."""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pytest_fsstack import options
from pytest_fsstack.command import read
from pytest_fsstack.layers import BUILT_IN as LAYERS
from pytest_fsstack.options.budgets import parse
from pytest_fsstack.report import BUILT_IN as REPORTS
from pytest_fsstack.stack.model import Stack
from tests.pages import ROOT

#: Words that can precede a command.
BEFORE = {"sudo", "exec", "-E"}
#: Programs of other projects, whose arguments are not checked.
OTHERS = {"apt", "dd", "exit", "export", "git", "lsblk", "make", "mkdir", "parallel", "source", "xdg-open"}
#: Files that the reader creates or has.
OF_READERS = {"randread.fio", "test_notes.py", "test_storage.py", "~/test_speed.py", "tests/storage", "run.json"}
#: Options with values that depend on the reader's machine: files, devices, kernels, governors.
OF_MACHINES = {
    "compare",
    "corpus",
    "dir",
    "governor",
    "history",
    "json",
    "kernel",
    "overwrite",
    "save-reference",
    "scheduler",
}


def commands(text: str) -> Iterator[list[str]]:
    """Yield the commands of a shell block as words, including those within ``sh -c``."""
    text = re.sub(r"\\\n", " ", text)
    # Shell substitutions never contain blanks.
    text = re.sub(r"\$\(.*?\)", "X", text)
    lines = shlex.shlex(text, posix=True, punctuation_chars=";&|<>\n")
    lines.whitespace, lines.whitespace_split, lines.commenters = " \t\r", True, ""
    words: list[str] = []
    comment = False
    for word in [*lines, "\n"]:
        if set(word) <= set(";&|\n"):
            if words:
                yield from _command(words)
            words, comment = [], comment and "\n" not in word
        elif comment or word.startswith("#"):
            comment = True
        else:
            words.append(word)


def _command(words: list[str]) -> Iterator[list[str]]:
    while words and (words[0] in BEFORE or re.match(r"\w+=", words[0])):
        words = words[1:]
    if "sh" in words and "-c" in words:
        yield from commands(words[words.index("-c") + 1])
        words = words[: words.index("sh")]
    if words:
        yield words


class Checker:
    """A checker of command lines. `parse` calls pytest's parser, and raises its errors.

    `others` are layers that are not built in. Only their names are known.
    """

    def __init__(self, parse: Callable[[list[str]], object], others: Iterable[str] = ()) -> None:
        self._parse = parse
        self._others = re.compile(rf"\b({'|'.join(others)})\b(\([^)]*\))?")

    def check(self, words: list[str]) -> None:
        """Raise AssertionError, or a parser's error, if a command line is invalid."""
        program, rest = Path(words[0]).name, words[1:]
        if program in ("python", "python3"):
            assert rest[0] == "-m" or (ROOT / rest[0]).is_file(), f"there is no {rest[0]}"
            if rest[0] == "-m" and rest[1] in ("pytest", "pip"):
                program, rest = rest[1], rest[2:]
            elif rest[0] == "-m":
                place = ROOT / rest[1].replace(".", "/")
                is_module = place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()
                assert rest[1] == "venv" or is_module, f"there is no module {rest[1]}"
                return
        check = {"pytest": self.pytest, "fsstack": self.fsstack, "pip": self.pip, "tox": self.tox}.get(program)
        if check is None:
            assert program in OTHERS or program.startswith("python"), f"unknown program {program}"
        else:
            check(rest)

    def pytest(self, words: list[str]) -> None:
        self._parse([word for word in words if word != "--"])
        for word in words:
            if word.startswith("--fsstack-"):
                name, _, text = word.removeprefix("--fsstack-").partition("=")
                self.option(options.named(name), text)
        before = ["", *words]
        for word, last in zip(words, before):
            if not word.startswith("-") and last not in ("-k", "-m", "-p", "-n", "-o"):
                file = word.partition("::")[0]
                assert file in OF_READERS or (ROOT / file).exists(), f"there is no {file}"

    def option(self, option: options.Option, text: str) -> None:
        """Check the value of an option of the plugin, unless it depends on the machine."""
        if option.flag or (option.bare and not text):
            return
        assert text, f"{option.flags} has no value"
        if option.name == "stacks":
            self.stack(text)
        elif option.name == "budget":
            parse(text)
        elif option.name == "report":
            name, _, file = text.partition("=")
            assert name in REPORTS, f"there is no report {name}"
            assert file
        elif option.name == "device":
            assert re.fullmatch(r"loop|ram|dir:.+|/dev/.+", text), text
        elif option.name not in OF_MACHINES:
            option.read(text)

    def stack(self, text: str) -> None:
        # Replace unknown layers by `directory`, which stacks in the same way.
        Stack.parse(self._others.sub("directory", text), LAYERS)

    def fsstack(self, words: list[str]) -> None:
        given = read(words)
        name, rest = words[0], given.words
        if name == "lab":
            self.pytest(rest)
        elif name == "run":
            self.pytest([f"--fsstack-scenario={rest[0]}", *rest[1:]])
        elif name == "bench":
            assert given.measured or given.command or any(word.endswith(".fio") for word in rest), "no command"
            for short in "stack", "budget", "setup", "check", "command":
                for text in getattr(given, short):
                    self.option(options.named("stacks" if short == "stack" else short), text)
            self.pytest(rest)
        elif name == "doctor":
            wish = rest[:1] if rest[:1] and rest[0] in options.named("doctor").choices else []
            self.pytest(rest[len(wish) :])
        elif words[:2] == ["stacks", "explain"]:
            self.stack(rest[0])
            self.pytest(rest[1:])
        elif name == "report":
            assert {word.removeprefix("--") for word in rest if word.startswith("--")} <= set(REPORTS)

    def pip(self, words: list[str]) -> None:
        assert words[0] in ("install", "list")
        for word in words[1:]:
            if match := re.fullmatch(r"(pytest-fsstack|\.)(?:\[(.*)\])?", word):
                extras = _settings("setup.cfg")["options.extras_require"]
                assert not match[2] or match[2] in extras, f"there is no extra {match[2]}"

    def tox(self, words: list[str]) -> None:
        settings = _settings("tox.ini")
        name = words[words.index("-e") + 1]
        factors = re.findall(r"^(\w+):", settings["testenv"]["commands"].strip(), re.MULTILINE)
        assert f"testenv:{name}" in settings or name in factors, f"there is no environment {name}"


def _settings(name: str) -> configparser.ConfigParser:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / name)
    return settings
