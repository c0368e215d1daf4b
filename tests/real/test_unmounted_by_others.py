"""A mount of a stack that somebody takes away while a test runs: an error, since the rest ran elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.stack.model import Stack
from tests.real.conftest import left_of
from tests.warm import session as run_pytest

pytestmark = pytest.mark.root

TEST = """
import subprocess, time
import pytest

START = time.monotonic()

@pytest.mark.fsstack({stack!r})
class TestIt:
    def test_unmount(self, fsstack):
        # On a busy machine somebody may look at it in this very moment.
        while (code := subprocess.run([*{words}, fsstack.path]).returncode) and time.monotonic() < START + 30:
            time.sleep(0.05)
        assert code == 0

    @pytest.mark.benchmark
    def test_timed(self, fsstack, timed):
        with timed():
            pass

def test_other():
    pass
"""


@pytest.mark.parametrize(
    ("stack", "words", "timed"),
    [
        ("ext4 | gocryptfs", ["fusermount", "-u"], False),
        ("ext4 | gocryptfs", ["fusermount", "-u"], True),
        ("ext4 | encfs", ["fusermount", "-uz"], False),
        ("ext4 | overlay", ["umount", "-l"], False),
    ],
)
def test_it_is_an_error_and_leaves_nothing(stack: str, words: list[str], timed: bool, tmp_path: Path) -> None:
    if reasons := needs.missing(Stack.parse(stack, BUILT_IN).needs()):
        pytest.skip("; ".join(reasons))
    (tmp_path / "test_it.py").write_text(TEST.format(stack=stack, words=words))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    options = ["-p", "no:cacheprovider", "--fsstack-size=64M", "--fsstack-rounds=2", "--basetemp=tmp"]
    chosen = [] if timed else ["-k", "not timed"]
    result = run_pytest(*options, *chosen, cwd=tmp_path)
    assert result.returncode == 1, result.stdout
    assert re.search(rf"layer {stack.rpartition(' ')[2]}: `.*` .*mounted\b", result.stdout)
    assert "1 error" in result.stdout or "1 failed" in result.stdout, result.stdout
    assert list((tmp_path / "tmp").rglob("fsstack-*")) == []
    assert commands.wait_until(lambda: not any(left_of(tmp_path).values()), 60.0), left_of(tmp_path)
