"""The pytest protocol for items of chains: one run in each round, and a final one without its work for the report.

Other plugins keep state about an item in wrappers of the hook ``pytest_runtest_protocol`` and of the hooks of its
phases. So each run calls that hook, and so does the report. The report repeats the phases, but replays their recorded
results instead of pytest's own work.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pytest

from pytest_fsstack.judging.decisions import Decision

When = Literal["setup", "call", "teardown"]
Reports = list[pytest.TestReport]

_PROPERTIES = pytest.StashKey[Iterable[tuple[str, object]]]()


@dataclass
class Run:
    """One run of an item, with the results of its phases."""

    item: pytest.Item
    #: The next item, or the collector up to which fixtures are torn down.
    following: Any
    calls: dict[When, pytest.CallInfo[Any]] = field(default_factory=dict)
    reports: Reports = field(default_factory=list)
    #: The reports of its subtests. If one fails, the test itself raises nothing.
    subtests: Reports = field(default_factory=list)
    #: Whether its fixtures were requested. Skip marks and hooks of other plugins come before that.
    reached: bool = False
    #: The seconds in which fixtures were set up that outlive the test, such as the stack.
    shared: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the duration of the test with its own fixtures, up to their teardown."""
        return sum(call.duration for when, call in self.calls.items() if when != "teardown") - self.shared

    @property
    def raised(self) -> bool:
        """Whether any phase or subtest raised an exception. Skips and expected failures count."""
        calls = self.calls.values()
        return any(report.failed for report in self.subtests) or any(call.excinfo for call in calls)

    @property
    def failed(self) -> bool:
        return self.raised and any(report.failed for report in [*self.subtests, *self.reports])

    @property
    def broke_in_setup(self) -> bool:
        """Whether it failed during setup."""
        return any(report.failed and report.when == "setup" for report in self.reports)

    @property
    def cause(self) -> str:
        """Return the error as pytest shows it, or the reason of a skip."""
        if self.failed:
            return "\n".join(report.longreprtext for report in [*self.subtests, *self.reports] if report.failed)
        skips = [report.longrepr for report in self.reports if report.skipped and isinstance(report.longrepr, tuple)]
        return "; ".join(text.removeprefix("Skipped: ") for _, _, text in skips)

    @property
    def reason(self) -> str:
        """Return in one line why it failed, or why that was expected. Empty if it did not fail."""
        for report in [*self.subtests, *self.reports]:
            if report.failed:
                return first_line(report)
            if report.skipped and (expected := getattr(report, "wasxfail", None)) is not None:
                return f"expected to fail: {expected}".removesuffix(": ")
        return ""

    @property
    def lacking(self) -> bool:
        """Whether it was skipped because the machine does not meet a requirement of its workload."""
        return any(getattr(call.excinfo.value, "lacking", False) for call in self.calls.values() if call.excinfo)

    @property
    def left_out(self) -> bool:
        """Whether a mark or a hook skipped the test before its fixtures were set up."""
        setup = self.calls.get("setup")
        return not self.reached and setup is not None and _is_skip(setup)


def first_line(report: pytest.TestReport) -> str:
    """Return the first line of a phase's error, or the reason for its skip."""
    if isinstance(report.longrepr, tuple):
        text = report.longrepr[2].removeprefix("Skipped: ")
    else:
        crash: Any = getattr(report.longrepr, "reprcrash", None)
        # pytest.fail(pytrace=False) has no location, and its text is the whole report. `longreprtext` would begin with
        # the worker of pytest-xdist.
        text = getattr(crash, "message", None) or str(report.longrepr or "")
        text = text.removeprefix("Failed: ")
    return next((line.strip() for line in text.splitlines() if line.strip()), report.outcome)


#: The attribute of a failure that says that the verdicts on its test's budgets are the only reason.
BY_LIMITS = "_fsstack_by_limits"


class Phase(NamedTuple):
    """A phase to report: a function that raises its exception (if any), and its duration in seconds."""

    when: When
    act: Callable[[], object]
    seconds: float = 0.0


def succeed() -> None:
    """Do nothing: the phase succeeded."""


def phases_of(run: Run) -> list[Phase]:
    """Return the recorded phases of a run."""
    return [Phase(when, raising_again(call), call.duration) for when, call in run.calls.items()]


def raising_again(call: pytest.CallInfo[Any]) -> Callable[[], object]:
    """Return a function that raises the exception of a phase again."""

    def act() -> None:
        __tracebackhide__ = True
        if call.excinfo:
            raise call.excinfo.value

    return act


def _is_skip(call: pytest.CallInfo[Any]) -> bool:
    # `xfail` is raised by the mark xfail(run=False).
    return bool(call.excinfo and call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)))


@contextlib.contextmanager
def _holding_reports(session: pytest.Session, reports: Reports) -> Iterator[None]:
    """Add reports to a list instead of logging them: of subtests, in a round of their test.

    Logged at once, a failed one could end the session before its test and those before it are reported. If the session
    ends here, they are logged.
    """
    original = session.gethookproxy

    def hooks(path: Any) -> Any:
        return _HoldingHooks(original(path), reports)

    session.gethookproxy = hooks  # type: ignore[method-assign, assignment]
    try:
        yield
    except BaseException:
        for report in reports:
            session.config.hook.pytest_runtest_logreport(report=report)
        raise
    finally:
        session.gethookproxy = original  # type: ignore[method-assign]


class _HoldingHooks:
    """Hooks for a path, of which one keeps the reports that it gets."""

    def __init__(self, hooks: Any, reports: Reports) -> None:
        self._hooks, self._reports = hooks, reports

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hooks, name)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)


