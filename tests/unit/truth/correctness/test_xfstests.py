"""The tests of xfstests that run, the commands between them and the machine, and what becomes of their report."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.truth.correctness import xfstests
from pytest_fsstack.truth.correctness.posix import SuiteError

REPORT = """<?xml version="1.0" encoding="UTF-8"?>
<testsuites><testsuite name="xfstests" tests="3">
    <testcase classname="xfstests.global" name="generic/001" time="2"></testcase>
    <testcase classname="xfstests.global" name="generic/002" time="1">
        <failure message="output mismatch" type="TestFail" />
    </testcase>
    <testcase classname="xfstests.global" name="generic/003" time="0"><skipped message="needs a device" /></testcase>
</testsuite></testsuites>
"""


def test_each_test_of_a_report_passed_failed_or_was_not_run() -> None:
    cases = xfstests.cases_of(REPORT)
    assert cases.passed == {"generic/001"}
    assert cases.failed == {"generic/002": "output mismatch"}
    assert cases.skipped == {"generic/003": "needs a device"}
    none_ran = REPORT.replace("generic/001", "generic/002").split("<testcase")
    with pytest.raises(SuiteError, match=r"^xfstests: .*\b1 tests .*generic/003.*needs a device"):
        xfstests.cases_of(f"{none_ran[0]}<testcase{none_ran[3]}")


def test_the_group_is_read_from_a_compiled_checkout(tmp_path: Path) -> None:
    checkout = xfstests.Checkout(tmp_path)
    assert "--fsstack-xfstests=" in str(checkout.missing())
    for name in ("check", "ltp/fsstress", "tests/generic/group.list"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert checkout.missing() is None
    groups = "1 auto\n2 quick rw\n3 quickly\n4 auto quick\n5 quick shutdown\n504 quick\n"
    (tmp_path / "tests/generic/group.list").write_text(groups)
    assert xfstests.quick_tests(tmp_path) == ["generic/2", "generic/4"]


def test_the_commands_know_the_two_mounts_and_leave_others_alone(tmp_path: Path) -> None:
    top, place, tools = tmp_path / "top", tmp_path / "place of files", tmp_path / "tools"
    for directory in (top, place, tools):
        directory.mkdir()
    for name in ("mount", "umount", "df", "findmnt", "mountpoint", "sync"):
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tools / name).chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        xfstests.prepare(top, place)

        def run(name: str, *words: str) -> str:
            result = subprocess.run([top / "bin" / name, *words], capture_output=True, text=True, check=True)
            return result.stdout.strip()

        assert run("mount", "-t", "fuse", "fsstack-test", f"{top}/test") == f"mount --bind {place}/test {top}/test"
        assert "remount,bind,ro" in run("mount", "-o", "remount,ro", f"{top}/scratch")
        assert "remount,bind,ro" in run("mount", "-o", "ro", "fsstack-scratch", f"{top}/scratch")
        assert run("mount", "-t", "tmpfs", "none", "/mnt") == "mount -t tmpfs none /mnt"
        assert run("umount", "/mnt") == "umount /mnt"
        assert f"fsstack-scratch {top}/scratch" in run("findmnt", "-rncv", "-S", "fsstack-scratch", "-o", "SOURCE")
        assert run("findmnt", "/mnt") == "findmnt /mnt"
        assert run("df", "/mnt") == "df /mnt"
    assert f"TEST_DIR={top}/test" in (top / "settings").read_text()


def test_nothing_that_it_makes_outside_of_the_stack_is_writable_by_others(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    xfstests.prepare(top, tmp_path)
    assert [path for path in top.rglob("*") if path.lstat().st_mode & 0o022] == []
