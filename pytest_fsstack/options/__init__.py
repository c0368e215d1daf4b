"""The command line and the ini: one record an option, from which argparse, the ini, the checks and the docs follow.

Importing this costs nothing. To add an option, add its record to `OPTIONS`, and read it with `value`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# -- what a value may be -----------------------------------------------------------------------------------------------
#
# Each function reads a text, and raises `ValueError` with what it must be.


def _text(text: str) -> str:
    return text


def _size(text: str) -> int:
    from pytest_fsstack.units import parse_size

    return parse_size(text)


def _memory(text: str) -> int:
    if (size := _size(text)) < 128 << 20:
        raise ValueError(f"must be at least 128M (got {text})")
    return size


def _pages(text: str) -> int:
    page = os.sysconf("SC_PAGE_SIZE")
    if (size := _size(text)) % page:
        raise ValueError(f"must be a multiple of {page // 1024}K, a page (got {text})")
    return size


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise ValueError(f"must be a whole number from 1 on (got {text})")
    return int(text)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"must be a whole number (got {text})") from None


def _positive(text: str, below: float, wanted: str) -> float:
    """A number above zero and below that one. Raises `ValueError`, which says what is wanted."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < below:
        raise ValueError(f"{wanted} (got {text})")
    return number


def _seconds(text: str) -> float:
    return _positive(text, 1e9, "must be a number of seconds above 0")


#: The scenarios in `scenarios/`, by the names that --fsstack-study takes.
STUDIES = (
    *("encryption_overhead", "ssd_encryption", "stacked_encryption", "dmcrypt_block_size", "filesystems"),
    *("hardlink_backup", "power_cut", "bit_rot", "contents", "posix"),
)


def _study(text: str) -> str:
    if "::" not in text:
        return _full_name(text)
    file, _, test = text.partition("::")
    return f"test_{_full_name(file.removeprefix('test_').removesuffix('.py'))}.py::{test}"


def _full_name(text: str) -> str:
    """Return the scenario of that name, or the only one whose name begins with the text or else holds it."""
    import difflib

    matches: list[str] = []
    for matches in (
        [name for name in STUDIES if name == text],
        [name for name in STUDIES if name.startswith(text)],
        [name for name in STUDIES if text in name],
    ):
        if len(matches) == 1:
            return matches[0]
    near = matches or difflib.get_close_matches(text, STUDIES)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(STUDIES)}"
    raise ValueError(f"there is no study {text!r}; {hint}")


def _error_rate(text: str) -> float:
    return _positive(text, 0.5, "an error rate must be between 0 and 0.5, such as 0.05")


def _percentage(text: str) -> float:
    from pytest_fsstack.judging.budget import percentage

    return percentage(text)


def _settling(text: str) -> Any:
    from pytest_fsstack.machine.settling import Settle

    return Settle.parse(text)


def _discarding(text: str) -> Any:
    from pytest_fsstack.judging.conditions import parse

    return parse(text)


def _directory(text: str) -> Path:
    if not os.path.isdir(text):
        raise ValueError(f"there is no directory {text}")
    return Path(text).absolute()


def _new_directory(text: str) -> Path:
    """Read the name of a directory that is made where it is missing."""
    path = Path(text).absolute()
    if os.path.lexists(path) and not os.path.isdir(path):
        raise ValueError(f"{text} is no directory")
    return path


def _existing(text: str) -> Path:
    if not os.path.exists(text):
        raise ValueError(f"there is no file or directory {text}")
    return Path(text).absolute()


def _target(text: str) -> Path:
    path = Path(text).absolute()
    if not os.path.isdir(path.parent):  # Path.is_dir raises for names that are too long
        raise ValueError(f"there is no directory {path.parent}")
    return path


def _label(text: str) -> tuple[str, str]:
    from pytest_fsstack.options.labels import parse

    return parse(text)


