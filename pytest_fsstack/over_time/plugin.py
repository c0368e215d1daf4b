"""Plugins for ``--fsstack-compare``, ``--fsstack-save-reference`` and ``--fsstack-history``."""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack import options
from pytest_fsstack.judging.decisions import Decision
from pytest_fsstack.judging.readings import dumps, settle
from pytest_fsstack.machine import identity, reading
from pytest_fsstack.over_time import comparison, history
from pytest_fsstack.records import saved
from pytest_fsstack.records.results import Results
from pytest_fsstack.report import ReportError
from pytest_fsstack.rounds.protocol import report_verdict
from pytest_fsstack.session.files import ReportFile
from pytest_fsstack.units import counted

if TYPE_CHECKING:
    from pytest_fsstack.session.state import Session


def start(config: pytest.Config, session: Session) -> None:
    """Register the plugins that the options request. Raises `pytest.UsageError`."""
    if hasattr(config, "workerinput"):
        return  # the controller compares and saves
    settings = session.settings
    if settings.only_looks:
        return  # nothing is measured, and the dry run reads earlier runs itself
    for name in "compare", "save-reference", "history":
        if (flag := options.runs_once_by(config)) and settings.value(name):
            raise pytest.UsageError(f"--fsstack-{name}: nothing is measured with {flag}; remove one of the options")
    if settings.compare:
        config.pluginmanager.register(Comparing(config, session), "fsstack-compare")
    elif settings.compare_anyway:
        raise pytest.UsageError("--fsstack-compare-anyway does nothing without --fsstack-compare=FILE")
    elif settings.is_typed("max-regression") and len(settings.kernels) < 2:
        raise pytest.UsageError(
            "--fsstack-max-regression judges nothing without --fsstack-compare=FILE or a second --fsstack-kernel: add "
            "one"
        )
    if path := settings.save_reference:
        config.pluginmanager.register(
            SavingReference(session, ReportFile("save-reference", path)), "fsstack-save-reference"
        )
    if settings.history:
        path = history.file_of(settings.history, identity.machine_id())
        config.pluginmanager.register(AddingToHistory(session, path), "fsstack-history")


def earlier_runs(*sources: Path) -> dict[Path, Results]:
    """Return the results in files, and in all ``*.json`` of directories. A run in two files counts once.

    Raises `ValueError` with the file's name.
    """
    paths: list[Path] = []
    for source in sources:
        paths += (inside := sorted(source.glob("*.json")) if source.is_dir() else [source])
        if not inside:
            raise ValueError(f"{source}: the directory has no *.json files")
    runs: dict[object, tuple[Path, Results]] = {}
    for path in paths:
        try:
            results = saved.loads(reading.read_bytes(path, reading.RESULTS))
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if not any(chain.samples for chain in results.chains):
            raise ValueError(f"{path}: this run has no measurements")
        runs.setdefault(comparison.run_id(results) or path, (path, results))
    return dict(runs.values())


def refusals(now: Mapping[Path, Results], then: Mapping[Path, Results]) -> list[str]:
    """Return the reasons against a comparison, with the files of the runs."""
    files: dict[str, dict[str, None]] = {}
    for path, results in (*then.items(), *now.items()):
        if results.interrupted:
            # It may have ended because of its figures.
            files.setdefault(f"a run ended early ({results.interrupted})", {})[path.name] = None
    for results in now.values():
        for path, earlier in then.items():
            for reason in comparison.mismatches(results, earlier):
                files.setdefault(reason, {})[path.name] = None
    return [f"{reason} [{', '.join(names)}]" for reason, names in files.items()]


