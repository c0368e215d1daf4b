"""The process that the user started, when kernels are compared: it boots them, and puts together what they report."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options
from pytest_fsstack.budget import Budget, BudgetError, parse
from pytest_fsstack.corpus import cache_directory
from pytest_fsstack.hosts import vm
from pytest_fsstack.hosts.comparison import merge
from pytest_fsstack.hosts.kernels import Kernel, KernelError, resolve
from pytest_fsstack.hosts.launch import Description
from pytest_fsstack.hosts.turns import TurnScheduling
from pytest_fsstack.results import Chain, load
from pytest_fsstack.units import parse_size

if TYPE_CHECKING:
    from pytest_fsstack.journal import Journal
    from pytest_fsstack.session import Session

#: Under which a worker finds in its input which kernel it runs on.
WORKER = "fsstack"


@dataclass(frozen=True)
class Plan:
    """What to boot, in which order, and what a slower kernel may cost (0.05 is 5 %; None: nothing is judged)."""

    kernels: tuple[Kernel, ...]
    boots: int
    memory: str
    cpus: int
    accelerator: str
    disk_size: int
    boot_seconds: float
    silent_seconds: float
    max_regression: float | None


class Controller:
    """The pytest plugin of the controlling process."""

    def __init__(self, config: pytest.Config, plan: Plan, session: Session) -> None:
        self.config, self.plan, self.results = config, plan, session.results
        self.seed, self.strict = session.settings.seed, session.settings.strict
        self._undo = contextlib.ExitStack()
        self.directory = self._undo.enter_context(_directory(session.journal))
        self._found: dict[str, dict[tuple[str, int], Chain]] = {}
        #: The names of all tests on all kernels, and of the verdicts between them.
        self._tests: set[str] = set()
        self._session: pytest.Session | None = None
        self.kvm = False

    # -- starting ------------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Make pytest-xdist start a worker for each kernel and boot. Raises `pytest.UsageError`."""
        in_vm = [kernel for kernel in self.plan.kernels if kernel.in_vm]
        if in_vm:
            if reason := vm.refusal(Path.cwd()):
                raise pytest.UsageError(f"--fsstack-kernel: {reason}")
            self.kvm = vm.accelerate(self.plan.accelerator, in_vm[0])
        option = self.config.option
        option.dist, option.numprocesses = "each", None
        option.tx = [self._worker(index) for index in range(len(self.plan.kernels) * self.plan.boots)]

    def _kernel_of(self, worker: int) -> tuple[Kernel, int]:
        boot, index = divmod(worker, len(self.plan.kernels))
        return self.plan.kernels[index], boot

    def _worker(self, index: int) -> str:
        """The worker's execnet specification."""
        kernel, _ = self._kernel_of(index)
        python = f"python={self._launch(index)}//" if kernel.in_vm else ""
        return f"popen//{python}fsstack={index}"

    def _launch(self, index: int) -> str:
        """What is started in place of a Python: a guest, or a stand-in for a worker that went down."""
        kernel, _ = self._kernel_of(index)
        plan, description = self.plan, self.directory / f"{index}.json"
        Description(
            name=kernel.name,
            image=str(kernel.image),
            tree=str(kernel.tree) if kernel.tree else None,
            directory=str(Path.cwd()),
            memory=plan.memory,
            cpus=plan.cpus,
            kvm=self.kvm,
            disk_size=plan.disk_size,
            boot_seconds=plan.boot_seconds,
            silent_seconds=plan.silent_seconds,
            log=str(self._log(index)),
        ).write(description)
        return shlex.join([sys.executable, "-m", "pytest_fsstack.hosts.launch", str(description)])

    def _log(self, index: int) -> Path:
        return self.directory / f"{index}.log"

    def header(self) -> list[str]:
        """What the session says about the kernels before it starts."""
        names = [kernel.name for kernel in self.plan.kernels]
        boots = "" if self.plan.boots == 1 else f", {self.plan.boots} boots each"
        lines = [f"fsstack: kernels {names[0]} (baseline){''.join(f', {name}' for name in names[1:])}{boots}"]
        if not self.kvm and any(kernel.in_vm for kernel in self.plan.kernels):
            lines.append("fsstack: the guests are emulated, not virtualized by KVM: their figures show function only")
        return lines

    # -- pytest-xdist --------------------------------------------------------------------------------------------------

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> TurnScheduling:
        def line_up(turn: int, nodes: list[Any]) -> list[Any]:
            # A B, then B A: a drift that lasts longer than a turn falls on both.
            ordered = sorted(nodes, key=lambda node: int(node.gateway.spec.fsstack))
            return ordered[::-1] if turn % 2 else ordered

        workers = len(self.plan.kernels) * self.plan.boots
        return TurnScheduling(workers, _chain_of, line_up)

    def pytest_configure_node(self, node: Any) -> None:
        kernel, boot = self._kernel_of(int(node.gateway.spec.fsstack))
        node.workerinput[WORKER] = {
            "kernel": kernel.name,
            "boot": boot,
            "in_vm": kernel.in_vm,
            "seed": self.seed,
        }

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if not error:
            return
        # The worker that xdist starts in its place stands in for it: the reports of what it left come from there.
        index = int(node.gateway.spec.fsstack)
        log = self._log(index)
        if not log.exists():
            log.write_text(f"kernel {self._kernel_of(index)[0].name}: the worker in it went down: {error}")
        node.gateway.spec.python = self._launch(index)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._tests.update(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests.add(report.nodeid)
        if self._session is not None:
            # pytest-xdist has set it to one worker's number of tests, so that the progress would pass 100 %.
            self._session.testscollected = len(self._tests)
        if record := getattr(report, "fsstack_record", None):
            self._add_record(json.loads(record))
        if content := getattr(report, "fsstack_chain", None):
            data = json.loads(content)
            chain = load(data["chain"])
            self._found.setdefault(chain.id, {})[chain.kernel, data["boot"]] = chain
            self.results.environment.setdefault("kernels", {})[chain.kernel] = data["environment"]

    def _add_record(self, record: dict[str, Any]) -> None:
        from pytest_fsstack.results import add_benchmark_record

        benchmarks = self.config.pluginmanager.get_plugin("pytest-benchmark")
        if benchmarks is not None:
            add_benchmark_record(benchmarks, **record)

    # -- judging -------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            self._conclude()

    def _conclude(self) -> None:
        kernels = [kernel.name for kernel in self.plan.kernels]
        for found in self._found.values():
            chain = merge(found, kernels, self.plan.boots)
            self.results.chains.append(chain)
            self.results.parts.extend(found.values())
            if self.plan.max_regression is not None and len(kernels) > 1:
                self._judge(chain, self.plan.max_regression)
        self._found.clear()

    def _judge(self, chain: Chain, limit: float) -> None:
        for arm in chain.arms:
            reference = chain.reference(arm)
            if arm == reference:
                continue
            for step in chain.steps:
                if chain.of(step, arm) or chain.of(step, reference):
                    judged = chain.judge(step, arm, Budget(overhead=limit))
                    chain.judgements[step, arm] = [judged]
                    self._report(chain, step, arm)

    def _report(self, chain: Chain, step: str, arm: str) -> None:
        """Report a verdict between kernels as a test of its own, which JUnit and exit codes know how to treat."""
        from pytest_fsstack import results

        outcome: str = "passed"
        longrepr: str | tuple[str, int, str] | None = None
        worst = chain.worst(step, arm)
        path = chain.id.partition("::")[0]
        if worst == "fail" or (worst == "inconclusive" and self.strict):
            outcome, longrepr = "failed", results.describe_failure(chain, step, arm)
        elif worst == "inconclusive":
            outcome, longrepr = "skipped", (path, 1, results.describe_undecided(chain, step, arm))
        nodeid = f"{chain.id}::{step} on {arm} against {chain.reference(arm)}"
        location = (path, None, nodeid.partition("::")[2])
        hook = self.config.hook
        hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
        for when in ("setup", "call", "teardown"):
            said = (outcome, longrepr) if when == "call" else ("passed", None)
            report = pytest.TestReport(nodeid, location, {}, *said, when=when)  # type: ignore[arg-type]
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)

    def pytest_report_header(self) -> list[str]:
        return self.header()

    def pytest_unconfigure(self) -> None:
        self.close()

    def close(self) -> None:
        self._undo.close()


