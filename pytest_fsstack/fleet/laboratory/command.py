"""Sessions on the hosts of a laboratory: `fsstack lab`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.command import CommandLineError, read, write_new
from pytest_fsstack.fleet.laboratory import settings, slurm
from pytest_fsstack.fleet.laboratory.run import HOST_ERRORS, Host, Run, RunError
from pytest_fsstack.fleet.laboratory.settings import SettingsError
from pytest_fsstack.fleet.laboratory.slurm import SlurmError
from pytest_fsstack.fleet.pooling.command import pool
from pytest_fsstack.machine.directories import safe_place, scratch
from pytest_fsstack.units import show

if TYPE_CHECKING:
    Function = Callable[[argparse.Namespace], int]

#: With so many hosts or more, budgets are judged over hosts.
_MIN_POOLED_HOSTS = 5
#: Options that the laboratory sets for each session.
_RESERVED_OPTIONS = ("--fsstack-device", "--fsstack-json", "--fsstack-log", "--junitxml")
#: Reports of the pool, with their file names in the directory of a run.
_REPORTS = {"json": "pool.json", "html": "pool.html", "markdown": "pool.md"}


def _with_messages(function: Function) -> Function:
    """Turn errors of a laboratory into messages."""

    @wraps(function)
    def explained(arguments: argparse.Namespace) -> int:
        try:
            return function(arguments)
        except (RunError, SettingsError, SlurmError) as error:
            raise CommandLineError(f"lab: {error}") from None

    return explained


def new(arguments: argparse.Namespace) -> int:
    """Write a commented LAB.toml into the current directory. Raises `CommandLineError`."""
    write_new({"LAB.toml": Path(__file__).with_name("LAB.toml").read_text()})
    show("name your hosts and disks in it; then: fsstack lab check LAB.toml -- --fsstack-scenario=filesystems")
    return 0


@_with_messages
def run(arguments: argparse.Namespace) -> int:
    """Run a session on each host. Return 1 if one failed, else the exit code of pooling."""
    directory = arguments.directory or Path(time.strftime("lab-%Y%m%d-%H%M%S"))
    words, lab = _pytest_words(arguments.words), settings.load(arguments.laboratory)
    if (directory / "run.json").exists():
        run = Run.open(directory)
        run.check_settings(lab)
        if words and words != run.state.arguments:
            raise RunError(f"{directory}: this run has other arguments: {' '.join(run.state.arguments)}")
    else:
        run = Run.begin(directory, lab, arguments.laboratory.absolute().parent, words)
    show(f"the run is in {directory}; if this ends before it, go on with --directory={directory}")
    with run.locked():
        run.finish()
    return _pool(run)


@_with_messages
def fetch(arguments: argparse.Namespace) -> int:
    """Fetch sessions that have ended since."""
    run = Run.open(arguments.directory)
    with run.locked():
        run.finish(submit=False)
    return _pool(run)


@_with_messages
def status(arguments: argparse.Namespace) -> int:
    """Show a line for each session."""
    run = Run.open(arguments.directory)
    run.update_states()
    for host in run.state.hosts:
        for task in host.tasks:
            show(f"{run.name_of(host, task)}: {run.outcome(host, task)}")
    return 0


@_with_messages
def stop(arguments: argparse.Namespace) -> int:
    """Stop the sessions of a run. `run` or `fetch` get their rounds so far."""
    Run.open(arguments.directory).stop()
    return 0


@_with_messages
def check(arguments: argparse.Namespace) -> int:
    """Run the doctor on each host. Return 0 if the sessions can run on all of them."""
    with scratch(safe_place(), "fsstack-lab-") as directory:
        lab, root = settings.load(arguments.laboratory), arguments.laboratory.absolute().parent
        run = Run.begin(directory / "run", lab, root, _pytest_words(arguments.words))
        with ThreadPoolExecutor(16) as threads:
            return max(threads.map(partial(_check, run), run.state.hosts))


def _check(run: Run, host: Host) -> int:
    code = 1
    try:
        if holders := slurm.holders(host.name):
            text = f"not asked: it runs {', '.join(holders)}"
        else:
            code, text = run.doctor(host)
    except HOST_ERRORS as error:
        text = str(error)
    show(f"== {host.name}, {host.disk}: {text}")
    return min(code, 1)


def _pytest_words(words: list[str]) -> list[str]:
    # Some versions of argparse keep it.
    words = words[1:] if words[:1] == ["--"] else words
    if any(word.partition("=")[0] == "--directory" for word in words):
        raise CommandLineError("lab: give --directory before LAB.toml, and arguments of pytest after --")
    if given := [word for word in words if word.startswith(_RESERVED_OPTIONS)]:
        raise CommandLineError(f"lab: {given[0]}: leave it out, because LAB.toml sets it for each session")
    return words


def _pool(run: Run) -> int:
    """Pool the results so far. Return 1 if a session failed, else the exit code of pooling."""
    files, lost = run.files(), {}
    for host in run.state.hosts:
        for task in host.tasks:
            name = run.name_of(host, task)
            if name not in files or run.exit_code(host, task) != 0:
                show(f"fsstack: lab: {name}: {run.outcome(host, task)}", error=True)
                lost[name] = run.outcome(host, task)
    if not files:
        raise CommandLineError(f"lab: {run.directory}: no session has results")
    reports = [f"--{report}={run.directory / name}" for report, name in _REPORTS.items()]
    pooled = read(["pool", *reports, *map(str, files.values())])
    pooled.lost = {name: reason for name, reason in lost.items() if name not in files}
    # A session may succeed without having measured anything, because its host lacks a tool.
    pooled.complete = True
    # A verdict over hosts needs five. Those of single hosts are in their exit codes.
    pooled.each = len(run.state.hosts) < _MIN_POOLED_HOSTS
    return max(pool(pooled), 1 if lost else 0)
