"""A workload does its work, and notices when a stack did not."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.machine import commands
from pytest_fsstack.workloads.data.archive import Corpus
from pytest_fsstack.workloads.data.corpus import payload, users_corpus, zipped
from tests.toolkit import NotedStack, NotedTimed, block, flip

SIZE = 64 * 4096


def some_file(tree: Path) -> Path:
    return max((path for path in tree.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def linked(directory: Path) -> Path:
    """Make a directory with symbolic links."""
    (directory / "directory").mkdir(parents=True)
    (directory / "file").write_text("x")
    (directory / "to-directory").symlink_to("directory")
    (directory / "to-nothing").symlink_to("nothing")
    return directory


class TestStreamWrite:
    def test_writes_zeros(self, clock: NotedTimed, stack: NotedStack) -> None:
        seen: list[bytes] = []
        stack.broken = lambda: seen.append((stack.path / "stream.bin").read_bytes())
        workloads.stream_write(clock, stack, size=SIZE)
        assert seen == [bytes(SIZE)]
        assert clock.blocks == [block(bytes=SIZE, files=None, cold=True, preload=[])]
        assert list(stack.path.iterdir()) == []

    def test_writes_the_payload(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        source = payload(tmp_path, SIZE + 5, 1)
        seen: list[bytes] = []
        stack.broken = lambda: seen.append((stack.path / "stream.bin").read_bytes())
        workloads.stream_write(clock, stack, payload=source, size=SIZE, block=8192, cold=False)
        assert seen == [source.read_bytes()[:SIZE]]
        assert clock.blocks == [block(bytes=SIZE, files=None, cold=False, preload=[source])]
        assert "bs=8192" in clock.inside[0]

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda file: flip(file, SIZE - 1), r"4096 bytes.* 258,048 .*stream\.bin"),
            (lambda file: os.truncate(file, 1000), r".*stream\.bin .*1,000 bytes.* 262,144$"),
            (lambda file: file.unlink(), r"stream\.bin\D*$"),
        ],
        ids=["altered byte", "truncated", "lost"],
    )
    def test_notices(
        self, clock: NotedTimed, stack: NotedStack, broken: Callable[[Path], object], message: str
    ) -> None:
        stack.broken = lambda: broken(stack.path / "stream.bin")
        with pytest.raises(AssertionError, match=rf"^stream_write: \D*{message}"):
            workloads.stream_write(clock, stack, size=SIZE)


def test_read_files_reads_neither_links_nor_pipes(clock: NotedTimed, stack: NotedStack, tree: Path) -> None:
    (tree / "link").symlink_to(some_file(tree))
    (tree / "to-nothing").symlink_to("nothing")
    os.mkfifo(tree / "pipe")
    workloads.read_files(clock, stack)
    assert clock.blocks == [block(bytes=200_000, files=40, direction="read")]


class TestExtract:
    def test_extracts(self, clock: NotedTimed, stack: NotedStack, packed: Corpus) -> None:
        workloads.extract(clock, stack, packed)
        assert clock.blocks == [block(bytes=200_000, files=40, cold=True, preload=[packed.tar])]
        assert stack.remounts == 1
        assert len(clock.inside) == 1

    def test_extracts_links(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        source = linked(tmp_path / "source")
        (source / "hard").hardlink_to(source / "file")
        workloads.extract(clock, stack, users_corpus(source, tmp_path / "cache"))
        tree = stack.path / "tree"
        assert [(tree / name).readlink() for name in ("to-directory", "to-nothing")] == [
            Path("directory"),
            Path("nothing"),
        ]
        assert (tree / "hard").samefile(tree / "file")

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda tree: flip(some_file(tree), 10), r"\D*: source-1/\S+$"),
            (lambda tree: os.truncate(some_file(tree), 10), r"\D*[\d,]+ bytes \D*200,000; [^;]*: source-1/\S+$"),
            (lambda tree: some_file(tree).unlink(), r"\D*39 files \D*40; .*: source-1/\S+ \(No such file"),
            (lambda tree: (tree / "more").write_text(""), r"\D*41 files \D*40$"),
            (lambda tree: (tree / "more").mkdir(), r"\D*4 directories \D*3$"),
            (lambda tree: (tree / "more").symlink_to("x"), r"\D*1 symbolic links \D*0$"),
        ],
        ids=["altered byte", "truncated", "lost file", "added file", "added directory", "added link"],
    )
    def test_notices(
        self, clock: NotedTimed, stack: NotedStack, packed: Corpus, broken: Callable[[Path], object], message: str
    ) -> None:
        stack.broken = lambda: broken(stack.path / "tree")
        with pytest.raises(AssertionError, match=f"^extract: {message}"):
            workloads.extract(clock, stack, packed)

    def test_names_three_files_at_most(self, clock: NotedTimed, stack: NotedStack, packed: Corpus) -> None:
        wrong = replace(packed, sample=dict.fromkeys(packed.sample, "0"))
        with pytest.raises(AssertionError, match=r"^extract: .*: \S+, \S+, \S+ \D*\b37\b"):
            workloads.extract(clock, stack, wrong)

    def test_a_failing_tar_is_an_error(
        self, clock: NotedTimed, stack: NotedStack, packed: Corpus, tmp_path: Path
    ) -> None:
        (tmp_path / "bad.tar").write_text("no archive")
        with pytest.raises(commands.CommandError, match="does not look like a tar archive"):
            workloads.extract(clock, stack, replace(packed, tar=tmp_path / "bad.tar"))

    @pytest.mark.parametrize(("tool", "compression"), [("tar", ""), ("zstd", "zstd")])
    def test_skips_without_the_tool(
        self,
        clock: NotedTimed,
        stack: NotedStack,
        packed: Corpus,
        monkeypatch: pytest.MonkeyPatch,
        tool: str,
        compression: str,
    ) -> None:
        which = commands.which
        monkeypatch.setattr(commands, "which", lambda name: None if name == tool else which(name))
        with pytest.raises(pytest.skip.Exception, match=rf"\b{tool}: "):
            workloads.extract(clock, stack, packed, compression=compression)


class TestExtractOver:
    @pytest.mark.parametrize("in_place", [False, True])
    def test_overwrites_every_file(
        self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus, in_place: bool
    ) -> None:
        before = {path: path.stat().st_ino for path in tree.rglob("*") if path.is_file()}
        # So that no new file can get the number of an old one.
        held = [path.open() for path in before]
        for path in before:
            flip(path, 1)
        workloads.extract_over(clock, stack, packed, in_place=in_place)
        assert {path: path.stat().st_ino == number for path, number in before.items()} == dict.fromkeys(
            before, in_place
        )
        assert clock.blocks == [block(bytes=200_000, files=40, preload=[packed.tar])]
        for file in held:
            file.close()

    def test_notices(self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus) -> None:
        stack.broken = lambda: flip(some_file(tree), 10)
        with pytest.raises(AssertionError, match=r"^extract_over: \D*: source-1/\S+$"):
            workloads.extract_over(clock, stack, packed)


class TestUnzip:
    @pytest.fixture
    def archive(self, packed: Corpus, tmp_path: Path) -> Path:
        if not commands.which("unzip"):
            pytest.skip("needs unzip: apt install unzip")
        return zipped(packed, tmp_path / "cache")

    def test_unpacks_and_overwrites(self, clock: NotedTimed, stack: NotedStack, packed: Corpus, archive: Path) -> None:
        workloads.unzip(clock, stack, packed, archive)
        tree = stack.path / "tree"
        assert clock.blocks == [block(bytes=200_000, files=40, preload=[archive])]
        for path in tree.rglob("*"):
            if path.is_file():
                flip(path, 1)
        workloads.unzip(clock.another(), stack, packed, archive, overwrite=True)
        assert stack.remounts == 2

    def test_unpacks_links(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path, archive: Path) -> None:
        corpus = users_corpus(linked(tmp_path / "source"), tmp_path / "cache")
        workloads.unzip(clock, stack, corpus, zipped(corpus, tmp_path / "cache"))
        assert (stack.path / "tree" / "to-nothing").readlink() == Path("nothing")

    def test_notices(self, clock: NotedTimed, stack: NotedStack, packed: Corpus, archive: Path) -> None:
        stack.broken = lambda: some_file(stack.path / "tree").unlink()
        with pytest.raises(AssertionError, match=r"^unzip: \D*39 files \D*40; "):
            workloads.unzip(clock, stack, packed, archive)


class TestDu:
    def test_records_what_the_tree_takes(self, clock: NotedTimed, stack: NotedStack, tree: Path) -> None:
        # du counts a file with two names once.
        (tree / "hard").hardlink_to(some_file(tree))
        figure = workloads.du(clock, stack)
        paths = [tree, *(path for path in tree.rglob("*") if path.name != "hard")]
        assert figure == sum(512 * path.lstat().st_blocks for path in paths)
        assert clock.recorded == {"du_bytes": (figure, "B", "lower")}
        assert clock.blocks == [block(bytes=None, files=None, cold=True, preload=[])]

    def test_notices_a_wrong_figure(self, clock: NotedTimed, stack: NotedStack, tree: Path) -> None:
        clock.altered = lambda text: re.sub(r"^\d+", "1000", text)
        with pytest.raises(AssertionError, match=r"^du: .* 1,000 bytes.* tree .*\b\d+,\d+$"):
            workloads.du(clock, stack)

    def test_notices_no_figure(self, clock: NotedTimed, stack: NotedStack, tree: Path) -> None:
        clock.altered = lambda text: ""
        with pytest.raises(AssertionError, match=r"^du: .*''$"):
            workloads.du(clock, stack)


class TestRsyncDryRun:
    def test_sees_every_file(
        self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus, tmp_path: Path
    ) -> None:
        workloads.rsync_dry_run(clock, stack, tmp_path / "empty", corpus=packed)
        assert clock.blocks == [block(bytes=None, files=40, cold=True, preload=[])]
        assert list((tmp_path / "empty").iterdir()) == []

    @pytest.mark.parametrize(
        ("stats", "complete"),
        [
            ("Number of files: 44 (reg: 40, dir: 4)", True),
            ("Number of files: 44", True),
            ("Number of files: 43 (reg: 39, dir: 4)", False),
            ("Number of files: 44 (reg: 40, dir: 3, link: 1)", False),
            ("Number of files: 1,044 (reg: 1,040, dir: 4)", False),
            ("Number of files: 43", False),
            ("", False),
        ],
    )
    def test_reads_the_counts_of_old_and_new_versions(
        self,
        clock: NotedTimed,
        stack: NotedStack,
        tree: Path,
        packed: Corpus,
        tmp_path: Path,
        stats: str,
        complete: bool,
    ) -> None:
        clock.altered = lambda text: f"\n{stats}\nNumber of created files: 0\n"
        with contextlib.nullcontext() if complete else pytest.raises(AssertionError, match=r"^rsync: "):
            workloads.rsync_dry_run(clock, stack, tmp_path / "empty", corpus=packed)

    def test_reads_thousands(
        self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus, tmp_path: Path
    ) -> None:
        clock.altered = lambda text: "Number of files: 1,234,572 (reg: 1,234,568, dir: 4)\n"
        workloads.rsync_dry_run(clock, stack, tmp_path / "empty", corpus=replace(packed, files=1_234_568))

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda tree: some_file(tree).unlink(), r"^rsync: .*\b39 files, .* 40 files, "),
            (lambda tree: (tree / "more").symlink_to("x"), r"^rsync: .*\b1 symbolic links .* 0 symbolic links$"),
        ],
        ids=["lost file", "added link"],
    )
    def test_notices(
        self,
        clock: NotedTimed,
        stack: NotedStack,
        tree: Path,
        packed: Corpus,
        tmp_path: Path,
        broken: Callable[[Path], object],
        message: str,
    ) -> None:
        broken(tree)
        with pytest.raises(AssertionError, match=message):
            workloads.rsync_dry_run(clock, stack, tmp_path / "empty", corpus=packed)

    def test_notices_a_run_that_was_not_dry(
        self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus, tmp_path: Path
    ) -> None:
        def wrote(text: str) -> str:
            (tmp_path / "empty" / "copied").touch()
            return text

        clock.altered = wrote
        with pytest.raises(AssertionError, match=r"^rsync: .*: copied$"):
            workloads.rsync_dry_run(clock, stack, tmp_path / "empty", corpus=packed)

    def test_needs_an_empty_target(
        self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match=f"^rsync_dry_run: {tmp_path} "):
            workloads.rsync_dry_run(clock, stack, tmp_path, corpus=packed)
        assert clock.blocks == []


class TestDelete:
    def test_deletes(self, clock: NotedTimed, stack: NotedStack, tree: Path, packed: Corpus) -> None:
        workloads.delete(clock, stack, corpus=packed)
        assert clock.blocks == [block(bytes=None, files=40, cold=True, preload=[])]
        assert list(stack.path.iterdir()) == []
        assert stack.remounts == 1

    def test_notices_what_is_left(self, clock: NotedTimed, stack: NotedStack, tree: Path) -> None:
        def incomplete() -> None:
            subprocess.run(["rm", "-rf", *tree.iterdir()], check=True)
            (tree / "left").touch()

        clock.instead = incomplete
        with pytest.raises(AssertionError, match=r"^delete: tree .*\bleft$"):
            workloads.delete(clock, stack)
        assert stack.remounts == 0

    def test_notices_what_comes_back(self, clock: NotedTimed, stack: NotedStack, tree: Path) -> None:
        stack.broken = tree.mkdir
        with pytest.raises(AssertionError, match=r"^delete: tree "):
            workloads.delete(clock, stack)
        assert stack.remounts == 1
