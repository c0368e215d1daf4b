"""Where the rounds are: in place on a terminal, a line a round in a log."""

from __future__ import annotations

import shutil

import pytest


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
