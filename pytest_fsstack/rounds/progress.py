"""The progress of rounds: a view in place on a terminal, a line for each round in a log."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack import options
from pytest_fsstack.judging.plan import Left
from pytest_fsstack.judging.standing import ProgressState, TimeLeft
from pytest_fsstack.rounds.moment import line, place, rounds

if TYPE_CHECKING:
    from pytest_fsstack.judging.course import Course
    from pytest_fsstack.rounds.live import View

#: The reporter's mark of a line that is not ended, as nobody else sets it.
_OURS = -2
#: Seconds before the end of a chain from which on its last table comes soon enough.
_SOON = 20.0


class Pace:
    """The pace of a chain: the durations of its stacks' runs, and the time of the remaining ones."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start, self._runs = clock, clock(), 0

    @property
    def elapsed(self) -> float:
        """Seconds since the chain began."""
        return self._clock() - self._start

    def add(self, runs: int) -> None:
        """Note that so many stacks have run once."""
        self._runs += runs

    def timed(self, course: Course) -> ProgressState:
        """Return the progress of a course, with the time that it took and that is left."""
        return course.progress._replace(elapsed=self.elapsed, left=self.left(course.left))

    def left(self, runs: Iterable[Left]) -> TimeLeft | None:
        """The time left; None as long as nothing has run."""
        if not self._runs:
            return None
        counts, seconds = list(runs), self.elapsed / self._runs
        expectations = [count.expected for count in counts if count.expected is not None]
        expected = seconds * sum(expectations) if len(expectations) == len(counts) else None
        return TimeLeft(expected, seconds * sum(count.most for count in counts))


def _is_due(moment: ProgressState) -> bool:
    """Whether a table is due: after rounds 1, 2, 4, 8 and so on, unless the last one comes soon."""
    over = moment.results is not None and not moment.running and moment.phase == "planned"
    return over and moment.round.bit_count() == 1 and moment.left is not None and moment.left.most >= _SOON


class Progress:
    """Called with each moment of a chain; `end` says that the chain is over, however it ended.

    It is silent under ``-q``, unless it is to be `brief`, and without a reporter, as in xdist's workers. The view is
    drawn only when this is called, which is between steps: a thread that kept a clock going would take time from what
    is measured.
    """

    def __init__(
        self, reporter: pytest.TerminalReporter | None, *, in_place: bool = False, brief: bool = False
    ) -> None:
        self._reporter = reporter if reporter is not None and (brief or reporter.verbosity >= 0) else None
        self._in_place = in_place
        self._view: View | None = None

    @classmethod
    def of(cls, config: pytest.Config) -> Progress:
        """Choose the view in place for a terminal that can move its cursor and that only pytest writes to.

        With ``-s`` and live logs, tests write among the lines of the view, which would then erase some of theirs.
        So do their commands with any other way of capturing than by descriptors.
        """
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        logs = config.pluginmanager.hasplugin("logging")
        tests_write = (
            config.getoption("capture", "fd") != "fd"
            or config.getoption("log_cli_level", None) is not None
            or bool(logs and config.getini("log_cli"))
        )
        movable = os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")
        in_place = bool(reporter and reporter.isatty and movable and not tests_write)
        return cls(reporter, in_place=in_place, brief=options.is_brief(config))

    def __call__(self, moment: ProgressState) -> None:
        reporter = self._reporter
        if reporter is None:
            return
        if not self._in_place:
            if not moment.running:
                reporter.write_line(line(moment))
                self._show_table(reporter, moment)
                reporter.flush()
            return
        if self._view is not None and reporter.currentfspath != _OURS:
            # Somebody has written a line below it.
            self.leave()
        if self._view is None:
            from pytest_fsstack.rounds.live import View

            reporter.ensure_newline()
            # As the reporter itself marks a line that it did not end: whatever comes next starts on a new one, also
            # when the loop is interrupted.
            reporter.currentfspath = _OURS
            self._view = View(reporter)
        self._view.show(moment)
        if _is_due(moment):
            self.end()
            self._show_table(reporter, moment)

    def _show_table(self, reporter: pytest.TerminalReporter, moment: ProgressState) -> None:
        """Write the figures so far, which stay on the terminal, if they are due."""
        if moment.results is None or not _is_due(moment):
            return
        from pytest_fsstack.report.terminal import lines_so_far

        reporter.section(f"so far, after {rounds(moment)}: {place(moment)}", sep="-")
        width = shutil.get_terminal_size().columns
        for text in lines_so_far(moment.results, width=width, coloured=reporter.hasmarkup):
            reporter.write_line(text)

    def end(self) -> None:
        """Take the view away."""
        if self._reporter is not None and self._view is not None:
            if self._reporter.currentfspath == _OURS:
                self._view.erase()
                self._reporter.currentfspath = None
            else:
                self._view.leave()
            self._view = None

    def leave(self) -> None:
        """Leave the view as it is to who takes over the terminal, as the debugger does; the next one stands below."""
        if self._view is not None:
            self._view.leave()
            self._view = None
