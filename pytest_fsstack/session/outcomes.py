"""The outcome of each test on a stack, collected from pytest's reports for the results."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_fsstack.records.results import TestOutcome
    from pytest_fsstack.session.state import Session

#: The attribute of a test's exception that says why the file below the stack cannot grow, and if anything shows it.
_NO_SPACE = "_fsstack_no_space"


class Outcomes:
    """A pytest plugin that records the outcome of each test on a stack.

    Workers add the test's chain, device, step and stack to their reports. The controlling process reads them there.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        error = excinfo.value
        text = f"internal error: {type(error).__name__}: {' '.join(str(error).split())}"
        self._session.internal_error = self._session.internal_error or text

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
        report = yield
        if place := self._place(item):
            from pytest_fsstack.rounds.protocol import BY_LIMITS

            by_limits = call.excinfo is not None and getattr(call.excinfo.value, BY_LIMITS, False)
            report.fsstack_place = {**place, "by_limits": by_limits}
            if report.failed and call.excinfo:
                # The last report of a chain's test repeats an exception of its rounds, when no stack stands.
                error = call.excinfo.value
                full, shown = vars(error).setdefault(_NO_SPACE, self._session.builder.why_full(error))
                if full and not shown:
                    from pytest_fsstack.stack.build import unproven

                    report.sections.append(("fsstack", unproven(full)))
                elif full:
                    _begin_with(report, full)
        return report

    def _place(self, item: pytest.Item) -> dict[str, str]:
        from pytest_fsstack import options
        from pytest_fsstack.rounds.chains import parameter_of, step_of

        parameter = parameter_of(item)
        if parameter is None or not isinstance(item, pytest.Function):
            return {}
        chain = self._session.chains.get(item)
        kernel = options.worker_input(self._session.config).get("kernel")
        return {
            "chain": chain.id if chain and chain.timed else "",
            "device": parameter.device.spec,
            "step": step_of(item, parameter),
            "stack": f"{parameter.id}:{kernel}" if kernel else parameter.id,
        }

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "context") and not report.failed:
            return  # a subtest, which decides its test's outcome only by failing
        if hasattr(report, "fsstack_place") or "fsstack" in report.keywords:
            tests = self._session.results.tests
            tests[report.nodeid] = worse(tests.get(report.nodeid), outcome_of(report))
        elif report.failed:
            self._session.other_failures[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._session.other_failures[report.nodeid] = None


def _begin_with(report: pytest.TestReport, reason: str) -> None:
    """Begin the message of a failure with its cause, if it does not name it."""
    if reason in report.longreprtext:
        return
    crash: Any = getattr(report.longrepr, "reprcrash", None)
    if crash is None:  # pytest.fail(pytrace=False)
        report.longrepr = f"{reason}\n{report.longreprtext}"
        return
    crash.message = f"{reason}; {crash.message}"
    representation: Any = report.longrepr
    representation.addsection("fsstack", reason)


def outcome_of(report: pytest.TestReport) -> TestOutcome:
    """Return the outcome of one phase of a test."""
    from pytest_fsstack.records.results import TestOutcome
    from pytest_fsstack.rounds.protocol import first_line

    path, line, _ = report.location
    words: Mapping[str, str] = {"skipped": "xfailed", "passed": "xpassed"} if hasattr(report, "wasxfail") else {}
    outcome = words.get(report.outcome, report.outcome)
    expected = str(getattr(report, "wasxfail", "")).removeprefix("reason: ")
    text = "" if report.passed else ": ".join(dict.fromkeys(filter(None, [expected, first_line(report)])))
    place = getattr(report, "fsstack_place", {})
    return TestOutcome(report.nodeid, outcome, text, path, 0 if line is None else line + 1, **place)


def worse(earlier: TestOutcome | None, later: TestOutcome) -> TestOutcome:
    """Return the phase that decides a test's outcome: the first that did not pass, or a later failure."""
    if earlier is None or earlier.outcome == "passed" or (later.outcome == "failed" and earlier.outcome != "failed"):
        return later
    from msgspec.structs import replace

    return replace(earlier, step=earlier.step or later.step)
