"""Calls that a workload refuses: what makes no sense, lacks its input, or would write over a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.machine import needs
from pytest_fsstack.workloads.data.archive import Corpus
from pytest_fsstack.workloads.data.backup import Backup
from tests.toolkit import NotedStack, NotedTimed

Step = Callable[[NotedTimed, NotedStack], object]

SMALL = Path(__file__)
SIZE = SMALL.stat().st_size
UNKNOWN: Any = "fsnyc"
BACKUP = Backup(pool_files=3, links=10)
CORPUS = Corpus("corpus", SMALL, files=1, directories=1, links=0, bytes=1, sample={})


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs.Tool, "missing", lambda self: None)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (partial(workloads.age, operations=0), "age: operations .* 0 .*0"),
        (partial(workloads.age, percent=100), "age: percent .* 0 .* 100 .*100"),
        (partial(workloads.bonnie, size=1000), r"bonnie: .*\b1000\b"),
        (partial(workloads.bonnie, size=1 << 20), r"bonnie: .*\b524288\b"),
        (partial(workloads.bonnie, memory=5), r"bonnie: .*\b5\b"),
        (partial(workloads.bonnie, files=100), r"bonnie: .*\b100\b"),
        (partial(workloads.bonnie, concurrency=0), r"bonnie: .*\b0\b"),
        (partial(workloads.create_files, count=0), r"create_files: count .*per_directory .*\b0, \d+ .*\d+\)$"),
        (partial(workloads.dd_read, size=5000), "dd_read: 5000 bytes.* 65536 bytes"),
        (partial(workloads.dd_write, size=5000, block=4096), "dd_write: 5000 bytes.* 4096 bytes"),
        (
            partial(workloads.dd_write, size=2 * SIZE, block=SIZE, payload=SMALL),
            f"dd_write: {SMALL} .*{SIZE} .*{2 * SIZE}",
        ),
        (partial(workloads.delete_files, order=UNKNOWN), "delete_files: order .*listed, name, inode .*'fsnyc'"),
        (partial(workloads.dd_write, sync=UNKNOWN), "dd_write: sync .*fsync, fdatasync, dsync, sync .*'fsnyc'"),
        (partial(workloads.fill, percent=100), "fill: percent .* 0 .* 100 .*100"),
        (partial(workloads.fill, bytes=0), "fill: bytes .* 0 .*0"),
        (partial(workloads.fill, payload=SMALL), f"fill: {SMALL} .*1 MiB"),
        (partial(workloads.fio, size=1000), r"fio: .*\b1000\b"),
        (partial(workloads.fio, size=0), r"fio: .*\b0\b"),
        (partial(workloads.fio, block=0), r"fio: .*\b0\b"),
        (partial(workloads.fio, iodepth=0), r"fio: .*\b0\b"),
        (partial(workloads.fio, numjobs=0), r"fio: .*\b0\b"),
        (partial(workloads.fio, runtime=0), r"fio: runtime .*\b0\b"),
        (
            partial(workloads.fio, options={"verify": "md5", "bs": "8k", "rate": "1m"}, direct=False),
            r"fio: bs, verify (?!.*\brate\b)",
        ),
        (partial(workloads.postgres, synchronous=UNKNOWN), "postgres: synchronous .*off, on .*'fsnyc'"),
        (partial(workloads.read_blocks, count=0), "read_blocks: count .* 0 .*0"),
        (partial(workloads.read_blocks, block=0), "read_blocks: .*block .* 0 .*0"),
        (partial(workloads.read_files, block=0), "read_files: block .* 0 .*0"),
        (
            partial(workloads.remove_backup, order=UNKNOWN),
            "remove_backup: order .*pool-first, links-first, rm .*'fsnyc'",
        ),
        (partial(workloads.rocksdb, transactions=0), r"rocksdb: transactions .*size .* 0 .*\b0\b"),
        (partial(workloads.small_file_space, count=0), r"small_file_space: .*count [^,]* 0 [^,]*\b0\b"),
        (partial(workloads.small_file_space, sizes=()), r"small_file_space: .*sizes .*\[\]"),
        (partial(workloads.small_file_space, sizes=(1, 1)), r"small_file_space: .*sizes .*\[1, 1\]"),
        (partial(workloads.small_file_space, sizes=(-1,)), r"small_file_space: .*sizes .*\[-1\]"),
        (partial(workloads.sqlite, journal=UNKNOWN), "sqlite: journal .*delete, truncate, persist, wal .*'fsnyc'"),
        (partial(workloads.sqlite, synchronous=UNKNOWN), "sqlite: synchronous .*off, normal, full, extra .*'fsnyc'"),
        (partial(workloads.sqlite, transactions=0), "sqlite: transactions .* 0 .*0"),
        (partial(workloads.stream_write, size=5000), "stream_write: 5000 bytes.* 4096 bytes"),
    ],
)
def test_what_makes_no_sense(step: Step, message: str, clock: NotedTimed, stack: NotedStack) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        step(clock, stack)
    assert clock.blocks == []
    assert list(stack.path.iterdir()) == []


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (partial(workloads.dd_read, direct=False, prepare=False), r"dd_read: .*dd\.bin"),
        (workloads.delete, "delete: .* tree "),
        (workloads.delete_files, "delete_files: .* tree "),
        (workloads.du, "du: .* tree "),
        (partial(workloads.extract_over, corpus=CORPUS), "extract_over: .* tree "),
        (partial(workloads.overwrite_file, source=SMALL), r"overwrite_file: .* copy\.bin "),
        (workloads.read_back, r"read_back: .* copy\.bin "),
        (workloads.read_blocks, "read_blocks: .* tree "),
        (workloads.read_files, "read_files: .* tree "),
        (workloads.remove_backup, "remove_backup: .* backup "),
        (partial(workloads.rsync_dry_run, target=SMALL, corpus=CORPUS), "rsync: .* tree "),
        (partial(workloads.unzip, corpus=CORPUS, archive=SMALL, overwrite=True), "unzip: .* tree "),
    ],
)
def test_what_an_earlier_step_has_not_left(step: Step, message: str, clock: NotedTimed, stack: NotedStack) -> None:
    with pytest.raises(AssertionError, match=f"^{message}"):
        step(clock, stack)
    assert clock.blocks == []


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("aged", workloads.age),
        ("bonnie", workloads.bonnie),
        ("copy.bin", partial(workloads.copy_file, source=SMALL)),
        ("created", partial(workloads.create_files, count=1)),
        ("backup", partial(workloads.extract_backup, backup=BACKUP)),
        ("tree", partial(workloads.extract, corpus=CORPUS)),
        ("filler.bin", workloads.fill),
        ("rocksdb", workloads.rocksdb),
        ("small-files", workloads.small_file_space),
        ("sqlite", workloads.sqlite),
        ("tree", partial(workloads.unzip, corpus=CORPUS, archive=SMALL)),
    ],
)
def test_what_is_there_already(name: str, step: Step, clock: NotedTimed, stack: NotedStack) -> None:
    (stack.path / name).mkdir()
    with pytest.raises(FileExistsError, match=name):
        step(clock, stack)
    assert clock.inside == []
    assert list((stack.path / name).iterdir()) == []
