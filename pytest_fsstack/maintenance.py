"""What the plugin does instead of running tests: see what this machine can build, and remove what was left behind."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_fsstack import needs
from pytest_fsstack.needs import Need, Tool

if TYPE_CHECKING:
    import pytest

    from pytest_fsstack.session import Session


@dataclass(frozen=True)
class Part:
    """A device, layer or workload, and what it needs."""

    kind: str
    name: str
    needs: Sequence[Need]


def cleanup(config: pytest.Config) -> int:
    """Undo what sessions that were killed have left behind, and print it; returns the exit code."""
    from pytest_fsstack import journal

    for line in journal.cleanup(journal.default_directory()) or ["nothing was left behind"]:
        print(line)
    return 0


def doctor(config: pytest.Config) -> int:
    """Print what runs here, what is missing, and how to get it; with ``=install``, get it.

    The exit code is 0 if everything is there that the selected stacks and devices need; without selected stacks, that
    all layers and workloads need. Raises `pytest.UsageError` for mistakes in options.
    """
    from pytest_fsstack.plugin import session_of

    session = session_of(config)
    parts = _parts(config, session)
    _show(parts)
    # With stacks selected, nobody wants the tools of all the others.
    selected = _selected(session)
    useful = [*selected, *(part for part in parts if part.kind == "workload")] if selected else parts
    packages = _packages(useful)
    if config.getoption("fsstack_doctor") == "install" and packages:
        if os.geteuid() != 0:
            print("\ninstalling needs root: run pytest with sudo")
            return 1
        _install(packages)
        _show(parts)
        packages = _packages(useful)
    if packages:
        print(f"\nto install all of it: {needs.install_command(packages)}")
    return _conclude(selected, parts)


def _parts(config: pytest.Config, session: Session) -> list[Part]:
    from pytest_fsstack.workloads import needs_of

    workloads = {name: function for each in config.hook.pytest_fsstack_workloads() for name, function in each.items()}
    return [
        *(Part("device", device.spec, device.needs()) for device in session.settings.devices),
        *(Part("layer", name, layer().needs()) for name, layer in session.settings.known.items()),
        *(Part("workload", name, needs_of(function)) for name, function in workloads.items()),
    ]


def _show(parts: Iterable[Part]) -> None:
    from tabulate import tabulate

    rows: list[list[str]] = []
    for part in parts:
        reasons = needs.missing(part.needs)
        rows.append([part.kind, part.name, "no" if reasons else "yes", *_halves(reasons[0] if reasons else "")])
        rows += [["", "", "", *_halves(reason)] for reason in reasons[1:]]
    print(tabulate(rows, ["", "name", "runs here", "missing", "how to get it"], disable_numparse=True), flush=True)


def _halves(reason: str) -> tuple[str, str]:
    """A need's reason says what is missing, and after a colon how to get it."""
    what, _, how = reason.partition(": ")
    return what, how


def _packages(parts: Iterable[Part]) -> list[str]:
    tools = [need for part in parts for need in part.needs if isinstance(need, Tool) and need.missing()]
    return sorted({tool.package_here for tool in tools})


def _install(packages: Sequence[str]) -> None:
    """Run the package manager; its output is the user's. What it cannot get does not keep the rest from being got."""
    manager = needs.package_manager()
    if manager == "apt":
        # Without its lists, as in a fresh container, apt knows no package.
        _run(["apt-get", "update"])
    install = needs.INSTALL[manager]
    if not _run([*install, *packages]) and len(packages) > 1:
        for package in packages:
            _run([*install, package])
    print(flush=True)


def _run(command: Sequence[str]) -> bool:
    print(f"\n$ {shlex.join(command)}", flush=True)
    try:
        done = subprocess.run(command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, check=False)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}")
        return False
    if done.returncode:
        print(f"it failed with exit code {done.returncode}")
    return done.returncode == 0


def _selected(session: Session) -> list[Part]:
    """The selected stacks and the devices below them; nothing where no stacks are selected."""
    settings = session.settings
    # A stack's own options may need more, or less, than its layers do by default.
    chosen = [Part("stack", stack.id, stack.needs()) for stack in settings.stacks]
    return [*(Part("device", device.spec, device.needs()) for device in settings.devices), *chosen] if chosen else []


def _conclude(selected: Sequence[Part], parts: Iterable[Part]) -> int:
    lacking = [(part, reasons) for part in selected or parts if (reasons := needs.missing(part.needs))]
    chosen = [part.name for part in selected if part.kind == "stack"]
    what = f"the selected stacks ({', '.join(chosen)})" if chosen else "all layers and workloads"
    if not lacking:
        print(f"\neverything is there that {what} need")
        return 0
    if chosen:
        print(f"\nnot everything is there that {what} need:")
        for part, reasons in lacking:
            print(f"  {part.name}: {'; '.join(reasons)}")
    else:
        names = ", ".join(part.name for part, _ in lacking)
        print(f"\nwhat does not run here: {names}; with --fsstack-stacks, only what those stacks need counts")
    return 1
