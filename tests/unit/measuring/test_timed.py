"""Cold starts of the timed block, with a kernel that does not answer."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from pytest_fsstack.measuring import timed
from pytest_fsstack.measuring.settling import ABOUT_ZERO
from pytest_fsstack.measuring.timed import MeasureError, Timed
from tests.toolkit import NotedStack, NotedTimed


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def sync(directory: Path, script: str) -> None:
    (directory / "sync").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "sync").chmod(0o755)


def test_everything_is_written_out_by_a_process_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    timed._sync()
    sync(tmp_path, f"echo called >> {tmp_path}/log")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    timed._sync()
    assert (tmp_path / "log").read_text() == "called\n"
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("dirty", [0, ABOUT_ZERO + 1])
def test_only_what_others_have_left_is_written_out_by_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dirty: int
) -> None:
    sync(tmp_path, f"echo called >> {tmp_path}/log")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(timed, "unwritten", lambda: 0 if (tmp_path / "log").exists() else dirty)
    monkeypatch.setattr(timed, "can_drop_caches", lambda: False)
    timed.drop_caches()
    assert (tmp_path / "log").exists() == bool(dirty)


def test_a_filesystem_that_hangs_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    sync(tmp_path, "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(MeasureError, match=r"\b0\.1 s\b.*timed\(cold=False\)"):
        timed._sync(0.1)
    (child,) = children() - before
    os.waitpid(int(child), 0)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_machine_without_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "which", lambda tool: None)
    with pytest.raises(MeasureError, match=r"\bsync\b.*\bcoreutils\b"):
        timed._sync()


def test_a_second_block_and_the_name_of_a_measured_figure_are_refused(tmp_path: Path) -> None:
    clock = NotedTimed(NotedStack(tmp_path))
    with clock():
        clock.run("true")
    with pytest.raises(MeasureError, match=r"\btimed block\b"), clock():
        pass
    for name in "seconds", "stack_open_seconds", "directory_open_seconds":
        with pytest.raises(MeasureError, match=f"'{name}'"):
            clock.record(name, 1.0)
    clock.record("ext4_open_seconds", 1.0)
    with clock.another()():
        assert clock.inside == [("true",)]


def test_the_time_is_that_of_the_work_and_that_of_the_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = NotedStack(tmp_path)
    monkeypatch.setattr(stack.machine, "sync", lambda path: time.sleep(0.02), raising=True)
    clock = Timed(stack)
    with clock(cold=False):
        time.sleep(0.03)
    assert clock.sample
    seconds, work, sync = (clock.sample[name] for name in ("seconds", "work_seconds", "sync_seconds"))
    assert work >= 0.03
    assert sync >= 0.02
    assert work + sync == pytest.approx(seconds, abs=1e-9)


def test_a_relative_path_leads_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack/script").write_text("#!/bin/sh\necho here\n")
    (tmp_path / "stack/script").chmod(0o755)
    clock = Timed(NotedStack(tmp_path))
    for directory in "stack", tmp_path / "stack":
        assert clock.run("./script", cwd=directory).stdout == "here\n"


@pytest.mark.parametrize(
    ("text", "directory", "reason"),
    [("no shebang", ".", "Exec format error"), ("#!/no/such", ".", "No such file"), ("#!/bin/sh", "none", "/none")],
)
def test_a_command_that_cannot_be_started_says_why(tmp_path: Path, text: str, directory: str, reason: str) -> None:
    script = tmp_path / "script"
    script.write_text(text)
    script.chmod(0o755)
    with pytest.raises(commands.CommandError, match=f"script.*{reason}"):
        Timed(NotedStack(tmp_path)).run(script, cwd=tmp_path / directory)


def test_a_command_that_sigkill_does_not_end_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    killed: list[int] = []
    monkeypatch.setattr(commands, "_DEATH", 0.1)
    monkeypatch.setattr(os, "killpg", lambda pid, number: killed.append(pid))
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            Timed(NotedStack(tmp_path)).run("sleep", "600")
        assert time.monotonic() - start < 300
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        monkeypatch.undo()
        process = commands._left_behind.pop()
        process.kill()
        process.wait()
    assert killed == [process.pid]


@pytest.mark.parametrize(("cold", "root", "remounts"), [(True, True, 0), (False, True, 1), (True, False, 1)])
def test_what_is_read_back_comes_from_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold: bool, root: bool, remounts: int
) -> None:
    drops: list[None] = []
    for name in "drop_caches", "drop_clean_caches":
        monkeypatch.setattr(timed, name, lambda: drops.append(None))
    monkeypatch.setattr(timed, "can_drop_caches", lambda: root)
    stack = NotedStack(tmp_path)
    clock = Timed(stack)
    with clock(cold=cold):
        assert len(drops) == cold
    clock.reread()
    assert stack.remounts == remounts
    assert len(drops) == cold + 1 - remounts
