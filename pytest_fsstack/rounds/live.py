"""The live view of a running chain on a terminal. Only this module imports rich."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import timedelta
from typing import IO, TYPE_CHECKING, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pytest_fsstack.judging.plan import State
from pytest_fsstack.judging.standing import ProgressState, StackStatus
from pytest_fsstack.rounds.progress_text import chain_on_device, findings_so_far, rounds, time_left
from pytest_fsstack.units import OverheadUnit

if TYPE_CHECKING:
    import pytest

_STYLES: dict[State, str] = {"fail": "bold red", "pass": "green", "given up": "yellow", "ended": "dim"}
_STATE_TEXTS: dict[State, str] = {"fail": "FAIL"}


class View:
    """A live display on the reporter's terminal. It is redrawn only on request, between measurements."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._terminal = _Terminal(reporter)
        console = Console(
            file=cast(IO[str], self._terminal),
            force_terminal=True,
            force_interactive=True,
            # pytest has evaluated --color, NO_COLOR and the like.
            color_system="auto" if reporter.hasmarkup else None,
            highlight=False,
            emoji=False,
        )
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()
        # The cursor stays visible, so no ending of the session can leave it hidden.
        console.show_cursor(True)

    def show(self, state: ProgressState) -> None:
        self._live.update(rendered(state, self._live.console), refresh=True)

    def erase(self) -> None:
        """Erase the view, and put the cursor where it began."""
        # Stopping draws the view once more, without cutting it.
        self._live.update(Text())
        self._live.stop()

    def leave(self) -> None:
        """Stop drawing, and leave the last view on the terminal."""
        self._terminal.gone = True
        self._live.stop()


def rendered(state: ProgressState, console: Console) -> RenderableType:
    """Render the progress for the width of a console. Long lines are cut, and the last columns are dropped first."""
    now = " ".join(filter(None, [state.running, state.step])) or "round done"
    elapsed = f"{timedelta(seconds=int(state.elapsed))} elapsed"
    remaining = (time_left(state.time_left) or "less than a minute left") if state.time_left else ""
    # If a device's path is long, its end is cut, so it comes last.
    lines = [
        f"{rounds(state)}: {chain_on_device(state)}",
        "; ".join(filter(None, [now, elapsed, remaining])),
        "; ".join(findings_so_far(state)),
    ]
    texts = [Text(text, no_wrap=True, overflow="ellipsis") for text in lines if text]
    return Group(*texts, *([_table(state, console)] if state.stacks else []))


#: Columns of the table, the most important first.
_Cell = Callable[[StackStatus, OverheadUnit], str]
_COLUMNS: tuple[tuple[str, _Cell], ...] = (
    ("stack", lambda status, unit: status.stack),
    ("", lambda status, unit: _STATE_TEXTS.get(status.state, status.state)),
    ("overhead", lambda status, unit: unit.signed(status.estimate.overhead) if status.estimate else ""),
    ("interval", lambda status, unit: _interval(status, unit)),
    ("budget", lambda status, unit: unit.limit(status.budget) if status.budget is not None else ""),
    (
        "of",
        lambda status, unit: " ".join(filter(None, [status.step, status.metric if status.metric != "seconds" else ""])),
    ),
)


def _interval(standing: StackStatus, unit: OverheadUnit) -> str:
    estimate = standing.estimate
    return unit.interval(estimate.low, estimate.high).strip("()") if estimate and estimate.has_interval else ""


def _table(state: ProgressState, console: Console) -> Table:
    boundless = console.options.update(max_width=10_000)
    for count in range(len(_COLUMNS), 2, -1):
        table = _with_columns(state, count, console.width)
        if console.measure(table, options=boundless).maximum <= console.width:
            return table
    return _with_columns(state, 2, console.width)


def _with_columns(state: ProgressState, count: int, width: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    # All rows share a unit so that they can be compared.
    unit = OverheadUnit.fitting(status.estimate.overhead for status in state.stacks if status.estimate)
    for title, _ in _COLUMNS[:count]:
        # Shorten long names of stacks before dropping figures.
        longest = max(12, width * 2 // 5) if title == "stack" else None
        right = title in ("overhead", "budget")
        table.add_column(
            title, no_wrap=True, overflow="ellipsis", max_width=longest, justify="right" if right else "left"
        )
    for status in state.stacks:
        style = "bold" if status.stack == state.running else _STYLES.get(status.state, "")
        table.add_row(*(Text(cell(status, unit)) for _, cell in _COLUMNS[:count]), style=style)
    return table


class _Terminal(io.TextIOBase):
    """A file that writes to the reporter. pytest keeps its own copy of the terminal while tests are captured."""

    encoding = "utf-8"

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        #: Whether another program has taken over the terminal.
        self.gone = False

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not self.gone:
            self._reporter.write(text)
        return len(text)

    def flush(self) -> None:
        if not self.gone:
            self._reporter.flush()
