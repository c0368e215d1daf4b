"""Sessions on a machine whose kernel shows an emulated CPU: a file over /proc/cpuinfo, in a mount namespace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sessions import FEW_PLUGINS

pytestmark = pytest.mark.root

CPUINFO = "processor\t: 0\nmodel name\t: QEMU TCG CPU version 2.5+\nflags\t\t: fpu hypervisor\n"
TEST = """
import time
import pytest

@pytest.mark.fsstack("plain = directory", "dear = directory | bind", baseline="plain")
@pytest.mark.fsstack_budget("5000%")
def test_write(fsstack, timed):
    with timed(cold=False):
        time.sleep(0.01 if len(fsstack.stack.layers) > 1 else 0.001)
"""
SHOWN = "Emulated: shows function, not speed"


def test_no_report_begins_with_a_cost_or_a_kept_limit(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    (tmp_path / "device").mkdir()
    reports = ["--fsstack-report=html=page.html", "--fsstack-report=markdown=page.md", "--junitxml=junit.xml"]
    words = ["-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=.", "--fsstack-device=dir:device", "test_it.py"]
    session = [sys.executable, "-m", "pytest", *reports, "--fsstack-rounds=8", "--fsstack-seed=1", *words]
    shell = ["unshare", "--mount", "sh", "-ec", 'mount --bind cpuinfo /proc/cpuinfo; exec "$@"', "sh"]
    result = subprocess.run(
        [*shell, *session],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, **FEW_PLUGINS},
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    texts = [result.stdout, *((tmp_path / name).read_text() for name in ("page.html", "page.md", "junit.xml"))]
    for text in texts:
        assert SHOWN in text
    assert SHOWN in texts[2].splitlines()[0]
    assert not re.search(r"limits? (is|are) kept", "".join(texts))
