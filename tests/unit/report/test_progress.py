"""The progress of a chain: the time that is left, a line a round in a log, a view in place on a terminal."""

from __future__ import annotations

import math
import re
import subprocess
import sys

import pytest
from rich.console import Console

from pytest_fsstack.judging.plan import RoundsLeft
from pytest_fsstack.judging.standing import ProgressState, StackStatus, TimeLeft
from pytest_fsstack.records.verdicts import Estimate
from pytest_fsstack.rounds.live import rendered
from pytest_fsstack.rounds.progress import Pace, Progress
from pytest_fsstack.rounds.progress_text import line, time_left
from pytest_fsstack.units import OverheadUnit
from tests.terminal import Reporter, screen
from tests.unit.report.results import measured


@pytest.mark.parametrize(
    ("rounds_left", "texts"),
    [
        (RoundsLeft(0, 0), []),
        (RoundsLeft(1, 2), []),
        (RoundsLeft(None, 24), ["at most", "8 min"]),
        (RoundsLeft(8, 24), ["3 min", "at most", "8 min"]),
        (RoundsLeft(12, 12), ["4 min"]),
        (RoundsLeft(1, 12), ["20 s", "at most", "4 min"]),
        (RoundsLeft(0, 12), ["10 s", "at most", "4 min"]),
        (RoundsLeft(None, 900), ["at most", "5.0 h"]),
    ],
)
def test_the_time_left_is_said_at_most_and_as_expected(rounds_left: RoundsLeft, texts: list[str]) -> None:
    now = [100.0]
    pace = Pace(lambda: now[0])
    assert pace.time_left(RoundsLeft(4, 12)) is None
    pace.add(3)
    now[0] += 60
    text = time_left(pace.time_left(rounds_left))
    assert re.findall(r"at most|\d[\d.]* (?:s|min|h)\b", text) == texts
    assert bool(text) == bool(texts)
    assert pace.elapsed == 60


EARLY = Estimate(2.1, -1, math.inf, 0.9, 3)
TENTH = Estimate(0.1, 0.052, 0.148, 0.9, 16)
STANDINGS = (
    StackStatus("ext4", "measured"),
    StackStatus("xfs", "pass", "read", "seconds", TENTH, 0.3),
    StackStatus("luks+ext4", "fail", "write", "written_bytes", TENTH, 0.05),
    StackStatus("ecryptfs+a-very-long-name+btrfs", "running", "read", "seconds", EARLY, 0.3),
)
MOMENT = ProgressState(
    "test_it.py::TestA",
    "loop",
    16,
    80,
    running="xfs",
    step="read",
    stacks=STANDINGS,
    decided="1 pass, 1 fail",
    costliest=STANDINGS[3],
    elapsed=75.9,
    time_left=TimeLeft(200.0, 700.0),
)


def test_a_round_is_a_line_of_a_log() -> None:
    first = ProgressState("test_it.py::TestA", "loop", 1, 80, running="xfs")
    assert re.fullmatch(r"TestA on loop: round 1 \D*80: xfs", line(first))
    third = first._replace(round=3, running="")
    assert re.fullmatch(r"TestA on loop: round 3 \D*80[^:;]*", line(third))
    fresh = third._replace(phase="confirming")
    assert re.fullmatch(r"TestA on loop: \D*round 3 \D*80[^:;]*", line(fresh))
    assert line(fresh) != line(third)
    assert re.fullmatch(
        r"TestA on loop: round 16 \D*80[^:;]*; 1 pass, 1 fail; "
        r"[^;]*read on ecryptfs\+a-very-long-name\+btrfs \+210 %; .*\b3 min.* 12 min",
        line(MOMENT._replace(running="")),
    )


def shown(state: ProgressState, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(rendered(state, console))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_the_view_says_where_the_chain_is_and_where_each_stack_stands() -> None:
    now, time, cost, *table = shown(MOMENT, 120)
    assert re.fullmatch(r"round 16 \D*80: TestA on loop", now)
    assert re.fullmatch(r"xfs read; 0:01:15[^;]*; .*\b3 min.* 12 min", time)
    assert re.fullmatch(r"1 pass, 1 fail; .*read on ecryptfs\+a-very-long-name\+btrfs \+210 %", cost)
    assert table == [
        "stack                                      overhead  interval       budget  of",
        "ext4                             measured",
        "xfs                              pass       +10.0 %  5.2 to 14.8 %    30 %  read",
        "luks+ext4                        FAIL       +10.0 %  5.2 to 14.8 %     5 %  write written_bytes",
        "ecryptfs+a-very-long-name+btrfs  running     +210 %                   30 %  read",
    ]
    assert shown(MOMENT, 200) == shown(MOMENT, 120)


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (80, ["stack", "overhead", "interval", "budget"]),
        (70, ["stack", "overhead", "interval"]),
        (55, ["stack", "overhead"]),
        (20, ["stack"]),
    ],
)
def test_what_does_not_fit_is_left_out_or_cut(width: int, columns: list[str]) -> None:
    lines = shown(MOMENT, width)
    assert len(lines) == 8
    assert max(map(len, lines)) <= width
    assert lines[3].split() == columns


