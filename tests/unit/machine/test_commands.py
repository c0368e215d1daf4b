from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands


class Interrupted(BaseException):
    """What a signal handler raises."""


@pytest.fixture
def interrupted_soon() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    commands.run("true")  # imports what it takes, so that the next one has started when it is interrupted
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_an_interrupted_command_has_ended_when_what_it_made_is_undone(interrupted_soon: None, tmp_path: Path) -> None:
    made = tmp_path / "made"
    with pytest.raises(Interrupted):
        commands.run("sh", "-c", f"sleep 0.6; touch {made}")
    assert made.exists()


def test_commands_are_noted_as_a_shell_takes_them_until_the_block_ends() -> None:
    with commands.noted() as outer:
        commands.run("echo", "a b", env={"NAME": "it's"})
        with commands.noted() as inner, pytest.raises(commands.CommandError):
            commands.run("false")
    commands.run("true")
    assert outer == ["NAME='it'\"'\"'s' echo 'a b'", "false"]
    assert inner == ["false"]


def test_a_command_that_takes_too_long_is_killed() -> None:
    with pytest.raises(commands.CommandError, match=r"no answer within 0\.2 s, killed"):
        commands.run("sleep", "10", timeout=0.2)


def test_a_failed_command_says_what_it_said() -> None:
    with pytest.raises(commands.CommandError, match=r"`sh -c 'echo no >&2; exit 3'` failed \(exit code 3\): no$"):
        commands.run("sh", "-c", "echo no >&2; exit 3")
