"""Checks of fio's job files before they run, like those of a stack's options."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_fsstack.machine import reading
from pytest_fsstack.stack import outside

#: Engines that only open the files of the job. Others use the network, run code or commands, or send raw commands to a
#: disk, which are not confined to its partition (sg, io_uring_cmd).
ENGINES = frozenset(
    (
        *("sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "linuxaio", "io_uring", "posixaio", "mmap"),
        *("splice", "null", "cpuio", "ftruncate", "filecreate", "filestat", "filedelete", "dircreate", "dirstat"),
        *("dirdelete", "falloc", "fallocate", "e4defrag"),
    )
)
#: Engines without a file.
_WITHOUT_FILE = ("null", "cpuio")
#: Options that are never allowed: they run something, read other files, or change the machine.
_OUTSIDE = frozenset(
    (
        *("exec_prerun", "exec_postrun", "include", "read_iolog", "merge_blktrace_file", "replay_redirect", "aux_path"),
        *("profile", "ioscheduler", "cgroup", "cgroup_weight", "cgroup_nodelete", "trigger_file", "trigger_remote"),
    )
)
_PATHS = re.compile(r"filename|directory|filename_format|opendir|write_\w+_log|write_iolog")
#: Options with several colon-separated paths.
_LISTS = ("filename", "directory")
#: fio would treat the rest of a longer line as another line: after 8191 bytes, older versions after 4095.
_LONGEST = 4000


class JobFileError(ValueError):
    """A job file that must not run. The message begins with its name, the line and the column."""


@dataclass(frozen=True)
class _Setting:
    """A line of a job. The name of a section has no key."""

    key: str
    value: str
    line: int
    column: int


def check(
    job: Path,
    place: Path,
    environment: Mapping[str, str],
    *,
    sections: bool = False,
    is_directory: bool | None = None,
) -> bytes:
    """Return the content of a job file. Raise `JobFileError` if it refers to anything outside of the stack, or cannot
    be measured there.

    With `sections`, fio must report each section by itself. `place` is fio's working directory, or the block device in
    ``${FSSTACK}``. `is_directory` is for a place that does not exist yet. `environment` is fio's. Raises OSError if the
    file cannot be read.
    """
    content = reading.read_bytes(job)

    def refuse(line: int, column: int, message: str) -> None:
        raise JobFileError(f"{job}:{line}:{column}: {message}")

    settings = list(_settings(os.fsdecode(content), environment, refuse))
    is_device = place.is_block_device()
    on_directory = place.is_dir() if is_directory is None else is_directory
    for setting in settings:
        problem = _problem(setting, place, is_device)
        if problem:
            refuse(setting.line, setting.column, problem)
    named = list(_sections(settings))
    if not named:
        refuse(1, 1, "there is no section, and so no job")
    lines_of_names: dict[str, int] = {}
    for (_, previous), (section, options) in zip([(None, {}), *named], named, strict=False):
        if is_device and "filename" not in options and options.get("ioengine") not in _WITHOUT_FILE:
            refuse(section.line, section.column, "the stack is a block device: this job needs filename=${FSSTACK}")
        if on_directory and "trim" in _pattern(options):
            refuse(section.line, section.column, "fio trims block devices only, and the stack is a directory")
        if problem := _without_figures(options):
            refuse(section.line, section.column, problem)
        if not sections:
            continue
        if previous and _is_on(options, "group_reporting") and not _begins_group(options):
            text = "group_reporting adds its figures to those of the section above: leave it out, or add new_group"
            refuse(section.line, section.column, text)
        first = lines_of_names.setdefault(options["name"], section.line)
        if first != section.line:
            text = f"the section in line {first} is called {options['name']!r} too: give each a name of its own"
            refuse(section.line, section.column, text)
    return content


def directions(job: Path) -> set[str]:
    """Return whether the sections of a job file read or write, as far as their lines show it."""
    text = os.fsdecode(reading.read_bytes(job))
    settings = _settings(text, os.environ, lambda line, column, message: None)
    patterns = [setting.value.partition(":")[0] for setting in settings if setting.key in ("rw", "readwrite")]
    mixed = {"rw", "randrw", "readwrite"}
    reads = not patterns or any("read" in pattern or pattern in mixed for pattern in patterns)
    writes = any("write" in pattern or pattern in mixed or "trim" in pattern for pattern in patterns)
    return {direction for direction, done in (("read", reads), ("write", writes)) if done}


def _settings(text: str, environment: Mapping[str, str], refuse: Callable[[int, int, str], None]) -> Iterator[_Setting]:
    """Yield the lines as fio parses them (parse_jobs_ini in its init.c)."""
    for number, line in enumerate(text.split("\n"), 1):
        if "\0" in line or len(os.fsencode(line)) > _LONGEST:
            refuse(number, 1, f"a line with a zero byte, or of more than {_LONGEST} bytes")
        start = len(line) - len(line.lstrip(_BLANKS))
        content = re.split("[;#]", line, maxsplit=1)[0].strip(_BLANKS)
        # A comment may be part of the name, which also names the job's file.
        text = line.strip(_BLANKS) if content.startswith("[") else _expanded(content, environment)
        if unclear := next(filter(_is_unclear, text), ""):
            refuse(number, start + 1, f"the character {unclear!r}, which may or may not be a blank for fio")
        if content.startswith("["):
            yield _Setting("", text[1:].removesuffix("]"), number, start + 2)
        elif content.startswith("include"):
            yield _Setting("include", "", number, start + 1)
        elif content:
            key, _, value = text.partition("=")
            column = start + content.find("=") + 2 if "=" in content else start + 1
            yield _Setting(key.strip(_BLANKS), value.strip(_BLANKS), number, column)


#: What isspace(3) takes for a blank in each locale. Python knows more.
_BLANKS = " \t\v\f\r\n"


def _is_unclear(character: str) -> bool:
    """Whether a character is a control character, or a blank in some locales. A name could end before it, or after."""
    undecoded = "\udc80" <= character <= "\udcff"
    byte = chr(ord(character) - 0xDC00) if undecoded else character
    return not byte.isprintable() and byte not in _BLANKS


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    return re.sub(r"\$\{([^}]*)\}", lambda match: environment.get(match[1], ""), text)


def _problem(setting: _Setting, place: Path, is_device: bool) -> str | None:
    """Describe the problem with a line, or return None."""
    key, value = setting.key, setting.value
    if key in _OUTSIDE:
        return f"{key} would make fio run, read or change something outside of the stack"
    if key == "ioengine":
        engine = re.split("[,:]", value)[0]
        safe = value == engine and engine in ENGINES
        return None if safe else f"the engine {value!r} is not known to stay within the files of the job"
    if key in ("", "name"):
        directory = place.parent / "job" if is_device else place
        return _leads_out(value, directory) or _leads_out(f"{value}_", directory)
    if _PATHS.fullmatch(key):
        # fio appends a suffix to other names.
        names = _split(value) if key in _LISTS else [value, f"{value}_"]
        if is_device:
            foreign = [name for name in names if name != str(place)]
            return f"the stack is the block device {place}, and {foreign[0]} is not" if foreign else None
        return next(filter(None, (_leads_out(name, place) for name in names)), None)
    if "/" in value and (escape := outside.find_escape(value)):
        return f"{key} reaches {escape}"
    return None


def _split(value: str) -> list[str]:
    """Split a list at its colons, except those after a backslash."""
    return [name.replace("\\:", ":") for name in re.split(r"(?<!\\):", value) if name]


def _leads_out(name: str, place: Path) -> str | None:
    """Return a message if a name leads out of the directory `place`, directly or by a link."""
    path = os.path.realpath(place / name)
    is_within = Path(path).is_relative_to(os.path.realpath(place))
    return None if is_within and not outside.goes_up(name) else f"{name} leads out of the stack, to {path}"


def _sections(settings: list[_Setting]) -> Iterator[tuple[_Setting, dict[str, str]]]:
    """Yield each section but [global], with its options and those that it inherits."""
    common: dict[str, str] = {}
    section, options = None, common
    for setting in [*settings, _Setting("", "global", 0, 0)]:
        if setting.key:
            options[setting.key] = setting.value
            continue
        if section:
            yield section, options
        is_global = setting.value.partition("]")[0].strip() == "global"
        # A name in [global] names no section.
        own = {"name": setting.value.partition("]")[0]}
        section, options = (None, common) if is_global else (setting, {**common, **own})


def _is_on(options: Mapping[str, str], name: str) -> bool:
    """Whether a flag of fio is set. Its name alone sets it."""
    return options.get(name, "0") != "0"


def _without_figures(options: Mapping[str, str]) -> str | None:
    """Return a message if fio reports no figures of a section, or none by direction."""
    if "stats" in options and not _is_on(options, "stats"):
        return "stats=0 hides the figures of this job: leave it out"
    if options.get("unified_rw_reporting", "none") not in ("none", "0", "both", "2"):
        return "unified_rw_reporting hides the figures of each direction: leave it out, or set it to both"
    return None


def _begins_group(options: Mapping[str, str]) -> bool:
    """Whether fio begins a new group at a section (add_job in its init.c)."""
    return any(_is_on(options, name) for name in ("new_group", "stonewall", "wait_for_previous"))


def _pattern(options: Mapping[str, str]) -> str:
    return options.get("rw", options.get("readwrite", "read"))
