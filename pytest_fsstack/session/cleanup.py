"""Cleanup after killed sessions: with `--fsstack-cleanup`, and at the start of each session."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack import devices
from pytest_fsstack.machine import directories, journal, mounts, orphans
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.options.built_in import brought_layers
from pytest_fsstack.options.settings import Settings
from pytest_fsstack.stack import tuning
from pytest_fsstack.units import reason_of, show

if TYPE_CHECKING:
    import pytest

    from pytest_fsstack.machine.journal import Kind
    from pytest_fsstack.stack.layer import Layer
    from pytest_fsstack.stack.model import Device

#: Kinds that sessions and devices leave behind, independent of layers.
_ALWAYS = (orphans.PROCESSES, mounts.MOUNT, directories.DIRECTORY, tuning.SETTING, devices.DISK)


def kinds(layers: Iterable[type[Layer]]) -> Mapping[str, Kind]:
    """Return the kinds of leftovers by name. Raise ValueError if two have the same name."""
    by_name: dict[str, Kind] = {}
    for kind in (*_ALWAYS, *(kind for layer in layers for kind in layer.leaves)):
        if by_name.setdefault(kind.name, kind) != kind:
            raise ValueError(
                f"two kinds of leftovers are called {kind.name!r}, by {by_name[kind.name].module} and {kind.module}"
            )
    return by_name


def _known_kinds(config: pytest.Config) -> Callable[[], Mapping[str, Kind]]:
    """Return a function that loads all layers and returns their kinds of leftovers."""
    return functools.cache(lambda: kinds(brought_layers(config).values()))


def cleanup(config: pytest.Config) -> int:
    """Undo what killed sessions left behind, and print it. Return the exit code.

    A directory of ``--fsstack-device=dir:`` is searched even if its journal is gone, as after a reboot.
    """
    report = journal.cleanup(journal.default_directory(), RealMachine(), _known_kinds(config))
    names = [name.removeprefix("dir:") for name in Settings.of(config).value("device") if name.startswith("dir:")]
    stale = [line for name in names for line in directories.remove_stale(Path(name), asked=True)]
    for line in [*report.undone, *report.left, *stale] or ["nothing was left behind"]:
        show(line)
    return 0


def at_the_start(config: pytest.Config, places: Iterable[Device]) -> str:
    """Undo leftovers that certainly belong to a dead session. Return a line about it, or an empty text."""
    try:
        report = journal.cleanup(journal.default_directory(), RealMachine(), _known_kinds(config), asked=False)
    except (OSError, ValueError) as error:
        return f"could not clean up after sessions that were killed: {reason_of(error)}"
    report.undone += [
        line
        for device in places
        if isinstance(device, devices.DirectoryDevice)
        for line in directories.remove_stale(device.path)
    ]
    # These block the current session.
    disks = tuple(f"left alone: {devices.DISK.name} {device.path.resolve()} of " for device in devices.disks_of(places))
    in_the_way = [line for line in report.left if line.startswith(disks)]
    elsewhere = len(report.left) - len(in_the_way)
    busy = ["another process is cleaning up: --fsstack-cleanup says what it left alone"] if report.busy else []
    summary = [f"{elsewhere} left alone: --fsstack-cleanup says why"] if elsewhere else []
    return "; ".join([*report.undone, *in_the_way, *summary, *busy])