class Comparing:
    """The pytest plugin that reads the earlier runs before the first test, and judges after the last one."""

    def __init__(self, config: pytest.Config, session: Session) -> None:
        self.config, self.session = config, session
        self.limit, self.anyway = session.settings.max_regression, session.settings.compare_anyway
        self.then: dict[Path, Results] = {}
        with options.blaming("--fsstack-compare"):
            self.then = earlier_runs(*session.settings.compare)
            self._check_scale()
        self.result: comparison.Comparison | None = None
        self._session: pytest.Session

    def _check_scale(self) -> None:
        """Raise `ValueError` if an earlier run has another scale."""
        scale = self.session.settings.scale
        for path, results in self.then.items():
            if results.scale not in ("", scale) and not self.anyway:
                raise ValueError(
                    f"{path}: cannot compare, because the scale was {results.scale} and is {scale}: "
                    f"add --fsstack-scale={results.scale}, or --fsstack-compare-anyway"
                )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        self._session = session
        chains = self.session.chains
        self._refuse_undecidable({chains[item].id for item in session.items if item in chains})
        # This wraps the loop of the kernels' controller, whose results exist after that loop.
        result = yield
        self._compare()
        return result

    def _refuse_undecidable(self, tests: Collection[str]) -> None:
        """Raise `pytest.UsageError` if a strict gate would fail at random, because most verdicts stay undecided."""
        from pytest_fsstack.over_time.text import plan_in_short

        if self.limit is None or not self.session.settings.strict:
            return
        # The controller of xdist has no items.
        series = [outlook for outlook in self._outlook(self.limit) if not tests or outlook.key.test in tests]
        if not series or any(outlook.is_hopeless for outlook in series):
            text = plan_in_short(series, self.limit)
            raise pytest.UsageError(f"--fsstack-max-regression would fail at random with --fsstack-strict: {text}")

    def _outlook(self, limit: float) -> list[comparison.Outlook]:
        """Return the power of a limit for this run."""
        settings = self.session.settings
        return comparison.outlook(
            list(self.then.values()),
            limit,
            alpha=settings.looks.alpha,
            session=settings.confirms,
            machine=identity.machine_id(),
            rounds=settings.looks.max_rounds if len(settings.looks.rounds) == 1 else None,
        )

    def _compare(self) -> None:
        from pytest_fsstack.over_time.text import section

        self.session.complete_results()
        now, then = self.session.results, list(self.then.values())
        if not now.chains:
            self._report("fsstack-compare", Decision("failed", "not compared with earlier runs: nothing was measured"))
            return
        if not self.anyway and (reasons := refusals({Path("this run"): now}, self.then)):
            message = f"not compared: {reasons[0]}{f' (and {len(reasons) - 1} more)' if len(reasons) > 1 else ''}"
            hint = "Leave these runs out, or add --fsstack-compare-anyway."
            text = "\n".join([message, "", *(f"  {reason}" for reason in reasons), "", hint])
            self._report("fsstack-compare", Decision("failed", text))
            return
        settings = self.session.settings
        self.result = comparison.compare(
            [now], then, limit=self.limit, alpha=settings.looks.alpha, session=settings.confirms
        )
        self.session.results.comparison = section(self.result, [now], then)
        if not self.result.compared:
            text = "not compared: no overhead was measured both now and in an earlier run"
            self._report("fsstack-compare", Decision("failed", text))
        elif self.limit is not None and all(change.shift is None for change in self.result.judged):
            text = "not judged: no metric of a budget has an overhead both now and in an earlier run"
            self._report("fsstack-compare", Decision("failed", text))
        for change in self.result.judged:
            self._judge(change, self.result)
        self._judge_references(self.result)
        ran = {chain.id for chain in now.chains}
        for key in self.result.only_then if settings.strict and self.limit is not None else ():
            if key.test in ran:
                message = f"{key.stack}: {key.metric} was measured then and is not now (--fsstack-strict)"
                self._report(_nodeid(key), Decision("failed", message))

    def _judge_references(self, result: comparison.Comparison) -> None:
        """Report changes of references. Bytes fail by the limit. A changed time is a warning in all reports."""
        from pytest_fsstack.judging.describe import notice_in_words
        from pytest_fsstack.over_time.text import describe, warnings

        for change in result.regressions:
            if change.is_reference:
                self._report(_nodeid(change.key), Decision("failed", describe(change, result)))
        for change, notice in warnings(result):
            for chain in self.session.results.chains:
                if chain.id == change.key.test and notice not in chain.notices:
                    chain.notices.append(notice)
            if change.moved:
                self._report(_nodeid(change.key), Decision("skipped", notice_in_words(notice)))

    def _judge(self, change: comparison.Change, result: comparison.Comparison) -> None:
        from pytest_fsstack.over_time.text import describe

        strict = self.session.settings.strict
        nodeid = _nodeid(change.key)
        if change.outcome == "fail":
            self._report(nodeid, Decision("failed", describe(change, result)))
        elif change.outcome == "pass":
            self._report(nodeid, Decision("passed"))
        else:
            first, *further = describe(change, result).split("\n")
            if strict:
                self._report(nodeid, Decision("failed", "\n".join([f"{first} (--fsstack-strict)", *further])))
            else:
                self._report(nodeid, Decision("skipped", first))

    def _report(self, nodeid: str, decision: Decision) -> None:
        # The report adds a test to those that were collected.
        self._session.testscollected += 1
        report_verdict(self.config, nodeid, decision)

    def pytest_report_header(self) -> list[str]:
        """Warn before the first round if the limit cannot decide."""
        if self.limit is None:
            return []
        from pytest_fsstack.over_time.text import plan_in_short

        text = plan_in_short(self._outlook(self.limit), self.limit)
        return [f"fsstack: --fsstack-max-regression: {text}"] if text else []

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        from pytest_fsstack.over_time.text import lines

        if self.result is None or self.config.get_verbosity() < -1:
            return
        then = list(self.then.values())
        terminalreporter.section(f"against {counted(len(then), 'earlier run')}")
        for line in lines(self.result, [self.session.results], then):
            terminalreporter.write_line(line)


