"""Power cuts: is everything there that was synced, and nothing that never was written?

A process writes, overwrites, appends, renames, removes and syncs files on the stack, in an order that follows from a
seed. Below the stack, the layer `recorded` writes down each write that reaches the device, and each flush. From that
the device is made as a power cut at some moment would have left it: all that was flushed is there, and of what was not,
some writes are lost, and some are there in part. It is mounted again, which lets journals do their work; every file is
read; and the filesystem's own checker has its say.

What must be there is what POSIX and the practice of Linux let programs rely on, and no more: the bytes and the size of
a file as of its last fsync, or what was written to it since; each name as of the last fsync of its directory, or as
changed since; a renamed file by its old name or its new one. The exact
rules are in pytest_fsstack/correctness/power/promises.py.

On filesystems with a journal or with copy on write, all cuts must be survived, or the test fails. Two controls must
lose something, or it fails as well: ext4 without barriers, and ext4 under a program whose fsync does nothing
(eatmydata). What is encrypted in files is shown as it is. A disk writes sectors of 4096 bytes whole or not at all, as
today's do; the stacks with 512 are on one that tears at 512 bytes, as old disks did.

    pytest scenarios/test_power_cut.py --fsstack-rounds=1        each further round has other operations and other cuts
    pytest scenarios/test_power_cut.py --fsstack-rounds=1 -k luks --fsstack-kernel=KERNEL      in a VM with dm-crypt
    pytest scenarios/test_power_cut.py --fsstack-rounds=1 --fsstack-stacks='xfs | gocryptfs(aessiv=True)'
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Sizes, Timed
from pytest_fsstack.correctness.power import Damage, power_cuts

MiB = 1 << 20


@dataclass(frozen=True)
class Cuts(Sizes):
    """The numbers of operations and power cuts in each round."""

    operations: int
    cuts: int


#: By name: a loss on these fails the test.
MUST_SURVIVE = ("ext4", "ext4-journal", "xfs", "btrfs", "fscrypt", "luks+ext4")
#: On these, no loss does: else nothing would show that the scenario can find any.
MUST_LOSE = ("ext4-nobarrier", "ext4-eatmydata")
WITHOUT_FSYNC = ("ext4-eatmydata",)


@pytest.mark.fsstack(
    "ext4",
    "ext4-journal = ext4(mount='data=journal')",
    "ext4-writeback = ext4(mount='data=writeback')",
    "ext4-nobarrier = ext4(mount='nobarrier')",
    "ext4-eatmydata = ext4",
    "ext4-512 = recorded(sector=512) | ext4",
    "ext2",
    "xfs",
    "xfs-512 = recorded(sector=512) | xfs",
    "btrfs",
    "btrfs-512 = recorded(sector=512) | btrfs",
    "zfs",
    "luks | ext4",
    "fscrypt = ext4 | fscrypt",
    "gocryptfs = ext4 | gocryptfs",
    "gocryptfs-journal = ext4(mount='data=journal') | gocryptfs",
    "encfs = ext4 | encfs",
    "cryfs = ext4 | cryfs",
    "securefs = ext4 | securefs",
    baseline="ext4",
    on="recorded",
    keep=MUST_LOSE,
)
@pytest.mark.fsstack_sizes(
    smoke=Cuts(space=320 * MiB, operations=60, cuts=4),
    small=Cuts(space=512 * MiB, operations=200, cuts=25),
    paper=Cuts(space=512 * MiB, operations=1000, cuts=200),
)
@pytest.mark.fsstack_table(
    "counts",
    columns={
        "power cuts": "cuts",
        "mounts": "mounted of cuts",
        "fsck clean": "clean of checked",
        "has all that was synced": "synced_there of cuts",
        "has only what was written": "nothing_invented of mounted",
        "can be read": "all_readable of mounted",
        "survived": "survived of cuts",
    },
)
@pytest.mark.fsstack_remark(
    "ext4-nobarrier and ext4-eatmydata are controls, which must lose something; ext2 promises nothing before it is "
    "repaired; with data=writeback, ext4 may show old data in files that were not synced"
)
class TestPowerCut:
    @pytest.mark.benchmark(group="power cut")
    def test_power_cut(self, fsstack: Built, timed: Timed, sizes: Cuts, fsstack_seed: int) -> None:
        name = fsstack.stack.id
        damage = power_cuts(
            timed,
            fsstack,
            seed=fsstack_seed,
            operations=sizes.operations,
            cuts=sizes.cuts,
            without_fsync=name in WITHOUT_FSYNC,
        )
        if problem := wrong(name, damage):
            timed.incomplete(problem)


def wrong(name: str, damage: Damage) -> str:
    """Why the test fails, if it does."""
    lost = damage.cuts - damage.survived
    if name in MUST_LOSE and not lost:
        return f"it is a control, and has survived all {damage.cuts} power cuts"
    if name in MUST_SURVIVE and lost:
        return f"{lost} of {damage.cuts} power cuts were not survived; the first: {damage.said[0]}"
    return ""
