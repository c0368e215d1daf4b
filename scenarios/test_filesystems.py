"""Ten filesystems: does any of them misbehave?

Each is made and mounted as published. The steps write one big file, overwrite it, unpack many small files from a zip
archive, and overwrite these. The data are in memory, and the time of each step includes the sync. The published outlier
was overwriting small files on XFS and NTFS, which took ten times as long as elsewhere.

    pytest scenarios/test_filesystems.py --fsstack-device=/dev/sdb1 --fsstack-governor=performance
    pytest scenarios/test_filesystems.py --fsstack-kernel=KERNEL             in a VM of a kernel that has them all
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack import Built, Corpus, Sizes, Timed, cache_directory, generated, workloads, zipped

MiB = 1 << 20


@dataclass(frozen=True)
class Copies(Sizes):
    """`file` is the size of the big file, `small_bytes` of all small files together, in bytes."""

    file: int
    small_files: int
    directories: int
    small_bytes: int


@pytest.mark.fsstack(
    "ext2 = ext2(mount='noatime,async')",
    "ext3 = ext3(mkfs='-E discard', mount='noatime,async,barrier=0,data=writeback')",
    "ext4 = ext4(mkfs='-E discard', mount='noatime,async,nobarrier,discard')",
    "btrfs = btrfs(mount='noatime,async,ssd')",
    "jfs = jfs(mount='noatime,async')",
    "nilfs2 = nilfs2(mount='noatime,async,discard')",
    "reiserfs = reiserfs(mount='noatime,async,barrier=none')",
    "xfs = xfs(mount='noatime,async,discard')",
    "ntfs = ntfs3g",
    "ntfs3 = ntfs",
    baseline="ext4",
)
@pytest.mark.fsstack_sizes(
    smoke=Copies(space=384 * MiB, file=4 * MiB, small_files=100, directories=20, small_bytes=1 * MiB),
    small=Copies(space=2048 * MiB, file=200 * MiB, small_files=6_000, directories=1_100, small_bytes=60 * MiB),
    paper=Copies(space=8192 * MiB, file=2048 * MiB, small_files=126_229, directories=22_683, small_bytes=600 * MiB),
)
@pytest.mark.fsstack_table("matrix")
@pytest.mark.fsstack_remark(
    "xfs is mounted without the published nobarrier, which Linux 4.19 dropped; the published ntfs was ntfs-3g, and "
    "ntfs3 is today's driver in the kernel"
)
class TestFilesystems:
    @pytest.mark.benchmark(group="format")
    def test_after_format(self, fsstack: Built, timed: Timed) -> None:
        workloads.settle(timed, fsstack)

    @pytest.mark.benchmark(group="write a big file")
    def test_write_file(self, fsstack: Built, timed: Timed, sizes: Copies, payloads: Callable[..., Path]) -> None:
        workloads.copy_file(timed, fsstack, payloads(sizes.file))

    @pytest.mark.benchmark(group="overwrite a big file")
    def test_overwrite_file(self, fsstack: Built, timed: Timed, sizes: Copies, payloads: Callable[..., Path]) -> None:
        workloads.overwrite_file(timed, fsstack, payloads(sizes.file, seed=2))

    @pytest.mark.benchmark(group="write small files")
    def test_write_small_files(self, fsstack: Built, timed: Timed, sizes: Copies) -> None:
        package = packages(sizes)
        workloads.unzip(timed, fsstack, package, zipped(package, cache_directory()))

    @pytest.mark.benchmark(group="overwrite small files")
    def test_overwrite_small_files(self, fsstack: Built, timed: Timed, sizes: Copies) -> None:
        package = packages(sizes)
        workloads.unzip(timed, fsstack, package, zipped(package, cache_directory()), overwrite=True)


def packages(sizes: Copies) -> Corpus:
    """Return the tree of small files. The published one was a tree of packages."""
    return generated(cache_directory(), files=sizes.small_files, directories=sizes.directories, size=sizes.small_bytes)