class Protocol:
    """A pytest plugin that runs and reports items of chains.

    Register it last, so that its wrapper is the outermost: `before` runs a whole chain, which must not happen inside
    the protocol of one of its items.
    """

    def __init__(self, config: pytest.Config, before: Callable[[pytest.Item], None]) -> None:
        self.config, self._before = config, before
        # Look up pytest's own runner by its plugin name, to avoid a private import.
        self._runner: Any = config.pluginmanager.get_plugin("runner")
        self._run: Run | None = None
        self._act: Callable[[], object] | None = None

    # -- running -------------------------------------------------------------------------------------------------------

    def run(self, item: pytest.Item, following: Any) -> Run:
        """Run an item once with its fixtures, without reporting it."""
        # Do not repeat output and properties of the previous run.
        getattr(item, "_report_sections", []).clear()
        item.user_properties[:] = item.stash.setdefault(_PROPERTIES, list(item.user_properties))
        outer, self._run = self._run, Run(item, following)
        try:
            nextitem = following if isinstance(following, pytest.Item) else None
            with _holding_reports(item.session, self._run.subtests):
                item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
            return self._run
        finally:
            self._run = outer

    def tear_down(self, item: pytest.Item, following: Any) -> pytest.CallInfo[None]:
        """Tear down the fixtures that `following` does not share."""

        def tear_down() -> None:
            __tracebackhide__ = True
            self._runner.pytest_runtest_teardown(item, following)

        return pytest.CallInfo.from_call(tear_down, when="teardown")

    @pytest.hookimpl(specname="pytest_runtest_protocol", wrapper=True, tryfirst=True)
    def pytest_before_protocol(self, item: pytest.Item) -> Any:
        if self._run is None:
            self._before(item)
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

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Any:
        __tracebackhide__ = True
        run = self._run
        if run is None or fixturedef.scope == "function":
            return (yield)
        started, before = time.monotonic(), run.shared
        try:
            return (yield)
        finally:
            # Those that this one has requested are part of it.
            run.shared = before + time.monotonic() - started

    # -- reporting -----------------------------------------------------------------------------------------------------

    def report(self, item: pytest.Item, phases: Iterable[Phase]) -> Reports:
        """Replay the recorded phases of an item, and return their reports without logging them."""
        phases = list(phases)
        reports = [self._report(item, phase) for phase in phases]
        self._time_in_allure(sum(phase.seconds for phase in phases))
        return reports

    def _time_in_allure(self, seconds: float) -> None:
        """Set the duration for Allure. It uses its own clock, and the rounds are already over."""
        listener: Any = self.config.pluginmanager.get_plugin("allure_listener")
        if listener and (test := listener.allure_logger.get_test(None)):
            test.start = test.stop - round(seconds * 1000)

    def _report(self, item: pytest.Item, phase: Phase) -> pytest.TestReport:
        item.funcargs = {}  # type: ignore[attr-defined]  # pytest-benchmark looks into it
        hook = self._without_runner(item, f"pytest_runtest_{phase.when}")
        more = {"nextitem": None} if phase.when == "teardown" else {}

        def replay() -> Any:
            # The traceback of a test has no frames of the plugin, as it has none of pytest.
            __tracebackhide__ = True
            return hook(item=item, **more)

        self._act = phase.act
        try:
            end = (pytest.exit.Exception, KeyboardInterrupt)
            call = pytest.CallInfo.from_call(replay, when=phase.when, reraise=end)
        finally:
            self._act = None
        report: pytest.TestReport = item.ihook.pytest_runtest_makereport(item=item, call=call)
        report.duration = phase.seconds
        if report.skipped and isinstance(report.longrepr, tuple):
            # Point to the test, as for a skip mark, instead of this file.
            path, line = item.reportinfo()[:2]
            report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
        return report

    def _without_runner(self, item: pytest.Item, name: str) -> Any:
        """Return a hook for this item (not all conftests apply to it), without pytest's own runner."""
        plugins = self.config.pluginmanager
        called = {id(implementation.plugin) for implementation in getattr(item.ihook, name).get_hookimpls()}
        further = [plugin for plugin in plugins.get_plugins() if id(plugin) not in called]
        # Hypothesis would set up fixtures, and its test does not run here.
        return plugins.subset_hook_caller(name, [self._runner, plugins.get_plugin("hypothesispytest"), *further])

    def pytest_runtest_setup(self) -> None:
        # In the middle: after the marks that skip a test, before pytest sets it up.
        __tracebackhide__ = True
        if self._run is not None:
            self._run.reached = True
        self._stand_in()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_call(self) -> None:
        __tracebackhide__ = True
        self._stand_in()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        __tracebackhide__ = True
        self._stand_in()

    def _stand_in(self) -> None:
        __tracebackhide__ = True
        if self._act is not None:
            self._act()


def report_verdict(config: pytest.Config, nodeid: str, decision: Decision) -> None:
    """Report a verdict that belongs to no test as a separate test, for JUnit files and exit codes."""
    path, _, name = nodeid.partition("::")
    location = (path, None, name or path)
    passed, hook = Decision("passed"), config.hook
    hook.pytest_runtest_logstart(nodeid=nodeid, location=location)
    phases: tuple[tuple[When, Decision], ...] = (("setup", passed), ("call", decision), ("teardown", passed))
    for when, of_phase in phases:
        text = of_phase.text or None
        longrepr = (path, 1, of_phase.text) if of_phase.outcome == "skipped" else text
        # With the marker's keyword, like tests with stacks.
        report = pytest.TestReport(nodeid, location, {"fsstack": 1}, of_phase.outcome, longrepr, when)
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
