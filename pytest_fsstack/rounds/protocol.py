"""The protocol of an item of a chain: pytest runs it in each round, and a last time, without its work, to report it.

Other plugins keep what they know of an item in wrappers of the hook ``pytest_runtest_protocol`` and of the hooks of its
phases. So each run in a round is a call of that hook, and so is the report: there the phases are gone through once
more, with what became of them in the place of pytest's own work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pytest

When = Literal["setup", "call", "teardown"]
Reports = list[pytest.TestReport]

_PROPERTIES = pytest.StashKey[Iterable[tuple[str, object]]]()


@dataclass
class Run:
    """One run of an item: what became of its phases."""

    item: pytest.Item
    #: What runs after it: an item, or the collector that its fixtures are torn down to.
    following: Any
    calls: dict[When, pytest.CallInfo[Any]] = field(default_factory=dict)
    reports: Reports = field(default_factory=list)
    #: Whether its fixtures were asked for: a skip mark, or a hook of another plugin, comes before.
    reached: bool = False

    @property
    def raised(self) -> bool:
        """Whether a phase raised anything, a skip and an expected failure included."""
        return any(call.excinfo for call in self.calls.values())

    @property
    def failed(self) -> bool:
        return self.raised and any(report.failed for report in self.reports)

    @property
    def broke_in_setup(self) -> bool:
        """Whether it failed before the test itself began."""
        return any(report.failed and report.when == "setup" for report in self.reports)

    @property
    def cause(self) -> str:
        """Return the error as pytest shows it."""
        return "\n".join(report.longreprtext for report in self.reports if report.failed)

    @property
    def left_out(self) -> bool:
        """Whether a mark or a hook skipped the test before any fixture of it was made."""
        setup = self.calls.get("setup")
        return not self.reached and setup is not None and _is_skip(setup)


class Phase(NamedTuple):
    """A phase of a report: what it raises, if anything, and how many seconds its work took."""

    when: When
    act: Callable[[], object]
    seconds: float = 0.0


def nothing() -> None:
    """A phase in which nothing went wrong."""


def phases_of(run: Run) -> list[Phase]:
    """The phases of a run as they were."""
    return [Phase(when, again(call), call.duration) for when, call in run.calls.items()]


def again(call: pytest.CallInfo[Any]) -> Callable[[], object]:
    """Raises what a phase raised."""

    def act() -> None:
        if call.excinfo:
            raise call.excinfo.value

    return act


def _is_skip(call: pytest.CallInfo[Any]) -> bool:
    # The other one is that of a mark xfail(run=False).
    return bool(call.excinfo and call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)))


class Protocol:
    """The pytest plugin that runs and reports items of chains.

    Register it after all others, so that its wrapper is the outermost: `before` runs a whole chain, which must not
    happen inside the protocol of one of its items.
    """

    def __init__(self, config: pytest.Config, before: Callable[[pytest.Item, pytest.Item | None], None]) -> None:
        self.config, self._before = config, before
        # The module of pytest's own runner, by its plugin's name rather than by a private import.
        self._runner: Any = config.pluginmanager.get_plugin("runner")
        self._run: Run | None = None
        self._act: Callable[[], object] | None = None

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, item: pytest.Item, following: Any) -> Run:
        """Run an item once, with its fixtures, and report it to nobody."""
        # What the last run printed and recorded is not said again.
        getattr(item, "_report_sections", []).clear()
        item.user_properties[:] = item.stash.setdefault(_PROPERTIES, list(item.user_properties))
        outer, self._run = self._run, Run(item, following)
        try:
            nextitem = following if isinstance(following, pytest.Item) else None
            item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            return self._run
        finally:
            self._run = outer

    def tear_down(self, item: pytest.Item, following: Any) -> pytest.CallInfo[None]:
        """Tear down the fixtures that `following` does not share."""
        return pytest.CallInfo.from_call(lambda: self._runner.pytest_runtest_teardown(item, following), when="teardown")

    @pytest.hookimpl(specname="pytest_runtest_protocol", wrapper=True, tryfirst=True)
    def pytest_before_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        if self._run is None:
            self._before(item, nextitem)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        run = self._run
        if run is None:
            return None
        run.reports = list(self._runner.runtestprotocol(item, log=False, nextitem=run.following))
        return True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
        if self._run is not None and call.when in ("setup", "call", "teardown"):
            self._run.calls[call.when] = call
        return (yield)

    # -- reporting -----------------------------------------------------------------------------------------------------

    def report(self, item: pytest.Item, phases: Iterable[Phase]) -> Reports:
        """Go through the phases of an item, of which only what they raise is left, and report each to nobody yet."""
        phases = list(phases)
        reports = [self._report(item, phase) for phase in phases]
        self._time_in_allure(sum(phase.seconds for phase in phases))
        return reports

    def _time_in_allure(self, seconds: float) -> None:
        """Set the duration that Allure shows: it takes the time by its own clock, and the rounds ran before."""
        listener: Any = self.config.pluginmanager.get_plugin("allure_listener")
        if listener and (test := listener.allure_logger.get_test(None)):
            test.start = test.stop - round(seconds * 1000)

    def _report(self, item: pytest.Item, phase: Phase) -> pytest.TestReport:
        item.funcargs = {}  # type: ignore[attr-defined]  # pytest-benchmark looks into it
        hook = self._without_runner(item, f"pytest_runtest_{phase.when}")
        more = {"nextitem": None} if phase.when == "teardown" else {}
        self._act = phase.act
        try:
            end = (pytest.exit.Exception, KeyboardInterrupt)
            call = pytest.CallInfo.from_call(lambda: hook(item=item, **more), when=phase.when, reraise=end)
        finally:
            self._act = None
        report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
        report.duration = phase.seconds
        if report.skipped and isinstance(report.longrepr, tuple):
            # Where the test stands, as for a skip mark: nobody looks for the reason in this file.
            path, line = item.reportinfo()[:2]
            report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
        return report

    def _without_runner(self, item: pytest.Item, name: str) -> Any:
        """The hook as this item calls it (some conftests are none of its), but for what pytest itself does in it."""
        plugins = self.config.pluginmanager
        called = {id(implementation.plugin) for implementation in getattr(item.ihook, name).get_hookimpls()}
        further = [plugin for plugin in plugins.get_plugins() if id(plugin) not in called]
        # Hypothesis sets up fixtures to look at them, and has nothing to say where its test does not run.
        return plugins.subset_hook_caller(name, [self._runner, plugins.get_plugin("hypothesispytest"), *further])

    def pytest_runtest_setup(self) -> None:
        # Neither first nor last: after the marks that skip a test, before pytest sets it up.
        if self._run is not None:
            self._run.reached = True
        self._stand_in()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self) -> None:
        self._stand_in()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        self._stand_in()

    def _stand_in(self) -> None:
        if self._act is not None:
            self._act()


Outcome = Literal["passed", "failed", "skipped"]


def report_verdict(config: pytest.Config, nodeid: str, outcome: Outcome, text: str) -> None:
    """Report a verdict that belongs to no test as a test of its own, which JUnit and exit codes know how to treat."""
    path, _, name = nodeid.partition("::")
    location = (path, None, name or path)
    longrepr: str | tuple[str, int, str] | None = (path, 1, text) if outcome == "skipped" else text or None
    hook = config.hook
    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
    phases: tuple[tuple[When, Outcome, str | tuple[str, int, str] | None], ...] = (
        ("setup", "passed", None),
        ("call", outcome, longrepr),
        ("teardown", "passed", None),
    )
    for when, became, said in phases:
        # As if it had the mark: so it can be told from tests without stacks.
        report = pytest.TestReport(nodeid, location, {"fsstack": 1}, became, said, when)
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
