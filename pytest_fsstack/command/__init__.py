"""The command `fsstack`: short forms of pytest with this plugin's options, and operations on results.

The core does not import this. To add a subcommand, declare its arguments here or in an entry point of `BROUGHT`, and
write a function from the parsed arguments to an exit code, in a module that is imported on use.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from pytest_fsstack import version
from pytest_fsstack.extensions import attach
from pytest_fsstack.units import show

#: As in pytest.
USAGE_ERROR = 4
#: Kinds of files that `fsstack new` writes.
KINDS = ("workload", "layer", "scenario")
#: Entry points of packages with more subcommands: functions that add them.
BROUGHT = "fsstack_commands"

#: Options of `fsstack bench`, with value and meaning. Each is also an option of pytest.
BENCH = (
    ("stack", "STACK", "a stack such as 'luks | ext4'. The first is the baseline"),
    ("budget", "BUDGET", "the highest accepted cost of a stack, such as 'luks*: 30%%'"),
    ("setup", "COMMAND", "a command before the first step on each stack, outside of the time"),
    ("check", "COMMAND", "a command after each step and a remount, outside of the time"),
    ("command", "NAME=COMMAND", "a step of several on the same stack, instead of the command after --"),
)


class CommandLineError(Exception):
    """Wrong usage. The message is a sentence."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `CommandLineError`."""

    def error(self, message: str) -> NoReturn:
        raise CommandLineError(f"{self.prog.removeprefix('fsstack').lstrip()}: {message}".removeprefix(": "))


