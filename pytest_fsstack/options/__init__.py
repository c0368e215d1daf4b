"""Options of the command line and the ini. Each is one record, from which argparse, the ini, checks and docs are made.

A pytest run that mentions none of them does not import this module. To add an option, add a record to `OPTIONS`, and an
attribute to `Settings`, through which the other modules read it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_fsstack.hooks import PARSER
from pytest_fsstack.units import parse_size

# -- what a value may be -----------------------------------------------------------------------------------------------
#
# Each function parses a text, and raises `ValueError` with the requirement.


def _lazy_parser(module: str, function: str) -> Callable[[str], Any]:
    """Return a parser that imports a function of the package on first use."""

    def read(text: str) -> Any:
        import importlib
        import operator

        return operator.attrgetter(function)(importlib.import_module(f"pytest_fsstack.{module}"))(text)

    return read


def _at_least(least: str) -> Callable[[str], int]:
    """Return a parser of sizes that refuses smaller ones."""

    def parse(text: str) -> int:
        if (size := parse_size(text)) < parse_size(least):
            raise ValueError(f"must be at least {least} (got {text})")
        return size

    return parse


def _pages(text: str) -> int:
    page = os.sysconf("SC_PAGE_SIZE")
    if (size := parse_size(text)) % page:
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


def _positive(text: str, below: float, requirement: str) -> float:
    """Parse a number above zero and below another. Raises `ValueError` with the text `requirement`."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < below:
        raise ValueError(f"{requirement} (got {text})")
    return number


def _seconds(text: str) -> float:
    return _positive(text, 1e9, "must be a number of seconds above 0")


#: The scenarios in `scenarios/`, by their names for --fsstack-scenario.
SCENARIOS = (
    *("encryption_overhead", "ssd_encryption", "stacked_encryption", "dmcrypt_block_size", "filesystems"),
    *("hardlink_backup", "images", "databases", "degraded", "power_cut", "bit_rot", "contents", "posix", "xfstests"),
)


def _scenario(text: str) -> str:
    if "::" not in text:
        return _full_name(text)
    file, _, test = text.partition("::")
    return f"test_{_full_name(file.removeprefix('test_').removesuffix('.py'))}.py::{test}"


def _full_name(text: str) -> str:
    """Return the scenario with this name, or the only one that begins with the text or else contains it."""
    import difflib

    matches: list[str] = []
    for matches in (
        [name for name in SCENARIOS if name == text],
        [name for name in SCENARIOS if name.startswith(text)],
        [name for name in SCENARIOS if text in name],
    ):
        if len(matches) == 1:
            return matches[0]
    near = matches or difflib.get_close_matches(text, SCENARIOS)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(SCENARIOS)}"
    raise ValueError(f"there is no scenario {text!r}; {hint}")


def _error_rate(text: str) -> float:
    return _positive(text, 0.5, "an error rate must be between 0 and 0.5, such as 0.05")


def _directory(text: str) -> Path:
    if not os.path.isdir(text):
        raise ValueError(f"the directory {text} does not exist")
    return Path(text).absolute()


def _new_directory(text: str) -> Path:
    """Parse the name of a directory, which is created if it does not exist."""
    path = Path(text).absolute()
    if os.path.lexists(path) and not os.path.isdir(path):
        raise ValueError(f"{text} is not a directory")
    return path


def _existing(text: str) -> Path:
    if not os.path.exists(text):
        raise ValueError(f"{text} does not exist")
    return Path(text).absolute()


def target(text: str) -> Path:
    """Parse the name of a file in a directory that exists."""
    path = Path(text).absolute()
    if not os.path.isdir(path.parent):  # Path.is_dir raises for names that are too long
        raise ValueError(f"the directory {path.parent} does not exist")
    return path


