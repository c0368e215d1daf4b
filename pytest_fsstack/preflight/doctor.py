"""The doctor of `--fsstack-doctor`: checks which stacks this machine can build.

The doctor checks the stacks of the selected tests, and the workloads in their code. Without a selection, it checks
everything.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sh

from pytest_fsstack import options
from pytest_fsstack.machine import blockdev, needs
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Need
from pytest_fsstack.units import show

if TYPE_CHECKING:
    from pytest_fsstack.kernels.controller import Plan
    from pytest_fsstack.kernels.images import Kernel
    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.session.state import Session
    from pytest_fsstack.stack.model import Device


@dataclass(frozen=True)
class Part:
    """A device, layer or workload, with its requirements."""

    kind: str
    name: str
    needs: Sequence[Need]


@dataclass(frozen=True)
class Column:
    """A kernel, and the missing requirements on it. `problem` says why it could not be asked."""

    kernel: str
    lacks: Callable[[Part], Sequence[MissingRequirement]]
    problem: str = ""
    here: bool = False

    @property
    def title(self) -> str:
        return "runs here" if self.here else self.kernel

    def cell(self, part: Part) -> str:
        if part.kind == _GUESTS and not self.here:
            return ""
        return "?" if self.problem else "no" if self.lacks(part) else "yes"


#: Requirements for booting a guest. They are not checked in a guest.
_GUESTS = "kernels"


class Doctor:
    """A pytest plugin that runs the doctor instead of the collected tests."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self.config, self.session = config, session
        # What pytest says of a session without tests is of no use here.
        config.option.verbose = -2
        self._exit_code = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._exit_code = doctor(self.config, self.session, session.items)
        return True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = self._exit_code


def doctor(config: pytest.Config, session: Session, items: Sequence[pytest.Item]) -> int:
    """Print which selected parts run here, what is missing, and how to install it. ``=install`` installs it.

    ``=all`` and ``=install-all`` include everything. The exit code is 0 if all selected parts can run, or if nothing is
    selected. Given kernels are each asked in a guest, and the parts must run on all of them. Raises `pytest.UsageError`
    for mistakes in options.
    """
    from pytest_fsstack.kernels import probe

    devices = [_device(device) for device in session.settings.devices]
    parts, selected = _parts(config, session, devices), _selected(config, session, items, devices)
    if probe.probed():
        unique = {(part.kind, part.name): part for part in [*parts, *selected]}.values()
        print(probe.answer_text((part.kind, part.name, needs.lacking(part.needs)) for part in unique))
        return 0
    action = session.settings.doctor
    listed = parts if action in ("all", "install-all") or not selected else selected
    plan = _plan(session.settings)
    if plan and any(kernel.in_vm for kernel in plan.kernels):
        from pytest_fsstack.kernels.vm import NEEDS

        listed = [*listed, Part(_GUESTS, "in a VM", NEEDS)]
    # A guest has the tools of this machine, and may have what its kernel lacks: all is for any kernel.
    elsewhere = plan is not None or action in ("all", "install-all")
    packages = _packages(listed, elsewhere=elsewhere)
    if action in ("install", "install-all") and packages:
        if not selected and action == "install":
            raise pytest.UsageError(
                "--fsstack-doctor=install: no stacks are selected; name tests or --fsstack-stacks, or write install-all"
            )
        if os.geteuid() != 0:
            show("installing needs root: run pytest with sudo")
            return 1
        _install(packages)
        packages = _packages(listed, elsewhere=elsewhere)
    local = Column("the running kernel", lambda part: needs.lacking(part.needs), here=True)
    guests = [_ask(config, plan, kernel) for kernel in plan.kernels if kernel.in_vm] if plan else []
    _show(listed, [local, *guests])
    if packages:
        show(f"\nto install what packages can give: {needs.install_command(packages)}")
    # The kernel of this machine counts if it is one of those that were given.
    columns = [*([local] if plan is None or len(guests) < len(plan.kernels) else []), *guests]
    if not selected:
        scenarios = ", ".join(options.SCENARIOS)
        show(
            f"\nno stacks are selected; name tests, --fsstack-stacks, or a scenario by --fsstack-scenario: {scenarios}"
        )
        return int(any(column.problem for column in columns))
    return _conclude(selected, columns)


def _plan(settings: Settings) -> Plan | None:
    """Return the plan of the kernels to boot, if there are any."""
    if not settings.kernels:
        return None
    from pytest_fsstack.kernels.controller import plan_of

    return plan_of(settings)