@contextlib.contextmanager
def _directory(journal: Journal) -> Iterator[Path]:
    """Where what is to be booted is described, and what guests said is kept until it is reported."""
    path = Path(tempfile.mkdtemp(prefix="fsstack-kernels-"))
    with journal.entry("directory", path=str(path)):
        try:
            yield path
        finally:
            shutil.rmtree(path)


def _chain_of(nodeid: str) -> str:
    """The class of a test, or the test itself where it is in none."""
    test = nodeid.partition("[")[0]
    return test.rpartition("::")[0] if test.count("::") > 1 else test


def start(config: pytest.Config, session: Session) -> Controller:
    """The controller for the kernels of the command line, ready. Raises `pytest.UsageError`."""
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("--fsstack-kernel needs pytest-xdist and virtme-ng: pip install pytest-fsstack[kernel]")
    if config.getoption("numprocesses", None) or config.getoption("tx", None):
        raise pytest.UsageError("--fsstack-kernel starts workers of its own: leave -n and --tx out")
    controller = Controller(config, plan_of(config), session)
    try:
        controller.activate()
    except BaseException:
        controller.close()
        raise
    return controller


def plan_of(config: pytest.Config) -> Plan:
    """What the command line asks for. Raises `pytest.UsageError`."""
    texts = list(options.value(config, "kernel"))
    try:
        kernels = tuple(resolve(text, cache_directory()) for text in texts)
    except KernelError as error:
        raise pytest.UsageError(f"--fsstack-kernel: {error}") from None
    names = [kernel.name for kernel in kernels]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise pytest.UsageError(f"--fsstack-kernel: two kernels are called {twice}; give one another local version")
    try:
        disk_size = parse_size(options.value(config, "size") or options.DEFAULT_SIZE)
    except ValueError as error:
        raise pytest.UsageError(f"--fsstack-size: {error}") from None
    return Plan(
        kernels=kernels,
        boots=_number(config, "boots", 1, least=1),
        memory=str(options.value(config, "vm_memory") or "2G"),
        cpus=_number(config, "vm_cpus", min(4, len(os.sched_getaffinity(0))), least=1),
        accelerator=str(options.value(config, "vm_accel") or "auto"),
        disk_size=disk_size,
        boot_seconds=300.0,
        silent_seconds=float(_number(config, "vm_timeout", 3600, least=1)),
        max_regression=_max_regression(config),
    )


def _number(config: pytest.Config, name: str, default: int, *, least: int) -> int:
    text = options.value(config, name)
    if text in (None, ""):
        return default
    try:
        number = int(float(text))
    except ValueError:
        number = least - 1
    if number < least:
        raise pytest.UsageError(f"--fsstack-{name.replace('_', '-')}: give a number from {least} on, not {text}")
    return number


def _max_regression(config: pytest.Config) -> float | None:
    text = options.value(config, "max_regression")
    if not text:
        return None
    try:
        rule = parse(text)
    except BudgetError:
        rule = None
    if rule is None or rule.budget.overhead is None or rule.pattern != "*" or rule.budget.metric != "seconds":
        raise pytest.UsageError(f"--fsstack-max-regression: {text!r} is not a percentage such as 5%")
    return rule.budget.overhead