# -- the options -------------------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """The record of one option.

    `parse` converts and checks a text. `default` is a text too, and shown in the help. Without a default, the value is
    None, an empty list or False.
    """

    name: str
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] = str
    default: str | None = None
    choices: tuple[str, ...] = ()
    #: Whether the option can be repeated. Its value is then a list.
    many: bool = False
    #: Whether the option takes no value.
    flag: bool = False
    #: Whether the option can be used without a value, which selects its first choice.
    bare: bool = False
    #: Whether the option can be in an ini file.
    ini: bool = True
    #: Whether the command to run one test again repeats it. False for outputs and comparisons of a whole session.
    repeated: bool = True
    #: Text in docs/options.md in addition to the help.
    doc: str = ""

    @property
    def flags(self) -> str:
        """Return the option on the command line: ``--fsstack-size``."""
        return f"--fsstack-{self.name}"

    @property
    def usage(self) -> str:
        """Return the flag with its value: ``--fsstack-size=SIZE``."""
        value = "" if self.flag else f"={self.metavar or '|'.join(self.choices)}"
        return f"{self.flags}[{value}]" if self.bare else f"{self.flags}{value}"

    @property
    def description(self) -> str:
        """Return the help and the default."""
        return f"{self.help} (default: {self.default})" if self.default is not None else self.help

    @property
    def ini_name(self) -> str:
        return f"fsstack_{self.name.replace('-', '_')}"

    def read(self, text: str) -> Any:
        """Parse a text. Raises `ValueError`."""
        if self.choices and text not in self.choices:
            hint = f"; write --fsstack-{self.name}={self.choices[0]} before names of tests" if self.bare else ""
            raise ValueError(f"must be {', '.join(self.choices[:-1])} or {self.choices[-1]} (got {text!r}){hint}")
        value = self.parse(text)
        if not text:
            raise ValueError("there is no value, as with a variable that is not set")
        return value


OPTIONS = (
    Option(
        "device",
        "where stacks start: loop (a sparse file), ram, a block device such as /dev/sdb1 (IT IS OVERWRITTEN), or "
        "dir:/a/directory. Repeat it to run on each of several. /dev/sdb+/dev/sdc is a group, for stacks of several",
        "DEVICE",
        many=True,
        default="loop",
        doc="A block device that is in use is always refused. One that holds data is refused unless "
        "`--fsstack-overwrite` names it. In `dir:/a/directory` nothing is formatted, so only stacks that start in a "
        "directory can stand there. A stack of N devices takes the first N of a group. Repeated devices are one group "
        "if every stack of a test needs exactly as many. Of loop and ram there are as many as a stack needs.",
    ),
    Option("size", "size of loop and ram devices", "SIZE", _at_least("64K"), "4G"),
    Option("dir", "directory for loop files and mount points (default: pytest's base temp)", "DIR", _directory),
    Option(
        "overwrite",
        "allow testing on a device that holds data, whose contents are lost. Must name the device of "
        "--fsstack-device, on the command line itself",
        "DEVICE",
        many=True,
        ini=False,
        repeated=False,
        doc="It is refused in `addopts` and `PYTEST_ADDOPTS`, which people write once and forget.",
    ),
    Option(
        "wait",
        "wait that long for a device that another session holds, and name that session (default: refuse it at once)",
        "SECONDS",
        _seconds,
        repeated=False,
    ),
    Option(
        "discard",
        "discard all of a block device before each stack is built on it. loop and ram are blank each time anyway",
        flag=True,
    ),
    Option(
        "settle",
        "between two stacks, pause for some seconds, discard all of a block device, or wait until it is idle, at most "
        "for a minute",
        "SECONDS|discard|idle",
        _lazy_parser("measuring.settling", "Settle.parse"),
        doc="Use it for devices that are still busy with the writes of the last stack. It is never timed. `idle` waits "
        "until the device has nothing in flight, and reads, writes, discards and unwritten memory stay the same for a "
        "second.",
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
        "a stack such as 'luks | ext4' or 'name = luks | ext4', instead of those of the tests. Repeat it. The first is "
        "the baseline",
        "STACK",
        many=True,
        doc="In an ini it applies to tests without the mark `fsstack`. A stack may end with "
        "[settings of the machine](settings.md): `ext4 @ queue/scheduler=bfq`.",
    ),
    Option(
        "scenario",
        f"run a scenario that comes with the plugin: {', '.join(SCENARIOS)}, or one of its tests, by its id. Repeat it "
        "to run several",
        "NAME",
        _scenario,
        many=True,
        ini=False,
        repeated=False,
        doc="It works from any directory. A part of a name is enough if only one scenario matches: `encryption` is "
        "`encryption_overhead`. One test runs again, with the steps before it, by its id as pytest shows it: "
        "`--fsstack-scenario='test_filesystems.py::TestFilesystems::test_write_file[xfs]'`.",
    ),
    Option(
        "xfstests",
        "a checkout of xfstests in which `make` ran, for the scenario xfstests",
        "DIR",
        _directory,
        doc="[truth.md](truth.md#xfstests) shows how.",
    ),
    Option(
        "command",
        "measure a command in the directory of each stack, as the step NAME (default: the command's own name). Repeat "
        "it for further steps on the same stack",
        "[NAME=]COMMAND",
        _lazy_parser("options.commands", "parse"),
        many=True,
        doc="`{}` is the path of the stack. [bench.md](bench.md) shows how.",
    ),
    Option(
        "setup",
        "a command before the first --fsstack-command on each stack, outside of the time. Repeat it",
        "COMMAND",
        many=True,
    ),
    Option(
        "check",
        "a command after a step and a remount, outside of the time, whose exit code must be 0. Without a name it "
        "follows each step. Repeat it",
        "[NAME=]COMMAND",
        many=True,
    ),
    Option("shell", "let sh run the commands of --fsstack-command, --fsstack-setup and --fsstack-check", flag=True),
    Option(
        "fio",
        "files of fio jobs to collect among the tests, by name or pattern, such as '*.fio' (default: those named on "
        "the command line that end in .fio)",
        "PATTERN",
        many=True,
    ),
    Option("baseline", "the stack that the others are compared with, by name", "NAME"),
    Option(
        "control",
        "run the baseline a second time in each round, as a stack called control, and report a difference",
        flag=True,
        doc="If there is one, another influence than the stacks makes a difference here "
        "([statistics.md](statistics.md)). The control has no budgets and no tests of its own.",
    ),
    Option(
        "rounds",
        "run N rounds, and judge once (default: judged after round 6 and every eighth from there, up to 78)",
        "N",
        _count,
    ),
    Option(
        "drop-rounds",
        "discard a round of all stacks if the machine was busy, by rules such as 'load>2, steal>5%, psi_io>20%, "
        "throttled'",
        "RULES",
        _lazy_parser("judging.conditions", "parse"),
        doc="`load` and `psi_io`, `psi_cpu`, `psi_memory` (the share of one second in which some task waited for it) "
        "are measured before the round, `steal` and `throttled` also during it. Later rounds replace discarded ones, "
        "at most as many as were planned. Discarded rounds are in the JSON, and are never judged. Verdicts stay exact "
        "([statistics.md](statistics.md)).",
    ),
    Option(
        "weights",
        "weigh steps in the cost over all steps, such as 'stream_write=3, delete=1'",
        "STEP=N,...",
        _lazy_parser("judging.overall", "parse_weights"),
        repeated=False,
        doc="Reports order stacks by the geometric mean of their costs in all steps. A step without a weight weighs 1, "
        "and 0 leaves a step out. No verdict depends on it. `fsstack report RUN.json --weights=...` weighs afterwards.",
    ),
    Option("seed", "replay the order of the stacks of an earlier session", "N", _number, ini=False, repeated=False),
    Option("alpha", "error rate of a verdict", "P", _error_rate, "0.05"),
    Option(
        "budget",
        "the highest accepted cost of a stack, such as '30%', 'luks*: 30%', 'luks*: written_bytes 50%' or "
        "'ext4: seconds <= 2.5'. Repeat it. The last match wins, also over the budgets of the tests",
        "BUDGET",
        many=True,
        doc="On the command line, a budget that applies to no stack of the session is refused, such as an overhead for "
        "the baseline. An ini applies to other sessions too, so there a pattern is refused only if it names no layer "
        "and matches no stack of the project. Only a session that collects the whole project can check that: "
        "without names of files and `--fsstack-stacks`.",
    ),
    Option(
        "error-rate-per",
        "the error rate is that of each budget, or of all budgets of the session together. Fresh rounds then confirm "
        "failures (default: session with --fsstack-strict, else budget)",
        choices=("budget", "session"),
    ),
    Option(
        "strict",
        "fail inconclusive tests instead of skipping them, fail verdicts that the previous stack could change, and "
        "fail the session if a budget of a selected test was not judged",
        flag=True,
        doc="A budget is not judged if its test is skipped, be it because the machine lacks something, or fails as "
        "expected before its last measurement. Such a test fails, and its error says how to allow the reason with "
        "`--fsstack-allow-unjudged`. A budget is not judged either if its module skips itself, if `--fsstack-stacks` "
        "leaves it no stack, if the ini names a stack or a layer that neither exists nor is collected, or with "
        "`--benchmark-disable` and `--setup-only`. Then the session fails. A deselected test (`-k`, `-m`, "
        "`--deselect`) is not selected, so its budgets do not count. [statistics.md](statistics.md#carry-over) "
        "defines doubtful verdicts. With `--fsstack-compare`, a limit that would leave most unchanged runs undecided "
        "is refused before the first round.",
    ),
    Option(
        "allow-unjudged",
        "let a budget stay without a verdict under --fsstack-strict, if its test's id, its line in the ini or the "
        "reason matches a pattern such as '*needs kernel 6.5*'. Repeat it",
        "PATTERN",
        many=True,
        doc="The reason is the one that pytest shows for the skipped test, or an option such as `--benchmark-disable`. "
        "Without such an option, at least one budget must still be judged.",
    ),
    Option(
        "judge-emulated",
        "judge budgets on time also on emulated CPUs, such as in a VM without KVM",
        flag=True,
        doc="An emulated CPU shows function, not speed. So costs in time are not in the headline there, and budgets on "
        "times and rates are *not judged*: the test is skipped with this reason, or fails with `--fsstack-strict`. "
        "Budgets on bytes and counts are judged. [kernels.md](kernels.md#emulated-guests) has an example.",
    ),
    Option(
        "exit",
        "the exit code: pytest's, or for `git bisect run` 0 if all budgets are kept, 1 if one is broken and 125 if "
        "unknown",
        default="pytest",
        choices=("pytest", "bisect"),
        ini=False,
        repeated=False,
        doc="With `bisect`, all other problems are 125: nothing was decided, a stack cannot be built, a test fails by "
        "itself, an option or a conftest is wrong. A signal still gives 128 + n, which ends the bisection. "
        "[bisecting.md](bisecting.md) has recipes.",
    ),
    Option(
        "if-unavailable",
        "skip or fail stacks that this machine cannot build",
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
        doc="Tests whose sizes do not fit the device are skipped. If none fits the scale that you gave, nothing runs. "
        "`smoke` runs the fewest rounds for a verdict: five at `--fsstack-alpha=0.05`. `--fsstack-rounds` overrides "
        "that.",
    ),
    Option(
        "label",
        "a label of this run in results and histories. Repeat it",
        "KEY=VALUE",
        _lazy_parser("options.labels", "parse"),
        many=True,
        repeated=False,
        doc="The labels `commit` and `branch` come from git in pytest's rootdir, otherwise from the environment of "
        "GitHub (also Forgejo and Gitea), GitLab or Jenkins, as do `ci` and `ci_run`. `kernel` is the release of the "
        "running kernel. Labels of this option override these. All are in the JSON ([results.md](results.md)). No "
        "label shows uncommitted changes.",
    ),
    Option(
        "compare",
        "compare with an earlier run (a file of --fsstack-json or --fsstack-save-reference) or with all *.json of a "
        "directory. Repeat it",
        "OLD.json",
        _existing,
        many=True,
        ini=False,
        repeated=False,
        doc="The overhead of each stack over its reference is compared with its earlier overheads, one figure a run. "
        "`--fsstack-max-regression` judges it. [over-time.md](over-time.md) has the recipe. An unreadable file, or one "
        "without results, ends the session before the first round.",
    ),
    Option(
        "compare-anyway",
        "compare also with runs on a device of another model, at another scale, with another corpus or other work",
        flag=True,
        ini=False,
        repeated=False,
    ),
    Option(
        "save-reference",
        "write the results to FILE, for later sessions to compare with, if nothing failed",
        "FILE",
        target,
        ini=False,
        repeated=False,
        doc="It is written last, after all verdicts. If a test failed, the file does not change.",
    ),
    Option(
        "history",
        "append the results, also of failed tests, to the file of this machine in DIR, a line a session",
        "DIR",
        _new_directory,
        ini=False,
        repeated=False,
        doc="DIR is created if it is missing. Several sessions may append at the same time. An interrupted session is "
        "appended too, and marked ([over-time.md](over-time.md)).",
    ),
    Option(
        "log",
        "append rounds to FILE when they end, so that a killed session or machine loses only those that were running",
        "FILE",
        target,
        ini=False,
        repeated=False,
        doc="FILE is replaced when the first round ends. It is written to the disk after each round. `fsstack report`, "
        "`compare` and `pool` read it like a file of `--fsstack-json` ([results.md](results.md#the-log)).",
    ),
    Option(
        "json", "write all samples, verdicts and the environment to FILE", "FILE", target, ini=False, repeated=False
    ),
    Option(
        "report",
        "write a report: json=FILE, markdown=FILE, html=FILE, csv=FILE, tables=FILE, pictures as SVG (heatmap=FILE, "
        "forest=FILE), or the input of a store (bencher=FILE, github-benchmark=FILE, otava=FILE, openmetrics=FILE, "
        "lava=FILE, ktap=FILE). Repeat it",
        "NAME=FILE",
        many=True,
        ini=False,
        repeated=False,
        doc="[results.md](results.md#for-stores-of-results) describes the stores.",
    ),
    Option(
        "counterexamples",
        "write a script for each finding of the scenario contents to DIR, which is created if it does not exist",
        "DIR",
        _new_directory,
        ini=False,
        repeated=False,
        doc="A script makes the calls that lead to the finding, without this package. [truth.md](truth.md#each-call) "
        "shows how to run it.",
    ),
    Option(
        "junit",
        "the properties of a test in pytest's --junitxml: short (the verdict, the seconds, and the overheads that have "
        "a budget), full (all metrics) or none",
        default="short",
        choices=("short", "full", "none"),
        repeated=False,
        doc="Choose `none` for consumers that validate the file by a schema without properties of tests, such as "
        "Jenkins' `junit-10.xsd`.",
    ),
    Option(
        "ci",
        "reports for the CI system that runs the session: auto (GitHub's summary and annotations, GitLab's reports) "
        "or off",
        default="auto",
        choices=("auto", "off"),
        repeated=False,
        doc="[ci.md](ci.md#reports-without-an-option) lists them.",
    ),
    Option(
        "console",
        "print the results for a machine that reads the console: as LAVA's signals, or as KTAP",
        choices=("lava", "ktap"),
        ini=False,
        repeated=False,
    ),
    Option(
        "kernel",
        "run the tests in a VM of this kernel: a vmlinuz or bzImage, a build tree, a .deb or .rpm, or `host` for the "
        "running one without a VM. Repeat it to compare kernels. The first is the baseline",
        "KERNEL",
        many=True,
        doc="`NAME = KERNEL @ WORD, ...` gives it a name and [words of its command line](settings.md).",
    ),
    Option(
        "boots",
        "boot each kernel N times (default: 3 if --fsstack-max-regression judges kernels, else 1)",
        "N",
        _count,
        doc="Boots are the unit of a verdict between kernels, with at least three of each. Fewer give figures without "
        "a verdict. The running kernel has one boot. [kernels.md](kernels.md#how-many-boots) has the reasons.",
    ),
    Option(
        "judge-one-boot",
        "give verdicts between kernels by one boot of each. They hold for these boots only",
        flag=True,
        doc="[kernels.md](kernels.md#how-many-boots) has their error rates.",
    ),
    Option(
        "max-regression",
        "fail tests that cost more than this above the first kernel, and stacks above the runs of --fsstack-compare, "
        "such as 5%",
        "PERCENT",
        _lazy_parser("options.budgets", "percentage"),
        repeated=False,
    ),
    Option("vm-memory", "memory of a VM", "SIZE", _at_least("128M"), "2G"),
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
        doc="A longer command is killed, Python code of a layer is interrupted, and the stack is taken down. It does "
        "not limit the tests themselves.",
    ),
    Option("vm-timeout", "seconds of silence after which a VM counts as hung", "SECONDS", _seconds, "3600"),
    Option(
        "doctor",
        "check whether the selected stacks and steps can run here and on each --fsstack-kernel, show how to get "
        "missing parts, and exit. =install installs packages. =all and =install-all cover all layers and workloads",
        choices=("show", "install", "all", "install-all"),
        bare=True,
        ini=False,
        repeated=False,
    ),
    Option(
        "dry-run",
        "show, without root, the device, rounds, steps, missing parts, expected time and commands of each selected "
        "chain, and exit",
        flag=True,
        ini=False,
        repeated=False,
        doc="Nothing is built, measured or written, and the exit code is 0 even if parts are missing. The time comes "
        "from the earlier runs of `--fsstack-history` or `--fsstack-compare`. Without them, it shows the least and the "
        "largest number of runs of stacks. A block device is checked as before a session, which needs root. A device "
        "that would be refused does not end the dry run. For kernels it shows the number of turns.",
    ),
    Option("cleanup", "clean up after a killed session, and exit", flag=True, ini=False, repeated=False),
)

_BY_NAME = {option.name: option for option in OPTIONS}


def named(name: str) -> Option:
    """Return an option by its name without ``--fsstack-``."""
    return _BY_NAME[name]


def declare(config: pytest.Config) -> None:
    """Declare every option and its ini twin, and register the parts of this package. A second call does nothing."""
    if not config.pluginmanager.hasplugin("fsstack-built-in"):
        from pytest_fsstack.extensions import attach
        from pytest_fsstack.options.built_in import BROKEN, BuiltIn

        _add_options(config.stash[PARSER])
        # If a test was the first to need them, pytest has parsed the command line, and not every version sets defaults.
        for option in OPTIONS:
            vars(config.option).setdefault(option.ini_name, False if option.flag else None)
        config.pluginmanager.register(BuiltIn(), "fsstack-built-in")
        register = config.pluginmanager.register
        config.stash[BROKEN] = list(attach("fsstack", lambda name, plugin: register(plugin, f"fsstack-{name}")))


def _add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("fsstack", "storage stacks (fsstack)")
    for option in OPTIONS:
        keywords: dict[str, Any] = {"metavar": option.metavar or f"{{{','.join(option.choices)}}}"}
        if option.flag:
            keywords = {"action": "store_true"}
        elif option.many:
            keywords["action"] = "append"
        elif option.bare:
            keywords |= {"nargs": "?", "const": option.choices[0]}
        # argparse expands %(default)s and the like in help texts.
        group.addoption(option.flags, dest=option.ini_name, help=option.description.replace("%", "%%"), **keywords)
        if option.ini:
            _add_ini(parser, option, "bool" if option.flag else "linelist" if option.many else "string")


def _add_ini(parser: pytest.Parser, option: Option, kind: Any) -> None:
    parser.addini(option.ini_name, f"default of {option.flags}", type=kind, default=None)


# -- one test again ----------------------------------------------------------------------------------------------------

#: Options of pytest that affect the figures of a test: plugins, ini files, and the place of loop files.
_PYTEST_OPTIONS = {
    "-p": "plugins",
    "-o": "override_ini",
    "-c": "inifilename",
    "--rootdir": "rootdir",
    "--confcutdir": "confcutdir",
    "--basetemp": "basetemp",
}


def read(parser: pytest.Parser, words: Iterable[str | os.PathLike[str]]) -> dict[str, Any]:
    """Return the value that these words alone give each option, without ini and ``PYTEST_ADDOPTS``."""
    return vars(parser.parse_known_args(list(words)))


def rerun_command(parser: pytest.Parser, test: str, words: Iterable[str | os.PathLike[str]], seed: int) -> str:
    """Return the command that runs one test alone, with the same order of stacks and the relevant options.

    `test` is a node id, or an option that selects the test. `words` are those of the session.
    """
    import shlex

    values, defaults = read(parser, words), read(parser, [])
    flags = _PYTEST_OPTIONS | {option.flags: option.ini_name for option in OPTIONS if option.repeated}
    command = ["pytest", test]
    for flag, name in flags.items():
        if values[name] != defaults[name]:
            command += _as_words(flag, values[name])
    return shlex.join([*command, f"--fsstack-seed={seed}"])


def _as_words(flag: str, value: Any) -> list[str]:
    """Format an option with its value, or once for each of its values."""
    if value is True:
        return [flag]
    texts = map(str, value if isinstance(value, list) else [value])
    return [word for text in texts for word in ([f"{flag}={text}"] if flag.startswith("--") else [flag, text])]


# -- what was given ----------------------------------------------------------------------------------------------------


class OptionSource(NamedTuple):
    """The texts of an option from one source, and the name of the source for messages."""

    where: str
    texts: tuple[str, ...]


def on_command_line(config: pytest.Config, name: str) -> OptionSource | None:
    """Return an option's texts on the command line."""
    option = _BY_NAME[name]
    content = config.getoption(option.ini_name)
    if content is None or content is False:
        return None
    return OptionSource(option.flags, tuple(map(str, content)) if option.many else (str(content),))


