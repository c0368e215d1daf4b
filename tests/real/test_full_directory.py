"""A directory of loop files that is full: each failure begins with that, and names the option that helps."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_fsstack.machine import commands, mounts
from tests import warm

pytestmark = pytest.mark.root

#: Each test writes 24 MiB to an ext4 of 64 MiB.
TESTS = """
import os, subprocess
import pytest

def fill(path):
    with open(path / "file", "wb") as file:
        file.write(os.urandom(24 << 20))
        file.flush()
        os.fsync(file.fileno())

pytestmark = pytest.mark.fsstack("ext4")

def test_python(fsstack):
    fill(fsstack.path)

def test_timed_run(fsstack, timed):
    with timed(cold=False):
        timed.run("dd", "if=/dev/urandom", f"of={fsstack.path}/file", "bs=1M", "count=24", "conv=fsync")

def test_called(fsstack):  # Its error has no text that could be changed.
    subprocess.run(["dd", "if=/dev/urandom", f"of={fsstack.path}/file", "bs=1M", "count=24", "conv=fsync"], check=True)

def test_fail(fsstack):
    try:
        fill(fsstack.path)
    except OSError:
        pytest.fail("could not write", pytrace=False)

def test_subtests(fsstack, subtests):
    with subtests.test("one"):
        fill(fsstack.path)

def test_another_error(fsstack):  # Somebody else has filled the directory.
    subprocess.run(["dd", "if=/dev/zero", f"of={os.environ['SMALL']}/other", "bs=64K"], stderr=subprocess.DEVNULL)
    assert fsstack.path == "elsewhere"
"""

SmallDirectory = Callable[[str], Path]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallDirectory]:
    """Mount a tmpfs of a size in a directory."""
    mounts.private_namespace()
    directory = tmp_path / "small"
    directory.mkdir()

    def make(size: str) -> Path:
        commands.run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", directory)
        return directory

    yield make
    commands.run("umount", directory)


def run(tmp_path: Path, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = (f"--fsstack-dir={directory}", "--fsstack-rounds=1", "-p", "no:cacheprovider", "-rA", *words)
    return warm.session(f"--basetemp={tmp_path / 'tmp'}", *words, cwd=tmp_path)


def failures(output: str) -> list[str]:
    """Return the lines of the short summary, without the one that counts subtests."""
    return re.findall(r"^(?:SUB)?FAILED.*(?<!contains 1 failed subtest)$", output, re.M)


def test_each_failed_write_begins_with_the_full_directory(
    small: SmallDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    directory = small("16M")
    monkeypatch.setenv("SMALL", str(directory))
    reports = [f"--fsstack-json={tmp_path / 'out.json'}", f"--junitxml={tmp_path / 'out.xml'}"]
    result = run(tmp_path, directory, "--fsstack-size=64M", *reports)
    assert result.returncode == 1, result.stdout + result.stderr
    lines = failures(result.stdout)
    assert len(lines) == 6, lines
    for line in lines:
        assert (" - no space is left below " in line) == ("test_another_error" not in line), lines
    cause = f"{directory}: name another directory with --fsstack-dir"
    messages = [failure.attrib["message"] for failure in ElementTree.parse(tmp_path / "out.xml").iter("failure")]
    assert len([message for message in messages if cause in message.splitlines()[0]]) == 5, messages
    assert (tmp_path / "out.json").read_text().count(cause) >= 5
    # Nothing shows that this is the cause of the other error.
    assert re.search(rf"^perhaps because no space is left below .*{cause}", result.stdout, re.M)
    # The traceback shows the original error.
    assert re.search(r"^E  +OSError: \[Errno (5|28)\] ", result.stdout, re.M)


def test_a_filesystem_that_cannot_be_made_in_a_full_directory_names_it(small: SmallDirectory, tmp_path: Path) -> None:
    directory = small("2M")
    result = run(tmp_path, directory, "--fsstack-size=512M", "-k", "test_python")
    assert result.returncode == 1, result.stdout + result.stderr
    error = next(line for line in result.stdout.splitlines() if "could not build `ext4`" in line)
    assert error.index(f"{directory}: name another directory with --fsstack-dir") < error.index("mkfs.ext4"), error
    assert "Buffer I/O error" not in result.stdout  # the kernel's lines say nothing more