def _ask(config: pytest.Config, plan: Plan, kernel: Kernel) -> Column:
    """Boot a guest and ask it."""
    from pytest_fsstack.kernels import probe, vm

    def unknown(problem: str) -> Column:
        return Column(kernel.name, lambda part: [], problem)

    directory = Path.cwd()
    if reason := vm.why_no_guest(directory):
        return unknown(reason)
    show(f"asking a guest of {kernel.name} ...")
    machine = vm.Machine(kernel, directory, plan.memory, plan.cpus, vm.accelerate(plan.accelerator, kernel))
    arguments = [str(word) for word in config.invocation_params.args]
    try:
        answer = probe.ask(machine, arguments, disk_size=plan.disk_size)
    except probe.ProbeError as error:
        return unknown(str(error))

    def lacks(part: Part) -> Sequence[MissingRequirement]:
        # A guest has its own disk instead of a loop device.
        name = blockdev.GUEST_DISK if (part.kind, part.name) == ("device", "loop") else part.name
        return answer.get(
            (part.kind, name), [MissingRequirement(Missing.OTHER, "is not known there", "see what pytest says there")]
        )

    return Column(kernel.name, lacks)


@dataclass(frozen=True)
class _Accepted:
    """A requirement: a device that the session does not refuse."""

    lack: MissingRequirement | None

    def missing(self) -> MissingRequirement | None:
        return self.lack


def _device(device: Device) -> Part:
    from pytest_fsstack.devices import refusals
    from pytest_fsstack.kernels import probe

    requirements = device.needs()
    # The disk of a guest is blank; without root or a tool, the session does not come to look at a device.
    looked_at = not probe.probed() and not needs.lacking(requirements)
    for member, refused in refusals(device).items() if looked_at else ():
        what, _, remedy = refused.reason.partition("; ")
        which = f"{member.spec} " if member is not device else ""
        requirements.append(
            _Accepted(MissingRequirement(Missing.OTHER, f"{which}is refused: {what}", remedy or "name another device"))
        )
    return Part("device", device.spec, requirements)


def _parts(config: pytest.Config, session: Session, devices: Iterable[Part]) -> list[Part]:
    return [
        *devices,
        *(Part("layer", name, layer().needs()) for name, layer in session.settings.known.items()),
        *_workloads(config),
    ]


def _workloads(config: pytest.Config) -> list[Part]:
    from pytest_fsstack.options.built_in import brought
    from pytest_fsstack.workloads import needs_of

    return [Part("workload", name, needs_of(function)) for name, function in brought(config, "workloads").items()]


def _show(parts: Iterable[Part], columns: Sequence[Column]) -> None:
    from tabulate import tabulate

    rows: list[list[str]] = []
    for part in parts:
        reasons = [
            (f"{lack.what} (on {kernels})" if kernels else lack.what, lack.remedy)
            for lack, kernels in _reasons(part, columns)
        ]
        rows.append([part.kind, part.name, *(column.cell(part) for column in columns), *(reasons or [("", "")])[0]])
        rows += [["", "", *("" for _ in columns), *reason] for reason in reasons[1:]]
    titles = ["", "name", *(column.title for column in columns), "missing", "how to get it"]
    show(tabulate(rows, titles, disable_numparse=True))
    for column in columns:
        if column.problem:
            show(f"\ncould not check {column.title}: {column.problem}")


def _reasons(part: Part, columns: Sequence[Column]) -> Iterator[tuple[MissingRequirement, str]]:
    """Yield the missing requirements of a part, with their kernels unless they apply to all."""
    answering = [column for column in columns if column.cell(part) in ("yes", "no")]
    for lack in dict.fromkeys(lack for column in answering for lack in column.lacks(part)):
        about = [column.kernel for column in answering if lack in column.lacks(part)]
        # A missing kernel feature always names the kernel.
        everywhere = len(about) == len(answering) or lack.kind is Missing.KERNEL
        yield lack, "" if everywhere else ", ".join(about)


def _packages(parts: Iterable[Part], *, elsewhere: bool) -> list[str]:
    """Return the packages to install. Parts that this kernel cannot run are left out, unless others are asked."""
    packages: set[str] = set()
    for part in parts:
        lacks = needs.lacking(part.needs)
        if elsewhere or not any(lack.kind is Missing.KERNEL for lack in lacks):
            packages.update(lack.package for lack in lacks if lack.package)
    return sorted(packages)