def is_in_this_command(config: pytest.Config, name: str) -> bool:
    """Whether the user has typed an option in this command, and not in ``addopts`` for many."""
    words = map(str, config.invocation_params.args)
    return any(word.partition("=")[0] == f"--fsstack-{name}" for word in words)


def in_ini(config: pytest.Config, name: str) -> OptionSource | None:
    """Return an option's texts in the ini. Raises `pytest.UsageError`."""
    option = _BY_NAME[name]
    if not option.ini:
        return None
    where = _place_of(config, option.ini_name)
    try:
        content = _content_in_ini(config, option)
    except (ValueError, TypeError, pytest.UsageError) as error:
        # pytest names the option and the file differently from version to version.
        reason = str(error).rpartition(f"config option '{option.ini_name}' ")[2]
        hint = "true or false" if option.flag else "a list of texts" if option.many else "a text or a number"
        raise pytest.UsageError(f"{where}: {reason}; write {hint}") from None
    if isinstance(content, list) and not option.many:
        raise pytest.UsageError(f"{where}: it takes one value (got {content})")
    if content is None or content is False or content in ("", []):
        return None
    return OptionSource(where, tuple(map(str, content)) if option.many else (str(content),))


def _content_in_ini(config: pytest.Config, option: Option) -> Any:
    """Return the value of an ini option, None if it is not set. Raises what `getini` raises for a wrong type."""
    try:
        return config.getini(option.ini_name)
    except (TypeError, pytest.UsageError):
        if option.flag or option.many:
            raise
        # A number in TOML, which pytest reads only for options that are declared as numbers.
        _add_ini(config.stash[PARSER], option, "float")
        return config.getini(option.ini_name)