def run(progress: Progress) -> None:
    for number in 1, 2:
        for stack in "ext4", "xfs":
            progress(MOMENT._replace(round=number, running=stack))
        if number == 1:
            progress(MOMENT._replace(round=number, running="", step=""))


def in_place(reporter: Reporter) -> Progress:
    return Progress(reporter, in_place=True)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "20")


def test_on_a_terminal_the_view_is_drawn_over_and_over_in_its_place() -> None:
    reporter = Reporter(isatty=True)
    run(in_place(reporter))
    lines = screen(reporter.text)
    assert lines[0] == ""
    assert re.fullmatch(r"round 2 \D*80: TestA on loop", lines[1])
    assert re.match(r"xfs read; 0:01:15\b", lines[2])
    assert len(lines) == 9


def test_at_its_end_nothing_of_it_is_left_and_another_one_may_begin() -> None:
    reporter = Reporter(isatty=True)
    progress = in_place(reporter)
    for _ in range(2):
        run(progress)
        progress.end()
        reporter.write_line("test_it.py FF")
    progress.end()
    assert [line for line in screen(reporter.text) if line] == ["test_it.py FF"] * 2
    assert reporter.text.rfind("\x1b[?25h") > reporter.text.rfind("\x1b[?25l") > 0


def test_more_stacks_than_the_terminal_has_lines_leave_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "6")
    reporter = Reporter(isatty=True)
    progress = in_place(reporter)
    run(progress)
    assert len(screen(reporter.text)) == 1 + 6
    progress.end()
    assert not any(screen(reporter.text))


def test_what_others_write_stays_and_the_view_goes_on_below() -> None:
    reporter = Reporter(isatty=True)
    progress = in_place(reporter)
    run(progress)
    reporter.write_line("fsstack: removed what a killed session left")
    run(progress)
    lines = screen(reporter.text)
    assert lines[9] == "fsstack: removed what a killed session left"
    assert re.fullmatch(r"round 2 \D*80: TestA on loop", lines[10])
    reporter.write_line("!!! KeyboardInterrupt !!!")
    progress.end()
    assert "!!! KeyboardInterrupt !!!" in screen(reporter.text)


def test_who_takes_over_the_terminal_finds_it_as_it_was() -> None:
    reporter = Reporter(isatty=True)
    progress = in_place(reporter)
    run(progress)
    before = screen(reporter.text)
    progress.leave()
    progress.end()
    assert screen(reporter.text) == before


def test_without_colours_there_are_none() -> None:
    reporter = Reporter(isatty=True)
    reporter.hasmarkup = False
    run(in_place(reporter))
    assert not re.search(r"\x1b\[[0-9;]*m", reporter.text)
    reporter.hasmarkup = True
    run(in_place(reporter))
    assert re.search(r"\x1b\[[0-9;]*m", reporter.text)


def test_in_a_log_there_is_a_line_a_round() -> None:
    reporter = Reporter()
    progress = Progress(reporter)  # type: ignore[arg-type]
    run(progress)
    progress.end()
    assert reporter.text == f"\n{line(MOMENT._replace(round=1, running='', step=''))}\n"


def test_a_log_of_a_long_round_names_the_stacks_that_ran() -> None:
    reporter = Reporter()
    progress = Progress(reporter)  # type: ignore[arg-type]
    state = MOMENT._replace(round=1, max_rounds=8, decides=False, cells=7)
    for number, stack in enumerate(["ext4", "xfs", "btrfs"]):
        progress(state._replace(cells_run=number, running=stack, elapsed=100.0 * number))
    progress.end()
    assert re.findall(r"round 1 of 8, (\d) of 7 \S+: (\S+);.* 12 min", reporter.text) == [("1", "xfs"), ("2", "btrfs")]


