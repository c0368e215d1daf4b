"""Signals where a session treats them otherwise: ignored from the start, as under nohup, and in the debugger."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, mounts
from tests.real.conftest import left_of

pytestmark = pytest.mark.root

TEST = """
import time
from pathlib import Path
import pytest

@pytest.mark.fsstack("ext4 | bind")
def test_it(fsstack):
    Path("stands").touch()
    while Path("wait").exists():
        time.sleep(0.02)
    assert {outcome}
"""


@dataclass
class Session:
    process: subprocess.Popen[bytes]
    terminal: int
    directory: Path
    said: bytes = b""
    seen: int = 0

    def read_until(self, text: bytes, seconds: float = 60.0) -> None:
        """Read on until that comes, after what it was read until before."""
        deadline = time.monotonic() + seconds
        while text not in self.said[self.seen :] and time.monotonic() < deadline:
            if select.select([self.terminal], [], [], 0.2)[0]:
                try:
                    self.said += os.read(self.terminal, 1 << 16)
                except OSError:  # nobody has the other end any more
                    break
        position = self.said.find(text, self.seen)
        assert position >= 0, self.said.decode(errors="replace")
        self.seen = position + len(text)

    def ended(self) -> int:
        self.read_until(b" in ")  # the last line, which a full terminal would hold back
        return self.process.wait(60)

    def nothing_is_left(self) -> bool:
        return not list((self.directory / "tmp").rglob("fsstack-*")) and commands.wait_until(
            lambda: not any(left_of(self.directory).values()), 60.0
        )


@contextmanager
def session(
    directory: Path, outcome: str, *options: str, ignored: tuple[signal.Signals, ...] = ()
) -> Iterator[Session]:
    """A session at a terminal of its own, whose first stack stands."""
    (directory / "test_it.py").write_text(TEST.format(outcome=outcome))
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "wait").touch()
    ours, theirs = pty.openpty()
    base = ["-p", "no:cacheprovider", "-p", "no:sugar", "--fsstack-size=64M", "--basetemp=tmp"]
    # `trap ''` is what nohup does, and background jobs of a shell without job control have.
    before = "".join(f"trap '' {number.name.removeprefix('SIG')}; " for number in ignored)
    process = subprocess.Popen(
        ["sh", "-c", before + 'exec "$@"', "sh", sys.executable, "-m", "pytest", *base, *options],
        cwd=directory,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        assert commands.wait_until((directory / "stands").exists, 60)
        yield Session(process, ours, directory)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(ours)


def test_under_nohup_a_hangup_changes_nothing_and_another_signal_ends_it(tmp_path: Path) -> None:
    with session(tmp_path, "True", ignored=(signal.SIGHUP,)) as running:
        for _ in range(3):
            running.process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        (tmp_path / "wait").unlink()
        assert running.ended() == 0
        assert b"1 passed" in running.said
        assert running.nothing_is_left()
    (tmp_path / "stands").unlink()
    with session(tmp_path, "True", ignored=(signal.SIGHUP, signal.SIGINT)) as running:
        running.process.send_signal(signal.SIGHUP)
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 128 + signal.SIGTERM
        assert running.nothing_is_left()


@pytest.mark.parametrize("statement", ["", "__import__('time').sleep(30)\n"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_in_the_debugger_the_stack_stands_until_a_signal_ends_the_session(
    tmp_path: Path, number: signal.Signals, statement: str
) -> None:
    with session(tmp_path, "False", "--pdb") as running:
        (tmp_path / "wait").unlink()
        running.read_until(b"(Pdb)")
        os.write(running.terminal, b"(fsstack.path / 'file').write_text('stands') and 40 + 2\n")
        running.read_until(b"42")
        running.read_until(b"(Pdb)")
        # Pdb swallows what is raised in a statement.
        os.write(running.terminal, statement.encode())
        time.sleep(0.5)
        running.process.send_signal(number)
        assert running.ended() == 128 + number
        assert running.nothing_is_left()


def test_who_leaves_the_debugger_has_an_ordinary_end(tmp_path: Path) -> None:
    with session(tmp_path, "False", "--pdb") as running:
        (tmp_path / "wait").unlink()
        running.read_until(b"(Pdb)")
        os.write(running.terminal, b"continue\n")
        assert running.ended() == 1
        assert running.nothing_is_left()
    assert mounts.below(tmp_path) == []
