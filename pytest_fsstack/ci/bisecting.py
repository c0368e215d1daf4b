"""Exit codes for `git bisect run`, with ``--fsstack-exit=bisect``.

If a session could not judge, because of a wrong option, a broken conftest or an internal error, the commit is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack.ci import exit_codes
from pytest_fsstack.judging.results import Results

if TYPE_CHECKING:
    from pytest_fsstack.judging.verdict import Outcome
    from pytest_fsstack.session.state import Session


class Bisecting:
    """A pytest plugin that sets the exit code for bisecting. `session` finds the plugin's state."""

    def __init__(self, session: Callable[[pytest.Config], Session | None]) -> None:
        self._session = session

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, int | None, int | None]:
        """Return 0, 1 or 125. From 128 on, return pytest's exit code."""
        if any(config.getoption(f"fsstack_{name}") for name in ("doctor", "dry_run", "cleanup")):
            return (yield)
        try:
            status = yield
        except pytest.UsageError as error:
            _tell(error)
            status = pytest.ExitCode.USAGE_ERROR
        session = self._session(config)
        results = session.results if session else Results()
        unjudged = session.budgets.unjudged(results) if session else 0
        code = exit_codes.exit_code(results, unjudged, int(status or 0), _changes(config))
        print(f"fsstack: {exit_codes.in_words(code)}")
        return code


@contextmanager
def skipping_broken_conftests() -> Iterator[None]:
    """Exit with 125 if a conftest cannot be imported. pytest would exit with the code for wrong usage."""
    try:
        yield
    except Exception as error:
        _tell(error)
        print(f"fsstack: {exit_codes.in_words(exit_codes.SKIP)}", file=sys.stderr)
        raise SystemExit(exit_codes.SKIP) from None


def _changes(config: pytest.Config) -> list[Outcome | None]:
    """Return the verdicts on changes since earlier runs, if a limit is set."""
    from pytest_fsstack.over_time.plugin import Comparing

    return [
        change.outcome
        for plugin in config.pluginmanager.get_plugins()
        if isinstance(plugin, Comparing) and plugin.limit is not None and plugin.result
        for change in plugin.result.compared
    ]


def _tell(error: Exception) -> None:
    for line in error.args if isinstance(error, pytest.UsageError) else [str(error)]:
        print(f"ERROR: {line}", file=sys.stderr)