def _nodeid(key: comparison.SeriesKey) -> str:
    return f"{key.test}::{key.name_in_test} against earlier runs"


class SavingReference:
    """The pytest plugin that saves the results as a reference for later runs, if nothing failed."""

    def __init__(self, session: Session, file: ReportFile) -> None:
        self.session, self.file = session, file
        try:
            file.check()
        except ReportError as error:
            raise pytest.UsageError(f"--fsstack-save-reference: {error}") from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        # Run after all other hooks that may fail the session.
        results, say = self.session.results, self.session.say
        if session.exitstatus != pytest.ExitCode.OK or results.interrupted:
            say(f"not saved as a reference, because this run failed: {self.file.shown} is unchanged", red=True)
            return
        try:
            if not any(chain.samples for chain in results.chains):
                raise ReportError(f"{self.file.shown}: not saved as a reference, because nothing was measured")
            self.file.write(dumps(results))
        except ReportError as error:
            say(str(error), red=True)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            say(f"saved as a reference: {self.file.shown}")


class AddingToHistory:
    """The pytest plugin that adds the session to the history, whether it passed or failed."""

    def __init__(self, session: Session, path: Path) -> None:
        self.session, self.path = session, path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            ReportFile("history", path).check()
        except (ReportError, OSError) as error:
            raise pytest.UsageError(f"--fsstack-history: {error}") from None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        yield
        results, name = self.session.results, ReportFile("history", self.path).shown
        try:
            if not any(chain.samples for chain in results.chains):
                raise ValueError("nothing was measured")
            torn = history.append(self.path, saved.line(settle(results)))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self.session.say(f"nothing added to the history {name}: {reason}", red=True)
            if session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
            return
        if torn:
            aside = ReportFile("history", history.aside_of(self.path)).shown
            self.session.say(
                f"the last line of the history was incomplete: moved its {torn} bytes to {aside}", red=True
            )
        early = f", marked as ended early: {results.interrupted}" if results.interrupted else ""
        self.session.say(f"added to the history {name}{early}")
