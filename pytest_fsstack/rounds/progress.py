"""Progress of rounds: a live view on a terminal, or a line for each round in a log."""

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

#: The value with which this module marks an open line of the reporter. pytest itself never uses it.
_OURS = -2
#: No intermediate table is written if the chain ends within this many seconds.
_SOON = 20.0


class Pace:
    """Timing of a chain: the durations of its runs, and an estimate of the remaining time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start, self._runs = clock, clock(), 0

    @property
    def elapsed(self) -> float:
        """Return the seconds since the chain began."""
        return self._clock() - self._start

    def add(self, runs: int) -> None:
        """Record one run of each of so many stacks."""
        self._runs += runs

    def timed(self, course: Course) -> ProgressState:
        """Return the progress of a course, with its elapsed and remaining time."""
        return course.progress._replace(elapsed=self.elapsed, left=self.left(course.left))

    def left(self, runs: Iterable[Left]) -> TimeLeft | None:
        """Return the remaining time, or None before the first run."""
        if not self._runs:
            return None
        counts, seconds = list(runs), self.elapsed / self._runs
        expectations = [count.expected for count in counts if count.expected is not None]
        expected = seconds * sum(expectations) if len(expectations) == len(counts) else None
        return TimeLeft(expected, seconds * sum(count.most for count in counts))


def _is_due(moment: ProgressState) -> bool:
    """Whether a table is due: after rounds 1, 2, 4, 8 and so on, unless the chain ends soon."""
    over = moment.results is not None and not moment.running and moment.phase == "planned"
    return over and moment.round.bit_count() == 1 and moment.left is not None and moment.left.most >= _SOON


class Progress:
    """The progress display of chains: call it with each new state, and call `end` after a chain.

    It writes nothing under ``-q`` (unless `brief`) or without a reporter, as in xdist's workers. It draws only when
    called, which is between steps. A thread with a running clock would disturb the measurements.
    """

    def __init__(
        self, reporter: pytest.TerminalReporter | None, *, in_place: bool = False, brief: bool = False
    ) -> None:
        self._reporter = reporter if reporter is not None and (brief or reporter.verbosity >= 0) else None
        self._in_place = in_place
        self._view: View | None = None

    @classmethod
    def of(cls, config: pytest.Config) -> Progress:
        """Choose the live view if the terminal can move its cursor and only pytest writes to it.

        With ``-s`` or live logs, tests write between the lines of the view, which would erase their output. The same
        goes for commands of tests unless descriptors are captured.
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
            # Another writer has added a line below.
            self.leave()
        if self._view is None:
            from pytest_fsstack.rounds.live import View

            reporter.ensure_newline()
            # Mark an open line, as the reporter itself does. The next output then starts on a new line, even after an
            # interrupt.
            reporter.currentfspath = _OURS
            self._view = View(reporter)
        self._view.show(moment)
        if _is_due(moment):
            self.end()
            self._show_table(reporter, moment)

    def _show_table(self, reporter: pytest.TerminalReporter, moment: ProgressState) -> None:
        """Write the figures so far, if a table is due. It stays on the terminal."""
        if moment.results is None or not _is_due(moment):
            return
        from pytest_fsstack.report.terminal import lines_so_far

        reporter.section(f"so far, after {rounds(moment)}: {place(moment)}", sep="-")
        width = shutil.get_terminal_size().columns
        for text in lines_so_far(moment.results, width=width, coloured=reporter.hasmarkup):
            reporter.write_line(text)

    def end(self) -> None:
        """Remove the view."""
        if self._reporter is not None and self._view is not None:
            if self._reporter.currentfspath == _OURS:
                self._view.erase()
                self._reporter.currentfspath = None
            else:
                self._view.leave()
            self._view = None

    def leave(self) -> None:
        """Leave the last view in place when a debugger takes over the terminal. The next view starts below it."""
        if self._view is not None:
            self._view.leave()
            self._view = None
