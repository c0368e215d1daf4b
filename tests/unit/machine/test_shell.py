"""`fsstack.sh`: where its commands run, what their errors show, and what ends them."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import sh

from pytest_fsstack.machine import commands, orphans, shell, signals
from tests.toolkit import NotedStack


class EndedError(Exception):
    """The exception of a session that a signal ends."""


def processes(word: str) -> list[str]:
    """Return the ids of processes with this word in their environment."""
    return [path.name for path in orphans.PROC.glob("[0-9]*") if orphans._has_variable(path, word.encode())]


def test_commands_run_in_the_directory_of_the_stack(tmp_path: Path) -> None:
    stack = NotedStack(tmp_path)
    stack.sh.touch("file")
    assert (stack.path / "file").exists()
    assert stack.sh.pwd().strip() == str(stack.path)
    # As always in sh, an argument overrides a default, and baking goes on.
    assert stack.sh.bake(_cwd="/").pwd().strip() == "/"
    assert stack.sh.ls.bake("-a")("-1").split() == [".", "..", "file"]


def test_output_goes_to_no_terminal(tmp_path: Path) -> None:
    with pytest.raises(sh.ErrorReturnCode_1):
        shell.baked(tmp_path).test("-t", "1")


def test_an_error_shows_the_command_and_its_stderr(tmp_path: Path) -> None:
    with pytest.raises(sh.ErrorReturnCode_3) as error:
        shell.baked(tmp_path).sh("-c", "echo the reason >&2; exit 3")
    assert "the reason" in str(error.value)
    assert "exit 3" in str(error.value)


def test_the_time_limit_is_that_of_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "limit", 0.5)
    mark = f"MARK={os.urandom(8).hex()}"
    with pytest.raises(sh.TimeoutException) as error:
        shell.baked(tmp_path).sh("-c", f"export {mark}; echo the reason >&2; setsid sleep 600 & sleep 600")
    assert all(fact in str(error.value) for fact in ("sleep 600", "--fsstack-timeout", "the reason"))
    assert processes(mark) == []


def test_a_signal_ends_the_command_and_all_that_it_started(tmp_path: Path) -> None:
    mark = f"MARK={os.urandom(8).hex()}"
    started = tmp_path / "started"

    def send() -> None:
        while not started.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=send)
    sender.start()
    command = shell.baked(tmp_path).sh.bake("-c", f"export {mark}; setsid sleep 600 & touch started; sleep 600")
    with signals.caught(EndedError), signals.during(signals.State.TEST), pytest.raises(EndedError):
        command()
    sender.join()
    assert processes(mark) == []


def test_processes_have_the_mark_that_the_clean_up_looks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(orphans.VARIABLE, "a-session")
    output = shell.baked(tmp_path).env(_env={"A": "1"})
    assert {"A=1", f"{orphans.VARIABLE}=a-session"} <= set(output.split())
    assert "HOME=" not in output


def test_a_command_in_the_background_runs_on(tmp_path: Path) -> None:
    baked = shell.baked(tmp_path)
    server = baked.sleep("600", _bg=True, _bg_exc=False)
    try:
        with pytest.raises(sh.ErrorReturnCode):
            baked.false()
        assert server.is_alive()
    finally:
        server.kill()
        with pytest.raises(sh.SignalException_SIGKILL):
            server.wait()
