"""Progress of rounds: a live view on a terminal, or a line for each round in a log, and for stacks of a long one."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pytest_fsstack import options
from pytest_fsstack.judging.plan import RoundsLeft
from pytest_fsstack.judging.standing import ProgressState, TimeLeft
from pytest_fsstack.rounds.progress_text import chain_on_device, line, rounds

if TYPE_CHECKING:
    from pytest_fsstack.judging.course import Course
    from pytest_fsstack.rounds.live import View

#: The value of `currentfspath` that marks a line of the live view. pytest itself never uses it.
_VIEW_LINE = -2
#: Within a round, a log gets a line once so many seconds have passed since the last one.
_LINE_EVERY_SECONDS = 20.0
#: No intermediate table is written if the chain ends within this many seconds.
_TABLE_MIN_SECONDS = 20.0


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
        return course.progress._replace(elapsed=self.elapsed, time_left=self.time_left(course.runs_left))

    def time_left(self, runs: RoundsLeft) -> TimeLeft | None:
        """Return the remaining time of so many runs, or None before the first run."""
        if not self._runs:
            return None
        seconds = self.elapsed / self._runs
        return TimeLeft(None if runs.expected is None else seconds * runs.expected, seconds * runs.maximum)


def _is_due(state: ProgressState) -> bool:
    """Whether a table is due: after rounds 1, 2, 4, 8 and so on, or those mixed with them, unless it ends soon."""
    over = state.results is not None and not state.running and state.phase == "planned"
    return (
        over
        and (state.round - state.mixed).bit_length() < state.round.bit_length()
        and state.time_left is not None
        and state.time_left.maximum >= _TABLE_MIN_SECONDS
    )


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
        #: The chain of the last line, and its elapsed seconds then.
        self._last_line = "", 0.0

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

    def __call__(self, state: ProgressState) -> None:
        reporter = self._reporter
        if reporter is None:
            return
        if not self._in_place:
            if self._last_line[0] != state.chain:
                self._last_line = state.chain, state.elapsed
            if not state.running or state.elapsed - self._last_line[1] >= _LINE_EVERY_SECONDS:
                self._last_line = state.chain, state.elapsed
                reporter.ensure_newline()
                reporter.write_line(line(state))
                self._show_table(reporter, state)
                reporter.flush()
            return
        if self._view is not None and reporter.currentfspath != _VIEW_LINE:
            # Another writer has added a line below.
            self.leave()
        if self._view is None:
            from pytest_fsstack.rounds.live import View

            reporter.ensure_newline()
            # Mark an open line, as the reporter itself does. The next output then starts on a new line, even after an
            # interrupt.
            reporter.currentfspath = _VIEW_LINE
            self._view = View(reporter)
        self._view.show(state)
        if _is_due(state):
            self.end()
            self._show_table(reporter, state)

    def _show_table(self, reporter: pytest.TerminalReporter, state: ProgressState) -> None:
        """Write the figures so far, if a table is due. It stays on the terminal."""
        if state.results is None or not _is_due(state):
            return
        from pytest_fsstack.report.terminal import lines_so_far

        reporter.section(f"so far, after {rounds(state)}: {chain_on_device(state)}", sep="-")
        width = shutil.get_terminal_size().columns
        for text in lines_so_far(state.results, width=width, coloured=reporter.hasmarkup):
            reporter.write_line(text)

    def end(self) -> None:
        """Remove the view."""
        if self._reporter is not None and self._view is not None:
            if self._reporter.currentfspath == _VIEW_LINE:
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