def _install(packages: Sequence[str]) -> None:
    """Run the package manager with its output visible. A package that fails does not stop the others."""
    manager = needs.package_manager()
    if manager == "apt":
        # In a fresh container, apt has no package lists.
        _run(["apt-get", "update"])
    install = needs.INSTALL[manager]
    with _without_cluster() if manager == "apt" and "postgresql" in packages else contextlib.nullcontext():
        if not _run([*install, *packages]) and len(packages) > 1:
            for package in packages:
                _run([*install, package])
    show("")


#: Debian's package of PostgreSQL reads this directory before it creates a database cluster.
CLUSTERS = Path("/etc/postgresql-common/createcluster.d")


@contextlib.contextmanager
def _without_cluster() -> Iterator[None]:
    """Prevent Debian's package of PostgreSQL from creating a cluster and starting a server."""
    missing = [directory for directory in (CLUSTERS, CLUSTERS.parent) if not directory.exists()]
    CLUSTERS.mkdir(parents=True, exist_ok=True)
    # A new name, so that no file of the administrator is replaced and removed.
    file = CLUSTERS / f"pytest-fsstack-{os.urandom(4).hex()}.conf"
    file.write_text("create_main_cluster = false\n")
    try:
        yield
    finally:
        file.unlink()
        for directory in missing:
            with contextlib.suppress(OSError):  # the package has its own files there
                directory.rmdir()


def _run(command: Sequence[str]) -> bool:
    show(f"\n$ {shlex.join(command)}")
    try:
        # In the foreground, so that its output appears as it comes.
        sh.Command(command[0])(*command[1:], _fg=True, _env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    except sh.CommandNotFound:
        show(f"{command[0]}: not found")
        return False
    except sh.ErrorReturnCode as error:
        show(f"it failed with exit code {error.exit_code}")
        return False
    return True


def _selected(
    config: pytest.Config, session: Session, items: Sequence[pytest.Item], devices: Iterable[Part]
) -> list[Part]:
    """Return the stacks of the selected tests (or of the options), their devices, and the workloads of the tests."""
    from pytest_fsstack.rounds.chains import parameter_of
    from pytest_fsstack.stack.model import Fits
    from pytest_fsstack.workloads import needs_of

    settings = session.settings
    parameters = dict.fromkeys(parameter for item in items if (parameter := parameter_of(item)))
    pairs = [(parameter.stack, parameter.device) for parameter in parameters]
    pairs = pairs or [(stack, device) for stack in settings.stacks for device in settings.devices]
    if not pairs:
        return []
    # A stack's options may change the requirements of its layers.
    needs_by_stack: dict[str, list[Need]] = {}
    for stack, device in pairs:
        needs_by_stack.setdefault(stack.id, stack.needs()).append(Fits(stack, device, settings.known))
    words = {word for item in items if parameter_of(item) for word in _words(item)}
    own = {name: needs_of(function) for item in items for name, function in _functions(item)}
    workloads = [part for part in _workloads(config) if part.name in words]
    known = {part.name for part in workloads}
    return [
        *devices,
        *(Part("stack", name, requirements) for name, requirements in needs_by_stack.items()),
        *workloads,
        *(Part("step", name, needs) for name, needs in own.items() if needs and name not in known),
    ]


def _functions(item: pytest.Item) -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield the function of a test, and those that it calls by a name of its module, such as an own workload."""
    if isinstance(item, pytest.Function):
        yield item.originalname, item.function
        named = {word: getattr(item.function, "__globals__", {}).get(word) for word in _words(item)}
        yield from ((word, function) for word, function in named.items() if inspect.isfunction(function))


def _words(item: pytest.Item) -> Iterable[str]:
    """Return the names in the code of a test."""
    return tuple(getattr(getattr(item, "function", None), "__code__", _words.__code__).co_names)


def _conclude(selected: Sequence[Part], columns: Sequence[Column]) -> int:
    lacking = [
        (part.name, list(dict.fromkeys(map(str, lacks))))
        for part in selected
        if (lacks := [lack for column in columns if column.cell(part) == "no" for lack in column.lacks(part)])
    ]
    what = f"the selected stacks ({', '.join(part.name for part in selected if part.kind == 'stack')})"
    where = "" if all(column.here for column in columns) else f" on {', '.join(column.kernel for column in columns)}"
    if not lacking and not any(column.problem for column in columns):
        show(f"\nall requirements of {what} are met{where}")
        return 0
    if lacking:
        show(f"\nnot all requirements of {what} are met{where}:")
        for name, reasons in lacking:
            show(f"  {name}: {'; '.join(reasons)}")
    return 1