class _Version(argparse.Action):
    """The option --version. The version is looked up only if it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *rest: object) -> NoReturn:
        show(f"pytest-fsstack {version.full()}")
        parser.exit()


def as_option(name: str) -> Callable[[str], Any]:
    """Return a parser of texts that checks them like pytest's option with that name."""

    def read(text: str) -> Any:
        from pytest_fsstack.options import named

        try:
            return named(name).read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def parser() -> Parser:
    """Return the parser of the command. `subcommands` returns those of its subcommands."""
    whole = Parser("fsstack", description="Measure and judge storage stacks with pytest.", allow_abbrev=False)
    whole.epilog = "fsstack COMMAND --help says more; pytest --help has all options (--fsstack-...)."
    whole.add_argument("--version", action=_Version, help="show the version and exit")
    group = whole.add_subparsers(metavar="COMMAND", required=True)
    for adds in _add_sessions, _add_work_on_results, _add_history, _add_stacks_and_files:
        adds(group)
    for failure in attach(BROUGHT, lambda _, add_all: add_all(group)):
        # The other subcommands, such as `cleanup`, work without it.
        show(f"fsstack: {failure}", error=True)
    return whole


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of all subcommands by name, such as ``stacks explain``."""
    parsers: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                parsers |= {command.prog.partition(" ")[2]: command, **subcommands(command)}
    return parsers


def add(group: Any, name: str, place: str, text: str, *, same: str = "", rest: str = "") -> Parser:
    """Add a subcommand, whose function is at `place` (``module:function``).

    `same` is the equivalent without this command, and `rest` describes further arguments.
    """
    epilog = f"The same without it: {same}" if same else None
    added: Parser = group.add_parser(name, help=text, description=text, epilog=epilog, allow_abbrev=False)
    if rest:
        added.add_argument("words", nargs=argparse.REMAINDER, metavar="...", help=rest)
    added.set_defaults(place=place)
    return added


def _add_sessions(group: Any) -> None:
    text = "run a scenario that comes with the plugin, by its name, from anywhere; the first of the words is its name"
    add(group, "run", ".sessions:run", text, same="pytest --fsstack-scenario=NAME", rest="NAME and pytest options")
    text = "compare stacks by a command or a file of fio jobs; the command is in the words after --"
    same = "pytest --fsstack-command=COMMAND --fsstack-stacks=STACK"
    bench = add(group, "bench", ".sessions:bench", text, same=same)
    bench.usage = "fsstack bench --stack STACK ... [pytest options] [FILE.fio ...] [-- COMMAND ...]"
    bench.set_defaults(words=[])
    for name, metavar, meaning in BENCH:
        bench.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=f"{meaning}. Repeat it")
    bench.add_argument("--shell", action="store_true", help="let sh run the commands")
    text = "show whether the selected tests and stacks can run on this machine, and how to get what is missing"
    rest = "install, all or install-all, and pytest options"
    add(group, "doctor", ".sessions:doctor", text, same="pytest --fsstack-doctor=install", rest=rest)
    text, same = "remove what a killed session left behind", "pytest --fsstack-cleanup"
    add(group, "cleanup", ".sessions:cleanup", text, same=same, rest="pytest options")


def _add_work_on_results(group: Any) -> None:
    text = "make reports of every format from the saved JSON of sessions; without any format, print Markdown"
    same, rest = "pytest --fsstack-report=html=FILE", "RUN.json ... and --html FILE, --markdown FILE, ..."
    add(group, "report", ".reports:report", text, same=same, rest=rest)
    text = "show what each stack costs over its reference now and then, from saved results"
    compare = add(group, "compare", ".comparing:compare", text, same="pytest --fsstack-compare=OLD.json")
    text = "files or directories; without --now, the last of two is the new one"
    compare.add_argument("then", nargs="+", metavar="OLD.json", help=text)
    compare.add_argument("--now", nargs="+", metavar="NEW.json")
    compare.add_argument(
        *("--max-regression", "--limit"),
        type=as_option("max-regression"),
        dest="limit",
        metavar="PERCENT",
        help="exit code 1 if a stack costs more than that",
    )
    compare.add_argument(
        "--alpha", type=as_option("alpha"), default="0.05", metavar="P", help="error rate of a verdict"
    )
    compare.add_argument("--anyway", action="store_true", help="compare runs of machines that differ, too")
    compare.add_argument("--strict", action="store_true", help="fail what is undecided, or was measured only then")
    text = "show what the limit can tell of one more run; exit code 1 if it decides less than nearly all unchanged runs"
    compare.add_argument("--plan", action="store_true", help=text)
    compare.add_argument("--rounds", type=as_option("rounds"), metavar="N", help="rounds of that run")


def _add_history(group: Any) -> None:
    text = "draw each overhead in the history in DIR, and show where it may have changed: date, commit and size"
    trend = add(group, "trend", ".trend:trend", text)
    trend.add_argument("directory", type=Path, metavar="DIR")
    smallest = as_option("max-regression")
    trend.add_argument("--smallest", type=smallest, default="1%", metavar="PERCENT", help="the smallest change to show")
    trend.add_argument("--figures", action="store_true", help="draw each figure instead of each overhead")
    trend.add_argument("--all", action="store_true", help="also what no budget judges")
    prune = add(group, "prune", ".trend:prune", "remove from the history in DIR the runs that are older")
    prune.add_argument("directory", type=Path, metavar="DIR")
    prune.add_argument("--keep", required=True, metavar="DAYS", help="such as 365d")


def _add_stacks_and_files(group: Any) -> None:
    text = "show the commands that build, remount and take down a stack; nothing is run, and root is not needed"
    stacks = add(group, "stacks", ".stacks:explain", text).add_subparsers(metavar="explain", required=True)
    add(stacks, "explain", ".stacks:explain", text, rest="STACK and pytest options")
    text = "write a commented file and its test into the current directory, which run as they are"
    new = add(group, "new", ".new:new", text)
    new.add_argument("kind", choices=KINDS)
    new.add_argument("name", metavar="NAME")


def first_word(arguments: argparse.Namespace, what: str) -> str:
    """Remove and return the first positional argument. Raises `CommandLineError` if there is none."""
    if not arguments.words or arguments.words[0].startswith("-"):
        raise CommandLineError(what)
    word: str = arguments.words.pop(0)
    return word


def write_new(files: Mapping[str, str]) -> None:
    """Write files by name into the current directory. Raises `CommandLineError`, also if one exists."""
    if there := [name for name in files if Path(name).exists()]:
        raise CommandLineError(f"new: {there[0]} exists; move it away, or choose another name")
    for name, text in files.items():
        try:
            Path(name).write_text(text)
        except OSError as error:
            raise CommandLineError(f"new: {name}: {error.strerror}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand with the words of the command line. Return its exit code, which is 4 for wrong usage."""
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (such as head) has closed the pipe. Python must not fail on flushing the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return code


def _run(words: list[str]) -> int:
    if not words:
        parser().print_help()
        return USAGE_ERROR
    try:
        arguments = read(words)
        module, _, function = arguments.place.partition(":")
        code: int = getattr(importlib.import_module(module, __name__), function)(arguments)
    except CommandLineError as error:
        show(f"fsstack: {error}", error=True)
        return USAGE_ERROR
    except SystemExit as ended:
        # argparse has printed a help or the version.
        return int(ended.code or 0)
    return code


def read(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line. `place` names the subcommand's function. Raises `CommandLineError`."""
    words, command = list(words), list[str]()
    if words[0] == "bench" and "--" in words:
        # Versions of argparse treat the dashes differently.
        dashes = words.index("--")
        words, command = words[:dashes], words[dashes + 1 :]
    arguments, unknown = parser().parse_known_args(words)
    arguments.measured = command
    if unknown and "words" not in arguments:
        raise CommandLineError(f"{words[0]}: unrecognized arguments: {' '.join(unknown)}")
    # argparse does not recognise options before the first positional argument.
    arguments.words = [*unknown, *getattr(arguments, "words", [])]
    return arguments
