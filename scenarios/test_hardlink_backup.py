"""A backup of hard links: what do LVM, dm-crypt and other filesystems cost a tree with millions of them?

A tar archive with a pool of files named by hash, and trees whose files are nearly all hard links into it, is extracted
and removed again, without a remount in between. At its published size (456,000 files in the pool, 490 GiB, 10.4 million
links) the archive is generated while it is extracted, so it needs no room but on the device. A stack on which links
failed has not done the work, and is compared with nothing.

    pytest scenarios/test_hardlink_backup.py --fsstack-device=/dev/sdb1
    pytest scenarios/test_hardlink_backup.py --fsstack-kernel=KERNEL         in a VM of a kernel that has them all

The order of removal matters: the published one is that of ``rm -rf``, and two more chains remove the pool first, or the
links first. They tell the longest time that a single unlink took, and show files removed over time in the HTML report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from pytest_fsstack import Backup, Built, Sizes, Timed, cache_directory, packed_backup, workloads
from pytest_fsstack.workloads import RemovalOrder

MiB, GiB = 1 << 20, 1 << 30


@dataclass(frozen=True)
class Backups(Sizes):
    """`streamed`: whether the archive is generated while it is extracted, or lies in the cache."""

    backup: Backup
    streamed: bool = False


@pytest.mark.fsstack(
    "ext4 = ext4(mount='noatime')",
    "lvm = lvm | ext4(mount='noatime')",
    "lvm-dmcrypt = lvm | dmcrypt(cipher='aes-cbc-essiv:sha256', key_size=256) | ext4(mount='noatime')",
    "btrfs = btrfs(mount='noatime')",
    "xfs = xfs(mount='noatime')",
    "jfs = jfs(mount='noatime')",
    "nilfs2 = nilfs2(mount='noatime')",
    "zfs = zfs(mkfs='-O atime=off')",
    baseline="ext4",
)
@pytest.mark.fsstack_sizes(
    smoke=Backups(space=384 * MiB, backup=Backup(30, 690, 6, mean_size=20_000)),
    small=Backups(space=2 * GiB, backup=Backup(2_000, 45_600, 370, mean_size=50_000)),
    paper=Backups(space=520 * GiB, backup=Backup(456_000, 10_400_000, 84_300), streamed=True),
)
class _Backups:
    order: ClassVar[RemovalOrder] = "rm"

    @pytest.mark.benchmark(group="extract a backup")
    def test_extract(self, fsstack: Built, timed: Timed, sizes: Backups) -> None:
        archive = None if sizes.streamed else packed_backup(cache_directory(), sizes.backup, compressed=True)
        # The published measurement did not remount either: what is removed next is partly cached.
        workloads.extract_backup(timed, fsstack, sizes.backup, archive=archive, remount=False)

    @pytest.mark.benchmark(group="remove a backup")
    def test_remove(self, fsstack: Built, timed: Timed, sizes: Backups) -> None:
        workloads.remove_backup(timed, fsstack, order=self.order, backup=sizes.backup, cold=False)


@pytest.mark.fsstack_table("summary")
class TestHardlinkBackup(_Backups):
    """The published steps."""


@pytest.mark.fsstack_table("summary")
@pytest.mark.fsstack_table("matrix", metrics={"longest single unlink": "longest_stall"})
class TestPoolFirst(_Backups):
    """A file's space is freed with the last link to it, one by one."""

    order: ClassVar[RemovalOrder] = "pool-first"


@pytest.mark.fsstack_table("summary")
@pytest.mark.fsstack_table("matrix", metrics={"longest single unlink": "longest_stall"})
class TestLinksFirst(_Backups):
    """All links go before the files that they link to."""

    order: ClassVar[RemovalOrder] = "links-first"
