"""A session in a forked process sees what one of its own would see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.warm import Warm


def test_each_session_imports_from_its_own_python_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm = Warm()
    try:
        for name in "first", "second":
            (tmp_path / name).mkdir()
            (tmp_path / name / f"only_in_{name}.py").write_text("")
            monkeypatch.setenv("PYTHONPATH", str(tmp_path / name))
            result = warm.session("--version", "-p", f"only_in_{name}", cwd=tmp_path)
            assert result.returncode == 0, result.stderr
    finally:
        warm.close()


UNDUMPABLE = """
from pytest_fsstack.machine.processes import undumpable
from tests.warm import Warm
warm = Warm()
with undumpable():
    print(warm.session("--version"))
warm.close()
"""


def test_a_session_writes_its_output_whatever_protects_the_worker(tmp_path: Path) -> None:
    # Otherwise root may open the files of any process.
    drop = ["setpriv", "--bounding-set=-all"] if os.geteuid() == 0 else []
    argv = [*drop, sys.executable, "-c", UNDUMPABLE]
    result = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert "returncode=0" in result.stdout, result.stderr
    assert f"pytest {pytest.__version__}" in result.stdout
