"""EncFS against eCryptfs: how much does a stacked encrypted filesystem cost on each kind of disk?

Both stand on a *directory*, so you do not have to format a disk. On a disk they stand on ext4. The steps: write 100 MiB
of zeros in blocks of 4 KiB, unpack a source tree, sum up its space, compare it with an empty directory, delete it. A
second table has the space of small files. The publication compared EncFS (AES-192, names encrypted) with eCryptfs
(AES-128, names encrypted) on an old HDD, an SSD and a tmpfs.

    pytest scenarios/test_stacked_encryption.py --fsstack-device=dir:/srv/hdd --fsstack-device=dir:/srv/ssd \
        --fsstack-device=dir:/dev/shm
    pytest scenarios/test_stacked_encryption.py --fsstack-device=/dev/sdb1   on a device, which is overwritten
    pytest scenarios/test_stacked_encryption.py --fsstack-kernel=KERNEL      in a VM of a kernel that has eCryptfs

The published archive was linux-3.0.tar.gz: ``--fsstack-corpus=linux-3.0.tar.gz``. The table shows the advantage of
EncFS over eCryptfs. It is above 1 if EncFS is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack import Built, Corpus, Sizes, Timed, workloads

STACKS = ("encfs", "ecryptfs")
MiB = 1 << 20


@dataclass(frozen=True)
class Stacked(Sizes):
    """`stream` is in bytes. `small_files` is the number of files of each small size."""

    stream: int
    small_files: int


SIZES = {
    "smoke": Stacked(space=384 * MiB, stream=1 * MiB, small_files=5),
    "small": Stacked(space=1024 * MiB, stream=100 * MiB, small_files=100),
    "paper": Stacked(space=4096 * MiB, stream=100 * MiB, small_files=100),
}


@pytest.mark.fsstack(*STACKS, below="ext4")
@pytest.mark.fsstack_sizes(**SIZES)
@pytest.mark.fsstack_table("advantage", metrics={"stream_write": "throughput", "du": "du_bytes"})
class TestStackedEncryption:
    @pytest.mark.benchmark(group="stream write")
    def test_stream_write(self, fsstack: Built, timed: Timed, sizes: Stacked) -> None:
        workloads.stream_write(timed, fsstack, size=sizes.stream)

    @pytest.mark.benchmark(group="extract")
    def test_extract(self, fsstack: Built, timed: Timed, corpus: Corpus) -> None:
        workloads.extract(timed, fsstack, corpus, compression="gzip")

    @pytest.mark.benchmark(group="du")
    @pytest.mark.fsstack_repeat("auto")
    def test_du(self, fsstack: Built, timed: Timed) -> None:
        workloads.du(timed, fsstack)

    @pytest.mark.benchmark(group="rsync")
    @pytest.mark.fsstack_repeat("auto")
    def test_rsync(self, fsstack: Built, timed: Timed, corpus: Corpus, tmp_path: Path) -> None:
        workloads.rsync_dry_run(timed, fsstack, tmp_path / "empty", corpus=corpus)

    @pytest.mark.benchmark(group="delete")
    def test_delete(self, fsstack: Built, timed: Timed, corpus: Corpus) -> None:
        workloads.delete(timed, fsstack, corpus=corpus)


@pytest.mark.fsstack(*STACKS, below="ext4")
@pytest.mark.fsstack_sizes(**SIZES)
@pytest.mark.fsstack_table("small_files")
class TestSmallFiles:
    @pytest.mark.benchmark(group="small files")
    def test_space(self, fsstack: Built, timed: Timed, sizes: Stacked) -> None:
        workloads.small_file_space(timed, fsstack, sizes=(0, 1, 1024), count=sizes.small_files)
