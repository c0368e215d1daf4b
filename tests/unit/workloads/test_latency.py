"""Single operations: their percentiles, their curve, and files created and removed one by one."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack import workloads
from pytest_fsstack.workloads.data.archive import Corpus
from pytest_fsstack.workloads.latency import Latencies, percentile, remove
from tests.toolkit import NotedStack, NotedTimed, block, flip

METRICS = {"latency_p50", "latency_p95", "latency_p99", "latency_p999", "longest_stall"}

figures = st.lists(st.integers(0, 10**12), min_size=1, max_size=2500).map(sorted)


@given(figures, st.integers(0, 1000))
def test_a_percentile_is_the_first_figure_that_enough_figures_do_not_exceed(ordered: list[int], per_mille: int) -> None:
    value = percentile(ordered, per_mille)
    assert sum(figure <= value for figure in ordered) * 1000 >= per_mille * len(ordered)
    assert sum(figure < value for figure in ordered) * 1000 < max(1, per_mille * len(ordered))


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="percentile"):
        percentile([], 500)


@given(st.lists(st.integers(0, 3000), max_size=4))
def test_a_curve_has_few_points_that_rise_to_the_end(batches: list[int]) -> None:
    latencies = Latencies()
    numbers: list[int] = []
    for batch in batches:
        latencies.each(numbers.append, range(batch))
    curve = latencies.curve()
    assert len(numbers) == len(latencies) == sum(batches)
    assert curve[0] == [0, 0]
    assert len(curve) <= 202
    assert curve[-1][1] == sum(batches)
    assert all(earlier[0] <= later[0] and earlier[1] < later[1] for earlier, later in itertools.pairwise(curve))


def test_a_stall_is_found_and_is_not_that_of_the_producer(clock: NotedTimed) -> None:
    def produced() -> Any:
        for index in range(1000):
            if index == 300:
                time.sleep(0.3)
            yield index

    latencies = Latencies()
    latencies.each(lambda index: time.sleep(0.1) if index == 500 else None, produced())
    latencies.record(clock)
    assert clock.recorded.keys() == clock.resolutions.keys() == METRICS
    assert clock.recorded["longest_stall"][0] >= 0.1
    assert clock.recorded["latency_p50"][0] < 0.1
    assert clock.recorded["latency_p50"][1:] == ("s", "lower")
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(latencies.curve())]
    assert sum(gap >= 0.1 for gap in gaps) >= 2


@pytest.mark.parametrize("order", ["name", "inode"])
def test_files_of_a_directory_go_in_the_order_that_was_asked_for(
    tmp_path: Path, order: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "top"
    top.mkdir()
    for name in "cabefd":
        (top / name).touch()
    expected = sorted(os.listdir(top), key=lambda name: name if order == "name" else (top / name).stat().st_ino)
    removed: list[str] = []
    unlink = os.unlink

    def noted(name: str, dir_fd: int) -> None:
        removed.append(name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", noted)
    remove(Latencies(), top, order)
    assert removed == expected
    assert not top.exists()


class TestDeleteFiles:
    def test_deletes(self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus) -> None:
        outside = stack.path.parent / "outside"
        outside.mkdir()
        (tree / "link").symlink_to(outside)
        workloads.delete_files(clock, stack, corpus=replace(packed, links=1))
        assert clock.blocks == [block(files=40)]
        assert list(stack.path.iterdir()) == []
        assert outside.exists()
        assert stack.remounts == 1
        assert clock.recorded.keys() == METRICS
        assert clock.kept["operations_over_time"][-1][1] == 41

    def test_notices_what_comes_back(self, clock: NotedTimed, stack: NotedStack, tree: Path) -> None:
        stack.broken = tree.mkdir
        with pytest.raises(AssertionError, match=r"^delete_files: tree "):
            workloads.delete_files(clock, stack)
        assert stack.remounts == 1

    def test_notices_other_files_than_the_corpus_has(
        self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus
    ) -> None:
        (tree / "more").touch()
        with pytest.raises(AssertionError, match=r"^delete_files: .*\b41 files\b.* tree\b.* 40\b"):
            workloads.delete_files(clock, stack, corpus=packed)

    def test_notices_that_there_is_nothing(self, clock: NotedTimed, stack: NotedStack) -> None:
        (stack.path / "tree").mkdir()
        with pytest.raises(AssertionError, match=r"^delete_files: .*\btree\b"):
            workloads.delete_files(clock, stack)
        assert clock.blocks == [block()]


class TestCreateFiles:
    @pytest.mark.parametrize("durable", [False, True])
    def test_creates(self, clock: NotedTimed, stack: NotedStack, durable: bool) -> None:
        workloads.create_files(clock, stack, count=25, size=10_000, per_directory=10, durable=durable)
        assert clock.blocks == [block(bytes=250_000, files=25)]
        contents = [path.read_bytes() for path in stack.path.rglob("*") if path.is_file()]
        assert {len(content) for content in contents} == {10_000}
        # No layer can deduplicate them.
        assert len({content[start : start + 4096] for content in contents for start in (0, 4096, 8192)}) == 75
        assert len(list((stack.path / "created").iterdir())) == 3
        assert clock.recorded.keys() == METRICS

    def test_creates_empty_files(self, clock: NotedTimed, stack: NotedStack) -> None:
        workloads.create_files(clock, stack, count=3)
        assert clock.blocks == [block(bytes=0, files=3)]

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda top: flip(top / "0" / "3", 50), r"\D*: 0/3$"),
            (lambda top: (top / "0" / "3").unlink(), r"\D*24 files \D*25; .*: 0/3$"),
            (lambda top: (top / "0" / "more").touch(), r"\D*26 files \D*25$"),
            (lambda top: os.truncate(top / "0" / "3", 99), r"\D*2,499 bytes \D*2,500; "),
        ],
        ids=["altered byte", "lost file", "added file", "truncated"],
    )
    def test_notices(
        self, clock: NotedTimed, stack: NotedStack, broken: Callable[[Path], object], message: str
    ) -> None:
        stack.broken = lambda: broken(stack.path / "created")
        with pytest.raises(AssertionError, match=f"^create_files: {message}"):
            workloads.create_files(clock, stack, count=25, size=100)
