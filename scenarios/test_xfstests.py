"""Does each stack pass the quick tests of xfstests?

The group generic/quick of xfstests has some 630 tests of calls, mappings, races and unmounting. Each stack runs tests
that are drawn from the seed, with the same settings. The filesystem below it runs the same tests in the same round. A
*difference* is a test that fails on the stack but not below. Without a filesystem below, every failure is one.
Differences fail the test, unless a layer declares known faults.

The tests see mounts of the type fuse, without a device. Tests for one kernel filesystem, or for a device, are not run.
An unmount writes everything out and drops the kernel's caches, but does not end a daemon.

    git clone https://git.kernel.org/pub/scm/fs/xfs/xfstests-dev.git && make -C xfstests-dev
    fsstack run xfstests --fsstack-xfstests=xfstests-dev --fsstack-stacks='ext4 | gocryptfs'
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Finding, Settings, Sizes, Timed
from pytest_fsstack.truth.correctness import verdict, xfstests

GiB = 1 << 30


@dataclass(frozen=True)
class Suite(Sizes):
    """`count` is the number of tests in each round, None for all. `patience` is in seconds."""

    count: int | None
    patience: float


@pytest.mark.fsstack(
    "ext4",
    "xfs",
    "btrfs",
    "overlay = ext4 | overlay",
    "gocryptfs = ext4 | gocryptfs(mount='-allow_other')",
    "encfs = ext4 | encfs(mount='--public')",
    "cryfs = ext4 | cryfs(mount='-o allow_other')",
    "securefs = ext4 | securefs(mount='-o allow_other')",
    baseline="ext4",
)
@pytest.mark.fsstack_sizes(
    smoke=Suite(space=3 * GiB, count=12, patience=120),
    small=Suite(space=3 * GiB, count=60, patience=600),
    paper=Suite(space=10 * GiB, count=None, patience=6 * 3600),
)
@pytest.mark.fsstack_rounds(1)
@pytest.mark.fsstack_table(
    "counts",
    columns={
        "passed": "xfstests_passed of xfstests_run",
        "differences": "xfstests_differences",
        "which": "kept xfstests",
    },
)
class TestXfstests:
    @pytest.mark.benchmark(group="xfstests")
    def test_quick(
        self, request: pytest.FixtureRequest, fsstack: Built, timed: Timed, sizes: Suite, fsstack_seed: int
    ) -> None:
        checkout = Settings.of(request.config).xfstests
        if checkout is None:
            pytest.skip("needs a compiled xfstests: --fsstack-xfstests=DIRECTORY")
        different = xfstests.xfstests(
            timed, fsstack, checkout=checkout, seed=fsstack_seed, count=sizes.count, patience=sizes.patience
        )
        findings = [Finding(name, f"{name}: {why}") for name, why in different.items()]
        summary = f"{len(different)} tests fail here and not on the filesystem below"
        verdict.conclude(request.node, timed, fsstack, findings, summary=summary)