# -- the options -------------------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """What there is to know about one option.

    `parse` reads and checks each text that is given for it. `default` is a text too, and shown; without one it is None,
    an empty list or False.
    """

    name: str
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] = _text
    default: str | None = None
    choices: tuple[str, ...] = ()
    #: May be repeated; its value is a list.
    many: bool = False
    #: Takes no value; it is either there or not.
    flag: bool = False
    #: May stand without a value, and then means the first of its choices.
    bare: bool = False
    #: May be in an ini file.
    ini: bool = True
    #: Whether the command that runs one test again repeats it. Outputs and comparisons belong to the whole session.
    again: bool = True
    #: What docs/options.md says beyond the help.
    doc: str = ""

    @property
    def flags(self) -> str:
        """As on the command line: ``--fsstack-size``."""
        return f"--fsstack-{self.name}"

    @property
    def usage(self) -> str:
        """The flag with its value: ``--fsstack-size=SIZE``."""
        shown = "" if self.flag else f"={self.metavar or '|'.join(self.choices)}"
        return f"{self.flags}[{shown}]" if self.bare else f"{self.flags}{shown}"

    @property
    def description(self) -> str:
        """The help and the default."""
        return f"{self.help} (default: {self.default})" if self.default is not None else self.help

    @property
    def ini_name(self) -> str:
        return f"fsstack_{self.name.replace('-', '_')}"

    def read(self, text: str) -> Any:
        """The value that a text stands for. Raises `ValueError`."""
        if self.choices and text not in self.choices:
            hint = f"; write --fsstack-{self.name}={self.choices[0]} before names of tests" if self.bare else ""
            raise ValueError(f"must be {', '.join(self.choices[:-1])} or {self.choices[-1]} (got {text!r}){hint}")
        return self.parse(text)


OPTIONS = (
    Option(
        "device",
        "where stacks start: loop (a sparse file), ram, a block device such as /dev/sdb1 (IT IS OVERWRITTEN), or "
        "dir:/a/directory; repeat it to run on several",
        "DEVICE",
        many=True,
        default="loop",
        doc="A block device that is in use is always refused, and one that holds anything unless `--fsstack-overwrite` "
        "names it. In `dir:/a/directory` nothing is formatted: only stacks that start in a directory can stand there.",
    ),
    Option("size", "size of loop and ram devices", "SIZE", _size, "4G"),
    Option("dir", "directory for loop files and mount points (default: pytest's base temp)", "DIR", _directory),
    Option(
        "overwrite",
        "give a device that holds data over to testing: its contents are lost; must name the device of "
        "--fsstack-device, on the command line itself",
        "DEVICE",
        many=True,
        ini=False,
        again=False,
        doc="It is refused in `addopts` and `PYTEST_ADDOPTS`, which are written once and then forgotten.",
    ),
    Option(
        "discard",
        "discard all of a block device before each stack is built on it; loop and ram are blank each time anyway",
        flag=True,
    ),
    Option(
        "settle",
        "what happens between two stacks: a pause of so many seconds, a discard of all of a block device, or a wait "
        "until it is idle, at most for a minute",
        "SECONDS|discard|idle",
        _settling,
        doc="It is for devices that are still busy with what the last stack has left, and is never a part of what is "
        "timed. `idle` waits until the device has nothing in flight, and until reads, writes, discards and unwritten "
        "memory stay as they are for a second.",
    ),
    Option(
        "scheduler", "the I/O scheduler of the device, such as none or mq-deadline, while a stack stands on it", "NAME"
    ),
    Option(
        "readahead", "the read-ahead of the stack's block devices, such as 128K, while it stands", "SIZE", parse=_pages
    ),
    Option("governor", "the frequency governor of all CPUs, such as performance, during the session", "NAME"),
    Option(
        "stacks",
        "a stack such as 'luks | ext4' or 'name = luks | ext4', instead of those of the tests; repeat it, the first is "
        "the baseline",
        "STACK",
        many=True,
        doc="In an ini it is for the tests that have no marker `fsstack`.",
    ),
    Option(
        "study",
        f"run a scenario that comes with the plugin: {', '.join(STUDIES)}; or one of its tests, by its id; repeat it",
        "NAME",
        _study,
        many=True,
        ini=False,
        again=False,
        doc="It works from any directory. The beginning of a name, or another part of it, is enough if no other "
        "scenario has it: `encryption` is `encryption_overhead`. One test is run again, with the steps that it stands "
        "on, by its id as pytest shows it: "
        "`--fsstack-study='test_filesystems.py::TestFilesystems::test_write_file[xfs]'`.",
    ),
    Option("baseline", "the stack that the others are compared with, by name", "NAME"),
    Option(
        "control",
        "run the baseline a second time in each round, as a stack that is called control, and say so if it differs",
        flag=True,
        doc="If it does, something besides the stacks makes a difference here ([statistics.md](statistics.md)). It has "
        "no budgets, and no tests of its own.",
    ),
    Option(
        "rounds",
        "run exactly N rounds, and judge once (default: up to 80, judged after every eighth)",
        "N",
        _count,
    ),
    Option(
        "discard-rounds",
        "discard a round, for all stacks alike, if the machine was busy: rules such as 'load>2, steal>5%, psi_io>20%, "
        "throttled'",
        "RULES",
        _discarding,
        doc="`load` and `psi_io`, `psi_cpu`, `psi_memory` (the share of one second in which some task waited for it) "
        "are taken before the round, `steal` and `throttled` also during it. Discarded rounds are replaced by later "
        "ones, at most by as many as were planned. They are in the JSON, and are never judged. docs/statistics.md says "
        "why verdicts stay exact.",
    ),
    Option("seed", "replay the order of the stacks of an earlier session", "N", _number, ini=False, again=False),
    Option("alpha", "error rate of a verdict", "P", _error_rate, "0.05"),
    Option(
        "budget",
        "what a stack may cost, such as '30%', 'luks*: 30%', 'luks*: written_bytes 50%' or 'ext4: seconds <= 2.5'; "
        "repeat it, the last that matches wins, over the tests' own",
        "BUDGET",
        many=True,
        doc="On the command line, a pattern that matches no stack of the session is refused. In an ini, which holds "
        "for other sessions too, one is refused if it names no layer and matches no stack of the project. Only a "
        "session that collects all of the project knows that: not if files are named or `--fsstack-stacks` is given.",
    ),
    Option(
        "errors",
        "what the error rate holds for: each budget, or any of the session, whose failures fresh rounds then confirm "
        "(default: session with --fsstack-strict, else budget)",
        choices=("budget", "session"),
    ),
    Option(
        "strict",
        "fail what is inconclusive, instead of skipping it, and verdicts that the run before could change",
        flag=True,
        doc="[statistics.md](statistics.md#carry-over) says when a verdict is doubtful.",
    ),
    Option(
        "exit",
        "the exit code: pytest's, or for `git bisect run` 0 if all budgets are kept, 1 if one is broken and 125 if "
        "that is not known",
        default="pytest",
        choices=("pytest", "bisect"),
        ini=False,
        again=False,
        doc="With `bisect`, whatever else goes wrong is 125: nothing was decided, a stack cannot be built, a test "
        "fails by itself, an option or a conftest is wrong. A signal still gives 128 + n, which ends the bisection. "
        "[bisecting.md](bisecting.md) has recipes.",
    ),
    Option(
        "missing",
        "what becomes of a stack that this machine cannot build",
        default="skip",
        choices=("skip", "fail"),
    ),
    Option(
        "corpus", "a tar archive or a directory for the workloads to use, instead of generated files", "PATH", _existing
    ),
    Option(
        "scale",
        "how big the steps of a scenario are: smoke (seconds, and five rounds), small (minutes; default) or paper (as "
        "published)",
        choices=("smoke", "small", "paper"),
        doc="Sizes that do not fit the device are refused if the scale was given, and skipped otherwise. At `smoke`, "
        "as many rounds run as a verdict takes: five at `--fsstack-alpha=0.05`. `--fsstack-rounds` overrides that.",
    ),
    Option(
        "label",
        "tell this run apart in a history; repeat it",
        "KEY=VALUE",
        _label,
        many=True,
        again=False,
        doc="The labels `commit` and `branch` are taken from git, of pytest's rootdir, else from the environment of "
        "GitHub (also Forgejo and Gitea), GitLab or Jenkins, from which `ci` and `ci_run` come too; `kernel` is the "
        "release of the running one. What is given here wins. They are in the JSON ([results.md](results.md)). Changes "
        "that are not committed are in no label.",
    ),
    Option(
        "compare",
        "compare with an earlier run, whose results --fsstack-json or --fsstack-accept wrote, or with all *.json of a "
        "directory; repeat it",
        "OLD.json",
        _existing,
        many=True,
        ini=False,
        again=False,
        doc="What each stack costs over its reference is compared with what it cost then, one figure a run; "
        "`--fsstack-max-regression` judges it. [over-time.md](over-time.md) has the recipe. A file that cannot be read "
        "or is no result ends the session before anything is measured.",
    ),
    Option(
        "compare-anyway",
        "compare also with runs on a device of another model, at another scale, with another corpus or other work",
        flag=True,
        ini=False,
        again=False,
    ),
    Option(
        "accept",
        "write the results to FILE, for later sessions to compare with, if nothing failed",
        "FILE",
        _target,
        ini=False,
        again=False,
        doc="It is written last, when all has been judged. If anything failed, the file stays as it was.",
    ),
    Option(
        "history",
        "add the results, whether anything failed or not, to the file of this machine in DIR, a line a session",
        "DIR",
        _new_directory,
        ini=False,
        again=False,
        doc="DIR is made if it is missing. Several sessions may add at the same time. One that was interrupted is "
        "added too, and marked. [over-time.md](over-time.md) has more.",
    ),
    Option("json", "write all samples, verdicts and the environment to FILE", "FILE", ini=False, again=False),
    Option(
        "report",
        "write a report: json=FILE, markdown=FILE, html=FILE, csv=FILE or tables=FILE; pictures as SVG: heatmap=FILE, "
        "forest=FILE; or for a store: bencher=FILE, "
        "github-benchmark=FILE, otava=FILE, openmetrics=FILE, lava=FILE, ktap=FILE; repeat it",
        "NAME=FILE",
        many=True,
        ini=False,
        again=False,
        doc="What each store takes is in [results.md](results.md).",
    ),
    Option(
        "junit",
        "the properties of a test in pytest's --junitxml: short (the verdict, the seconds, and the overheads that have "
        "a budget), full (all metrics) or none",
        default="short",
        choices=("short", "full", "none"),
        again=False,
        doc="Choose `none` for a consumer that checks the file by a schema without properties of tests, such as "
        "Jenkins' `junit-10.xsd`.",
    ),
    Option(
        "ci",
        "what the session gives by itself to the CI that it runs in: auto (GitHub's summary and annotations, GitLab's "
        "reports) or off",
        default="auto",
        choices=("auto", "off"),
        again=False,
        doc="[ci.md](ci.md) says what that is.",
    ),
    Option(
        "console",
        "print the results for a machine that reads the console: as LAVA's signals, or as KTAP",
        choices=("lava", "ktap"),
        ini=False,
        again=False,
    ),
    Option(
        "kernel",
        "run the tests in a VM of this kernel: a vmlinuz or bzImage, a build tree, a .deb or .rpm, or `host` for the "
        "running one without a VM; repeat it to compare kernels, the first is the baseline",
        "KERNEL",
        many=True,
    ),
    Option(
        "boots",
        "boot each kernel N times (default: 3 if --fsstack-max-regression judges kernels, else 1)",
        "N",
        _count,
        doc="Boots are the unit of a verdict between kernels, and three of each are the fewest. With one, a verdict is "
        "about these boots only: [kernels.md](kernels.md#how-many-boots) has its error rate.",
    ),
    Option(
        "max-regression",
        "what a test may cost on a kernel more than on the first one, and a stack more than in the runs of "
        "--fsstack-compare, such as 5%",
        "PERCENT",
        _percentage,
        again=False,
    ),
    Option("vm-memory", "memory of a VM", "SIZE", _memory, "2G"),
    Option("vm-cpus", "CPUs of a VM (default: those of the host, at most 4)", "N", _count),
    Option(
        "vm-accel",
        "kvm, tcg (emulation), or auto: KVM if a guest boots on it in time",
        default="auto",
        choices=("auto", "kvm", "tcg"),
    ),
    Option(
        "timeout",
        "seconds that a command of a stack, or a step of building it, may take",
        "SECONDS",
        _seconds,
        "600",
        doc="A command that takes longer is killed, Python code of a layer is interrupted, and the stack is taken "
        "down. It does not limit the tests themselves.",
    ),
    Option("vm-timeout", "seconds of silence after which a VM counts as hung", "SECONDS", _seconds, "3600"),
    Option(
        "doctor",
        "show whether the selected stacks and steps run here, and on each --fsstack-kernel, and how to get what is "
        "missing, and exit; =install installs packages; =all and =install-all do so for all layers and workloads",
        choices=("show", "install", "all", "install-all"),
        bare=True,
        ini=False,
        again=False,
    ),
    Option(
        "dry-run",
        "show what the selected tests would run, without root: for each chain its device, rounds, steps, what is "
        "missing here, the expected time and the commands of each stack, and exit",
        flag=True,
        ini=False,
        again=False,
        doc="Nothing is built, measured or written, and the exit code is 0 whatever is missing. How long a stack takes "
        "is known from the earlier runs that `--fsstack-history` or `--fsstack-compare` name; otherwise it shows how "
        "many runs of stacks there are at least and at most. A block device is looked at as before a session, which "
        "needs root; that it would be refused does not end the dry run. Of kernels it shows how many turns they take.",
    ),
    Option("cleanup", "remove what a killed session left behind, and exit", flag=True, ini=False, again=False),
)

_BY_NAME = {option.name: option for option in OPTIONS}


def named(name: str) -> Option:
    """The option of that name, without ``--fsstack-``."""
    return _BY_NAME[name]


def add_options(parser: pytest.Parser) -> None:
    """Declare every option, and its ini twin if it may be in a file."""
    group = parser.getgroup("fsstack", "storage stacks (fsstack)")
    for option in OPTIONS:
        keywords: dict[str, Any] = {"metavar": option.metavar or f"{{{','.join(option.choices)}}}"}
        if option.flag:
            keywords = {"action": "store_true"}
        elif option.many:
            keywords["action"] = "append"
        elif option.bare:
            keywords |= {"nargs": "?", "const": option.choices[0]}
        # argparse reads %(default)s and the like in a help text.
        group.addoption(option.flags, dest=option.ini_name, help=option.description.replace("%", "%%"), **keywords)
        if option.ini:
            kind: Any = "bool" if option.flag else "linelist" if option.many else "string"
            parser.addini(option.ini_name, f"default of {option.flags}", type=kind, default=None)


# -- one test again ----------------------------------------------------------------------------------------------------

#: Options of pytest that the figures of a test depend on: plugins, ini files and where loop files lie.
_OF_PYTEST = {
    "-p": "plugins",
    "-o": "override_ini",
    "-c": "inifilename",
    "--rootdir": "rootdir",
    "--confcutdir": "confcutdir",
    "--basetemp": "basetemp",
}


class CommandLine:
    """A reader of command lines that knows the options of all plugins."""

    def __init__(self, parser: pytest.Parser) -> None:
        self._parser = parser

    @classmethod
    def of(cls, config: pytest.Config) -> CommandLine:
        reader = config.pluginmanager.get_plugin("fsstack-command-line")
        assert isinstance(reader, CommandLine)
        return reader

    def read(self, words: Iterable[str | os.PathLike[str]]) -> dict[str, Any]:
        """Return what these words alone give for each option, whatever an ini or ``PYTEST_ADDOPTS`` says."""
        return vars(self._parser.parse_known_args(list(words)))

    def again(self, test: str, words: Iterable[str | os.PathLike[str]], seed: int) -> str:
        """Return the command that runs one test alone, in the same order of stacks, with the options it depends on.

        `test` is a node id or an option that names it. `words` are those of the session.
        """
        import shlex

        values, defaults = self.read(words), self.read([])
        flags = _OF_PYTEST | {option.flags: option.ini_name for option in OPTIONS if option.again}
        command = ["pytest", test]
        for flag, name in flags.items():
            if values[name] != defaults[name]:
                command += _as_words(flag, values[name])
        return shlex.join([*command, f"{named('seed').flags}={seed}"])


def _as_words(flag: str, value: Any) -> list[str]:
    """Return an option with its value, or with each of its values."""
    if value is True:
        return [flag]
    texts = map(str, value if isinstance(value, list) else [value])
    return [word for text in texts for word in ([f"{flag}={text}"] if flag.startswith("--") else [flag, text])]


# -- what was given ----------------------------------------------------------------------------------------------------


class Given(NamedTuple):
    """The texts that one source gives for an option, and what that source is called in a message."""

    where: str
    texts: tuple[str, ...]


def _on_command_line(config: pytest.Config, option: Option) -> Given | None:
    found = config.getoption(option.ini_name)
    if found is None or found is False:
        return None
    return Given(option.flags, tuple(map(str, found)) if option.many else (str(found),))


def _in_ini(config: pytest.Config, option: Option) -> Given | None:
    """What the ini says. Raises `pytest.UsageError`."""
    if not option.ini:
        return None
    where = _place_of(config, option.ini_name)
    try:
        found = config.getini(option.ini_name)
    except (ValueError, TypeError, pytest.UsageError) as error:
        # pytest's own message does not always say which option is meant.
        hint = "; write true or false" if option.flag else ""
        raise pytest.UsageError(f"{where}: {error}{hint}") from None
    if found is None or found in ("", [], False):
        return None
    return Given(where, tuple(map(str, found)) if option.many else (str(found),))


def _place_of(config: pytest.Config, ini_name: str) -> str:
    """An ini option as a message names it: with the file, or with ``-o`` if it came from there."""
    if any(word.partition("=")[0] == ini_name for word in config.getoption("override_ini") or []):
        return f"-o {ini_name}"
    return f"{ini_name} in {os.path.relpath(config.inipath)}" if config.inipath else ini_name


def given_for(config: pytest.Config, name: str) -> Given | None:
    """What was given for an option: on the command line, else in the ini. Raises `pytest.UsageError`."""
    option = _BY_NAME[name]
    return _on_command_line(config, option) or _in_ini(config, option)


def on_command_line(config: pytest.Config, name: str) -> Given | None:
    """What the command line gives for an option, whatever the ini says."""
    return _on_command_line(config, _BY_NAME[name])


def in_ini(config: pytest.Config, name: str) -> Given | None:
    """What the ini gives for an option, whatever the command line says. Raises `pytest.UsageError`."""
    return _in_ini(config, _BY_NAME[name])


@contextlib.contextmanager
def blaming(where: str | None) -> Iterator[None]:
    """Turn a `ValueError` into a `pytest.UsageError` that begins with where the wrong value stands."""
    try:
        yield
    except ValueError as error:
        raise pytest.UsageError(f"{where}: {error}" if where else str(error)) from None


def blaming_option(config: pytest.Config, name: str) -> contextlib.AbstractContextManager[None]:
    """As `blaming`, with the place where an option was given; the option itself if it was not."""
    source = given_for(config, name)
    return blaming(source.where if source else _BY_NAME[name].flags)


def value(config: pytest.Config, name: str) -> Any:
    """An option's value: from the command line, else the ini, else its default. Raises `pytest.UsageError`."""
    option, found = _BY_NAME[name], given_for(config, name)
    if option.flag:
        return found is not None
    if found is None:
        found = Given("", () if option.default is None else (option.default,))
    with blaming(found.where):
        values = [option.read(text) for text in found.texts]
    if option.many:
        return values
    return values[0] if values else None


