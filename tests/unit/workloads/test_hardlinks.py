"""A backup of hard links is unpacked and removed, and a stack that did not take all links is found out."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.machine import commands
from pytest_fsstack.measuring.timed import Completed
from pytest_fsstack.workloads.data.backup import Backup
from pytest_fsstack.workloads.data.corpus import packed_backup
from tests.toolkit import NotedStack, NotedTimed, block, flip

# No more than the samples have, so that altering any must be noticed.
BACKUP = Backup(pool_files=30, links=150, empty_files=12, mean_size=5000, max_links_per_file=60, contents="noise")


zstd = pytest.mark.skipif(commands.which("zstd") is None, reason="needs zstd: apt install zstd")


def tree_path(top: Path, kind: Callable[[int | None], bool]) -> Path:
    return top / next(BACKUP.tree_path(name) for name in range(BACKUP.tree_files) if kind(BACKUP.target(name)))


def a_link(top: Path) -> Path:
    return tree_path(top, lambda target: target is not None)


def copy_instead(top: Path) -> None:
    path = a_link(top)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)


class TestExtractBackup:
    def test_extracts_a_stream(self, clock: NotedTimed, stack: NotedStack) -> None:
        workloads.extract_backup(clock, stack, BACKUP)
        assert clock.blocks == [block(bytes=BACKUP.pool_bytes, files=192)]
        assert stack.remounts == 1
        assert clock.recorded["failed_links"] == (0, "", "lower")
        assert clock.recorded["source_seconds"][0] > 0
        assert clock.reason == ""

    def test_extracts_a_file(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        archive = packed_backup(tmp_path / "cache", BACKUP)
        assert packed_backup(tmp_path / "cache", BACKUP) == archive
        workloads.extract_backup(clock, stack, BACKUP, archive=archive, cold=False, remount=False)
        assert clock.blocks == [block(bytes=BACKUP.pool_bytes, files=192, cold=False, preload=[archive])]
        assert stack.remounts == 0
        assert "source_seconds" not in clock.recorded

    @zstd
    def test_extracts_a_compressed_file(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        zeros = replace(BACKUP, contents="zeros")
        archive = packed_backup(tmp_path / "cache", zeros, compressed=True)
        assert archive.stat().st_size < 30_000
        workloads.extract_backup(clock, stack, zeros, archive=archive)
        assert clock.blocks == [block(bytes=BACKUP.pool_bytes, files=192, preload=[archive])]
        assert "source_seconds" in clock.recorded

    @zstd
    def test_a_damaged_compressed_file_is_an_error(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        archive = packed_backup(tmp_path / "cache", BACKUP, compressed=True)
        flip(archive, archive.stat().st_size // 2)
        with pytest.raises((commands.CommandError, AssertionError)):
            workloads.extract_backup(clock, stack, BACKUP, archive=archive)

    def test_links_that_failed_are_told_and_the_rest_is_checked(self, clock: NotedTimed, stack: NotedStack) -> None:
        self.lose_links(clock, stack, told=2, lost=2)
        workloads.extract_backup(clock, stack, BACKUP)
        assert re.fullmatch("2 .*150 links.*: Too many links", clock.reason)
        assert clock.recorded["failed_links"][0] == 2

    @pytest.mark.parametrize(("count", "lost"), [(2, 3), (3, 2), (0, 1)])
    def test_notices_other_losses_than_were_told(
        self, clock: NotedTimed, stack: NotedStack, count: int, lost: int
    ) -> None:
        self.lose_links(clock, stack, count, lost)
        expected = rf"^extract_backup: {162 - lost} .*\bmachines\b.* {162 - count}\b"
        with pytest.raises(AssertionError, match=expected):
            workloads.extract_backup(clock, stack, BACKUP)

    def lose_links(self, clock: NotedTimed, stack: NotedStack, told: int, lost: int) -> None:
        names = [name for name in range(BACKUP.tree_files) if BACKUP.target(name) is not None][:lost]
        lines = [f"tar: {name}: Cannot hard link to 'pool/x: y': Too many links\n" for name in range(told)]

        def limited(result: Completed) -> Completed:
            for name in names:
                (stack.path / "backup" / BACKUP.tree_path(name)).unlink()
            if not told:
                return result
            text = "".join([*lines, "tar: Exiting with failure status due to previous errors\n"])
            return Completed(result.argv, 2, "", text)

        clock.spoiled = limited

    @pytest.mark.parametrize(
        "stderr",
        [
            "tar: a: Cannot hard link to 'b': Too many links\ntar: c: Cannot write: No space left on device\n",
            "tar: Exiting with failure status due to previous errors\n",
        ],
    )
    def test_anything_else_that_fails_is_an_error(self, clock: NotedTimed, stack: NotedStack, stderr: str) -> None:
        clock.spoiled = lambda done: Completed(done.argv, 2, "", stderr)
        with pytest.raises(commands.CommandError, match="tar") as caught:
            workloads.extract_backup(clock, stack, BACKUP)
        assert caught.value.returncode == 2

    def test_a_tar_that_stops_early_does_not_hang(self, clock: NotedTimed, stack: NotedStack) -> None:
        clock.instead = lambda: None
        with pytest.raises(commands.CommandError, match=r"backup\.py"):
            workloads.extract_backup(clock, stack, Backup(30, 300, mean_size=1 << 20))

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda top: flip(top / BACKUP.pool_path(3), 1), rf"[^\d;]*: {BACKUP.pool_path(3)}$"),
            (
                lambda top: (top / BACKUP.pool_path(3)).unlink(),
                rf"29 .*\bpool\b.* 30; [^;]*No such file[^;]*: {BACKUP.pool_path(3)}\b",
            ),
            (lambda top: shutil.rmtree(top / "machines"), r"0 .*\bmachines\b.* 162; .*: machines/"),
            (copy_instead, r"[^\d;]*: pool/\S+ \(\d+ .*\d+\); [^;]*: machines/\S+$"),
            (lambda top: tree_path(top, lambda target: target is None).write_text("x"), r"[^\d;]*: machines/\S+$"),
            (
                lambda top: os.link(a_link(top), top / "machines" / "more"),
                r"163 .*\bmachines\b.* 162; [^;]*: pool/\S+ \(\d+ .*\d+\)$",
            ),
        ],
        ids=["altered byte", "lost file", "lost trees", "copied link", "filled file", "added link"],
    )
    def test_notices(
        self, clock: NotedTimed, stack: NotedStack, broken: Callable[[Path], object], message: str
    ) -> None:
        stack.broken = lambda: broken(stack.path / "backup")
        with pytest.raises(AssertionError, match=f"^extract_backup: {message}"):
            workloads.extract_backup(clock, stack, BACKUP)


class TestRemoveBackup:
    @pytest.fixture(autouse=True)
    def extracted(self, stack: NotedStack) -> Path:
        workloads.extract_backup(NotedTimed(stack), stack, BACKUP)
        return stack.path / "backup"

    @pytest.mark.parametrize("order", ["pool-first", "links-first", "rm"])
    def test_removes(self, clock: NotedTimed, stack: NotedStack, order: Any) -> None:
        workloads.remove_backup(clock, stack, order=order, backup=BACKUP, cold=False)
        assert clock.blocks == [block(files=192, cold=False)]
        assert list(stack.path.iterdir()) == []
        assert ("longest_stall" in clock.recorded) == (order != "rm")
        assert clock.reason == ""

    @pytest.mark.parametrize(("order", "first"), [("pool-first", "pool"), ("links-first", "machines")])
    def test_removes_in_the_order_that_was_asked_for(
        self, clock: NotedTimed, stack: NotedStack, order: Any, first: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        removed: list[str] = []
        rmdir = Path.rmdir

        def noted(path: Path) -> None:
            removed.append(path.name)
            rmdir(path)

        monkeypatch.setattr(Path, "rmdir", noted)
        workloads.remove_backup(clock, stack, order=order)
        assert removed == [first, ({"pool", "machines"} - {first}).pop(), "backup"]

    @pytest.mark.parametrize("order", ["pool-first", "rm"])
    def test_fewer_names_than_there_were_to_be_are_told(
        self, clock: NotedTimed, stack: NotedStack, extracted: Path, order: Any
    ) -> None:
        a_link(extracted).unlink()
        workloads.remove_backup(clock, stack, order=order, backup=BACKUP)
        assert re.findall(r"\d+", clock.reason) == ["191", "192"]

    def test_notices_what_is_left(self, clock: NotedTimed, stack: NotedStack, extracted: Path) -> None:
        clock.instead = lambda: shutil.rmtree(extracted / "machines")
        with pytest.raises(AssertionError, match=r"^remove_backup: backup .*\bpool\b"):
            workloads.remove_backup(clock, stack)
        assert stack.remounts == 1

    def test_notices_what_comes_back(self, clock: NotedTimed, stack: NotedStack, extracted: Path) -> None:
        stack.broken = extracted.mkdir
        with pytest.raises(AssertionError, match=r"^remove_backup: backup "):
            workloads.remove_backup(clock, stack)
        assert stack.remounts == 2
