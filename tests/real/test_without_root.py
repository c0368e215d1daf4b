"""A user without rights: what a session of root may do past the rights of files must work without that as well."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import directories

pytestmark = pytest.mark.root

NOBODY = 65534
#: It may read everything, since this interpreter can be in the home of root, and nothing else.
AS_NOBODY = [
    "setpriv",
    *(f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *("--bounding-set=-all,+dac_read_search", "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search"),
]
TEST = """
import pytest

@pytest.mark.fsstack("directory")
def test_it(fsstack, request):
    # While the stack stands, no other process may look into this one.
    assert request.getfixturevalue("corpus").files == 2
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with directories.scratch(Path("/tmp"), "home-") as path:
        os.chown(path, NOBODY, NOBODY)
        yield path


def test_a_directory_is_a_corpus(home: Path) -> None:
    for path, text in {"corpus/a": "a", "corpus/b/c": "c", "pytest.ini": "[pytest]\n", "test_it.py": TEST}.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text)
    (home / "device").mkdir()
    os.chown(home / "device", NOBODY, NOBODY)
    result = subprocess.run(
        [
            *(*AS_NOBODY, sys.executable, "-m", "pytest", "-p", "no:cacheprovider"),
            *(f"--basetemp={home / 'temp'}", "--fsstack-device=dir:device", "--fsstack-corpus=corpus"),
        ],
        cwd=home,
        env={**os.environ, "XDG_CACHE_HOME": str(home / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert "1 passed" in result.stdout, result.stdout + result.stderr
    assert list((home / "device").iterdir()) == []
