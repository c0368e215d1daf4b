"""A backup of hard links: how slow are LVM, dm-crypt and other filesystems with millions of links?

A tar archive has a pool of files named by hash, and trees of hard links into the pool. It is extracted and removed
again, without a remount in between. At its published size (456,000 files in the pool, 490 GiB, 10.4 million links) the
archive is generated while it is extracted, and takes no space elsewhere. If links failed on a stack, its figures are
compared with nothing.

    pytest scenarios/test_hardlink_backup.py --fsstack-device=/dev/sdb1
    pytest scenarios/test_hardlink_backup.py --fsstack-kernel=KERNEL         in a VM of a kernel that has them all

The order of removal matters. The published order is that of ``rm -rf``. Two more chains remove the pool first, or the
links first. They record the longest unlink, and the HTML report shows the removed files over time.
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
    """A `streamed` archive is generated while it is extracted. Otherwise it is a file in the cache."""

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
        # The published measurement did not remount either, so the files to remove are partly cached.
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
    """Removal of the pool first. The last link to each file then frees its space."""

    order: ClassVar[RemovalOrder] = "pool-first"


@pytest.mark.fsstack_table("summary")
@pytest.mark.fsstack_table("matrix", metrics={"longest single unlink": "longest_stall"})
class TestLinksFirst(_Backups):
    """Removal of the links first. The pool then frees all space."""

    order: ClassVar[RemovalOrder] = "links-first"
