"""The file of ``--fsstack-log``. Each round adds a line, which is on disk before the next round begins."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_fsstack.machine.descriptors import write_all
from pytest_fsstack.report import ReportError
from pytest_fsstack.session.files import ReportFile
from pytest_fsstack.units import reason_of

if TYPE_CHECKING:
    from pytest_fsstack.records.results import ChainResults, Results, TestOutcome


class RoundLog:
    """The log of one session. The end of the first round replaces an existing file.

    Once a line could not be written, no more lines follow.
    """

    def __init__(self, file: ReportFile) -> None:
        self.file = file
        self._descriptor: int | None = None
        self._lines = 0
        #: The outcomes of tests in earlier lines.
        self._tests: dict[str, TestOutcome] = {}
        self._problem = ""

    def check(self) -> None:
        """Raise `ReportError` for a pipe or a terminal, because a partial line there cannot be removed."""
        self.file.check()
        if self.file.is_stream():
            raise ReportError(f"log={self.file.shown}: is no regular file")

    def add(self, results: Results, chains: Iterable[ChainResults] = ()) -> None:
        """Write a line for the last round of these views of a chain, or the last line if there are none.

        Raises `ReportError`.
        """
        from msgspec.structs import replace

        from pytest_fsstack.records import saved

        if self._problem:
            return
        new = {test: outcome for test, outcome in results.tests.items() if self._tests.get(test) != outcome}
        self._tests |= new
        line = saved.log_line(replace(results, tests=new), self._lines + 1, chains)
        try:
            if self._descriptor is None:
                self._descriptor = self.file.begin()
            self._write(self._descriptor, line)
        except OSError as error:
            self._problem = f"log={self.file.shown}: no line after {self._lines}: {reason_of(error)}"
            raise ReportError(self._problem) from None
        self._lines += 1

    def _write(self, descriptor: int, line: bytes) -> None:
        """Append the whole line or nothing. Raises OSError."""
        start = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, line)
            os.fsync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, start)
            raise

    def close(self, results: Results) -> None:
        """Write the last line if there are others. Raises `ReportError`."""
        try:
            if self._lines:
                self.add(results)
        finally:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
