"""LAB.toml: the hosts of a laboratory, their disks, and how Python is prepared on them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pytest_fsstack.machine import reading
from pytest_fsstack.options import labels

#: Device names that mean the same disk after a reboot, and devices that are no disks.
_DEVICE = re.compile(r"/dev/disk/by-[a-z]+/[^/]+|/dev/(mapper/[^/]+|loop\d+)|loop|ram|dir:/.*")
#: A host of Slurm, or an expression such as ``node[1-4]``.
_HOSTS = re.compile(r"[A-Za-z0-9][\w.,\[\]-]*")
#: A feature, a partition or a generic resource of Slurm.
_WORD = re.compile(r"[A-Za-z0-9_][\w.:-]*")


class SettingsError(ValueError):
    """A mistake in LAB.toml. The message has the file and the key."""


class Hosts(msgspec.Struct, forbid_unknown_fields=True):
    """Hosts of one kind: by name, or all hosts with a feature of Slurm."""

    disk: str
    name: str = ""
    feature: str = ""
    labels: dict[str, str] = {}
    #: The directory on these hosts, instead of that in [laboratory].
    directory: str = ""


class Python(msgspec.Struct, forbid_unknown_fields=True):
    """The Python of the hosts: an environment from wheels of this machine, or an existing environment."""

    #: If empty, this version of pytest-fsstack.
    requirements: list[str] = []
    executable: str = "python3"
    #: A directory with wheels. If empty, pip makes the wheels on this machine.
    wheels: str = ""
    #: An existing virtual environment on all hosts.
    environment: str = ""


class Common(msgspec.Struct, forbid_unknown_fields=True):
    """Settings for all hosts."""

    partition: str = ""
    gres: str = ""
    hours: float = 8.0
    #: Seconds for a session to take its stack down.
    grace: int = 120
    directory: str = "/var/lib/pytest-fsstack"
    #: Files and directories that sessions need, relative to the directory of LAB.toml.
    files: list[str] = []
    #: Kernels of guests. Each host runs a session in each of them.
    kernels: list[str] = []


class Settings(msgspec.Struct, forbid_unknown_fields=True):
    """The contents of LAB.toml."""

    hosts: list[Hosts]
    laboratory: Common = msgspec.field(default_factory=Common)
    labels: dict[str, str] = {}
    python: Python = msgspec.field(default_factory=Python)


def load(path: Path) -> Settings:
    """Read and check a laboratory. Raises `SettingsError`."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content = tomllib.loads(reading.read_text(path))
        settings = msgspec.convert(content, Settings)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: this is no TOML: {error}") from None
    except msgspec.ValidationError as error:
        problem, _, key = str(error).partition(" - at `$")
        raise SettingsError(f"{path}: {f'{key.strip(chr(96) + chr(46))}: ' if key else ''}{problem}") from None
    if problem := next(_problems(settings, path.parent), ""):
        raise SettingsError(f"{path}: {problem}")
    return settings


def _problems(settings: Settings, directory: Path) -> Iterator[str]:
    for key, text in _texts(msgspec.to_builtins(settings), ""):
        # Slurm and the reports show these texts.
        if not text.isprintable():
            yield f"{key}: must have printable characters only (got {text!r})"
    if not settings.hosts:
        yield "hosts: name at least one host, by [[hosts]] and its name or feature"
    for number, hosts in enumerate(settings.hosts):
        yield from (f"hosts[{number}].{problem}" for problem in _host_problems(hosts))
    yield from (f"laboratory.{problem}" for problem in _common_problems(settings.laboratory, directory))
    if not (directory / settings.python.wheels).is_dir():
        yield f"python.wheels: there is no directory {settings.python.wheels} in {directory}"
    if settings.python.environment and not settings.python.environment.startswith("/"):
        yield f"python.environment: must be a path from the root on (got {settings.python.environment!r})"
    yield from _label_problems(settings.labels)


def _common_problems(common: Common, directory: Path) -> Iterator[str]:
    for key, text in (("partition", common.partition), ("gres", common.gres)):
        if text and not _WORD.fullmatch(text):
            yield f"{key}: must be a name of Slurm's (got {text!r})"
    if not 0 < common.hours <= 24 * 365:
        yield f"hours: must be more than 0 (got {common.hours:g})"
    if not 1 <= common.grace <= 65535:
        yield f"grace: must be 1 to 65535 seconds (got {common.grace})"
    if common.grace >= common.hours * 3600:
        # Slurm would stop each session as soon as it begins.
        yield f"grace: must be less than the {common.hours:g} hours of a session (got {common.grace} seconds)"
    if twice := next((kernel for kernel in common.kernels if common.kernels.count(kernel) > 1), None):
        yield f"kernels: {twice} is there twice"
    if not common.directory.startswith("/"):
        yield f"directory: must be a path from the root on (got {common.directory!r})"
    for name in common.files:
        if Path(name).is_absolute() or ".." in Path(name).parts or not (directory / name).exists():
            yield f"files: there is no {name} in {directory}"


def _host_problems(hosts: Hosts) -> Iterator[str]:
    if bool(hosts.name) == bool(hosts.feature):
        yield "name: give a name or a feature, and not both"
    if hosts.name and not _HOSTS.fullmatch(hosts.name):
        yield f"name: must be a host of Slurm's, or several as in node[1-4] (got {hosts.name!r})"
    if hosts.feature and not _WORD.fullmatch(hosts.feature):
        yield f"feature: must be a feature of Slurm's (got {hosts.feature!r})"
    if not _DEVICE.fullmatch(hosts.disk):
        yield (
            f"disk: {hosts.disk!r} may be another disk after a reboot: name it by /dev/disk/by-id/..., or use loop, "
            "ram or dir:/DIRECTORY"
        )
    if hosts.directory and not hosts.directory.startswith("/"):
        yield f"directory: must be a path from the root on (got {hosts.directory!r})"
    yield from _label_problems(hosts.labels)


def _label_problems(pairs: dict[str, str]) -> Iterator[str]:
    for name, value in pairs.items():
        try:
            labels.parse(f"{name}={value}")
        except ValueError as error:
            yield f"labels: {error}"


def _texts(content: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield all texts and their keys."""
    if isinstance(content, str):
        yield key, content
    elif isinstance(content, dict):
        for name, value in content.items():
            yield key, name
            yield from _texts(value, f"{key}.{name}".lstrip("."))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _texts(value, f"{key}[{number}]")
