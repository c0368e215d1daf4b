"""Does each stack follow POSIX?

pjdfstest has some 400 test cases for calls that change a directory tree, as root and as other users, on all kinds of
files. Each stack runs the cases that can run on it, with the same settings. The filesystem below it runs them in the
same round. A *difference* is a case that fails on the stack but not below. Without a filesystem below, every failure is
one. Differences fail the test, unless a layer declares known faults. All users may access the FUSE filesystems.

The controls must have differences: gocryptfs mounted for root alone, and vfat, which has no owners and no links.

    cargo install pjdfstest
    pytest scenarios/test_posix.py                              on a loop device
    pytest scenarios/test_posix.py --fsstack-kernel=KERNEL      in a VM of a kernel that has more of the stacks

If the times of two changes must differ, the suite waits 10 ms in between. At the scale *paper* it waits more than two
seconds, the resolution of vfat.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Finding, Sizes, Timed
from pytest_fsstack.truth.correctness import posix, verdict

MiB = 1 << 20


@dataclass(frozen=True)
class Suite(Sizes):
    """`cases` are parts of the names of test cases, () for all. `nap` and `patience` are in seconds."""

    cases: tuple[str, ...]
    nap: float
    patience: float


@pytest.mark.fsstack(
    "ext4",
    "ext2",
    "ext3",
    "xfs",
    "btrfs",
    "f2fs",
    "bcachefs",
    "zfs",
    "nilfs2",
    "jfs",
    "ntfs",
    "tmpfs",
    "luks = luks | ext4",
    "bind = ext4 | bind",
    "overlay = ext4 | overlay",
    "squashfs = ext4 | squashfs | overlay",
    "erofs = ext4 | erofs | overlay",
    "fscrypt = ext4 | fscrypt",
    "ecryptfs = ext4 | ecryptfs",
    "gocryptfs = ext4 | gocryptfs(mount='-allow_other')",
    "encfs = ext4 | encfs(mount='--public')",
    "cryfs = ext4 | cryfs(mount='-o allow_other')",
    "securefs = ext4 | securefs(mount='-o allow_other')",
    "sshfs = ext4 | sshfs",
    "nfs = ext4 | nfs",
    "samba = ext4 | samba",
    "control-root-only = ext4 | gocryptfs",
    "control-vfat = vfat",
    baseline="ext4",
    keep=("control-root-only",),
)
@pytest.mark.fsstack_sizes(
    smoke=Suite(space=384 * MiB, cases=("link::", "rmdir::", "chown::"), nap=0.01, patience=300),
    small=Suite(space=3072 * MiB, cases=(), nap=0.01, patience=600),
    paper=Suite(space=3072 * MiB, cases=(), nap=2.1, patience=3600),
)
@pytest.mark.fsstack_rounds(1)
@pytest.mark.fsstack_table(
    "counts",
    columns={"passed": "posix_passed of posix_run", "differences": "posix_differences", "which": "kept posix_groups"},
)
class TestPosix:
    @pytest.mark.benchmark(group="pjdfstest")
    def test_pjdfstest(self, request: pytest.FixtureRequest, fsstack: Built, timed: Timed, sizes: Suite) -> None:
        different = posix.pjdfstest(timed, fsstack, cases=sizes.cases, nap=sizes.nap, patience=sizes.patience)
        if fsstack.stack.id.startswith("control-"):
            assert different, "the control passed: the suite does not see that other users are locked out"
            return
        findings = [Finding(name, f"{name}: {why}") for name, why in different.items()]
        summary = f"{len(different)} test cases fail here and not on the filesystem below"
        verdict.conclude(request.node, timed, fsstack, findings, summary=summary, enough=not sizes.cases)
