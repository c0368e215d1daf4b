"""A tool of the guard that hangs: a session ends after --fsstack-timeout, also before its first test."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.conftest import LoopDevice

pytestmark = pytest.mark.root

TEST = """
import pytest

@pytest.mark.fsstack("ext4")
def test_it(fsstack):
    pass
"""


def test_a_disk_that_cannot_be_looked_at_in_time_is_refused(tmp_path: Path, loop_device: LoopDevice) -> None:
    disk = loop_device()
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "blkid").write_text("#!/bin/sh\nexec sleep 600\n")
    (tools / "blkid").chmod(0o755)
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    with disk.untouched():
        done = subprocess.run(
            [sys.executable, "-m", "pytest", f"--fsstack-device={disk.path}", "--fsstack-timeout=1"],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode != 0
    assert re.search(rf"{disk.path} .*`blkid .*` .*\b1 s\b", done.stdout + done.stderr)