def _place_of(config: pytest.Config, ini_name: str) -> str:
    """Return the origin of an ini option for messages: the file, or ``-o``."""
    if any(word.partition("=")[0] == ini_name for word in config.getoption("override_ini") or []):
        return f"-o {ini_name}"
    return (
        f"{ini_name} in {os.path.relpath(config.inipath, config.invocation_params.dir)}" if config.inipath else ini_name
    )


def given_for(config: pytest.Config, name: str) -> OptionSource | None:
    """Return an option's texts on the command line, or else in the ini. Raises `pytest.UsageError`."""
    return on_command_line(config, name) or in_ini(config, name)


@contextlib.contextmanager
def blaming(where: str) -> Iterator[None]:
    """Turn a `ValueError` into a `pytest.UsageError` that begins with the origin of the wrong value."""
    try:
        yield
    except ValueError as error:
        raise pytest.UsageError(f"{where}: {error}") from None


def any_given(config: pytest.Config) -> bool:
    """Whether the command line or the ini sets an option of fsstack, even one that does not exist.

    Raises `pytest.UsageError` for one that does not exist on the command line.
    """
    if unknown := _unknown_in_arguments(config):
        raise pytest.UsageError(unknown)
    return bool(unknown_in_ini(config)) or any(given_for(config, option.name) for option in OPTIONS)


