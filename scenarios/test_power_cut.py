"""Power cuts: is what was synced still there, and nothing that never was written?"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Sizes, Timed
from pytest_fsstack.truth.power import power_cuts

MiB = 1 << 20


@dataclass(frozen=True)
class Cuts(Sizes):
    operations: int
    cuts: int


@pytest.mark.fsstack(
    "ext4 = recorded | ext4",
    "ext4-journal = recorded | ext4(mount='data=journal')",
    "ext4-writeback = recorded | ext4(mount='data=writeback')",
    "ext4-nobarrier = recorded | ext4(mount='nobarrier')",
    "ext4-eatmydata = recorded | ext4",
    "ext4-512 = recorded(sector=512) | ext4",
    "ext2 = recorded | ext2",
    "xfs = recorded | xfs",
    "xfs-512 = recorded(sector=512) | xfs",
    "btrfs = recorded | btrfs",
    "btrfs-512 = recorded(sector=512) | btrfs",
    "f2fs = recorded | f2fs",
    "zfs = recorded | zfs",
    "luks+ext4 = recorded | luks | ext4",
    "fscrypt = recorded | ext4 | fscrypt",
    "gocryptfs = recorded | ext4 | gocryptfs",
    "encfs = recorded | ext4 | encfs",
    "cryfs = recorded | ext4 | cryfs",
    "securefs = recorded | ext4 | securefs",
    baseline="ext4",
)
@pytest.mark.fsstack_sizes(
    smoke=Cuts(space=320 * MiB, operations=60, cuts=4),
    small=Cuts(space=512 * MiB, operations=200, cuts=25),
    paper=Cuts(space=512 * MiB, operations=1000, cuts=200),
)
@pytest.mark.fsstack_table(
    "counts",
    columns={
        "cuts": "cuts",
        "mounts": "mounted of cuts",
        "fsck clean": "clean of checked",
        "all that was synced": "synced_there of cuts",
        "nothing that never was": "nothing_invented of mounted",
        "all readable": "all_readable of mounted",
        "survived": "survived of cuts",
    },
)
class TestPowerCut:
    @pytest.mark.benchmark(group="power cut")
    def test_power_cut(self, fsstack: Built, timed: Timed, sizes: Cuts, fsstack_seed: int) -> None:
        damage = power_cuts(
            timed,
            fsstack,
            seed=fsstack_seed,
            operations=sizes.operations,
            cuts=sizes.cuts,
            without_fsync="eatmydata" in (fsstack.stack.name or ""),
        )
        print("\n".join(damage.said))
