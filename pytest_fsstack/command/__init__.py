"""The command `fsstack`: short forms of what pytest does with this plugin's options, and nothing beyond.

Nothing else of the package imports this. Each subcommand is imported only when it is called. To add one: write a
function from its words to an exit code in a module of this package, and its record in `COMMANDS`.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

#: As pytest has it for wrong usage.
USAGE_ERROR = 4


class CommandLineError(Exception):
    """The command line is wrong; the message says how, in a sentence."""


class Command(NamedTuple):
    """A subcommand: what is typed, what it does, and what it is short for."""

    name: str
    #: The words behind the name.
    words: str
    help: str
    #: Where its function is: ``module:function`` in this package.
    place: str
    #: What to do without this command; empty where pytest has no words for it.
    same: str = ""

    @property
    def usage(self) -> str:
        return f"fsstack {self.name} {self.words}".rstrip()

    def load(self) -> Callable[[list[str]], int]:
        """Its function, which may raise `CommandLineError`."""
        module, _, function = self.place.partition(":")
        found: Callable[[list[str]], int] = getattr(importlib.import_module(f"{__name__}.{module}"), function)
        return found


COMMANDS = (
    Command(
        "run",
        "STUDY [pytest options]",
        "run a scenario that comes with the plugin, by its name, from anywhere",
        "sessions:run",
        "pytest --fsstack-study=STUDY",
    ),
    Command(
        "report",
        "RUN.json [RUN.json ...] [--html FILE] [--markdown FILE] ...",
        "make reports of every format from the saved JSON of a session; without any, print Markdown",
        "reports:report",
        "pytest --fsstack-report=html=FILE",
    ),
    Command(
        "compare",
        "OLD.json NEW.json [--max-regression 5%] [--strict] [--anyway] | OLD.json ... --now NEW.json ... "
        "| --plan OLD.json ... [--rounds N]",
        "show what each stack costs over its reference now and then, from saved results; exit code 1 if that is "
        "more than the limit; with --plan, what that limit can tell of one more run (--rounds=N), as an exit code too",
        "comparing:compare",
        "pytest --fsstack-compare=OLD.json --fsstack-max-regression=5%",
    ),
    Command(
        "trend",
        "DIR [--smallest 1%] [--figures] [--all]",
        "draw each overhead (or each figure) in the history in DIR, and show where it may have changed: date, commit "
        "and size",
        "trend:trend",
    ),
    Command(
        "prune",
        "DIR --keep 365d",
        "remove from the history in DIR the runs that are older",
        "trend:prune",
    ),
    Command(
        "doctor",
        "[install|all|install-all] [pytest options]",
        "show whether the selected tests and stacks can run on this machine, and how to get what is missing",
        "sessions:doctor",
        "pytest --fsstack-doctor=...",
    ),
    Command(
        "cleanup",
        "",
        "remove what a killed session left behind",
        "sessions:cleanup",
        "pytest --fsstack-cleanup",
    ),
    Command(
        "stacks",
        "[pytest options]",
        "list the layers, what each needs, and whether this machine has it",
        "stacks:stacks",
        "pytest --fsstack-doctor=all",
    ),
    Command(
        "stacks explain",
        "STACK [pytest options]",
        "show the commands that a session would run to build, remount and take down a stack; nothing is run, and "
        "root is not needed",
        "stacks:explain",
    ),
    Command(
        "new",
        "workload|layer|scenario NAME",
        "write a commented file and its test into the current directory, which run as they are",
        "new:new",
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns its exit code, which is 4 for wrong usage. Words are those of the command line."""
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it, such as head, has read enough. What is left must not be written when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    return code


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else USAGE_ERROR
    if words[0] == "--version":
        from importlib.metadata import version

        print(f"pytest-fsstack {version('pytest-fsstack')}")
        return 0
    try:
        command = _command_of(words)
        rest = words[len(command.name.split()) :]
        if rest[:1] in (["-h"], ["--help"]):
            print(_help(command))
            return 0
        return command.load()(rest)
    except CommandLineError as error:
        print(f"fsstack: {error}", file=sys.stderr)
        return USAGE_ERROR


def overview() -> str:
    """What there is, for a terminal."""
    lines = ["Measure and judge storage stacks with pytest.", ""]
    for command in COMMANDS:
        lines += [f"  {command.usage}", f"      {command.help}"]
    return "\n".join([*lines, "", "fsstack COMMAND --help says more; pytest --help has all options (--fsstack-...)."])


def _help(command: Command) -> str:
    lines = [f"usage: {command.usage}", "", f"{command.help[0].upper()}{command.help[1:]}."]
    if command.name == "run":
        from pytest_fsstack.options import STUDIES

        lines += ["", f"Studies: {', '.join(STUDIES)}."]
    if command.same:
        lines += ["", f"It is short for: {command.same}"]
    return "\n".join(lines)


def _command_of(words: Sequence[str]) -> Command:
    """The command that the words begin with, the longest name first. Raises `CommandLineError`."""
    for command in sorted(COMMANDS, key=lambda each: -len(each.name.split())):
        name = command.name.split()
        if list(words[: len(name)]) == name:
            return command
    import difflib

    names = [command.name for command in COMMANDS]
    near = [] if words[0].startswith("-") else difflib.get_close_matches(words[0], names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
    raise CommandLineError(f"there is no command {words[0]!r}; {hint}")