def after(number: int) -> ProgressState:
    """Return the end of a round of a chain whose figures of so many rounds are known."""
    (chain,) = measured(rounds=number).chains
    return MOMENT._replace(round=number, running="", step="", results=chain)


def titles(text: str) -> list[str]:
    return re.findall("^--- .*(round [0-9]+)", text, re.M)


@pytest.mark.parametrize("isatty", [True, False])
def test_the_answer_and_the_table_appear_after_the_first_round_and_are_refined(isatty: bool) -> None:
    reporter = Reporter(isatty=isatty)
    progress = Progress(reporter, in_place=isatty)  # type: ignore[arg-type]
    for number in range(1, 10):
        progress(after(number)._replace(running="xfs"))
        progress(after(number))
    progress.end()
    text = "\n".join(screen(reporter.text, 500)) if isatty else reporter.text
    assert titles(text) == ["round 1", "round 2", "round 4", "round 8"]
    first, _, _, last = re.split("^--- .*round [0-9]+", text, flags=re.M)[1:]
    cost, steps = (
        r"\bext4\+fscrypt .*: (?:ext4\+fscrypt )?2\.60\b.*\bext4\b",
        r".*too few rounds.*\b1\.06\b[^(]*delete [^(]*\b6\.40",
    )
    assert re.search(cost + steps, first)
    assert re.search(r"^ext4\+gocryptfs +9 s +x9\.00 +2 s +x2\.00$", first, re.M)
    assert "(x9.00 to x9.00)" in last
    assert OverheadUnit().interval(-1, math.inf) not in first
    assert re.search(r"\bluks\+ext4 [^:]*: this kernel \(6\.1\)", first)
    assert not re.search(r"^luks\+ext4 +-|\[1\]", first, re.M)
    assert "0:01:15" not in text


@pytest.mark.parametrize(
    "state",
    [
        after(8)._replace(time_left=TimeLeft(5.0, 15.0)),
        after(8)._replace(time_left=None),
        after(8)._replace(phase="confirming"),
        after(6),
        after(8)._replace(results=None),
    ],
)
def test_no_table_appears_shortly_before_the_last_one(state: ProgressState) -> None:
    reporter = Reporter()
    Progress(reporter)(state)  # type: ignore[arg-type]
    assert titles(reporter.text) == []


@pytest.mark.parametrize("isatty", [True, False])
def test_quiet_is_silent(isatty: bool) -> None:
    reporter = Reporter(isatty=isatty, verbosity=-1)
    progress = Progress(reporter, in_place=isatty)  # type: ignore[arg-type]
    run(progress)
    progress.end()
    assert reporter.text == ""


def test_without_a_reporter_it_is_silent() -> None:
    progress = Progress(None, in_place=True)
    run(progress)
    progress.end()


def test_only_a_view_imports_rich() -> None:
    code = "import sys, pytest_fsstack.rounds.loop, pytest_fsstack.rounds.progress; print('rich' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"


class Config:
    """As much of pytest's configuration as says where the tests write."""

    def __init__(self, isatty: bool, **options: object) -> None:
        self._options, self._ini = options, options.pop("log_cli", False)
        self._reporter = Reporter(isatty=isatty)
        self.pluginmanager = self

    def get_plugin(self, name: str) -> Reporter:
        return {"terminalreporter": self._reporter}[name]

    def hasplugin(self, name: str) -> bool:
        return name == "logging"

    def getoption(self, name: str, default: object) -> object:
        return self._options.get(name, default)

    def getini(self, name: str) -> object:
        return {"log_cli": self._ini}[name]


@pytest.mark.parametrize(
    ("config", "term", "in_place"),
    [
        (Config(True), "xterm", True),
        (Config(True), "dumb", False),
        (Config(True), "", False),
        (Config(False), "xterm", False),
        (Config(True, capture="no"), "xterm", False),
        (Config(True, capture="sys"), "xterm", False),
        (Config(True, log_cli_level="INFO"), "xterm", False),
        (Config(True, log_cli=True), "xterm", False),
    ],
)
def test_the_view_is_for_a_terminal_to_which_no_test_writes(
    monkeypatch: pytest.MonkeyPatch, config: Config, term: str, in_place: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    Progress.of(config)(MOMENT)  # type: ignore[arg-type]
    # In a log, a round that runs is no line yet.
    assert bool(config.get_plugin("terminalreporter").text) is in_place
