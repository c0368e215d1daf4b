"""The plugin in the process that the user started. It boots kernels, and collects and judges their samples."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_fsstack.judging.cells import Cell, ChainPlan, KernelBoot, Policy
from pytest_fsstack.judging.course import Course
from pytest_fsstack.judging.runs import min_runs
from pytest_fsstack.kernels import vm
from pytest_fsstack.kernels.boots import why_no_gate
from pytest_fsstack.kernels.images import Kernel, KernelError, resolve
from pytest_fsstack.kernels.launch import SHUTDOWN_SECONDS, Description
from pytest_fsstack.kernels.messages import Collected, FromWorker, Measured, Report, Turn
from pytest_fsstack.kernels.turns import ChainTests, TurnScheduling
from pytest_fsstack.machine import signals
from pytest_fsstack.rounds.progress import Progress
from pytest_fsstack.rounds.protocol import report_verdict
from pytest_fsstack.rounds.rounds import Rounds
from pytest_fsstack.workloads.data.corpus import cache_directory

if TYPE_CHECKING:
    from pytest_fsstack.options.settings import Settings
    from pytest_fsstack.session.state import Session

#: The key of the kernel's facts in `workerinput` of a worker.
WORKER = "fsstack"


@dataclass(frozen=True)
class Plan:
    """The kernels to boot, in order, and the limit for slower ones (0.05 is 5 %; None: no limit)."""

    kernels: tuple[Kernel, ...]
    boots: int
    memory: str
    cpus: int
    accelerator: str
    disk_size: int
    silent_seconds: float
    max_regression: float | None
    #: Why the limit gives no verdicts. Empty if it does, or if there is none.
    why_no_gate: str = ""

    @cached_property
    def kernel_boots(self) -> list[tuple[Kernel, int]]:
        """Return each boot of each kernel, with the number of the boot from 0."""
        return [(kernel, boot) for boot in range(self.boots) for kernel in self.kernels if kernel.can_boot or not boot]


class Controller:
    """The pytest plugin in the process that the user started."""

    def __init__(self, config: pytest.Config, plan: Plan, session: Session) -> None:
        self.config, self.plan, self.results = config, plan, session.results
        self.seed = session.settings.seed
        from pytest_fsstack.machine import directories

        self._undo = contextlib.ExitStack()
        self.directory = self._undo.enter_context(
            directories.temporary(directories.safe_place(), session.builder.journal, "fsstack-kernels-")
        )
        self.settings, self._counts = session.settings, session.budgets
        self._own_policy, self._after_round = session.policy, session.after_round
        #: The plans of the chains from all workers, by name.
        self._plans: dict[str, dict[KernelBoot, ChainPlan]] = {}
        self._rounds: dict[str, Rounds] = {}
        self._channels: dict[Any, _Channel] = {}
        #: The workers that measure, and those that went down.
        self._nodes: dict[KernelBoot, Any] = {}
        self._lost: set[KernelBoot] = set()
        #: The names of all tests on all kernels, and of the verdicts between them.
        self._tests: set[str] = set()
        self._session: pytest.Session | None = None
        self._closed = threading.Event()
        self._started = time.strftime("%Y%m%d-%H%M%S")
        self.kvm = False

    # -- starting ------------------------------------------------------------------------------------------------------

    def activate(self) -> None:
        """Make pytest-xdist start a worker for each kernel and boot. Raises `pytest.UsageError`."""
        in_vm = [kernel for kernel in self.plan.kernels if kernel.in_vm]
        if in_vm:
            if reason := vm.why_no_guest(Path.cwd()):
                raise pytest.UsageError(f"--fsstack-kernel: {reason}")
            self.kvm = vm.accelerate(self.plan.accelerator, in_vm[0])
        option = self.config.option
        option.dist, option.numprocesses = "each", None
        # Each kernel that goes down gets a stand-in, which fails its tests. Without one, they would just be missing.
        option.maxworkerrestart = None
        option.tx = [self._worker(index) for index in range(len(self.plan.kernel_boots))]

    def _is_emulated(self, worker: int) -> bool:
        return self._kernel_of(worker)[0].in_vm and not self.kvm

    def _kernel_of(self, worker: int) -> tuple[Kernel, int]:
        return self.plan.kernel_boots[worker]

    def _worker(self, index: int) -> str:
        """Return the execnet specification of a worker."""
        kernel, _ = self._kernel_of(index)
        python = f"python={self._launch(index)}//" if kernel.in_vm else ""
        return f"popen//{python}fsstack={index}"

    def _launch(self, index: int) -> str:
        """Return the command that replaces a Python: a guest, or a stand-in for a worker that went down."""
        kernel, boot = self._kernel_of(index)
        plan, description = self.plan, self.directory / f"{index}.json"
        results = Path.cwd() / f"fsstack-results-{self._started}-{kernel.name}-{boot + 1}"
        # Stacks in marks of tests are only known in the guests.
        disks = max((stack.members for stack in self.settings.stacks), default=1)
        machine = vm.Machine(kernel, Path.cwd(), plan.memory, plan.cpus, self.kvm, disks)
        Description(machine, plan.disk_size, plan.silent_seconds, self._log(index), results).write(description)
        return shlex.join([sys.executable, "-m", "pytest_fsstack.kernels.launch", str(description)])

    def _log(self, index: int) -> Path:
        return self.directory / f"{index}.log"

    def pytest_report_header(self) -> list[str]:
        names = [kernel.name for kernel in self.plan.kernels]
        boots = "" if self.plan.boots == 1 else f", {self.plan.boots} boots each"
        if boots and len(self.plan.kernel_boots) < self.plan.boots * len(names):
            boots += ", of the running kernel only one"
        lines = [f"fsstack: kernels {names[0]} (baseline){''.join(f', {name}' for name in names[1:])}{boots}"]
        if any(map(self._is_emulated, range(len(self.plan.kernel_boots)))):
            judged = "budgets on time are judged all the same (--fsstack-judge-emulated)"
            if not self.settings.judges_emulated:
                judged = "budgets on time are not judged there (--fsstack-judge-emulated judges them)"
            lines.append(f"fsstack: the guests are emulated, which shows function, not speed: {judged}")
        if self.plan.why_no_gate:
            lines.append(f"fsstack: {self.plan.why_no_gate}")
        if self.config.getoption("reruns", None):
            lines.append("fsstack: --reruns: pytest-rerunfailures does not work in guests; no test is run again")
        return lines

    # -- pytest-xdist --------------------------------------------------------------------------------------------------

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> TurnScheduling:
        return TurnScheduling(len(self.plan.kernel_boots), self)

    def pytest_configure_node(self, node: Any) -> None:
        kernel, boot = self._kernel_boot_of(node)
        channel = self._channels[node] = _Channel(node.gateway.newchannel())
        node.workerinput[WORKER] = {
            "kernel": kernel,
            "boot": boot,
            "in_vm": self._kernel_of(_index(node))[0].in_vm,
            "seed": self.seed,
            "turns": channel.channel,
        }

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if not error:
            return
        # xdist starts another worker, which reports the remaining tests of this one.
        index = _index(node)
        log = self._log(index)
        if not log.exists():
            log.write_text(f"kernel {self._kernel_of(index)[0].name}: the worker in it went down: {error}")
        node.gateway.spec.python = self._launch(index)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None]:
        self._session = session
        arguments = self._channels, self.plan.silent_seconds / 4, self._closed
        pulse = threading.Thread(target=keep_awake, args=arguments, daemon=True)
        pulse.start()
        self._undo.callback(pulse.join)
        self._undo.callback(self._closed.set)
        # Guests boot here. An interrupt is safe at any time, because guests end with their processes.
        with signals.during(signals.State.TEST):
            yield

    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._tests.update(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests.add(report.nodeid)
        if self._session is not None:
            # pytest-xdist sets it to the number of tests of one worker, so the progress would exceed 100 %.
            self._session.testscollected = len(self._tests)
        record = getattr(report, "fsstack_record", None)
        benchmarks = self.config.pluginmanager.get_plugin("pytest-benchmark")
        if record and benchmarks is not None:
            from pytest_fsstack.report.benchmark import add_record

            add_record(benchmarks, **json.loads(record))

    # -- taking turns --------------------------------------------------------------------------------------------------

    def parts(self, node: Any, names: Sequence[str]) -> list[ChainTests] | None:
        """Return the chains that a worker has collected, or None if it is a stand-in, which sends nothing."""
        for message in self._channels[node].received():
            if isinstance(message, Collected):
                kernel_boot = self._kernel_boot_of(node)
                self._nodes[kernel_boot] = node
                self._counts.without_stack |= message.without_stack
                emulated = self._is_emulated(_index(node))
                for chain, plan in message.chains.items():
                    plan = msgspec.structs.replace(plan, emulated=plan.emulated or emulated)
                    self._plans.setdefault(chain, {})[kernel_boot] = plan
                return _parts(message, names)
        return None

    def next_round(self, chain: str, nodes: Sequence[Any]) -> list[tuple[Any, Turn]]:
        """Return the turns of a chain's next round. Empty at the end, or if a failure ends the session (-x)."""
        rounds = self._rounds_of(chain)
        rounds.end()
        if not nodes:
            return []
        turns = [(self._nodes[task.cell.kernel_boot], Turn(1, task)) for task in rounds.next()]
        return turns if any(node in nodes for node, _ in turns) else []

    def is_due(self, chain: str, what: Turn) -> bool:
        """Return whether a task is still to be done."""
        return what.task is not None and self._rounds_of(chain).course.can_run(what.task)

    def reports(self, chain: str, nodes: Sequence[Any]) -> list[tuple[Any, Turn]]:
        """Return the turns in which the workers report the tests of a chain, in the order of the kernels."""
        reports: dict[KernelBoot, list[Report]] = {}
        if chain in self._plans:
            course = self._rounds_of(chain).course
            course.conclude(self._comparisons)
            full = self.settings.junit == "full"
            for kernel_boot, plan in self._plans[chain].items():
                cells = [(test.step, Cell(test.stack, *kernel_boot)) for test in plan.tests]
                reports[kernel_boot] = [
                    Report(step, cell.stack, course.decision(step, cell), course.figures(step, cell, full=full))
                    for step, cell in cells
                ]
        self._progress.end()
        ordered = sorted(nodes, key=_index)
        return [(node, Turn(0, reports=reports.get(self._kernel_boot_of(node), []))) for node in ordered]

    @property
    def _comparisons(self) -> int:
        """Return the number of tests of the session that are compared with a baseline."""
        return sum(plan.comparisons for by_boot in self._plans.values() for plan in by_boot.values())

    def begin(self, node: Any, chain: str, what: Turn, tests: int) -> None:
        """Send a worker its task."""
        if what.task:
            # Nothing is drawn during a turn.
            rounds = self._rounds_of(chain)
            rounds.show(rounds.course.name(what.task.cell))
        what.tests = tests
        self._channels[node].send(msgspec.json.encode(what))

    def end(self, node: Any) -> None:
        self._channels[node].waits = True
        for message in self._channels[node].received():
            if isinstance(message, Measured):
                self._rounds_of(message.chain).add(message.task, message.run)
                self.results.environment.setdefault("kernels", {})[message.task.cell.kernel] = message.environment

    def lose(self, node: Any) -> None:
        del self._channels[node]
        kernel_boot = self._kernel_boot_of(node)
        self._lost.add(kernel_boot)
        for rounds in self._rounds.values():
            rounds.course.lose(kernel_boot)

    def _rounds_of(self, chain: str) -> Rounds:
        if chain not in self._rounds:
            kernels = [kernel.name for kernel in self.plan.kernels]
            course = Course(self._plans[chain], self._policy, chain, kernels, self.plan.boots)
            for kernel_boot in self._lost:
                course.lose(kernel_boot)
            session = self._rounds.values()
            self._rounds[chain] = Rounds(course, self.config, self._progress, self._after_round, session)
        return self._rounds[chain]

    @cached_property
    def _policy(self) -> Policy:
        """Return the policy of all courses. It needs the budgets of all workers, which may share the error rate."""
        limit, first = self.plan.max_regression, self.plan.kernels[0].name
        plans = [(kernel_boot, plan) for by_boot in self._plans.values() for kernel_boot, plan in by_boot.items()]
        own = sum(budget.overhead is not None for _, plan in plans for test in plan.tests for budget in test.budgets)
        between = sum(
            len(plan.tests) for kernel_boot, plan in plans if kernel_boot.boot == 0 and kernel_boot.kernel != first
        )
        judges_kernels = limit is not None and not self.plan.why_no_gate
        sharing = (own + (between if judges_kernels else 0)) if self.settings.confirms else 0
        alpha = self._own_policy.looks.alpha / max(1, sharing)
        if self.settings.strict and judges_kernels and 1 < self.plan.boots < (boots := min_runs(alpha)):
            raise pytest.UsageError(
                f"--fsstack-max-regression: {sharing} verdicts share the error rate of the session, and each takes "
                f"{boots} boots at {alpha:.2g}: add --fsstack-boots={boots}, or --fsstack-error-rate-per=budget "
                "(--fsstack-strict)"
            )
        if own or (judges_kernels and self.plan.boots == 1):
            # Several boots confirm nothing by rounds.
            self.settings.check_confirmation(sharing)
        return replace(self._own_policy, limit=limit, sharing=sharing)

    @cached_property
    def _progress(self) -> Progress:
        # The reporter does not exist yet when this plugin is created.
        return Progress.of(self.config)

    def _kernel_boot_of(self, node: Any) -> KernelBoot:
        kernel, boot = self._kernel_of(_index(node))
        return KernelBoot(kernel.name, boot)

    # -- judging -------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            with signals.during(signals.State.TEST):
                result = yield
            # Otherwise pytest-xdist kills guests that take 10 s to hand back their results and shut down.
            self.config.pluginmanager.getplugin("dsession").nodemanager.EXIT_TIMEOUT = 2 * SHUTDOWN_SECONDS
            return result
        finally:
            self._progress.end()
            self._conclude()

    def _conclude(self) -> None:
        for chain, plans in self._plans.items():
            if rounds := self._rounds.get(chain):
                course = rounds.course
                course.conclude(self._comparisons)
                self.results.chains += course.views.final()
                self._counts.add(course.budgets, judged=course.judged)
                for nodeid, decision in course.decisions_between():
                    # JUnit and the exit code treat each verdict as a test.
                    report_verdict(self.config, nodeid, decision)
            else:
                self._counts.add(sum(len(test.budgets) for plan in plans.values() for test in plan.tests), judged=0)
        self._plans.clear()

    def pytest_unconfigure(self) -> None:
        self.close()

    def close(self) -> None:
        self._undo.close()


