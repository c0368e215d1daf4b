"""Steps that are repeated on real filesystems and devices: reading, which writes times of access, and writing."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.root

TEST = """
import os, pytest
from pytest_fsstack import workloads

@pytest.mark.fsstack("ext4", "btrfs", "ext4 | gocryptfs")
@pytest.mark.fsstack_repeat(2)
class TestFiles:
    def test_fill(self, fsstack):
        for number in range(50):
            (fsstack.path / f"{number}").write_text("x" * 5000)

    def test_read(self, fsstack, timed):
        with timed():
            timed.run("grep", "-r", "y", fsstack.path, check=False)

    def test_du(self, fsstack, timed):
        workloads.du(timed, fsstack, tree=".")

@pytest.mark.fsstack("raw")
@pytest.mark.fsstack_repeat(2)
class TestDevice:
    def test_read(self, fsstack, timed):
        workloads.dd_read(timed, fsstack, size=1 << 20, block=1 << 16)

    def test_overwrite(self, fsstack, timed):
        with timed(cold=False):
            fd = os.open(fsstack.path, os.O_WRONLY)
            os.pwrite(fd, bytes(4096), 0)
            os.close(fd)
"""


def test_what_reads_is_repeated_and_what_writes_to_a_device_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=TEST)
    result = pytester.runpytest_subprocess("--fsstack-rounds=1", "--fsstack-size=256M", "-v", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=10, failed=1)
    result.stdout.fnmatch_lines(["*overwrite *4,096 bytes*fsstack_repeat*"])
    result.stdout.fnmatch_lines(["repeated  read * 2 *", "repeated  du * 2 *"])
