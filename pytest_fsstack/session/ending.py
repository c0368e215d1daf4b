"""The end of a session: tables, reports, and the check that a gate has judged something."""

from __future__ import annotations

import linecache
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options
from pytest_fsstack.units import counted

if TYPE_CHECKING:
    from pytest_fsstack.records.results import Results
    from pytest_fsstack.session.files import ReportFile
    from pytest_fsstack.session.state import Session


#: Reports that are also written for a session that broke before its first result.
_FAILURE_REPORTS = ("html", "markdown")


class SessionEnd:
    """The end of a session. Its constructor checks that reports can be written. Raises `pytest.UsageError`."""

    def __init__(self, session: Session) -> None:
        self._session, self._say = session, session.say
        self._config, self._settings, self._budgets = session.config, session.settings, session.budgets
        self._files = _report_files(session)
        only_looks = session.is_worker or session.only_looks
        #: The directory of --fsstack-counterexamples, until they are written.
        self._scripts = None if only_looks else session.settings.counterexamples
        self._pytest: pytest.Session | None = None
        self._summarized = False

    @property
    def _results(self) -> Results:
        return self._session.results

    @property
    def _has_results(self) -> bool:
        return bool(self._results.chains or self._results.tests)

    @property
    def _measured_nothing(self) -> bool:
        """Whether nothing was compared although a gate was requested. Such a session must not pass."""
        settings = self._settings
        if options.runs_once_by(self._config):
            return bool(self._promised_in_vain)
        if settings.strict and self._budgets.count:
            return self._judged_nothing
        # A limit needs a test that measures, but not that the machine was quiet enough.
        limited = settings.is_typed("max-regression") or (
            settings.strict and options.is_in_this_command(self._config, "budget")
        )
        measures = self._session.timed_chains or self._results.chains
        gate = (settings.strict or settings.missing_fails) if measures else limited
        return bool(gate) and not self._measured_something

    @property
    def _measured_something(self) -> bool:
        """Whether there is a comparison or, unless a difference is limited, a budget that was judged."""
        from pytest_fsstack.judging.readings import compared

        judged = self._budgets.count > self._unjudged and not self._settings.is_typed("max-regression")
        return judged or compared(self._results)

    @property
    def _judged_nothing(self) -> bool:
        """Whether there were budgets, but none was judged."""
        return bool(self._unjudged) and self._unjudged == self._budgets.count

    @property
    def _unjudged(self) -> int:
        """Count the budgets that were not judged."""
        return 0 if options.runs_once_by(self._config) else self._budgets.unjudged(self._results)

    @property
    def _without_stack(self) -> list[str]:
        """Return lines about budgets that have no stack in this session, and are not allowed to have none."""
        from pytest_fsstack.judging.decisions import allowing_option, is_allowed

        reasons = {**self._budgets.without_stack, **self._skipped_modules}
        if not reasons or options.runs_once_by(self._config):
            return []
        how = " (--fsstack-strict; {} allows it)" if self._settings.strict else ""
        return [
            f"{name}: its budget is not judged: {reason}{how.format(allowing_option(name))}"
            for name, reason in reasons.items()
            if not is_allowed(self._settings.allow_unjudged, name, reason)
        ]

    @property
    def _skipped_modules(self) -> dict[str, str]:
        """Return why modules skipped themselves that have budgets of a strict session, by their names."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if not self._settings.strict or reporter is None:
            return {}
        # Nobody knows the tests of such a module. A budget of the session may be for any of them.
        word = "fsstack" if self._settings.budgets else "fsstack_budget"
        skipped = [report for report in reporter.stats.get("skipped", ()) if isinstance(report, pytest.CollectReport)]
        return {
            report.nodeid: str(report.longrepr[-1]).removeprefix("Skipped: ")
            for report in skipped
            if isinstance(report.longrepr, tuple)
            and any(word in line for line in linecache.getlines(os.fspath(self._config.rootpath / report.nodeid)))
        }

    def finish(self, session: pytest.Session) -> None:
        """Complete the results at the end of the session."""
        self._pytest = session
        if self._session.is_worker or self._session.only_looks:
            return  # the controller writes everything
        from pytest_fsstack.judging.readings import settle

        self._session.complete_results()
        self._results.chains = settle(self._results).chains
        self._results.interrupted = self._session.internal_error or _early_end_reason(session)
        self._results.failures = list(self._session.other_failures)
        if self._measured_nothing:
            self._results.failures.append(self._gate_without_verdict)
            self._fail()
        if self._settings.strict and (lines := self._without_stack):
            self._results.failures += lines
            self._fail()
        self._answer_in_junit()

    @property
    def _promised_in_vain(self) -> str:
        """Return why a strict session judges none of its budgets, by an option that is not allowed to do so."""
        from pytest_fsstack.judging.decisions import is_allowed

        flag = options.runs_once_by(self._config)
        promised = self._settings.strict and self._budgets.count and flag
        return flag if promised and not is_allowed(self._settings.allow_unjudged, flag, flag) else ""

    @property
    def _gate_without_verdict(self) -> str:
        budgets = counted(self._budgets.count, "budget")
        judged = f"0 of {budgets} judged" if self._judged_nothing else "0 comparisons"
        if flag := self._promised_in_vain:
            allowing = f"--fsstack-allow-unjudged={flag}"
            return f"{flag}: 0 of {budgets} judged, and so this gate fails (--fsstack-strict; {allowing} allows it)"
        return f"{judged}: this gate has measured nothing, and so it fails"

    def _answer_in_junit(self) -> None:
        """Add the answer to the properties of pytest's JUnit file."""
        from pytest_fsstack.report.answer import answer

        if self._settings.junit == "none":
            return
        for plugin in self._config.pluginmanager.get_plugins():
            if add := getattr(plugin, "add_global_property", None):
                for sentence in answer(self._results):
                    add("fsstack_answer", str(sentence))

    def _fail(self) -> None:
        if self._pytest is not None and self._pytest.exitstatus == pytest.ExitCode.OK:
            self._pytest.exitstatus = pytest.ExitCode.TESTS_FAILED

    def summarize(self, reporter: pytest.TerminalReporter) -> None:
        """Show the tables, then write each requested report."""
        self._summarized = True
        if self._session.only_looks:
            return
        from pytest_fsstack.report import benchmark, brief, terminal

        plugin: Any = self._config.pluginmanager.get_plugin("pytest-benchmark")
        if plugin and not (self._config.get_verbosity() > 0 or plugin.compare or plugin.histogram):
            benchmark.hide_records(plugin)
        if self._results.chains:
            try:
                if options.is_brief(self._config):
                    width = shutil.get_terminal_size().columns
                    for line in brief.lines(self._results, width=width, coloured=reporter.hasmarkup):
                        reporter.write_line(line)
                else:
                    terminal.write(reporter, self._results, self._config.get_verbosity())
                self._show_timed_share()
            except Exception as error:
                # The table may come from another plugin. Reports do not need it.
                self._say(f"the tables cannot be shown: {_error_line(error)}", red=True)
                self._fail()
        if self._has_results:
            self._print_for_machines(reporter)
        self.write_reports()
        if self._pytest is not None and self._pytest.exitstatus == pytest.ExitCode.USAGE_ERROR:
            return  # pytest shows the mistake, because of which nothing was measured
        if self._measured_nothing:
            self._say(self._gate_without_verdict, red=True)
        elif self._judged_nothing:
            self._say(f"no budget was judged: this session had {counted(self._budgets.count, 'budget')}", red=True)
        elif self._unjudged:
            undecided = f", {self._results.undecided} undecided" if self._results.undecided else ""
            verb = "was" if self._unjudged == 1 else "were"
            all_budgets = f"the {counted(self._budgets.count, 'budget')} of this session"
            self._say(f"{self._unjudged} of {all_budgets} {verb} not judged{undecided}", red=True)
        for line in self._without_stack:
            self._say(line, red=self._settings.strict)

    def _show_timed_share(self) -> None:
        """Show with -v which share of the session measured."""
        from pytest_fsstack.session.duration import wall_seconds

        share = self._results.timed_share
        if share is not None and self._config.get_verbosity() > 0:
            self._say(f"timed blocks took {share:.0%} of {wall_seconds(self._results):.0f} s")

    def write_missing_reports(self) -> None:
        """Report what pytest left out: it has no summary after a signal, an internal error or an exit code of its own.

        With --no-summary, CI still gets its reports.
        """
        plugins = self._config.pluginmanager
        reporter = plugins.get_plugin("terminalreporter")
        try:
            if self._pytest is not None and reporter is not None and not self._summarized:
                ours = [plugin for plugin in plugins.get_plugins() if _is_ours(plugin)]
                if self._config.getoption("no_summary"):
                    ours = [plugin for plugin in ours if plugin is plugins.get_plugin("fsstack-ci")]
                others = [plugin for plugin in plugins.get_plugins() if plugin not in ours]
                summary = plugins.subset_hook_caller("pytest_terminal_summary", others)
                summary(terminalreporter=reporter, exitstatus=self._pytest.exitstatus, config=self._config)
        finally:
            self.write_reports()

    def _print_for_machines(self, reporter: pytest.TerminalReporter) -> None:
        """Print lines for programs that read the console."""
        if name := self._settings.console:
            reporter.ensure_newline()
            for line in self._session.reports[name](self._results).splitlines():
                reporter.write_line(line)

    def write_reports(self) -> None:
        """Write the reports, unless that was done before; one that cannot be written fails the session."""
        from pytest_fsstack.report import ReportError

        self._close_log()
        files, self._files = self._files, []
        for file in files if self._pytest is not None else ():
            if not self._has_results and not (self._results.interrupted and file.report in _FAILURE_REPORTS):
                self._say(f"nothing measured for {file.report}")
                continue
            try:
                file.write(self._session.reports[file.report](self._results))
            except ReportError as error:
                self._say(str(error), red=True)
                self._fail()
            except Exception as error:
                # A report of another project failed. Write the others.
                self._say(f"{file.report}={file.shown}: not written: {_error_line(error)}", red=True)
                self._fail()
            else:
                self._say(f"wrote {file.report} to {file.shown}")
        directory, self._scripts = self._scripts, None
        if directory is not None and self._pytest is not None:
            self._write_counterexamples(directory)

    def _write_counterexamples(self, directory: Path) -> None:
        """Write the scripts of findings; one that cannot be written fails the session."""
        from pytest_fsstack.report import ReportError
        from pytest_fsstack.session.files import ReportFile

        all_scripts = self._config.hook.pytest_fsstack_counterexamples(results=self._results)
        scripts = {name: script for of_plugin in all_scripts for name, script in of_plugin.items()}
        try:
            directory.mkdir(exist_ok=True)
            for name, script in scripts.items():
                ReportFile("counterexample", directory / os.path.basename(name)).write(script)
        except (OSError, ReportError) as error:
            self._say(f"--fsstack-counterexamples: {error}", red=True)
            self._fail()
        else:
            self._say(f"wrote {counted(len(scripts), 'counterexample')} to {directory}")

    def _close_log(self) -> None:
        """Write the last line of the log; one that is not complete fails the session."""
        from pytest_fsstack.report import ReportError

        log, self._session.log = self._session.log, None
        try:
            if log and self._pytest is not None:
                log.close(self._results)
        except ReportError as error:
            self._say(str(error), red=True)
            self._fail()

    def exit_by_signal(self, number: int) -> None:
        if self._pytest is not None:
            self._pytest.exitstatus = 128 + number


