"""What the plugin does instead of running tests: see what this machine can build, and remove what was left behind."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack import needs, options
from pytest_fsstack.needs import Need, Tool

if TYPE_CHECKING:
    import pytest

    from pytest_fsstack.hosts.controller import Plan
    from pytest_fsstack.hosts.kernels import Kernel
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


@dataclass(frozen=True)
class Column:
    """A kernel, and what a part lacks on it. Where nobody could ask, `problem` says why."""

    kernel: str
    lacks: Callable[[Part], Sequence[str]]
    problem: str = ""
    here: bool = False

    @property
    def title(self) -> str:
        return "runs here" if self.here else self.kernel

    def cell(self, part: Part) -> str:
        if part.kind == _GUESTS and not self.here:
            return ""
        return "?" if self.problem else "no" if self.lacks(part) else "yes"


#: What booting a guest needs, which is nobody's question in a guest.
_GUESTS = "kernels"


def doctor(config: pytest.Config) -> int:
    """Print what runs here, what is missing, and how to get it; with ``=install``, get it.

    The exit code is 0 if everything is there that the selected stacks and devices need; without selected stacks, that
    all layers and workloads need. With kernels given, it must be there on each of them, and each is asked in a guest.
    Raises `pytest.UsageError` for mistakes in options.
    """
    from pytest_fsstack.hosts import probe
    from pytest_fsstack.plugin import session_of

    session = session_of(config)
    parts, selected = _parts(config, session), _selected(session)
    if probe.probed():
        asked = {(part.kind, part.name): part for part in [*parts, *selected]}.values()
        print(probe.told((part.kind, part.name, needs.missing(part.needs)) for part in asked))
        return 0
    plan = _plan(config)
    if plan and any(kernel.in_vm for kernel in plan.kernels):
        from pytest_fsstack.hosts.vm import NEEDS

        parts.append(Part(_GUESTS, "in a VM", NEEDS))
    here = Column("the running kernel", lambda part: needs.missing(part.needs), here=True)
    # With stacks selected, nobody wants the tools of all the others.
    useful = [*selected, *(part for part in parts if part.kind in ("workload", _GUESTS))] if selected else parts
    packages = _packages(useful)
    if config.getoption("fsstack_doctor") == "install" and packages:
        _show(parts, [here])
        if os.geteuid() != 0:
            print("\ninstalling needs root: run pytest with sudo")
            return 1
        _install(packages)
        packages = _packages(useful)
    guests = [_ask(config, plan, kernel) for kernel in plan.kernels if kernel.in_vm] if plan else []
    _show(parts, [here, *guests])
    if packages:
        print(f"\nto install all of it: {needs.install_command(packages)}")
    # The kernel of this machine counts where it is one of those that were given.
    given = [*([here] if plan is None or len(guests) < len(plan.kernels) else []), *guests]
    return _conclude(selected, parts, given)


def _plan(config: pytest.Config) -> Plan | None:
    """What to boot, where kernels are given."""
    if not options.value(config, "kernel"):
        return None
    from pytest_fsstack.hosts.controller import plan_of

    return plan_of(config)


def _ask(config: pytest.Config, plan: Plan, kernel: Kernel) -> Column:
    """Boot a guest and ask it."""
    from pytest_fsstack.hosts import probe, vm

    def unknown(problem: str) -> Column:
        return Column(kernel.name, lambda part: [], problem)

    here = Path.cwd()
    if reason := vm.refusal(here):
        return unknown(reason)
    print(f"asking a guest of {kernel.name} ...", flush=True)
    machine = vm.Machine(kernel, here, plan.memory, plan.cpus, vm.accelerate(plan.accelerator, kernel))
    arguments = [str(word) for word in config.invocation_params.args]
    try:
        answer = probe.ask(machine, arguments, disk_size=plan.disk_size, boot_seconds=plan.boot_seconds)
    except probe.ProbeError as error:
        return unknown(str(error))

    def lacks(part: Part) -> Sequence[str]:
        # A guest has a disk of its own, which takes the place of a loop device.
        name = options.DISK_OF_A_GUEST if (part.kind, part.name) == ("device", "loop") else part.name
        return answer.get((part.kind, name), ["is not known there"])

    return Column(kernel.name, lacks)


def _parts(config: pytest.Config, session: Session) -> list[Part]:
    from pytest_fsstack.workloads import needs_of

    workloads = {name: function for each in config.hook.pytest_fsstack_workloads() for name, function in each.items()}
    return [
        *(Part("device", device.spec, device.needs()) for device in session.settings.devices),
        *(Part("layer", name, layer().needs()) for name, layer in session.settings.known.items()),
        *(Part("workload", name, needs_of(function)) for name, function in workloads.items()),
    ]


def _show(parts: Iterable[Part], columns: Sequence[Column]) -> None:
    from tabulate import tabulate

    rows: list[list[str]] = []
    for part in parts:
        reasons = [_halves(reason, kernels) for reason, kernels in _reasons(part, columns)]
        rows.append([part.kind, part.name, *(column.cell(part) for column in columns), *(reasons or [("", "")])[0]])
        rows += [["", "", *("" for _ in columns), *reason] for reason in reasons[1:]]
    titles = ["", "name", *(column.title for column in columns), "missing", "how to get it"]
    print(tabulate(rows, titles, disable_numparse=True), flush=True)
    for column in columns:
        if column.problem:
            print(f"\nnobody knows what runs on {column.title}: {column.problem}", flush=True)


def _reasons(part: Part, columns: Sequence[Column]) -> Iterator[tuple[str, str]]:
    """What a part lacks, each reason once, with the kernels that it is about where it is not about all."""
    asked = [column for column in columns if column.cell(part) in ("yes", "no")]
    for reason in dict.fromkeys(reason for column in asked for reason in column.lacks(part)):
        about = [column.kernel for column in asked if reason in column.lacks(part)]
        known = len(about) == len(asked) or "this kernel (" in reason
        yield reason, "" if known else ", ".join(about)


def _halves(reason: str, kernels: str = "") -> tuple[str, str]:
    """A need's reason says what is missing, and after a colon how to get it."""
    what, _, how = reason.partition(": ")
    return f"{what} (on {kernels})" if kernels else what, how


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


def _conclude(selected: Sequence[Part], parts: Iterable[Part], given: Sequence[Column]) -> int:
    lacking = [
        (part.name, list(dict.fromkeys(reasons)))
        for part in selected or parts
        if (reasons := [reason for column in given if column.cell(part) == "no" for reason in column.lacks(part)])
    ]
    chosen = [part.name for part in selected if part.kind == "stack"]
    what = f"the selected stacks ({', '.join(chosen)})" if chosen else "all layers and workloads"
    where = "" if all(column.here for column in given) else f" on {', '.join(column.kernel for column in given)}"
    if not lacking and not any(column.problem for column in given):
        print(f"\neverything is there that {what} need{where}")
        return 0
    if chosen and lacking:
        print(f"\nnot everything is there that {what} need{where}:")
        for name, reasons in lacking:
            print(f"  {name}: {'; '.join(reasons)}")
    elif lacking:
        names = ", ".join(name for name, _ in lacking)
        print(
            f"\nwhat does not run {where.strip() or 'here'}: {names}; with --fsstack-stacks, only what those stacks "
            "need counts"
        )
    return 1
