"""Exit codes for `git bisect run`, with ``--fsstack-exit=bisect``.

If a session could not judge, because of a wrong option, a broken conftest or an internal error, the commit is skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack.options.settings import Settings
from pytest_fsstack.plugin.running import KEY
from pytest_fsstack.records.results import Results

if TYPE_CHECKING:
    from pytest_fsstack.records.verdicts import Outcome

#: Exit codes for git-bisect(1). From 128 on, it stops, which is right after a signal.
GOOD, BAD, SKIP, ENDS = 0, 1, 125, 128


def exit_code(results: Results, unjudged: int, status: int, changes: Iterable[Outcome | None] = ()) -> int:
    """Return 0 if all budgets are kept, 1 if one is broken, 125 if that is unknown.

    `unjudged` is the number of budgets without a verdict, and `status` is pytest's exit code. `changes` are the
    verdicts on changes since earlier runs, None if there are too few runs. Other failures say nothing about budgets: a
    broken test, a stack that cannot be built, an option that an old commit lacks.
    """
    if status >= ENDS:
        return status
    outcomes: list[tuple[Outcome | None, bool]] = [
        (chain.worst(step, stack), bool(chain.expected(step, stack)))
        for chain in results.chains
        for step, stack, judged in chain.all_judgements()
        if judged
    ]
    outcomes += [(outcome, False) for outcome in changes]
    if any(outcome == "fail" and not expected for outcome, expected in outcomes):
        return BAD
    decided = bool(outcomes) and all(outcome in ("pass", "fail") for outcome, _ in outcomes)
    return GOOD if status == 0 and decided and not unjudged else SKIP


def in_words(code: int) -> str:
    """Describe an exit code in a line."""
    text = {GOOD: "good: all budgets are kept", BAD: "bad: a budget is broken", SKIP: "skip: it is not decided"}
    return f"git bisect is told {text.get(code, 'to stop')} (exit code {code})"


class Bisecting:
    """A pytest plugin that sets the exit code for bisecting."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, int | None, int | None]:
        """Return 0, 1 or 125. From 128 on, return pytest's exit code."""
        settings = Settings.of(config)
        if settings.doctor or settings.dry_run or settings.cleanup:
            return (yield)
        try:
            status = yield
        except pytest.UsageError as error:
            _tell(error)
            status = pytest.ExitCode.USAGE_ERROR
        session = config.stash.get(KEY, None)
        results = session.results if session else Results()
        unjudged = session.budgets.unjudged(results) if session else 0
        code = exit_code(results, unjudged, int(status or 0), _changes(config))
        print(f"fsstack: {in_words(code)}")
        return code


@contextmanager
def skipping_what_cannot_start() -> Iterator[None]:
    """Exit with 125 if a conftest cannot be imported, or lacks an option. pytest would exit as for wrong usage."""
    try:
        yield
    except Exception as error:
        _tell(error)
        print(f"fsstack: {in_words(SKIP)}", file=sys.stderr)
        raise SystemExit(SKIP) from None


def _changes(config: pytest.Config) -> list[Outcome | None]:
    """Return the verdicts on changes since earlier runs, if a limit is set."""
    from pytest_fsstack.over_time.plugin import Comparing

    return [
        change.outcome
        for plugin in config.pluginmanager.get_plugins()
        if isinstance(plugin, Comparing) and plugin.result
        for change in (*plugin.result.judged, *plugin.result.regressions)
    ]


def _tell(error: Exception) -> None:
    for line in error.args if isinstance(error, pytest.UsageError) else [str(error)]:
        print(f"ERROR: {line}", file=sys.stderr)
