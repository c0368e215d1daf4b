"""Filesystems and encryption on one partition: which combination costs least on a laptop?

ext4 and btrfs are measured plain, on LUKS and below eCryptfs, with compression, and with a stride that does not match
the disk. The steps, all on the same filesystem: bonnie++, then unpack a source tree, compile and remove it, fill the
filesystem, and do the same on the nearly full one. Cells have the real, user and sys time. They are green if the
interval proves less time than on plain ext4, and red if it proves more.

    pytest scenarios/test_ssd_encryption.py --fsstack-device=/dev/sdb1 --fsstack-discard --fsstack-scheduler=none
    pytest scenarios/test_ssd_encryption.py --fsstack-kernel=KERNEL          in a VM of a kernel that has them all

The published sizes are 155 GB, twice the memory for bonnie++, and a kernel to unpack and compile:
``--fsstack-scale=paper --fsstack-corpus=/usr/src/linux-source-6.1.tar.xz``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Corpus, Sizes, Timed, workloads
from pytest_fsstack.workloads import LUA, Source, linux

MiB, GiB = 1 << 20, 1 << 30
EXT4 = "ext4(mount='noatime,nodiratime,discard')"
BTRFS = "btrfs(mount='noatime,nodiratime,ssd')"
ZLIB = "btrfs(compress='zlib', mount='noatime,nodiratime,ssd')"
LZO = "btrfs(compress='lzo', mount='noatime,nodiratime,ssd')"
LUKS = "luks(cipher='aes-xts-plain', key_size=256)"


@dataclass(frozen=True)
class Laptop(Sizes):
    """The sizes of a laptop.

    `bonnie` is the size of bonnie++'s files in bytes, `bonnie_files` the number of its empty files. With
    `bonnie_characters` it also writes and reads byte by byte. `filler` is the size of the file that leaves a device of
    `space` nearly full (except at *smoke*), in bytes. `source` is the program that is compiled in the unpacked tree. If
    it is None, the tree is a kernel, and is compiled itself.
    """

    bonnie: int
    bonnie_files: int
    bonnie_characters: bool
    filler: int
    source: Source | None = None


#: Two small files of Lua, for an emulated guest.
FEW_FILES = dataclasses.replace(LUA, targets=("linit.o", "lzio.o"), product="lzio.o", product_bytes=1_000)


@pytest.mark.fsstack(
    f"ext4-plain = {EXT4}",
    "ext4-custstride-plain = ext4(mkfs='-b 4096 -E stride=128,stripe-width=128', mount='noatime,nodiratime,discard')",
    f"ext4-dmcrypt = {LUKS} | {EXT4}",
    f"ext4-ecryptfs = {EXT4} | ecryptfs",
    f"btrfs-plain = {BTRFS}",
    f"btrfs-dmcrypt = {LUKS} | {BTRFS}",
    f"btrfs-ecryptfs = {BTRFS} | ecryptfs",
    f"btrfs-zlib-plain = {ZLIB}",
    f"btrfs-zlib-dmcrypt = {LUKS} | {ZLIB}",
    f"btrfs-zlib-ecryptfs = {ZLIB} | ecryptfs",
    f"btrfs-lzo-dmcrypt = {LUKS} | {LZO}",
    baseline="ext4-plain",
)
@pytest.mark.fsstack_sizes(
    smoke=Laptop(
        space=384 * MiB, bonnie=2 * MiB, bonnie_files=1024, bonnie_characters=False, filler=16 * MiB, source=FEW_FILES
    ),
    small=Laptop(
        space=4 * GiB, bonnie=128 * MiB, bonnie_files=4 * 1024, bonnie_characters=True, filler=3400 * MiB, source=LUA
    ),
    paper=Laptop(
        space=150 * GiB, bonnie=16 * GiB, bonnie_files=16 * 1024, bonnie_characters=True, filler=130 * 1000**3
    ),
)
@pytest.mark.fsstack_table("times")
@pytest.mark.fsstack_remark(
    "zeros fill the filesystem, as published: on a stack that compresses them, the nearly full filesystem is not full"
)
class TestSsdEncryption:
    @pytest.mark.benchmark(group="bonnie++")
    def test_bonnie(self, fsstack: Built, timed: Timed, sizes: Laptop) -> None:
        files, characters = sizes.bonnie_files, sizes.bonnie_characters
        workloads.bonnie(timed, fsstack, size=sizes.bonnie, files=files, concurrency=5, characters=characters)

    @pytest.mark.benchmark(group="unpack")
    def test_unpack(self, fsstack: Built, timed: Timed, corpus: Corpus) -> None:
        workloads.extract(timed, fsstack, corpus, compression="bzip2")

    @pytest.mark.benchmark(group="compile")
    def test_compile(self, fsstack: Built, timed: Timed, sizes: Laptop, corpus: Corpus) -> None:
        build(fsstack, timed, sizes, corpus)

    @pytest.mark.benchmark(group="remove")
    def test_remove(self, fsstack: Built, timed: Timed) -> None:
        workloads.delete(timed, fsstack)

    @pytest.mark.benchmark(group="fill")
    def test_fill(self, fsstack: Built, timed: Timed, sizes: Laptop) -> None:
        workloads.fill(timed, fsstack, bytes=sizes.filler)

    @pytest.mark.benchmark(group="unpack, nearly full")
    def test_unpack_full(self, fsstack: Built, timed: Timed, corpus: Corpus) -> None:
        workloads.extract(timed, fsstack, corpus, compression="bzip2")

    @pytest.mark.benchmark(group="compile, nearly full")
    def test_compile_full(self, fsstack: Built, timed: Timed, sizes: Laptop, corpus: Corpus) -> None:
        build(fsstack, timed, sizes, corpus)

    @pytest.mark.benchmark(group="remove, nearly full")
    def test_remove_full(self, fsstack: Built, timed: Timed) -> None:
        workloads.delete(timed, fsstack)


def build(fsstack: Built, timed: Timed, sizes: Laptop, corpus: Corpus) -> None:
    """Compile the unpacked kernel, or a program that is unpacked into the same tree."""
    if sizes.source is None:
        workloads.compile_source(timed, fsstack, whole_kernel(corpus), tree="tree", jobs=4)
    else:
        workloads.compile_source(timed, fsstack, sizes.source, tree="tree/source", jobs=4)


def whole_kernel(corpus: Corpus) -> Source:
    """Return the kernel of the corpus, with the distribution's configuration."""
    if not corpus.name.startswith("linux-"):
        pytest.fail("to compile a kernel, give the archive of its source as --fsstack-corpus", pytrace=False)
    return linux(corpus.tar, config="distribution")
