from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands


class Interrupted(BaseException):
    """What a signal handler raises."""


@pytest.fixture
def interruptible() -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


def test_an_interrupted_command_has_ended_when_what_it_made_is_undone(interruptible: None, tmp_path: Path) -> None:
    made = tmp_path / "made"
    with pytest.raises(Interrupted):
        commands.run("sh", "-c", f"sleep 0.3; kill -ALRM {os.getpid()}; sleep 0.4; touch {made}")
    assert made.exists()


def test_commands_are_noted_as_a_shell_takes_them_until_the_block_ends() -> None:
    with commands.recorded_commands() as outer:
        commands.run("echo", "a b", env={"NAME": "it's"})
        for _ in range(3):
            with commands.recorded_commands() as inner, pytest.raises(commands.CommandError):
                commands.run("false")
    commands.run("true")
    assert outer == ["NAME='it'\"'\"'s' echo 'a b'", "false"]
    assert inner == ["false"]


def test_a_command_that_takes_too_long_is_killed() -> None:
    with pytest.raises(commands.CommandError, match=r"`sleep 10` .*\b0\.2 s\b"):
        commands.run("sleep", "10", timeout=0.2)


def test_a_failed_command_says_what_it_said() -> None:
    with pytest.raises(commands.CommandError, match=r"`sh -c 'echo no >&2; exit 3'` .*\b3\b.*\bno$"):
        commands.run("sh", "-c", "echo no >&2; exit 3")


def test_a_command_that_has_gone_is_not_installed_until_it_is_there_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    tool = tmp_path / "some-tool"
    tool.write_text("#!/bin/sh\necho here\n")
    tool.chmod(0o755)
    assert commands.run("some-tool") == "here\n"
    away = tool.rename(tmp_path / "away")
    with pytest.raises(commands.CommandError, match="`some-tool`") as error:
        commands.run("some-tool")
    assert str(error.value) == str(commands.not_installed(["some-tool"]))
    away.rename(tool)
    assert commands.run("some-tool") == "here\n"


def test_a_file_that_is_no_program_fails(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_bytes(b"\x7fELF and no more")
    tool.chmod(0o755)
    with pytest.raises(commands.CommandError) as error:
        commands.run(tool)
    assert error.value.returncode
    assert str(tool) in error.value.stderr


def test_long_output_and_a_child_that_keeps_it_open_do_not_block() -> None:
    output = commands.run("sh", "-c", "sleep 60 & echo $!; head -c 1000000 /dev/zero | tr '\\0' x")
    child, _, text = output.partition("\n")
    os.kill(int(child), signal.SIGKILL)
    assert text == "x" * 1000000


@pytest.mark.parametrize(
    "privileges",
    [
        pytest.param([], id="as it is"),
        pytest.param(
            ["setpriv", "--bounding-set", "-sys_resource"],
            marks=[pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="drops a capability of root")],
            id="without CAP_SYS_RESOURCE",
        ),
    ],
)
def test_commands_run_where_the_hard_limit_of_core_dumps_is_zero(privileges: list[str]) -> None:
    code = "from pytest_fsstack.machine import commands; print(commands.run('sh', '-c', 'ulimit -Sc'))"
    shell = ["sh", "-c", 'ulimit -Hc 0 && exec "$@"', "sh"]
    result = subprocess.run([*shell, *privileges, sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    # Of one byte, no block of a core dump comes about.
    assert result.stdout.strip() == "0"


def test_no_command_is_searched_through_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ["PATH"]
    for name in "prlimit", "setpriv", "true":
        assert commands.which(name)
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    # They were found when PATH was another one.
    monkeypatch.setattr(commands, "search_path", lambda: path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{path}")
    commands.run("true")


@pytest.mark.parametrize("free", range(20))
def test_a_command_for_which_no_descriptors_are_left_has_an_error_and_leaves_nothing(free: int) -> None:
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    commands.run("true")
    before = children.read_text(), len(os.listdir("/proc/self/fd"))
    used = max(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + free, hard))
    try:
        with contextlib.suppress(commands.CommandError):
            commands.run("sleep", "60", timeout=0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    assert (children.read_text(), len(os.listdir("/proc/self/fd"))) == before


def test_an_error_shows_the_beginning_and_the_end_of_a_long_output() -> None:
    error = commands.CommandError(["daemon"], 1, "\n".join(map(str, range(1000))))
    shown = str(error).splitlines()
    assert shown[0].endswith("0")
    assert shown[-1] == "999"
    assert len(shown) < 50
    assert error.stderr.count("\n") == 999
    assert "\n" not in str(commands.CommandError(["daemon"], 1, "refused\n"))


def test_a_condition_is_looked_at_after_each_event() -> None:
    pauses: list[float] = []
    assert commands.wait_until(lambda: len(pauses) == 3, 60.0, pauses.append)
    assert not commands.wait_until(lambda: False, 0.0, pauses.append)
