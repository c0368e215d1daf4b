"""Reports of a session for its CI system, unless --fsstack-ci=off."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack.machine.directories import HeldDirectory
from pytest_fsstack.options import labels
from pytest_fsstack.report import ReportError, findings
from pytest_fsstack.session.files import ReportFile

if TYPE_CHECKING:
    from pytest_fsstack.records.results import Results, TestOutcome
    from pytest_fsstack.session.state import Session

#: Files in the directory of GitLab's project, as named by `artifacts: reports:` of the job.
GITLAB_CODE_QUALITY, GITLAB_METRICS = "fsstack-code-quality.json", "fsstack-metrics.txt"
#: A plugin that annotates all failures on GitHub, if it is installed.
_ANNOTATES = "pytest_github_actions_annotate_failures"

WriteLine = Callable[[str], object]


def start(config: pytest.Config, session: Session, environ: Mapping[str, str] = os.environ) -> None:
    """Register the reports for this CI system, if it is known. Raises `pytest.UsageError`."""
    give = {"github": _github, "gitlab": _gitlab}.get(labels.of_ci(environ).get("ci", ""))
    if give and session.settings.ci == "auto" and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporting(config, session, give, environ), "fsstack-ci")


class Reporting:
    """A pytest plugin that reports failed tests on stacks to CI at the end."""

    def __init__(
        self,
        config: pytest.Config,
        session: Session,
        give: Callable[[Reporting, WriteLine], None],
        environ: Mapping[str, str],
    ) -> None:
        self.config, self.session, self._give, self.environ = config, session, give, environ

    @property
    def failed(self) -> list[TestOutcome]:
        """Return the failed tests with the paths of their files in the repository. The path is empty outside of it."""
        from msgspec.structs import replace

        tests = self.session.results.tests.values()
        return [replace(test, path=self._in_repository(test.path)) for test in tests if test.outcome == "failed"]

    def _in_repository(self, path: str) -> str:
        top = self.environ.get("GITHUB_WORKSPACE") or self.environ.get("CI_PROJECT_DIR") or self.config.rootpath
        full = (self.config.rootpath / path).resolve()
        root = Path(top).resolve()
        return str(full.relative_to(root)) if full.is_relative_to(root) and full.is_file() else ""

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the reports for CI. An unwritable one is mentioned, but does not fail the session."""
        if self.session.results.chains or self.failed:
            terminalreporter.ensure_newline()
            self._give(self, terminalreporter.write_line)


def _github(reporting: Reporting, say: WriteLine) -> None:
    plugins = reporting.config.pluginmanager
    if not any(name == _ANNOTATES for name in map(_module_of, plugins.get_plugins())):
        for line in findings.github(reporting.failed, reporting.session.results.interrupted):
            say(line)
    if file := reporting.environ.get("GITHUB_STEP_SUMMARY"):
        with _showing_errors("GITHUB_STEP_SUMMARY", say):
            _append_summary(reporting.session.results, Path(file).absolute())


def _append_summary(results: Results, path: Path) -> None:
    with HeldDirectory.open(path.parent) as directory:
        descriptor = directory.open_file(path.name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    with open(descriptor, "a", encoding="utf-8", errors="backslashreplace") as summary:
        status = os.fstat(descriptor)
        if status.st_nlink != 1:
            raise OSError(errno.EMLINK, "the file has several names")
        summary.write(findings.github_summary(results, findings.GITHUB_SUMMARY - status.st_size))


def _gitlab(reporting: Reporting, say: WriteLine) -> None:
    from pytest_fsstack.report import openmetrics

    results = reporting.session.results
    directory = Path(reporting.environ.get("CI_PROJECT_DIR") or reporting.config.rootpath)
    with _showing_errors(GITLAB_CODE_QUALITY, say):
        ReportFile("gitlab", directory / GITLAB_CODE_QUALITY).write(findings.gitlab(reporting.failed))
    if results.chains:
        with _showing_errors(GITLAB_METRICS, say):
            ReportFile("gitlab", directory / GITLAB_METRICS).write(openmetrics.report(results))


@contextlib.contextmanager
def _showing_errors(name: str, say: WriteLine) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        say(f"fsstack: {name}: not written: {error.strerror or error}")
    except ReportError as error:
        say(f"fsstack: {error}")


def _module_of(plugin: object) -> str:
    return str(getattr(plugin, "__name__", "")).partition(".")[0]
