"""A session in a forked process sees what one of its own would see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warm import Warm


def test_each_session_imports_from_its_own_python_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warm = Warm()
    try:
        for name in "first", "second":
            (tmp_path / name).mkdir()
            (tmp_path / name / f"only_in_{name}.py").write_text("")
            monkeypatch.setenv("PYTHONPATH", str(tmp_path / name))
            done = warm.session("--version", "-p", f"only_in_{name}", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
    finally:
        warm.close()
