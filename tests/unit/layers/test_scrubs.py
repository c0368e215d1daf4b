"""Scrubs, and the output of their tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.layers import scrubs
from pytest_fsstack.machine.commands import CommandError
from pytest_fsstack.preflight.recording import RecordingMachine
from pytest_fsstack.stack.places import CheckResult

POOL = """  pool: fsstack-1-zfs
 state: ONLINE
 scrub: scrub completed after 0h0m with {wrong} errors on Sun Nov 22 23:43:55 2026
config:

\tNAME                        STATE     READ WRITE CKSUM
\tfsstack-1-zfs               ONLINE       0     0     {wrong}
\t  /tmp/a place/devices/sdb  ONLINE       0     0     {counted}

errors: {errors}
"""
NONE = "No known data errors"


@pytest.mark.parametrize(
    ("output", "clean"),
    [
        (POOL.format(wrong=0, counted=0, errors=NONE), True),
        (POOL.format(wrong=0, counted=2, errors=NONE), False),
        (POOL.format(wrong=1, counted="1.2K", errors=NONE), False),
        (POOL.format(wrong=1, counted=2, errors="Permanent errors have been detected"), False),
        ("", False),
    ],
)
def test_a_pool_is_clean_without_any_error_counted(output: str, clean: bool) -> None:
    assert scrubs.zpool_status(output).clean is clean


@pytest.mark.parametrize(("code", "clean"), [(0, True), (1, False), (2, True), (3, False), (4, None), (5, None)])
def test_xfs_is_checked_where_the_kernel_can(code: int, clean: bool | None, machine: RecordingMachine) -> None:
    machine.answers["xfs_scrub -n"] = CommandError(["xfs_scrub"], code, "output") if code else "output"
    report = scrubs.xfs(machine, Path("/mounted"))
    assert report == (None if clean is None else CheckResult(clean, "output"))


def test_xfs_is_not_checked_without_its_tool(machine: RecordingMachine) -> None:
    machine.lacks.add("xfs_scrub")
    assert scrubs.xfs(machine, Path("/mounted")) is None
    assert machine.lines == []


@pytest.mark.parametrize(
    ("health", "mismatches", "clean"), [("AA", 0, True), ("AA", 8, False), ("AD", 0, False), ("aA", 0, False)]
)
def test_copies_are_compared_until_the_array_is_done(
    health: str, mismatches: int, clean: bool, machine: RecordingMachine
) -> None:
    machine.run("dmsetup", "create", "fsstack-1-raid", "--table", "0 2048 raid raid1")
    (device,) = machine.mappings(lambda name: True).values()
    machine.answers["dmsetup status"] = f"0 2048 raid raid1 2 {health} 2048/2048 idle {mismatches} 0 -"
    assert scrubs.raid(machine, device).clean is clean
    assert machine.commands[1] == "dmsetup message fsstack-1-raid 0 check"
