"""The process that the user started, when kernels are compared: it boots them, and puts together what they report."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options
from pytest_fsstack.data.corpus import cache_directory
from pytest_fsstack.judging.results import ChainResults
from pytest_fsstack.kernels import vm
from pytest_fsstack.kernels.comparison import Boot, Course
from pytest_fsstack.kernels.images import Kernel, KernelError, resolve
from pytest_fsstack.kernels.launch import Description
from pytest_fsstack.kernels.turns import Part, TurnScheduling, drawn
from pytest_fsstack.machine import load, signals
from pytest_fsstack.rounds.moment import Moment
from pytest_fsstack.rounds.progress import Pace, Progress
from pytest_fsstack.rounds.protocol import report_verdict

if TYPE_CHECKING:
    from pytest_fsstack.session.state import Session

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
        from pytest_fsstack.machine import directories

        self._undo = contextlib.ExitStack()
        self.directory = self._undo.enter_context(
            directories.temporary(Path(tempfile.gettempdir()), session.builder.journal, "fsstack-kernels-")
        )
        self.settings, self._counts = session.settings, session.budgets
        self._courses: dict[str, Course] = {}
        self._paces: dict[str, Pace] = {}
        #: The machine's counters before the round that is running, at both ends of a pause.
        self._seen = (load.read(), load.read())
        #: What the progress says of the chain that runs.
        self._moment = Moment("", "", 0, 0)
        #: How many budgets the error rate holds for all together, as the workers counted; 0 if it is each one's own.
        self._budgets = 0
        self._lines: dict[Any, _Line] = {}
        #: The names of all tests on all kernels, and of the verdicts between them.
        self._tests: set[str] = set()
        self._session: pytest.Session | None = None
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
        return shlex.join([sys.executable, "-m", "pytest_fsstack.kernels.launch", str(description)])

    def _log(self, index: int) -> Path:
        return self.directory / f"{index}.log"

    def header(self) -> list[str]:
        """What the session says about the kernels before it starts."""
        names = [kernel.name for kernel in self.plan.kernels]
        boots = "" if self.plan.boots == 1 else f", {self.plan.boots} boots each"
        lines = [f"fsstack: kernels {names[0]} (baseline){''.join(f', {name}' for name in names[1:])}{boots}"]
        if not self.kvm and any(kernel.in_vm for kernel in self.plan.kernels):
            lines.append("fsstack: the guests are emulated, not virtualized by KVM: their figures show function only")
        if self.config.getoption("reruns", None):
            lines.append("fsstack: --reruns: pytest-rerunfailures does not work in guests; no test is run again")
        return lines

    # -- pytest-xdist --------------------------------------------------------------------------------------------------

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> TurnScheduling:
        return TurnScheduling(len(self.plan.kernels) * self.plan.boots, self)

    def pytest_configure_node(self, node: Any) -> None:
        kernel, boot = self._boot_of(node)
        line = self._lines[node] = _Line(node.gateway.newchannel())
        node.workerinput[WORKER] = {
            "kernel": kernel,
            "boot": boot,
            "in_vm": self._kernel_of(_index(node))[0].in_vm,
            "seed": self.seed,
            "turns": line.channel,
        }

    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if not error:
            return
        # The worker that xdist starts in its place stands in for it: the reports of what it left come from there.
        index = _index(node)
        log = self._log(index)
        if not log.exists():
            log.write_text(f"kernel {self._kernel_of(index)[0].name}: the worker in it went down: {error}")
        node.gateway.spec.python = self._launch(index)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None]:
        self._session = session
        # Guests boot here, which nothing is torn apart in: they end with their processes.
        with signals.during(signals.State.TEST):
            yield

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

    def _add_record(self, record: dict[str, Any]) -> None:
        from pytest_fsstack.report.benchmark import add_record

        benchmarks = self.config.pluginmanager.get_plugin("pytest-benchmark")
        if benchmarks is not None:
            add_record(benchmarks, **record)

    # -- taking turns --------------------------------------------------------------------------------------------------

    def parts(self, node: Any, names: Sequence[str]) -> list[Part] | None:
        """The chains of a worker, as it says itself; one that says nothing stands in for another."""
        told = self._lines[node].heard()
        if not told:
            return None
        self._budgets = max(self._budgets, told[0]["confirmed"])
        self._counts.add(told[0]["budgets"], judged=0)
        measured = {index: chain for chain, tests in told[0]["chains"].items() for index in tests}
        tests: dict[str, list[int]] = {}
        for index, name in enumerate(names):
            tests.setdefault(measured.get(index) or _chain_of(name), []).append(index)
        return [Part(chain, tuple(found), chain in told[0]["chains"]) for chain, found in tests.items()]

    def next_round(self, chain: str, nodes: Sequence[Any]) -> list[Any]:
        """The workers on which somebody wants to know more of a chain; none where a failure ends the session (-x)."""
        limit = self.config.getoption("maxfail", 0)
        if limit and sum(course.failed for course in self._courses.values()) >= limit:
            return []
        course, rules = self._course(chain), self.settings.discard_rounds
        if course.found:
            course.end_round(load.conditions(*self._seen, load.read()))
            self._moment = self._moment._replace(
                stacks=tuple(course.standings()),
                decided=course.decided(),
                left=self._paces[chain].left(course.left()),
            )
            self._show(chain)
        if course.gave_up:
            return []
        course.confirm()
        taking_part = [node for node in nodes if course.wanted(self._boot_of(node)) != []]
        if taking_part:
            self._seen = load.watch(any(rule.name.startswith("psi") for rule in rules))
            before, now = self._seen
            course.begin_round(load.conditions(before, now, now), rules)
        return taking_part

    def line_up(self, chain: str, number: int, nodes: Sequence[Any]) -> list[Any]:
        """Drawn for a round; the reports are in the order of the kernels."""
        ordered = sorted(nodes, key=_index)
        return drawn(self.seed, chain, number, ordered) if number else ordered

    def begin(self, node: Any, chain: str, number: int, tests: int) -> None:
        """Tell a worker what its turn is for; and the others that the session lives, so that they wait on."""
        if number:
            self._show(chain, self._boot_of(node)[0])
        else:
            self._moment = Moment("", "", 0, 0)
            self._progress.end()
        for other, line in self._lines.items():
            if other is node:
                line.tell((tests, *(self._course(chain).order(self._boot_of(node)) if number else (0, None, None))))
            else:
                line.tell(None)

    def end(self, node: Any, chain: str, number: int) -> None:
        for message in self._lines[node].heard():
            boot, course = self._boot_of(node), self._course(chain)
            before = course.runs
            environment = course.hear(boot, message)
            if over := message["over"]:
                self._counts.add(-over["waived"], judged=over["judged"])
            self._paces[chain].add(course.runs - before)
            self.results.environment.setdefault("kernels", {})[boot[0]] = environment

    def lost(self, node: Any) -> None:
        del self._lines[node]
        for course in self._courses.values():
            course.lose(self._boot_of(node))

    def _course(self, chain: str) -> Course:
        if chain not in self._courses:
            kernels = [kernel.name for kernel in self.plan.kernels]
            self._paces[chain] = Pace()
            self._courses[chain] = Course(kernels, self.plan.boots, self.plan.max_regression, self._budgets)
        return self._courses[chain]

    @cached_property
    def _progress(self) -> Progress:
        # There is no reporter yet when this plugin is made.
        return Progress.of(self.config)

    def _show(self, chain: str, running: str = "") -> None:
        """Say where a chain is: between turns, so that no kernel waits for it."""
        name, _, device = chain.rpartition(" ")
        course = self._course(chain)
        since = course.confirming_since
        self._moment = self._moment._replace(
            chain=name,
            device=self.settings.devices[int(device)].spec,
            round=max(1, course.number - (since or 0)),
            most=self.settings.looks.most,
            phase="planned" if since is None else "confirming",
            running=running,
            elapsed=self._paces[chain].elapsed,
        )
        self._progress(self._moment)

    def _boot_of(self, node: Any) -> Boot:
        kernel, boot = self._kernel_of(_index(node))
        return kernel.name, boot

    # -- judging -------------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            with signals.during(signals.State.TEST):
                return (yield)
        finally:
            self._progress.end()
            self._conclude()

    def _conclude(self) -> None:
        for course in self._courses.values():
            if not course.found:
                continue
            chain = course.conclude()
            self.results.chains.append(chain)
            if within := course.within():
                self.results.chains.append(within)
            if len(self.plan.kernels) > 1:
                # A limit that nothing was compared for is one that nothing was found out about.
                least = 0 if self.plan.max_regression is None else 1
                self._counts.add(max(least, len(chain.judgements)), judged=chain.judged)
                for step, stack in chain.judgements:
                    self._report(chain, step, stack)
        self._courses.clear()

    def _report(self, chain: ChainResults, step: str, stack: str) -> None:
        """Report a verdict between kernels as a test of its own, which JUnit and exit codes know how to treat."""
        from pytest_fsstack.judging import results

        worst = chain.worst(step, stack)
        nodeid = f"{chain.id}::{step} on {stack} against {chain.reference(stack)}"
        if worst == "fail" or (worst == "inconclusive" and self.strict):
            report_verdict(self.config, nodeid, "failed", results.describe_failure(chain, step, stack))
        elif worst == "inconclusive":
            report_verdict(self.config, nodeid, "skipped", results.describe_undecided(chain, step, stack))
        elif self.strict and (doubt := chain.doubt(step, stack)):
            report_verdict(self.config, nodeid, "failed", f"{nodeid}: {worst}, but {doubt} (--fsstack-strict)")
        else:
            report_verdict(self.config, nodeid, "passed", "")

    def pytest_report_header(self) -> list[str]:
        return self.header()

    def pytest_unconfigure(self) -> None:
        self.close()

    def close(self) -> None:
        self._undo.close()


class _Line:
    """What is said to a worker and heard from it, beside pytest-xdist's own channel and in the same order."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        # Filled by execnet's own thread, before xdist is told of what the worker says after it.
        self._inbox: deque[str] = deque()
        channel.setcallback(self._inbox.append)

    def tell(self, order: tuple[Any, ...] | None) -> None:
        # If the worker has just gone down, xdist is about to say so.
        with contextlib.suppress(OSError):
            self.channel.send(order)

    def heard(self) -> list[dict[str, Any]]:
        """What has arrived since the last call."""
        return [json.loads(self._inbox.popleft()) for _ in range(len(self._inbox))]


