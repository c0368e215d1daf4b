"""Read-only images: how long does it take to make and read SquashFS and EROFS, by compression?

The same tree of files is packed into an image. Then all files are read in order, and blocks are read at random, each
time from cold caches. The baseline is ext4, on which the archive is unpacked instead. The second table is of container
images: an archive is unpacked onto an overlay, first beside the files of a read-only image below, and then over them.

    fsstack run images
    fsstack run images -k 'zstd or ext4' --fsstack-device=/dev/sdb1
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Corpus, Sizes, Timed, cache_directory, generated, workloads

MiB = 1 << 20


@dataclass(frozen=True)
class Trees(Sizes):
    """`bytes` is the size of all `files` together. `blocks` is the number of random reads."""

    files: int
    bytes: int
    blocks: int


SIZES = pytest.mark.fsstack_sizes(
    smoke=Trees(space=384 * MiB, files=100, bytes=2 * MiB, blocks=50),
    small=Trees(space=2048 * MiB, files=4_000, bytes=100 * MiB, blocks=2_000),
    paper=Trees(space=16384 * MiB, files=60_000, bytes=1500 * MiB, blocks=20_000),
)


def tree(sizes: Trees) -> Corpus:
    return generated(cache_directory(), files=sizes.files, size=sizes.bytes)


def pack(fsstack: Built, timed: Timed, sizes: Trees) -> None:
    """Make the image of a stack that has one. On any other stack, unpack the corpus."""
    if any(name in fsstack.spec for name in ("squashfs", "erofs")):
        workloads.build_image(timed, fsstack, tree(sizes))
    else:
        workloads.extract(timed, fsstack, tree(sizes))


@pytest.mark.fsstack(
    "ext4",
    "squashfs = ext4 | squashfs(compress='none')",
    "squashfs-gzip = ext4 | squashfs(compress='gzip')",
    "squashfs-lz4 = ext4 | squashfs(compress='lz4')",
    "squashfs-zstd = ext4 | squashfs(compress='zstd')",
    "squashfs-xz = ext4 | squashfs(compress='xz')",
    "erofs = ext4 | erofs",
    "erofs-lz4 = ext4 | erofs(compress='lz4')",
    "erofs-lz4hc = ext4 | erofs(compress='lz4hc')",
    baseline="ext4",
)
@SIZES
@pytest.mark.fsstack_table(
    "matrix",
    metrics={
        "real time": "seconds",
        "CPU time of the machine": "machine_seconds",
        "size of the image": "image_bytes",
        "slowest of 1000 reads": "latency_p999",
    },
)
class TestImages:
    @pytest.mark.benchmark(group="build")
    def test_build(self, fsstack: Built, timed: Timed, sizes: Trees) -> None:
        pack(fsstack, timed, sizes)

    @pytest.mark.benchmark(group="read all files")
    @pytest.mark.fsstack_repeat("auto")
    def test_sequential(self, fsstack: Built, timed: Timed) -> None:
        workloads.read_files(timed, fsstack)

    @pytest.mark.benchmark(group="read blocks at random")
    @pytest.mark.fsstack_repeat("auto")
    def test_random(self, fsstack: Built, timed: Timed, sizes: Trees) -> None:
        workloads.read_blocks(timed, fsstack, count=sizes.blocks)


@pytest.mark.fsstack(
    "ext4",
    "overlay = ext4 | overlay",
    "squashfs = ext4 | squashfs(compress='zstd') | overlay",
    "erofs = ext4 | erofs(compress='lz4hc') | overlay",
    baseline="ext4",
)
@SIZES
@pytest.mark.fsstack_table("matrix")
class TestContainers:
    @pytest.mark.benchmark(group="make the image below")
    def test_base(self, fsstack: Built, timed: Timed, sizes: Trees) -> None:
        pack(fsstack, timed, sizes)

    @pytest.mark.benchmark(group="unpack beside it")
    def test_unpack(self, fsstack: Built, timed: Timed, sizes: Trees) -> None:
        workloads.extract(timed, fsstack, tree(sizes), into="container")

    @pytest.mark.benchmark(group="unpack over it")
    def test_unpack_over(self, fsstack: Built, timed: Timed, sizes: Trees) -> None:
        workloads.extract_over(timed, fsstack, tree(sizes))
