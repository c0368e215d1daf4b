"""The view of the rounds on a real terminal: in place while they run, and gone when the tests are reported."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_fsstack.machine import commands
from tests.plugin.conftest import Project
from tests.terminal import screen

COLUMNS = 100

TEST = """
import time
from pathlib import Path
import pytest

rounds = []

@pytest.mark.fsstack("plain", "crypt")
class TestChain:
    def test_fill(self, fsstack):
        (fsstack.path / "file").write_text("x")

    def test_read(self, fsstack, timed):
        with timed(cold=False):
            assert (fsstack.path / "file").read_text() == "x"
        print("what a test prints is captured")
        rounds.append(1)
        if len(rounds) == 3:
            THEN
"""


class Terminal:
    """A session at a terminal of its own, and all that it wrote there."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process, self.descriptor, self.said = process, descriptor, ""

    def read_until(self, text: str) -> None:
        """Read until that was written, or with an empty text until the session has ended."""
        deadline = time.monotonic() + 60
        while (not text or text not in self.said) and time.monotonic() < deadline:
            if select.select([self.descriptor], [], [], 0.2)[0]:
                try:
                    self.said += os.read(self.descriptor, 1 << 16).decode()
                except OSError:  # nobody has the other end any more
                    break
        assert text in self.said

    def ended(self) -> int:
        self.read_until("")
        return self.process.wait(60)

    @property
    def lines(self) -> list[str]:
        return screen(self.said, COLUMNS)

    @property
    def hides_the_cursor(self) -> bool:
        controls: list[str] = re.findall(r"\x1b\[\?25[hl]", self.said)
        return controls[-1] == "\x1b[?25l"


@contextmanager
def at_terminal(project: Project, then: str, *options: str) -> Iterator[Terminal]:
    project.write(TEST.replace("THEN", then))
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    words = ["-p", "no:cacheprovider", "--fsstack-seed=1", f"--fsstack-device=dir:{project.device}"]
    size = {"COLUMNS": "", "LINES": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, *options],
        cwd=project.pytester.path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name not in size} | {"TERM": "xterm"},
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def test_the_view_shows_each_step_and_is_gone_when_the_tests_are_reported(project: Project) -> None:
    with at_terminal(project, "pass", "--fsstack-rounds=3", "-v") as terminal:
        assert terminal.ended() == 0
        assert re.search(r"rounds 2 to 3 .*3: TestChain on dir:.*\r\n(plain|crypt) read; 0:00:", terminal.said)
        lines = terminal.lines
        assert not any(re.search("rounds 2 to 3 .*3:|; 0:00:", line) for line in lines)
        reported = [line.split(" ")[0] for line in lines if "PASSED" in line]
        assert len(reported) == 4
        assert all(name.startswith("test_it.py::TestChain::test_") for name in reported)
        assert not terminal.hides_the_cursor


def test_after_ctrl_c_the_terminal_is_as_before_and_has_the_tables(project: Project) -> None:
    wait = 'Path("stands").touch(); time.sleep(60)'
    with at_terminal(project, wait, "--fsstack-rounds=5") as terminal:
        terminal.read_until("rounds 2 to ")
        assert commands.wait_until((project.pytester.path / "stands").exists, 60)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 128 + signal.SIGINT
        assert "; 0:00:" in terminal.said
        assert not any("; 0:00:" in line for line in terminal.lines)
        assert any(line.split()[:2] == ["seconds", "read"] for line in terminal.lines)
        assert not terminal.hides_the_cursor


def test_the_debugger_has_the_terminal_for_itself(project: Project) -> None:
    with at_terminal(project, "raise ValueError('look here')", "--fsstack-rounds=5", "--pdb") as terminal:
        terminal.read_until("(Pdb)")
        assert any("ValueError: look here" in line for line in terminal.lines)
        assert not terminal.hides_the_cursor
        os.write(terminal.descriptor, b"continue\n")
        assert terminal.ended() == 1
        assert any("ValueError: look here" in line for line in terminal.lines)
        assert not terminal.hides_the_cursor
