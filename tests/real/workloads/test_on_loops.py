"""Workloads on real filesystems: what only those can refuse, take up, or tear into pieces."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.devices import DirectoryDevice, LoopDevice
from pytest_fsstack.machine import needs
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.records.sample import Sample
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.workloads.data.backup import Backup
from pytest_fsstack.workloads.data.corpus import generated, packed_backup, payload, zipped
from pytest_fsstack.workloads.hardlinks import RemovalOrder
from tests.real.conftest import LoopDevice as MakeLoop, built, run

pytestmark = pytest.mark.root

SIZE = 512 << 20
BACKUP = Backup(pool_files=30, links=2000, empty_files=20, mean_size=20_000, max_links_per_file=200)


def measured(block: Timed) -> Sample:
    assert block.sample is not None
    return block.sample


def test_ext4_refuses_more_names_of_a_file_than_it_can_count(context: BuildContext) -> None:
    backup = Backup(pool_files=1, links=65_010, mean_size=1000, max_links_per_file=65_010)
    with built("ext4", LoopDevice(SIZE), context) as stack:
        block = Timed(stack)
        workloads.extract_backup(block, stack, backup)
        # 65,000 names, one of which is that in the pool.
        assert re.search(r"^11\b.*\b65,010\b.*\bToo many links$", measured(block).incomplete)
        assert measured(block)["failed_links"] == 11
        block = Timed(stack)
        workloads.remove_backup(block, stack, order="links-first", backup=backup)
        assert re.search(r"\b65,000\b.*\b65,011\b", measured(block).incomplete)
        assert measured(block).kept["operations_over_time"][-1][1] == 65_000


@pytest.mark.parametrize("text", ["btrfs", "ext4 | gocryptfs"])
def test_a_backup_is_unpacked_and_removed(text: str, context: BuildContext, tmp_path: Path) -> None:
    archive = packed_backup(tmp_path / "cache", BACKUP)
    with built(text, LoopDevice(SIZE), context) as stack:
        ways: list[tuple[Path | None, RemovalOrder]] = [(archive, "pool-first"), (None, "rm")]
        for source, order in ways:
            block = Timed(stack)
            workloads.extract_backup(block, stack, BACKUP, archive=source)
            assert measured(block).incomplete == ""
            block = Timed(stack)
            workloads.remove_backup(block, stack, order=order, backup=BACKUP)
            assert measured(block).incomplete == ""


def test_a_filesystem_without_hard_links_is_one_that_did_not_do_the_work(context: BuildContext) -> None:
    # With names that depend on where a file is, it can have but one.
    with built("ext4 | encfs(mode='paranoia')", LoopDevice(SIZE), context) as stack:
        block = Timed(stack)
        workloads.extract_backup(block, stack, BACKUP)
        assert re.search(r"^2,000\b.*\b2,000\b.*\bOperation not permitted$", measured(block).incomplete)


@pytest.mark.parametrize(
    ("text", "raw"),
    [("ext4", [0, 1, 1024]), ("ext4 | gocryptfs", [0, 51, 1074]), ("ext4 | encfs", [0, 9, 1032])],
)
def test_small_files_take_what_their_format_says(text: str, raw: list[int], context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        block = Timed(stack)
        workloads.small_file_space(block, stack, sizes=(0, 1, 1024), count=20)
        sample = measured(block)
        assert sample["allocated_0"] == 0
        assert sample["allocated_1"] == sample["allocated_1024"] == 4096
        assert [sample["raw_0"], sample["raw_1"], sample["raw_1024"]] == raw


@pytest.mark.parametrize("text", ["xfs", "btrfs(compress='zlib')", "ext4 | gocryptfs"])
def test_a_filesystem_is_filled(text: str, context: BuildContext, tmp_path: Path) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        block = Timed(stack)
        workloads.fill(block, stack, payload=payload(tmp_path, 4 << 20, 1))
        assert measured(block).kept["filler"]["percent"] == pytest.approx(93, abs=1)


def test_zeros_do_not_fill_a_filesystem_that_compresses(context: BuildContext) -> None:
    with built("btrfs(compress='zstd')", LoopDevice(SIZE), context) as stack:
        with pytest.raises(AssertionError, match=r"fill: .*\bpayload\b.*\bbytes="):
            workloads.fill(Timed(stack), stack)
    with built("btrfs(compress='zstd')", LoopDevice(SIZE), context) as stack:
        block = Timed(stack)
        workloads.fill(block, stack, bytes=1 << 30)
        assert measured(block).kept["filler"]["bytes"] == 1 << 30
        assert measured(block).kept["filler"]["percent"] < 50


@pytest.mark.parametrize("text", ["xfs", "btrfs"])
def test_a_filesystem_is_in_pieces_when_it_is_old(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        block = Timed(stack)
        workloads.age(block, stack, operations=6000, target=100.0)
        sample = measured(block)
        looks, fragments = zip(*sample.kept["fragmentation"], strict=True)
        assert looks == (1000, 2000, 3000, 4000, 5000, 6000)
        # A single probe of an old XFS may still find a place in one piece: of six looks, not all do.
        assert max(fragments) > 2 * fragments[0] > 0
        assert sample["fragments_per_mib"] > 0


def test_what_a_fresh_filesystem_takes_is_recorded(context: BuildContext) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        block = Timed(stack)
        workloads.settle(block, stack)
        assert 0 < measured(block)["used_bytes"] < SIZE / 2


@pytest.mark.parametrize("text", ["xfs", "ext4 | gocryptfs"])
def test_files_are_copied_unzipped_overwritten_read_back_and_removed(
    text: str, context: BuildContext, tmp_path: Path
) -> None:
    if reasons := needs.missing(workloads.needs_of(workloads.unzip)):
        pytest.skip("; ".join(reasons))
    corpus = generated(tmp_path / "cache", files=200, size=2_000_000)
    archive = zipped(corpus, tmp_path / "cache")
    size = 8 << 20
    sources = [payload(tmp_path, size, seed) for seed in (1, 2, 3)]
    with built(text, LoopDevice(SIZE), context) as stack:
        workloads.copy_file(Timed(stack), stack, sources[0])
        workloads.overwrite_file(Timed(stack), stack, sources[1])
        workloads.overwrite_file(Timed(stack), stack, sources[2], truncate=False)
        block = Timed(stack)
        workloads.read_back(block, stack, source=sources[2])
        assert measured(block)["read_bytes"] >= size
        workloads.unzip(Timed(stack), stack, corpus, archive)
        workloads.unzip(Timed(stack), stack, corpus, archive, overwrite=True)
        workloads.extract_over(Timed(stack), stack, corpus)
        workloads.extract_over(Timed(stack), stack, corpus, in_place=True)
        block = Timed(stack)
        workloads.delete_files(block, stack, corpus=corpus, order="inode")
        assert measured(block).kept["operations_over_time"][-1][1] == 200
        assert 0 < measured(block)["latency_p50"] <= measured(block)["longest_stall"] < measured(block)["seconds"]


def test_a_copy_within_a_filesystem_is_written(
    context: BuildContext, tmp_path: Path, loop_device: MakeLoop, mount: Callable[[Path], Path]
) -> None:
    disk = loop_device(size=SIZE).path
    run("mkfs.xfs", "-q", disk)
    top, size = mount(disk), 8 << 20
    (top / "stack").mkdir()
    with built("directory", DirectoryDevice(top / "stack"), context) as stack:
        for step, seed in (workloads.copy_file, 1), (workloads.overwrite_file, 2):
            block = Timed(stack)
            step(block, stack, payload(top, size, seed))
            assert measured(block)["written_bytes"] >= size


@pytest.mark.parametrize("durable", [False, True])
def test_files_are_created_one_by_one(durable: bool, context: BuildContext) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        block = Timed(stack)
        workloads.create_files(block, stack, count=300, size=5000, durable=durable)
        assert measured(block)["longest_stall"] < measured(block)["seconds"]
