"""Read-only images: built from a corpus, and read sequentially or at random."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fsstack.layers.images import ImageLayer
from pytest_fsstack.machine import commands, needs
from pytest_fsstack.machine.descriptors import opened
from pytest_fsstack.machine.needs import Tool
from pytest_fsstack.stack.places import Directory
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.checks import existing, regular_files, verify_tree, walk
from pytest_fsstack.workloads.data.archive import Corpus, compressor
from pytest_fsstack.workloads.latency import Latencies

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built


@workload(Tool("tar", "tar"))
def build_image(timed: Timed, fsstack: Built, corpus: Corpus, *, into: str = "tree") -> None:
    """Pack the corpus into the image of the stack's `squashfs` or `erofs`, as its directory `into`.

    The corpus is first unpacked beside the image, untimed, and then read from cold caches. Recorded: ``image_bytes``,
    the size of the image. Afterwards the stack is remounted, and checked as in `extract`. Raises `ValueError` if no
    layer of the stack is an image.
    """
    layer = next((layer for layer in fsstack.stack.layers if isinstance(layer, ImageLayer)), None)
    if layer is None:
        raise ValueError(f"build_image: `{fsstack.spec}` needs a layer with an image, such as squashfs")
    if tool := compressor(corpus.tar):
        needs.require(tool)
    with fsstack.taken_down(layer.name) as below:
        source, image = below.path / "source", below.path / "image.new"
    (source / into).mkdir(parents=True)
    commands.run("tar", "--no-same-owner", "-xf", corpus.tar, "-C", source / into, timeout=commands.DAY)
    with timed(bytes=corpus.bytes, files=corpus.files):
        timed.run(*layer.words(source, image))
    timed.record("image_bytes", image.stat().st_size, unit="B", exact=True)
    with fsstack.taken_down(layer.name) as below:
        assert isinstance(below, Directory)
        (below.path / "image.new").replace(layer.image(below))
    verify_tree(fsstack.path / into, corpus, "build_image")


@workload()
def read_files(timed: Timed, fsstack: Built, *, tree: str = "tree", block: int = 128 << 10) -> None:
    """Read all regular files of the tree in the order of their names, from cold caches.

    Afterwards, the number of bytes read is compared with the sizes of the files. Raises `ValueError` for an impossible
    `block`.
    """
    if block <= 0:
        raise ValueError(f"read_files: block must be above 0 (got {block})")
    top = existing(fsstack, tree, "read_files")
    contents, buffer, count = walk(top), bytearray(block), 0
    with timed(bytes=contents.bytes, files=contents.files, direction="read"):
        for path in regular_files(top):
            with path.open("rb", buffering=0) as file:
                while size := file.readinto(buffer):
                    count += size
    if count != contents.bytes:
        raise AssertionError(f"read_files: read {count:,} bytes of {tree} instead of {contents.bytes:,}")


@workload()
def read_blocks(
    timed: Timed, fsstack: Built, *, tree: str = "tree", count: int = 1000, block: int = 4096, seed: int = 1
) -> None:
    """Read `count` random blocks of the tree's files, from cold caches. The `seed` determines the places.

    The probability of a file is proportional to its size. See `Latencies.record` for the recorded metrics. Raises
    `AssertionError` if a block is too short, and `ValueError` if there is nothing to read.
    """
    if count <= 0 or block <= 0:
        raise ValueError(f"read_blocks: count and block must be above 0 (got {count} and {block})")
    top = existing(fsstack, tree, "read_blocks")
    sizes = {path: size for path in regular_files(top) if (size := path.stat().st_size)}
    if not sizes:
        raise AssertionError(f"read_blocks: the files of {tree} are empty")
    draw = random.Random(seed)
    files = draw.choices(list(sizes), list(sizes.values()), k=count)
    places = [(path, draw.randrange(sizes[path]) // block * block) for path in files]
    short: list[str] = []

    def read(place: tuple[Path, int]) -> None:
        path, offset = place
        with opened(path, os.O_RDONLY) as file:
            if len(os.pread(file, block, offset)) != min(block, sizes[path] - offset):
                short.append(f"{path.name} at {offset}")

    with timed(bytes=sum(min(block, sizes[path] - offset) for path, offset in places), direction="read"):
        latencies = Latencies()
        latencies.each(read, places)
    latencies.record(timed)
    if short:
        raise AssertionError(f"read_blocks: {len(short)} of {count} blocks are shorter than their files: {short[0]}")
