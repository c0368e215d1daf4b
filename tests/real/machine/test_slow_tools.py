"""A tool of the guard that hangs: a session ends after --fsstack-timeout, also before its first test."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.real.conftest import LoopDevice, small_session

pytestmark = pytest.mark.root


def test_a_disk_that_cannot_be_looked_at_in_time_is_refused(
    tmp_path: Path, loop_device: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = loop_device()
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "blkid").write_text("#!/bin/sh\nexec sleep 600\n")
    (tools / "blkid").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    with disk.untouched():
        result = small_session(tmp_path, f"--fsstack-device={disk.path}", "--fsstack-timeout=1")
    assert result.returncode != 0
    assert re.search(rf"{disk.path} .*`blkid .*` .*\b1 s\b", result.stdout + result.stderr)