class _Channel:
    """The channel to a worker, in addition to that of pytest-xdist. Messages on both keep their order."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        #: Whether the worker waits for a task. It first collects its tests.
        self.waits = False
        # A thread of execnet fills it before xdist gets later messages of the worker.
        self._inbox: deque[bytes] = deque()
        channel.setcallback(self._receive)

    def _receive(self, message: bytes) -> None:
        self._inbox.append(message)
        self.waits = True

    def send(self, task: bytes | None) -> None:
        """Send a task, or None as a sign that the session is alive."""
        if task is not None:
            self.waits = False
        # If the worker has just gone down, xdist will report that.
        with contextlib.suppress(OSError):
            self.channel.send(task)

    def received(self) -> list[FromWorker]:
        """Return the messages since the last call."""
        return [msgspec.json.decode(self._inbox.popleft(), type=FromWorker) for _ in range(len(self._inbox))]


def keep_awake(channels: Mapping[Any, _Channel], seconds: float, ended: threading.Event) -> None:
    """Send a sign to waiting workers again and again until the event is set.

    A guest that hears and says nothing is killed, however long others boot or measure meanwhile.
    """
    while not ended.wait(seconds):
        for node, channel in list(channels.items()):
            if channel.waits and not node.shutting_down:
                channel.send(None)


def _parts(collected: Collected, names: Sequence[str]) -> list[ChainTests]:
    """Return the chains of a worker. Tests that measure nothing are grouped by their class."""
    measured = {index: chain for chain, tests in collected.tests.items() for index in tests}
    tests: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        tests.setdefault(measured.get(index) or _chain_of(name), []).append(index)
    return [ChainTests(chain, tuple(indices), chain in collected.tests) for chain, indices in tests.items()]


def _index(node: Any) -> int:
    return int(node.gateway.spec.fsstack)


def _chain_of(nodeid: str) -> str:
    """Return the class of a test, or the test if it has no class."""
    test = nodeid.partition("[")[0]
    return test.rpartition("::")[0] if test.count("::") > 1 else test


def start(config: pytest.Config, session: Session) -> Controller:
    """Return the controller for the kernels of the command line, ready to start. Raises `pytest.UsageError`.

    Signals are caught from here on, and may raise their exception.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("--fsstack-kernel needs pytest-xdist and virtme-ng: pip install pytest-fsstack[kernel]")
    if config.getoption("numprocesses", None) or config.getoption("tx", None):
        raise pytest.UsageError("--fsstack-kernel starts workers of its own: leave -n and --tx out")
    controller = Controller(config, plan_of(session.settings), session)
    session.catch_signals()
    try:
        with signals.during(signals.State.TEST):
            controller.activate()
        session.note_labels()
    except BaseException:
        controller.close()
        raise
    return controller


def plan_of(settings: Settings) -> Plan:
    """Return the plan of the command line. Raises `pytest.UsageError`."""
    where = settings.origin("kernel")
    try:
        kernels = tuple(resolve(text, cache_directory()) for text in settings.kernels)
    except KernelError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    names = [kernel.name for kernel in kernels]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise pytest.UsageError(f"{where}: two kernels have the name {twice}; rename one: 'other = KERNEL'")
    return Plan(
        kernels=kernels,
        boots=settings.boots,
        memory=f"{settings.vm_memory >> 20}M",
        cpus=settings.vm_cpus or min(4, len(os.sched_getaffinity(0))),
        accelerator=settings.vm_accel,
        disk_size=settings.size,
        silent_seconds=settings.vm_timeout,
        max_regression=settings.max_regression,
        why_no_gate=why_no_gate(settings),
    )