def header(session: Session) -> list[str]:
    """Return the header lines about settings."""
    settings = session.settings
    limit = "1 round" if settings.looks.max_rounds == 1 else f"{settings.looks.max_rounds} rounds"
    gated = session.budgets.count or settings.max_regression is not None
    facts = [", ".join(device.spec for device in settings.devices), f"--fsstack-seed={settings.seed}"]
    # Without a budget, fewer rounds run: the announcement counts them.
    if settings.rounds is not None or gated:
        facts.insert(1, limit if settings.rounds is not None else f"at most {limit}")
    lines = [f"fsstack: {'; '.join(facts)}"]
    if settle := settings.settle.describe():
        lines.append(f"fsstack: between two stacks: {settle}")
    if session.only_looks:
        return lines
    from pytest_fsstack.measuring.timed import can_drop_caches

    if not can_drop_caches():
        lines.append("fsstack: the kernel's caches cannot be dropped without root: figures are those of warm caches")
    if (flag := options.runs_once_by(session.config)) and session.timed_chains:
        lines.append(f"fsstack: {flag}: each stack runs once, and no budget is judged")
    if session.timed_chains and session.config.getoption("reruns", None):
        lines.append("fsstack: --reruns: a test that is measured runs in rounds and is not run again if it fails")
    if gated and settings.looks.max_rounds < settings.looks.minimum_rounds:
        lines.append(
            f"fsstack: {limit} {'is' if settings.looks.max_rounds == 1 else 'are'} too few for a verdict: at least "
            f"{settings.looks.minimum_rounds} are needed at --fsstack-alpha={settings.looks.alpha:g}"
        )
    return lines