def boots(config: pytest.Config) -> int:
    """Return how often each kernel is booted. Raises `pytest.UsageError`."""
    between = len(value(config, "kernel")) > 1 and value(config, "max-regression") is not None
    return int(value(config, "boots") or (3 if between else 1))


def any_given(config: pytest.Config) -> bool:
    """Whether anything was said about fsstack, on the command line or in the ini. Raises `pytest.UsageError`."""
    unknown = _unknown_in_ini(config)
    if unknown is not None:
        raise pytest.UsageError(unknown)
    return any(given_for(config, option.name) for option in OPTIONS)


def only_looks(config: pytest.Config) -> bool:
    """Whether the session only looks at what is selected: nothing is built, measured or written."""
    return bool(config.getoption("collectonly") or value(config, "doctor") or value(config, "dry-run"))


def _unknown_in_ini(config: pytest.Config) -> str | None:
    """A message about the first name in the ini that would be one of ours, if there were such an option."""
    import warnings

    with warnings.catch_warnings():
        # pytest 9.2 deprecates it, and offers nothing else that has the names that no plugin knows.
        warnings.simplefilter("ignore")
        names = list(getattr(config, "inicfg", ()))
    for name in names:
        if name.replace("-", "_").startswith("fsstack_"):
            try:
                config.getini(name)
            except ValueError:
                return f"{_place_of(config, name)}: {_near(name)}"
            except pytest.UsageError:
                continue  # a value that is wrong, which `given` says better
    return None


