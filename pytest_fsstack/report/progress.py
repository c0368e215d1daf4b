"""Where the rounds are: in place on a terminal, a line a round in a log."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable

import pytest

from pytest_fsstack.judging.plan import Left


def in_round(chain: str, device: str, number: int, most: int, now: str, confirming_since: int | None = None) -> str:
    """Where a chain is: its round, and what runs now; `confirming_since` is the round after which fresh ones began."""
    name = chain.partition("::")[2] or chain
    rounds = f"round {max(1, number)} of at most {most}"
    if confirming_since is not None:
        rounds = f"fresh round {number - confirming_since} of at most {most} (to confirm)"
    return f"{name} on {device}: {rounds}{f': {now}' if now else ' done'}"


class Pace:
    """How long the runs of a chain's stacks took, and so how long those will take that are left."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start, self._runs = clock, clock(), 0

    def add(self, runs: int) -> None:
        """Note that so many stacks have run once."""
        self._runs += runs

    def left(self, runs: Iterable[Left]) -> str:
        """The time left, as far as it is more than a minute: ``about 3 min left, at most 12``."""
        counts = list(runs)
        minutes = (self._clock() - self._start) / max(1, self._runs) / 60
        most = minutes * sum(each.most for each in counts)
        known = [each.expected for each in counts if each.expected is not None]
        if most < 1 or not self._runs:
            return ""
        if len(known) < len(counts):
            return f"at most {most:.0f} min left"
        likely = f"about {minutes * sum(known):.0f} min left"
        return likely if sum(known) == sum(each.most for each in counts) else f"{likely}, at most {most:.0f}"


class Progress:
    """Called with the state of the round loop. Silent under ``-q``, and without a reporter, as in xdist's workers."""

    def __init__(self, reporter: pytest.TerminalReporter | None) -> None:
        self._reporter = reporter if reporter is not None and reporter.verbosity >= 0 else None
        self._shown = False

    def __call__(self, text: str, line_done: bool) -> None:
        """Show `text`; `line_done` says that a round has ended, and with an empty text, that all have."""
        if self._reporter is None:
            return
        if self._reporter.isatty:
            if text:
                self._show(self._reporter, text)
            else:
                self._erase(self._reporter)
        elif text and line_done:
            self._reporter.write_line(text)
            self._reporter.flush()

    def _show(self, reporter: pytest.TerminalReporter, text: str) -> None:
        if not self._shown:
            reporter.ensure_newline()
            # As the reporter itself marks a line that it did not end: whatever comes next starts on a new one, also
            # when the loop is interrupted.
            reporter.currentfspath = -2
            self._shown = True
        width = _width()
        reporter.write(f"\r{_cut(text, width):<{width}}", flush=True)

    def _erase(self, reporter: pytest.TerminalReporter) -> None:
        if self._shown:
            reporter.write(f"\r{'':<{_width()}}\r", flush=True)
            reporter.currentfspath = None
            self._shown = False


def _width() -> int:
    # Text in the last column makes some terminals go on to the next line.
    return shutil.get_terminal_size().columns - 1


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."
