"""The worker in a kernel. It waits for a turn, runs a stack or reports tests, and sends samples. It judges nothing."""

from __future__ import annotations

import queue
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_fsstack import options
from pytest_fsstack.judging.cells import Policy, Task
from pytest_fsstack.kernels.messages import Collected, Measured, Report, Turn
from pytest_fsstack.rounds.chains import Chain
from pytest_fsstack.rounds.plans import plan_of

if TYPE_CHECKING:
    from pytest_fsstack.rounds.budgets import Budgets
    from pytest_fsstack.rounds.progress import Progress
    from pytest_fsstack.rounds.runner import Runner

#: Plugins that connect a worker to the controller over the loopback interface. A guest has its own interface, so the
#: worker would end before its first test.
_LOOPBACK_PLUGINS = ("rerunfailures", "pytest_rerunfailures")


def leave_out_plugins(config: pytest.Config) -> None:
    """Unregister the plugins that cannot work in a guest, before the worker is configured."""
    for name in _LOOPBACK_PLUGINS:
        if (plugin := config.pluginmanager.get_plugin(name)) is not None:
            config.pluginmanager.unregister(plugin)


class Worker:
    """The pytest plugin that runs chains in a kernel's worker, one turn at a time.

    Turns arrive on a separate execnet channel, each before its tests. If a test has no turn, pytest-xdist is shutting
    the worker down. The session is over, so the test does not run.
    """

    def __init__(self, runner: Runner, policy: Policy, budgets: Budgets, progress: Progress) -> None:
        self.runner, self.budgets = runner, budgets
        self._channel: Any = options.worker_input(runner.config)["turns"]
        self._turns: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._channel.setcallback(self._turns.put)
        self._turn = Turn(0)
        self._tests_left = 0
        #: Whether the started test needs no report now: it only ran a stack, or the session ends.
        self._skips_report = False
        #: The names of the chains, which are the same in all workers.
        self._keys: dict[Chain, str] = {}
        self._reports: dict[tuple[str, str], Report] = {}
        #: The positions of tests in the session, by which pytest-xdist sends reports.
        self._indices: dict[str, int] = {}
        plugins = runner.config.pluginmanager.get_plugins()
        self._xdist: Any = next(plugin for plugin in plugins if hasattr(plugin, "torun"))
        runner.start(self._before)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Send the plans of the chains, before pytest-xdist begins."""
        tests: dict[str, list[int]] = {}
        for index, item in enumerate(session.items):
            self._indices[item.nodeid] = index
            chain = self.runner.chains.get(item)
            if chain is None or not chain.timed:
                continue
            if chain not in self._keys:
                # Names of disks differ between guests, so the devices of a chain are numbered.
                self._keys[chain] = f"{chain.id} {sum(other.id == chain.id for other in self._keys)}"
            tests.setdefault(self._keys[chain], []).append(index)
        plans = {key: plan_of(chain, self.budgets) for chain, key in self._keys.items()}
        self._channel.send(msgspec.json.encode(Collected(plans, tests, self.budgets.without_stack)))

    def _before(self, item: pytest.Item) -> None:
        """Take a turn, if there is one: run a stack, or prepare the reports."""
        self._skips_report = False
        if not self._tests_left and not self._take_turn():
            self._skips_report = True
            return
        self._tests_left -= 1
        chain = self.runner.chains.get(item)
        if chain is None or not chain.timed:
            return
        if self._turn.task:
            self._measure(chain, self._turn.task)
            self._skips_report = True
            return
        if not chain.has_run:
            chain.has_run = True
            self._reports = {(report.step, report.stack): report for report in self._turn.reports}

    def _take_turn(self) -> bool:
        message = None
        while message is None:
            try:
                message = self._turns.get_nowait()  # None only shows that the session is alive
            except queue.Empty:
                return False
        self._turn = msgspec.json.decode(message, type=Turn)
        self._tests_left = self._turn.tests
        return True

    def _measure(self, chain: Chain, task: Task) -> None:
        run = self.runner.run(chain, task, lambda step: None)
        environment = self.runner.results.environment
        measured = Measured(self._keys[chain], task, run, environment)
        self._channel.send(msgspec.json.encode(measured))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        if self._skips_report:
            return True
        if (cell := self.runner.cell_of(item)) is None:
            return None
        chain, step, stack = cell
        report = self._reports[step, stack]
        self.runner.report(item, nextitem, chain, report.decision, report.figures)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None]:
        """Send the report of a subtest for its own test, although pytest-xdist has started another one for the turn."""
        started = self._xdist.item_index
        self._xdist.item_index = self._indices.get(report.nodeid, started)
        try:
            yield
        finally:
            self._xdist.item_index = started