def _report_files(session: Session) -> list[ReportFile]:
    """Return the files of the reports after checking that they are writable. Raises `pytest.UsageError`."""
    if session.is_worker or session.only_looks:
        return []
    from pytest_fsstack.report import ReportError
    from pytest_fsstack.session.files import ReportFile, check_all

    files = [ReportFile(name, path) for name, path in session.settings.reports]
    option = "--fsstack-log"
    try:
        if session.log:
            session.log.check()
        option = "--fsstack-report"
        check_all([*([session.log.file] if session.log else []), *files])
    except ReportError as error:
        raise pytest.UsageError(f"{option}: {error}") from None
    return files


def _is_ours(plugin: object) -> bool:
    return type(plugin).__module__.startswith(f"{__package__.partition('.')[0]}.")


def _error_line(error: Exception) -> str:
    return " ".join([f"{type(error).__name__}:", *str(error).split()]).removesuffix(":")


def _early_end_reason(session: pytest.Session) -> str:
    """Return why the session ended early, or an empty text."""
    stopped = session.shouldfail or session.shouldstop
    if isinstance(stopped, str):
        return stopped
    status = session.exitstatus
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        return ""
    if status == pytest.ExitCode.INTERRUPTED:
        return "interrupted"
    signals = {128 + number: number.name for number in signal.Signals}
    return f"ended by {signals[status]}" if status in signals else f"ended with exit code {int(status)}"
