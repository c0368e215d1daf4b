"""The examples of CONTRIBUTING.md: its layer is three edits, which apply to this code, and its test passes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_layer_of_the_page_is_its_class_its_registry_line_and_its_test(tmp_path: Path) -> None:
    (diff,) = re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
    files = re.findall(r"^\+\+\+ (.*)$", diff, re.MULTILINE)
    assert len(files) == 3
    for folder in "pytest_fsstack", "tests":
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    # Not even in a repository above the temporary directory.
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    applied = subprocess.run(
        ["git", "apply", "-p0", "-"], input=diff, cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert applied.returncode == 0, f"{applied.stderr}\nmake the diff in CONTRIBUTING.md anew"
    (test,) = [file for file in files if file.startswith("tests/")]
    words = ["-m", "pytest", "-q", "-c", os.devnull, "--rootdir=.", "-p", "no:cacheprovider", "-k", "minix", test]
    # The first on the path is the copy.
    result = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env={**env, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^1 passed", result.stdout, re.MULTILINE), result.stdout
