"""A signal is noted at once, and acted on when nothing is torn apart by it."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, signals
from pytest_fsstack.machine.signals import State


class Ended(BaseException):
    """What ends a session."""


@pytest.fixture(autouse=True)
def caught() -> Iterator[None]:
    with signals.caught(lambda number: Ended(number.name)):
        yield


@contextlib.contextmanager
def ended_in_a_test() -> Iterator[None]:
    with pytest.raises(Ended, match="SIGTERM"), signals.during(State.TEST):
        yield


def send(number: signal.Signals = signal.SIGTERM) -> None:
    signal.raise_signal(number)


def test_in_a_test_it_is_raised_at_once() -> None:
    with ended_in_a_test():
        send()
        pytest.fail("not raised")


@pytest.mark.parametrize("state", [State.IDLE, State.BUILDING, State.UNDOING])
def test_elsewhere_it_waits_for_a_safe_point(state: State) -> None:
    with signals.during(state):
        send()
    assert signals.received() is signal.SIGTERM
    with pytest.raises(Ended, match="SIGTERM"):
        signals.safe_point()


def test_what_a_test_calls_of_ours_is_ended_first() -> None:
    steps = []
    with ended_in_a_test():
        with signals.shielded():
            send()
            steps.append("ended")
        steps.append("not reached")
    assert steps == ["ended"]


def test_one_that_a_test_swallows_is_raised_again_at_the_next_safe_point() -> None:
    with signals.during(State.TEST):
        with contextlib.suppress(Ended):
            send()
    with pytest.raises(Ended):
        signals.safe_point()


def test_one_that_python_drops_is_sent_again() -> None:
    class Careless:
        def __del__(self) -> None:
            send()

    with ended_in_a_test():
        careless = Careless()
        del careless
        time.sleep(60)
        pytest.fail("dropped")


def test_one_that_arrives_while_python_drops_another_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine, where the thread that sends it again is faster than the hook that started it."""
    nudges: list[None] = []

    class Fast(threading.Thread):
        def start(self) -> None:
            if nudges:
                super().start()
            else:
                nudges.append(None)
                signals._nudge()

    class Careless:
        def __del__(self) -> None:
            send()

    monkeypatch.setattr(threading, "Thread", Fast)
    with ended_in_a_test():
        careless = Careless()
        del careless
        time.sleep(60)
        pytest.fail("dropped")
    assert nudges


def test_a_fork_does_not_swallow_it() -> None:
    armed = [1]
    os.register_at_fork(before=lambda: send() if armed else None)
    with ended_in_a_test():
        child = os.fork()
        if not child:
            os._exit(0)
        armed.clear()
        os.waitpid(child, 0)
        time.sleep(60)
        pytest.fail("swallowed")
    armed.clear()


@pytest.mark.parametrize(
    ("state", "count", "killed"),
    [
        (State.TEST, 1, True),
        (State.BUILDING, 1, False),
        (State.BUILDING, 2, True),
        (State.UNDOING, 1, False),
        (State.UNDOING, 2, False),
    ],
)
def test_a_command_is_cut_short_or_not(state: State, count: int, killed: bool) -> None:
    def interrupted(number: int, frame: object) -> None:
        for _ in range(count):
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGALRM, interrupted)
    commands.run("true")
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    start = time.monotonic()
    try:
        with signals.during(state):
            commands.run("sleep", "60" if killed else "1")
        assert not killed
    except (commands.CommandError, Ended):
        assert killed
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert time.monotonic() - start < 50


def test_what_was_ignored_stays_ignored_and_all_else_is_put_back() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        terminate = signal.getsignal(signal.SIGTERM)
        with signals.caught(lambda number: Ended()):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) != terminate
            signal.raise_signal(signal.SIGHUP)
            assert signals.received() is None
        assert signal.getsignal(signal.SIGTERM) == terminate
    finally:
        signal.signal(signal.SIGHUP, before)


def test_python_code_that_hangs_is_interrupted() -> None:
    start = time.monotonic()
    with (
        pytest.raises(TimeoutError, match=r"opening it .*\b0\.3 s\b.*--fsstack-timeout"),
        signals.limited("opening it", 0.3),
    ):
        time.sleep(600)
    assert time.monotonic() - start < 300


def test_python_code_that_hangs_and_swallows_errors_is_interrupted_again() -> None:
    def careless() -> None:
        try:
            time.sleep(600)
        except TimeoutError:
            time.sleep(600)

    with pytest.raises(TimeoutError), signals.limited("opening it", 0.2):
        careless()


def test_a_step_may_take_longer_than_its_limit_if_its_commands_do_not() -> None:
    with signals.limited("making it", 600.0):
        watch = signals._watch
        assert watch is not None
        deadline = watch.deadline
        commands.run("true")
        assert watch.deadline > deadline


def test_a_command_that_hangs_is_reported_rather_than_its_step() -> None:
    with pytest.raises(commands.CommandError, match=r"`sleep 20` .*\b0\.5 s\b"), signals.limited("making it", 0.4):
        commands.run("sleep", "20", timeout=0.5)


def test_the_page_says_of_each_state_what_a_signal_does() -> None:
    rows = {
        State.IDLE: ["idle", "reporting"],
        State.BUILDING: ["building"],
        State.TEST: ["running a test or a fixture", "in a debugger"],
        State.UNDOING: ["tearing down"],
    }
    assert set(rows) == set(State)
    text = (Path(__file__).parents[3] / "docs/safety.md").read_text()
    page = text.partition("\n## Signals")[2].partition("\n## Torture")[0]
    told = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert sorted(filter(None, told)) == sorted(name for names in rows.values() for name in names)
