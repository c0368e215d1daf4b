"""The streamed backup archive: it matches its description."""

from __future__ import annotations

import collections
import hashlib
import io
import os
import statistics
import subprocess
import sys
import tarfile
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.workloads.data import backup as program
from pytest_fsstack.workloads.data.backup import Backup, describe, write_tar


@st.composite
def backups(draw: st.DrawFn) -> Backup:
    files, most = draw(st.integers(1, 60)), draw(st.integers(1, 200))
    return Backup(
        pool_files=files,
        links=draw(st.integers(0, min(400, files * most))),
        empty_files=draw(st.integers(0, 50)),
        mean_size=draw(st.integers(0, 3000)),
        seed=draw(st.integers(0, 3)),
        max_links_per_file=most,
        machines=draw(st.integers(1, 5)),
        contents=draw(st.sampled_from(["zeros", "noise"])),
    )


def written(backup: Backup) -> bytes:
    out = io.BytesIO()
    write_tar(backup, out)
    return out.getvalue()


@given(backups())
def test_the_archive_holds_what_its_description_says(backup: Backup) -> None:
    with tarfile.open(fileobj=io.BytesIO(written(backup))) as archive:
        members = archive.getmembers()
        contents = {member.name: archive.extractfile(member) for member in members if member.isreg()}
        pool = {name: content.read() for name, content in contents.items() if content and name.startswith("pool/")}
    names = [member.name for member in members]
    assert len(set(names)) == len(names)
    files = [backup.pool_path(file) for file in range(backup.pool_files)]
    assert list(pool) == files
    assert pool == {path: b"".join(backup.content(file)) for file, path in enumerate(files)}
    assert [len(content) for content in pool.values()] == [backup.size(file) for file in range(backup.pool_files)]
    assert backup.pool_bytes == sum(map(len, pool.values()))
    tree = [member for member in members if member.name.startswith("machines/") and not member.isdir()]
    assert [member.name for member in tree] == [backup.tree_path(name) for name in range(backup.tree_files)]
    targets = [backup.target(name) for name in range(backup.tree_files)]
    assert [member.linkname for member in tree] == [files[target] if target is not None else "" for target in targets]
    assert sum(member.islnk() for member in tree) == backup.links
    assert sum(member.isreg() and member.size == 0 for member in tree) == backup.empty_files
    counts = collections.Counter(targets)
    assert [counts[file] for file in range(backup.pool_files)] == [
        backup.links_to(file) for file in range(backup.pool_files)
    ]
    assert max(map(backup.links_to, range(backup.pool_files))) <= backup.max_links_per_file


@given(backups())
def test_directories_come_before_what_is_in_them_and_once(backup: Backup) -> None:
    with tarfile.open(fileobj=io.BytesIO(written(backup))) as archive:
        seen = {""}
        for member in archive:
            assert os.path.dirname(member.name) in seen
            assert member.name not in seen
            if member.isdir():
                seen.add(member.name)


def test_the_bytes_are_those_that_they_always_were() -> None:
    backup = Backup(50, 500, 20, mean_size=2000, max_links_per_file=90, contents="noise")
    assert hashlib.sha256(written(backup)).hexdigest()[:16] == "406f12e3d73528a6"


def test_another_seed_gives_other_names_and_another_order() -> None:
    one, other = Backup(50, 500, seed=1), Backup(50, 500, seed=2)
    assert not {one.pool_path(file) for file in range(50)} & {other.pool_path(file) for file in range(50)}
    assert [one.target(name) for name in range(500)] != [other.target(name) for name in range(500)]


def test_popularity_is_uneven_up_to_the_limit() -> None:
    backup = Backup(1000, 50_000, max_links_per_file=5000)
    counts = sorted(map(backup.links_to, range(1000)))
    assert counts[-1] == 5000
    assert counts[0] >= 25
    assert statistics.median(counts) < 50


def test_sizes_are_log_normal_about_their_mean() -> None:
    backup = Backup(20_000, 0, mean_size=100_000)
    sizes = sorted(map(backup.size, range(20_000)))
    assert statistics.mean(sizes) == pytest.approx(100_000, rel=0.1)
    assert sizes[10_000] == pytest.approx(25_000, rel=0.1)
    assert max(sizes) > 1_000_000


def test_the_published_archive_is_described_at_once() -> None:
    backup = Backup(456_000, 10_400_000, 84_300)
    assert backup.names == 10_940_300
    last = backup.tree_files - 1
    assert len(backup.tree_path(last)) <= 100
    assert {backup.target(name) is None for name in range(last - 1000, last)} == {True, False}
    assert max(backup.links_to(file) for file in range(0, 456_000, 1000)) <= 40_000


def test_its_program_writes_it_in_memory_that_does_not_grow() -> None:
    peaks = []
    for links, size in (10, 10), (30_000, 4 << 20):
        backup = Backup(30, links, mean_size=size, max_links_per_file=2000)
        argv = [sys.executable, "-I", "-S", program.__file__, describe(backup)]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss * 1024)
    assert peaks[1] - peaks[0] < 8 << 20


def test_its_program_writes_the_same_bytes() -> None:
    backup = Backup(5, 40, 3, mean_size=2000, seed=7, contents="noise")
    argv = [sys.executable, "-I", "-S", program.__file__, describe(backup)]
    assert subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout == written(backup)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"pool_files": 0, "links": 0}, r"pool_files=0\b"),
        ({"pool_files": 1, "links": -1}, r"links=-1\b"),
        ({"pool_files": 1, "links": 0, "contents": "random"}, "zeros .*noise .*'random'"),
        ({"pool_files": 2, "links": 11, "max_links_per_file": 5}, r"\b11 links .*\b2 files .*\b5\b"),
    ],
)
def test_what_cannot_be_is_refused(numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Backup(**numbers)