def runs_once_by(config: pytest.Config) -> str:
    """Return the option with which each stack runs once, and nothing is judged. Empty without one."""
    flags = {"benchmark_disable": "--benchmark-disable", "setuponly": "--setup-only"}
    return next((flag for name, flag in flags.items() if config.getoption(name, False)), "")


#: The name of the plugin that shortens the output of a session.
BRIEF = "fsstack-brief"


def is_brief(config: pytest.Config) -> bool:
    """Whether the output is short, as in ``fsstack bench``."""
    return config.pluginmanager.hasplugin(BRIEF)


def unknown_in_ini(config: pytest.Config) -> str | None:
    """Return a message about the first unknown ini option that begins with ``fsstack_``."""
    import warnings

    with warnings.catch_warnings():
        # Deprecated in pytest 9.2, without a replacement that lists unknown names.
        warnings.simplefilter("ignore")
        names = list(getattr(config, "inicfg", ()))
    known = {option.ini_name for option in OPTIONS if option.ini}
    for name in names:
        if name.replace("-", "_").startswith("fsstack_") and name not in known:
            try:
                config.getini(name)
            except ValueError:
                return f"{_place_of(config, name)}: {_suggestion(name)}"
            except (TypeError, pytest.UsageError):
                continue  # another plugin's option
    return None


