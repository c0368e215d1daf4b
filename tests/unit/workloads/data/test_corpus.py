"""Generated data, user archives, and the cache."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import os
import statistics
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from pytest_fsstack.workloads.data import corpus
from pytest_fsstack.workloads.data.archive import COMPRESSORS, Corpus, CorpusError, compressor, digest
from pytest_fsstack.workloads.data.backup import Backup
from pytest_fsstack.workloads.data.corpus import (
    cache_directory,
    generated,
    packed_backup,
    payload,
    users_corpus,
    zipped,
)

SMALL = {"files": 60, "size": 300_000}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Path]:
    def write(*members: tuple[bytes, bytes, str], name: str = "a.tar") -> Path:
        """Write an archive of members: type, contents or link target, and path."""
        path = tmp_path / name
        with tarfile.open(path, "w") as tar:
            for kind, content, where in members:
                member = tarfile.TarInfo(where)
                member.type = kind
                # Not only root may go into a directory.
                member.mode = 0o755
                if kind == tarfile.REGTYPE:
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                else:
                    member.linkname = content.decode()
                    tar.addfile(member)
        return path

    return write


FILE, DIRECTORY, SYMLINK, HARDLINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def extracted(made: Corpus, where: Path) -> Path:
    where.mkdir()
    subprocess.run(["tar", "--no-same-owner", "-xf", made.tar, "-C", where], check=True)
    return where


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def is_what_it_says(made: Corpus, tree: Path) -> None:
    paths = list(tree.rglob("*"))
    files = [path for path in paths if path.is_file() and not path.is_symlink()]
    assert made.files == len(files)
    assert made.bytes == sum(path.stat().st_size for path in files)
    assert made.directories == sum(path.is_dir() and not path.is_symlink() for path in paths)
    assert made.links == sum(path.is_symlink() for path in paths)
    for path, expected in made.sample.items():
        with (tree / path).open("rb") as content:
            assert digest(content) == expected


class TestGenerated:
    def test_is_what_it_says(self, cache: Path, tmp_path: Path) -> None:
        made = generated(cache, **SMALL)
        assert (made.files, made.bytes) == (60, 300_000)
        assert len(made.sample) == 40
        is_what_it_says(made, extracted(made, tmp_path / "x"))

    def test_gives_these_very_bytes_everywhere(self, cache: Path) -> None:
        # Where this has to change, FORMAT has to be raised: caches and saved results hold the old bytes.
        expected = "ac9431628f170847b9590998264d31dbe9bb90dcc921fd3859e9b5a40008fc83"
        assert sha256(generated(cache, 7, **SMALL).tar) == expected

    def test_another_seed_gives_another_tree(self, cache: Path) -> None:
        assert sha256(generated(cache, 1, **SMALL).tar) != sha256(generated(cache, 2, **SMALL).tar)

    def test_is_shaped_like_a_source_tree(self, cache: Path) -> None:
        made = generated(cache, files=1000, size=16_000_000)
        with tarfile.open(made.tar) as tar:
            members = tar.getmembers()
        sizes = [member.size for member in members if member.isreg()]
        assert statistics.median(sizes) < statistics.mean(sizes) / 2
        assert max(member.name.count("/") for member in members) >= 4
        assert 10 < made.files / made.directories < 20
        raw = made.tar.read_bytes()
        assert 4.0 < len(raw) / len(gzip.compress(raw, 6)) < 5.0

    def test_a_second_use_takes_the_cached_archive(self, cache: Path) -> None:
        first = generated(cache, **SMALL)
        inode = first.tar.stat().st_ino
        assert generated(cache, **SMALL) == first
        assert first.tar.stat().st_ino == inode

    @pytest.mark.parametrize("damage", ["truncated", "gone", "no manifest", "bad manifest", "other manifest"])
    def test_a_damaged_cache_is_made_again(self, cache: Path, damage: str) -> None:
        first = generated(cache, **SMALL)
        whole, manifest = first.tar.read_bytes(), first.tar.with_suffix(".json")
        if damage == "truncated":
            os.truncate(first.tar, 1000)
        elif damage == "gone":
            first.tar.unlink()
        elif damage == "no manifest":
            manifest.unlink()
        else:
            manifest.write_text("{" if damage == "bad manifest" else json.dumps({"tar_size": len(whole), "colour": 1}))
        assert generated(cache, **SMALL) == first
        assert first.tar.read_bytes() == whole

    def test_sessions_at_once_do_not_disturb_each_other(self, cache: Path) -> None:
        with ThreadPoolExecutor(4) as sessions:
            made = list(sessions.map(lambda _: generated(cache, **SMALL), range(4)))
        assert made[1:] == made[:-1]
        assert sorted(path.suffix for path in cache.iterdir()) == [".json", ".tar"]

    def test_a_full_disk_is_one_line_and_leaves_nothing(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(corpus, "write_tree", full)
        with pytest.raises(CorpusError, match=r"generated-.*: No space left on device$"):
            generated(cache, **SMALL)
        assert list(cache.iterdir()) == []


class TestPayload:
    def test_gives_these_very_bytes_everywhere(self, cache: Path) -> None:
        expected = "8611065e5f7ec106458b7ea8346a1ee81efc007d2438f7b773691b01606a15aa"
        assert sha256(payload(cache, 3_000_001, 7)) == expected

    def test_is_as_long_as_asked_and_does_not_compress(self, cache: Path) -> None:
        raw = payload(cache, 3_000_001, 7).read_bytes()
        assert len(raw) == 3_000_001
        assert len(gzip.compress(raw)) > len(raw)

    def test_is_made_once_and_again_when_it_is_damaged(self, cache: Path) -> None:
        path = payload(cache, 100_000, 1)
        whole, inode = path.read_bytes(), path.stat().st_ino
        assert payload(cache, 100_000, 1).stat().st_ino == inode
        os.truncate(path, 10)
        assert payload(cache, 100_000, 1).read_bytes() == whole


class TestCompressed:
    @pytest.mark.parametrize("tool", ["gzip", "bzip2", "xz"])
    def test_holds_the_same_files(self, cache: Path, tool: str) -> None:
        plain = corpus.generated(cache, files=20, size=50_000)
        packed = corpus.compressed(plain, tool, cache)
        assert packed.tar.stat().st_size < plain.tar.stat().st_size
        assert compressor(packed.tar) == next(need for need in COMPRESSORS.values() if need.command == tool)
        assert dataclasses.replace(packed, tar=plain.tar) == plain
        with tarfile.open(packed.tar) as archive, tarfile.open(plain.tar) as meant:
            assert archive.getnames() == meant.getnames()

    def test_is_made_once(self, cache: Path) -> None:
        plain = corpus.generated(cache, files=20, size=50_000)
        first = corpus.compressed(plain, "gzip", cache)
        inode = first.tar.stat().st_ino
        assert corpus.compressed(plain, "gzip", cache).tar.stat().st_ino == inode
        assert corpus.compressed(first, "bzip2", cache) is first

    def test_an_unknown_tool_names_those_there_are(self, cache: Path) -> None:
        with pytest.raises(CorpusError, match=r"'rar' .*gzip, bzip2, xz, zstd"):
            corpus.compressed(corpus.generated(cache, files=20, size=50_000), "rar", cache)


class TestGivenArchive:
    MEMBERS = (
        (DIRECTORY, b"", "top"),
        (FILE, b"old", "top/twice"),
        (FILE, b"hello", "top/a/b/implied"),
        (FILE, b"newer", "./top/twice"),
        (SYMLINK, b"a", "top/to-directory"),
        (HARDLINK, b"top/twice", "top/hard"),
    )

    @pytest.mark.parametrize(
        ("suffix", "command"),
        [("", []), (".gz", ["gzip"]), (".bz2", ["bzip2"]), (".xz", ["xz"]), (".zst", ["zstd", "-q"])],
    )
    def test_is_what_it_says(
        self, archive: Callable[..., Path], cache: Path, tmp_path: Path, suffix: str, command: list[str]
    ) -> None:
        path = archive(*self.MEMBERS)
        if command:
            subprocess.run([*command, path], check=True)
        made = users_corpus(path.with_name(path.name + suffix), cache)
        assert made.tar == path.with_name(path.name + suffix)
        assert (made.name, made.files, made.directories, made.links, made.bytes) == ("a.tar" + suffix, 3, 3, 1, 15)
        assert set(made.sample) == {"top/a/b/implied", "top/twice"}
        is_what_it_says(made, extracted(made, tmp_path / "x"))

    def test_names_that_are_no_text(self, cache: Path, tmp_path: Path) -> None:
        tree = tmp_path / "tree"
        tree.mkdir()
        Path(os.fsdecode(os.fsencode(tree) + b"/caf\xe9 \xf0")).write_text("x")
        path = tmp_path / "a.tar"
        subprocess.run(["tar", "-cf", path, "-C", tree, "."], check=True)
        for _ in "first", "from the cache":
            is_what_it_says(users_corpus(path, cache), tree)

    def test_is_read_again_only_when_it_has_changed(
        self, archive: Callable[..., Path], cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = archive((FILE, b"1", "a"))
        first = users_corpus(path, cache)
        with monkeypatch.context() as patch:
            patch.setattr(corpus, "scan", None)
            assert users_corpus(path, cache) == first
        archive((FILE, b"1", "a"), (FILE, b"2", "b"))
        os.utime(path, ns=(0, 1))
        assert users_corpus(path, cache).files == 2

    @pytest.mark.parametrize(
        ("members", "message"),
        [
            ([(FILE, b"", "fine"), (FILE, b"", "/etc/passwd")], "[^']*'/etc/passwd'[^']*$"),
            ([(FILE, b"", "fine"), (FILE, b"", "../up")], r"[^']*'\.\./up'[^']*$"),
            ([(FILE, b"", "fine"), (FILE, b"", "a/../../up")], r"[^']*'a/\.\./\.\./up'[^']*$"),
            ([(HARDLINK, b"/etc/shadow", "a")], "[^']*'/etc/shadow'[^']*$"),
            ([(SYMLINK, b"/etc", "a"), (FILE, b"", "a/passwd")], "[^']*'a'[^']*$"),
            ([(HARDLINK, b"a", "b")], "[^']*'b' .*'a'"),
            ([(FILE, b"x", "fine"), (tarfile.BLKTYPE, b"", "innocent")], ".*'innocent'"),
            ([(FILE, b"x", "fine"), (tarfile.CHRTYPE, b"", "innocent")], ".*'innocent'"),
            ([(DIRECTORY, b"", "only")], r".*\bfiles\b"),
        ],
    )
    def test_refuses(
        self, archive: Callable[..., Path], cache: Path, members: list[tuple[bytes, bytes, str]], message: str
    ) -> None:
        with pytest.raises(CorpusError, match=rf"^corpus a\.tar: {message}"):
            users_corpus(archive(*members), cache)

    def test_there_is_nothing(self, cache: Path, tmp_path: Path) -> None:
        with pytest.raises(CorpusError, match=r"nothing\.tar: No such file or directory$"):
            users_corpus(tmp_path / "nothing.tar", cache)

    def test_neither_archive_nor_directory(self, cache: Path, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(CorpusError, match=r"/fifo: .*archive"):
            users_corpus(tmp_path / "fifo", cache)

    @pytest.mark.parametrize("compress", [False, True])
    def test_no_archive(self, cache: Path, tmp_path: Path, compress: bool) -> None:
        path = tmp_path / "letter"
        text = b"Dear Sir or Madam,\n" * 100_000
        path.write_bytes(gzip.compress(text) if compress else text)
        with pytest.raises(CorpusError, match=r"^corpus letter: .*\btar\b.*\bgzip, bzip2, xz .*zstd$"):
            users_corpus(path, cache)

    @pytest.mark.parametrize(
        "cut", [3 * (512 + 5120), 3 * (512 + 5120) - 100, 2 * (512 + 5120), 2 * (512 + 5120) + 700]
    )
    def test_cut_off(self, archive: Callable[..., Path], cache: Path, cut: int) -> None:
        path = archive(*((FILE, b"x" * 5000, f"file-{number}") for number in range(3)))
        assert users_corpus(path, cache).files == 3
        os.truncate(path, cut)
        with pytest.raises(CorpusError, match=r"^corpus a\.tar: damaged"):
            users_corpus(path, cache)

    def test_rubbish_between_members_is_no_end(self, archive: Callable[..., Path], cache: Path) -> None:
        path = archive(*((FILE, b"x" * 5000, f"file-{number}") for number in range(3)))
        with path.open("r+b") as file:
            file.seek(512 + 5120)
            file.write(b"?" * 512)
        with pytest.raises(CorpusError, match=r"^corpus a\.tar: .*\b5632\b"):
            users_corpus(path, cache)

    def test_cut_off_and_compressed_says_what_the_tool_says(self, archive: Callable[..., Path], cache: Path) -> None:
        path = archive((FILE, os.urandom(100_000), "a"))
        subprocess.run(["xz", path], check=True)
        path = path.with_suffix(".tar.xz")
        os.truncate(path, 50_000)
        with pytest.raises(CorpusError, match=r"^corpus a\.tar\.xz: .*Unexpected end of input$"):
            users_corpus(path, cache)

    def test_no_tool_says_how_to_get_it(
        self, archive: Callable[..., Path], cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = archive((FILE, b"1", "a"))
        subprocess.run(["zstd", "-q", path], check=True)
        which = commands.which
        monkeypatch.setattr(commands, "which", lambda tool: None if tool == "zstd" else which(tool))
        with pytest.raises(CorpusError, match=r"a\.tar\.zst: .*\bzstd: \S+ \S+ zstd$"):
            users_corpus(path.with_suffix(".tar.zst"), cache)


class TestGivenDirectory:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        tree = tmp_path / "project"
        (tree / "src" / "empty").mkdir(parents=True)
        (tree / "src" / "main.c").write_text("int main;\n")
        (tree / "src" / "link").symlink_to("main.c")
        (tree / "hard").hardlink_to(tree / "src" / "main.c")
        return tree

    def test_is_what_it_says(self, tree: Path, cache: Path, tmp_path: Path) -> None:
        made = users_corpus(tree, cache)
        assert (made.name, made.files, made.directories, made.links, made.bytes) == ("project", 2, 2, 1, 20)
        is_what_it_says(made, tree)
        is_what_it_says(made, extracted(made, tmp_path / "x"))

    def test_is_packed_again_only_when_it_has_changed(
        self, tree: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = users_corpus(tree, cache)
        with monkeypatch.context() as patch:
            patch.setattr(corpus, "pack", None)
            assert users_corpus(tree, cache) == first
        (tree / "src" / "main.c").write_text("int other\n")
        assert users_corpus(tree, cache).sample != first.sample

    def test_refuses_a_directory_that_holds_the_cache(self, tree: Path) -> None:
        with pytest.raises(CorpusError, match=f"^corpus {tree}: .*{tree}/cache\\b.*XDG_CACHE_HOME"):
            users_corpus(tree, tree / "cache")


class TestCacheDirectory:
    def test_follows_xdg(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_directory() == tmp_path / "pytest-fsstack"

    @pytest.mark.parametrize("value", ["", "relative/path"])
    def test_else_lies_below_home(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_directory() == tmp_path / ".cache" / "pytest-fsstack"


def test_a_zip_archive_holds_what_the_archive_holds(cache: Path) -> None:
    made = generated(cache, **SMALL)
    path = zipped(made, cache)
    assert zipped(made, cache) == path
    with zipfile.ZipFile(path) as packed, tarfile.open(made.tar) as archive:
        assert packed.testzip() is None
        members = archive.getmembers()
        assert [info.filename.rstrip("/") for info in packed.infolist()] == [member.name for member in members]
        for info, member in zip(packed.infolist(), members):
            assert info.is_dir() == member.isdir()
            content = archive.extractfile(member)
            assert packed.read(info) == (content.read() if content else b"")
    assert path.stat().st_size < made.bytes / 2
    os.utime(made.tar, (1, 1))
    other = zipped(made, cache)
    assert other != path
    assert other.name == path.name, "results name the file, and are pooled with those of other machines"


@pytest.mark.parametrize(
    ("member", "message"),
    [
        ((HARDLINK, b"a", "b"), "'b' .*zip"),
        ((FILE, b"", "\udcff"), r"'\\udcff' .*zip"),
    ],
)
def test_what_no_zip_archive_can_hold_is_refused(
    archive: Callable[..., Path], cache: Path, member: tuple[bytes, bytes, str], message: str
) -> None:
    made = users_corpus(archive((FILE, b"x", "a"), member), cache)
    with pytest.raises(CorpusError, match=message):
        zipped(made, cache)
    assert list(cache.rglob("*.zip")) == []


def test_each_backup_has_an_archive_of_its_own(cache: Path) -> None:
    backup = Backup(3, 10, mean_size=100)
    path = packed_backup(cache, backup)
    assert packed_backup(cache, Backup(3, 10, mean_size=100, seed=2)) != path
    with tarfile.open(path) as archive:
        assert sum(member.islnk() for member in archive) == 10


def test_a_tool_that_cannot_compress_says_why(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = tmp_path / "zstd"
    failing.write_text("#!/bin/sh\nexec <&-\necho 'zstd: no space left' >&2\nexit 1\n")
    failing.chmod(0o755)
    plain = generated(tmp_path, **SMALL)
    monkeypatch.setattr(commands, "which", lambda tool: str(failing))
    with pytest.raises(CorpusError, match="zstd: no space left"):
        packed_backup(cache, Backup(3, 10, mean_size=10 << 20), compressed=True)
    with pytest.raises(CorpusError, match="zstd: no space left"):
        corpus.compressed(plain, "gzip", cache)
    assert list(cache.iterdir()) == []


def test_compressing_needs_its_tool(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "which", lambda tool: None)
    with pytest.raises(CorpusError, match=r"\bzstd: "):
        packed_backup(cache, Backup(3, 10), compressed=True)


def test_a_tree_has_the_directories_that_were_asked_for(cache: Path) -> None:
    made = generated(cache, **SMALL, directories=30)
    assert (made.files, made.directories) == (60, 30)
    assert generated(cache, **SMALL).directories == 5
    with pytest.raises(ValueError, match=r"60 files .*61 directories"):
        generated(cache, **SMALL, directories=61)
    for wrong in {"files": 0}, {"size": -1}:
        with pytest.raises(ValueError, match=r"\b0 files|-1 bytes"):
            generated(cache, **SMALL | wrong)
