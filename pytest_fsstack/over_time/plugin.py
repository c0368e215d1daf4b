"""This run against earlier ones: ``--fsstack-compare``; ``--fsstack-accept`` and ``--fsstack-history`` keep it
for later ones.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack import options
from pytest_fsstack.judging import past, saved
from pytest_fsstack.judging.results import Results
from pytest_fsstack.judging.series import test_of
from pytest_fsstack.machine import identity
from pytest_fsstack.over_time import history
from pytest_fsstack.report.errors import ReportError
from pytest_fsstack.rounds.protocol import Outcome, report_verdict
from pytest_fsstack.session.files import ReportFile

if TYPE_CHECKING:
    from pytest_fsstack.session.state import Session


def start(config: pytest.Config, session: Session) -> None:
    """Register what the options ask for. Raises `pytest.UsageError` before anything is measured."""
    if hasattr(config, "workerinput"):
        return  # the controller compares, and accepts
    if options.value(config, "dry-run"):
        return  # it reads earlier runs for itself
    if sources := options.value(config, "compare"):
        config.pluginmanager.register(Comparing(config, session, sources), "fsstack-compare")
    elif options.value(config, "compare-anyway"):
        raise pytest.UsageError("--fsstack-compare-anyway does nothing without --fsstack-compare=FILE")
    elif options.on_command_line(config, "max-regression") and not options.value(config, "kernel"):
        raise pytest.UsageError(
            "--fsstack-max-regression: it judges nothing without --fsstack-compare=FILE or --fsstack-kernel"
        )
    if path := options.value(config, "accept"):
        if config.getoption("benchmark_disable", False):
            raise pytest.UsageError("--fsstack-accept: --benchmark-disable measures nothing that could be a reference")
        config.pluginmanager.register(Accepting(session, ReportFile("accept", path)), "fsstack-accept")
    if directory := options.value(config, "history"):
        if config.getoption("benchmark_disable", False):
            raise pytest.UsageError("--fsstack-history: --benchmark-disable measures nothing that could be added")
        path = history.file_of(directory, identity.machine_id())
        config.pluginmanager.register(Recording(session, path), "fsstack-history")


def earlier_runs(source: Path) -> dict[Path, Results]:
    """The results in a file, or in all ``*.json`` of a directory. Raises `ValueError`, which names the file."""
    paths = sorted(source.glob("*.json")) if source.is_dir() else [source]
    if not paths:
        raise ValueError(f"there is no *.json in the directory {source}")
    found = {}
    for path in paths:
        try:
            results = saved.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if not any(chain.samples for chain in results.chains):
            raise ValueError(f"{path}: nothing was measured in this run")
        found[path] = results
    return found


def refusals(now: Iterable[Results], then: Mapping[Path, Results]) -> list[str]:
    """What makes the comparison meaningless, with the files of the earlier runs that it is said of."""
    files: dict[str, dict[str, None]] = {}
    for results in now:
        for path, earlier in then.items():
            for reason in past.unlike(results, earlier):
                files.setdefault(reason, {})[path.name] = None
    return [f"{reason} [{', '.join(names)}]" for reason, names in files.items()]


class Comparing:
    """The pytest plugin that reads the earlier runs before the first test, and judges after the last one."""

    def __init__(self, config: pytest.Config, session: Session, sources: list[Path]) -> None:
        self.config, self.session = config, session
        self.limit = options.value(config, "max-regression")
        self.anyway = options.value(config, "compare-anyway")
        self.then: dict[Path, Results] = {}
        with options.blaming("--fsstack-compare"):
            for source in sources:
                self.then |= earlier_runs(source)
            self._check_scale()
        self.found: past.Comparison | None = None
        self._session: pytest.Session

    def _check_scale(self) -> None:
        """What can be known now must not be found out after hours. Raises `ValueError`."""
        scale = self.session.settings.scale
        for path, results in self.then.items():
            if results.scale not in ("", scale) and not self.anyway:
                raise ValueError(
                    f"{path}: the scale was {results.scale} and is {scale}, which makes the comparison meaningless: "
                    f"add --fsstack-scale={results.scale}, or --fsstack-compare-anyway"
                )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        self._session = session
        # Around the one of the kernels' controller, whose results come when its own loop is over.
        done = yield
        if not options.only_looks(self.config):
            self._compare()
        return done

    def _compare(self) -> None:
        self.session.complete_results()
        now, then = self.session.results, list(self.then.values())
        if not now.chains:
            self._report("fsstack-compare", "failed", "nothing was measured, so nothing is compared with earlier runs")
            return
        if not self.anyway and (reasons := refusals([self.session.results], self.then)):
            said = f"not compared: {reasons[0]}{f' (and {len(reasons) - 1} more)' if len(reasons) > 1 else ''}"
            hint = "Move those runs away, or compare all the same with --fsstack-compare-anyway."
            self._report(
                "fsstack-compare", "failed", "\n".join([said, "", *(f"  {each}" for each in reasons), "", hint])
            )
            return
        settings = self.session.settings
        self.found = past.compare([now], then, limit=self.limit, alpha=settings.looks.alpha, session=settings.confirms)
        if not self.found.compared:
            self._report(
                "fsstack-compare", "failed", "not compared: no overhead was measured both now and in an earlier run"
            )
        for change in self.found.compared if self.limit is not None else ():
            self._judge(change, self.found)
        self._judge_references(self.found)
        ran = {test_of(chain) for chain in now.chains}
        for place in self.found.only_then if settings.strict and self.limit is not None else ():
            if place.test in ran:
                said = f"{place.stack}: {place.metric} was measured then and is not now (--fsstack-strict)"
                self._report(_nodeid(place), "failed", said)

    def _judge_references(self, found: past.Comparison) -> None:
        """Report what hits every stack: bytes fail by the limit, what moved is a warning in all reports."""
        from pytest_fsstack.report.past import describe, warnings

        for change in found.regressions:
            if change.is_reference:
                self._report(_nodeid(change.place), "failed", describe(change, found))
        for change, text in warnings(found):
            for chain in self.session.results.chains:
                if test_of(chain) == change.place.test and text not in chain.remarks:
                    chain.remarks.append(text)
            if change.moved:
                self._report(_nodeid(change.place), "skipped", text)

    def _judge(self, change: past.Change, found: past.Comparison) -> None:
        from pytest_fsstack.report.past import describe

        strict = self.session.settings.strict
        nodeid = _nodeid(change.place)
        if change.outcome == "fail":
            self._report(nodeid, "failed", describe(change, found))
        elif change.outcome == "pass":
            self._report(nodeid, "passed", "")
        else:
            first, *rest = describe(change, found).split("\n")
            if strict:
                self._report(nodeid, "failed", "\n".join([f"{first} (--fsstack-strict)", *rest]))
            else:
                self._report(nodeid, "skipped", first)

    def _report(self, nodeid: str, outcome: Outcome, text: str) -> None:
        # It is one more than was collected.
        self._session.testscollected += 1
        report_verdict(self.config, nodeid, outcome, text)

    def pytest_report_header(self) -> list[str]:
        """Say before anything is measured if the limit will not decide."""
        if self.limit is None or options.only_looks(self.config):
            return []
        from pytest_fsstack.report.past import plan_in_short

        settings = self.session.settings
        series = past.outlook(
            list(self.then.values()),
            self.limit,
            alpha=settings.looks.alpha,
            session=settings.confirms,
            machine=identity.machine_id(),
            rounds=settings.looks.most if settings.fixed_rounds else None,
        )
        text = plan_in_short(series, self.limit)
        return [f"fsstack: --fsstack-max-regression: {text}"] if text else []

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_fsstack.report.past import lines

        if self.found is None or self.config.get_verbosity() < -1:
            return
        then = list(self.then.values())
        terminalreporter.section(f"against {len(then)} earlier run{'' if len(then) == 1 else 's'}")
        for line in lines(self.found, [self.session.results], then):
            terminalreporter.write_line(line)


def _nodeid(place: past.Place) -> str:
    return f"{place.test}::{place.within} against earlier runs"


class Accepting:
    """The pytest plugin that writes the results where later runs look for them, if nothing failed."""

    def __init__(self, session: Session, file: ReportFile) -> None:
        self.session, self.file = session, file
        try:
            file.check()
        except ReportError as error:
            raise pytest.UsageError(f"--fsstack-accept: {error}") from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        # After all that may still fail the session.
        if options.only_looks(session.config):
            return
        results = self.session.results
        if session.exitstatus != pytest.ExitCode.OK or results.interrupted:
            self._say(f"not accepted as a reference: {self.file.shown} is left as it was, because this run failed")
            return
        try:
            if not results.chains:
                raise ReportError(f"not accepted as a reference: nothing was measured for {self.file.shown}")
            self.file.write(saved.dumps(results))
        except ReportError as error:
            self._say(str(error))
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            self._say(f"accepted as a reference: {self.file.shown}", red=False)

    def _say(self, text: str, red: bool = True) -> None:
        self.session.say(text, red=red)


class Recording:
    """The pytest plugin that adds the session, whether it passed or not, once all of it is known."""

    def __init__(self, session: Session, path: Path) -> None:
        self.session, self.path = session, path
        try:
            if not options.only_looks(session.config):
                path.parent.mkdir(parents=True, exist_ok=True)
            ReportFile("history", path).check()
        except (ReportError, OSError) as error:
            raise pytest.UsageError(f"--fsstack-history: {error}") from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        if options.only_looks(session.config):
            return
        results, shown = self.session.results, ReportFile("history", self.path).shown
        try:
            if not any(chain.samples for chain in results.chains):
                raise ValueError("nothing was measured")
            torn = history.append(self.path, saved.line(results))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self.session.say(f"nothing added to the history {shown}: {reason}", red=True)
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        if torn:
            aside = ReportFile("history", history.aside_of(self.path)).shown
            self.session.say(f"the last line of the history was cut off: its {torn} bytes are in {aside}", red=True)
        early = f", marked as ended early: {results.interrupted}" if results.interrupted else ""
        self.session.say(f"added to the history {shown}{early}")