def _unknown_in_arguments(config: pytest.Config) -> str:
    """Return the first mistyped option with a space in its value, which argparse takes for a file. Empty if none."""
    import difflib

    flags = ["--" + option.ini_name.replace("_", "-") for option in OPTIONS]
    for word in config.args:
        flag, equals, _ = word.partition("=")
        if equals and flag.startswith("--fsstack-") and flag not in flags:
            near = difflib.get_close_matches(flag, flags, n=1)
            return f"there is no option {flag}{f'; did you mean {near[0]}?' if near else ''}"
    return ""


def _suggestion(name: str) -> str:
    import difflib

    ini_name = name.replace("-", "_")
    if any(option.ini_name == ini_name and not option.ini for option in OPTIONS):
        return f"--{ini_name.replace('_', '-')} can only be given on the command line"
    names = [option.ini_name for option in OPTIONS if option.ini]
    near = difflib.get_close_matches(ini_name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}"
    return f"there is no such option; {hint}"


# -- in a worker -------------------------------------------------------------------------------------------------------


#: Set in the environment of a replacement worker: why the worker before went down.
GUEST_DOWN = "FSSTACK_GUEST_DOWN"
#: Set in the environment of a guest for the doctor: its kernel.
PROBED_KERNEL = "FSSTACK_PROBED"


#: In `workerinput` of pytest-xdist: the identities of the session's devices by name.
DEVICES = "fsstack_devices"


def worker_input(config: pytest.Config) -> dict[str, Any]:
    """Return what the controller sent to this worker of a kernel: kernel, boot, in_vm and seed. Elsewhere empty.

    In a guest for the doctor: kernel and in_vm.
    """
    if kernel := os.environ.get(PROBED_KERNEL):
        return {"kernel": kernel, "in_vm": True}
    settings: dict[str, Any] = getattr(config, "workerinput", {}).get("fsstack", {})
    return settings
