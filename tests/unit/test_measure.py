"""What the timed block does to start cold, with a kernel that does not answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_fsstack import measure
from pytest_fsstack.measure import MeasureError


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def sync(directory: Path, script: str) -> None:
    (directory / "sync").write_text(f"#!/bin/sh\n{script}\n")
    (directory / "sync").chmod(0o755)


def test_everything_is_written_out_by_a_process_that_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    measure._sync()
    sync(tmp_path, f"echo called >> {tmp_path}/log")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    measure._sync()
    assert (tmp_path / "log").read_text() == "called\n"
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_filesystem_that_hangs_ends_the_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    sync(tmp_path, "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(MeasureError, match=r"not written out everything on this machine within 0\.1 s"):
        measure._sync(0.1)
    (left,) = children() - before
    os.waitpid(int(left), 0)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_machine_without_the_command_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.host, "which", lambda tool: None)
    with pytest.raises(MeasureError, match="needs the command sync"):
        measure._sync()