def _index(node: Any) -> int:
    return int(node.gateway.spec.fsstack)


def _chain_of(nodeid: str) -> str:
    """The class of a test, or the test itself where it is in none."""
    test = nodeid.partition("[")[0]
    return test.rpartition("::")[0] if test.count("::") > 1 else test


def start(config: pytest.Config, session: Session) -> Controller:
    """The controller for the kernels of the command line, ready. Raises `pytest.UsageError`, and what a signal ends it
    with: from here on they are caught.
    """
    if not config.pluginmanager.hasplugin("xdist"):
        raise pytest.UsageError("--fsstack-kernel needs pytest-xdist and virtme-ng: pip install pytest-fsstack[kernel]")
    if config.getoption("numprocesses", None) or config.getoption("tx", None):
        raise pytest.UsageError("--fsstack-kernel starts workers of its own: leave -n and --tx out")
    controller = Controller(config, plan_of(config), session)
    session.catch_signals()
    try:
        with signals.during(signals.State.TEST):
            controller.activate()
        session.note_labels()
    except BaseException:
        controller.close()
        raise
    return controller


def plan_of(config: pytest.Config) -> Plan:
    """What the command line asks for. Raises `pytest.UsageError`."""
    source = options.given_for(config, "kernel")
    where = source.where if source else "--fsstack-kernel"
    try:
        kernels = tuple(resolve(text, cache_directory()) for text in options.value(config, "kernel"))
    except KernelError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    names = [kernel.name for kernel in kernels]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise pytest.UsageError(f"{where}: two kernels are called {twice}; give one another local version")
    return Plan(
        kernels=kernels,
        boots=options.boots(config),
        memory=f"{options.value(config, 'vm-memory') >> 20}M",
        cpus=options.value(config, "vm-cpus") or min(4, len(os.sched_getaffinity(0))),
        accelerator=options.value(config, "vm-accel"),
        disk_size=options.value(config, "size"),
        boot_seconds=300.0,
        silent_seconds=options.value(config, "vm-timeout"),
        max_regression=options.value(config, "max-regression"),
    )