def _near(name: str) -> str:
    import difflib

    wanted = name.replace("-", "_")
    if any(option.ini_name == wanted and not option.ini for option in OPTIONS):
        return f"--{wanted.replace('_', '-')} can only be given on the command line"
    names = [option.ini_name for option in OPTIONS if option.ini]
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
    return f"there is no such option; {hint}"


# -- in a worker -------------------------------------------------------------------------------------------------------


#: In the environment of a worker that stands in for one that went down: why it did.
GUEST_DOWN = "FSSTACK_GUEST_DOWN"
#: In the environment of a guest that the doctor asks what can be built there: its kernel.
PROBED = "FSSTACK_PROBED"


#: In the input of a worker of pytest-xdist: which devices the session that started it means by their names.
DEVICES = "fsstack_devices"
#: Under which a worker of pytest-xdist finds the execnet channel that closes when its controller is gone.
CONTROLLER = "fsstack_controller"


def worker_input(config: pytest.Config) -> dict[str, Any]:
    """In a worker of a kernel, what the controller says of it: kernel, boot, in_vm, seed; else nothing.

    In a guest that the doctor asks it is kernel and in_vm.
    """
    if kernel := os.environ.get(PROBED):
        return {"kernel": kernel, "in_vm": True}
    found: dict[str, Any] = getattr(config, "workerinput", {}).get("fsstack", {})
    return found
