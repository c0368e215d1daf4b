"""Transactions of SQLite and RocksDB: their figures, and the damage that the check afterwards finds."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.machine import commands
from pytest_fsstack.workloads.database import Journal, Synchronous, _opened
from tests.toolkit import NotedStack, NotedTimed, block


def change(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        assert database.execute(statement).rowcount == 1


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("synchronous", ["off", "normal", "full"])
def test_commits(clock: NotedTimed, stack: NotedStack, journal: Journal, synchronous: Synchronous) -> None:
    workloads.sqlite(clock, stack, transactions=5, journal=journal, synchronous=synchronous)
    assert clock.blocks == [block()]
    assert stack.remounts == 1
    assert clock.recorded.keys() == {
        *("latency_p50", "latency_p95", "latency_p99", "latency_p999", "longest_stall", "transactions_per_second")
    }
    assert clock.kept["operations_over_time"][-1][1] == 5
    assert clock.kept["operations_over_time"][-1][0] == pytest.approx(5 / clock.recorded["transactions_per_second"][0])
    with closing(sqlite3.connect(stack.path / "sqlite" / "data.db")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == (journal,)
        assert database.execute("SELECT count(*), count(DISTINCT content) > 11 FROM item").fetchone() == (1005, 1)


def test_a_seed_draws_the_same_transactions(clock: NotedTimed, stack: NotedStack) -> None:
    contents = []
    for into, seed in (("a", 1), ("b", 1), ("c", 2)):
        workloads.sqlite(clock.another(), stack, transactions=5, seed=seed, into=into)
        with closing(sqlite3.connect(stack.path / into / "data.db")) as database:
            contents.append(database.execute("SELECT * FROM item ORDER BY id").fetchall())
    assert contents[0] == contents[1] != contents[2]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda file: change(file, "DELETE FROM item WHERE id = 1004"), r"\b1 .*1,005 rows .*: 1004$"),
        (lambda file: change(file, "UPDATE item SET content = x'00' WHERE id = 7"), r"\b1 .*1,005 rows .*: 7$"),
        (lambda file: change(file, "INSERT INTO item VALUES (1005, x'00')"), r"\b1 .*1,005 rows .*: 1005$"),
        (lambda file: os.truncate(file, 100_000), "data.db: database disk image is malformed$"),
        (lambda file: file.write_bytes(b"x" * 100_000), "data.db: file is not a database$"),
    ],
    ids=["lost row", "altered row", "added row", "truncated", "overwritten"],
)
def test_notices(clock: NotedTimed, stack: NotedStack, broken: Callable[[Path], object], message: str) -> None:
    stack.broken = lambda: broken(stack.path / "sqlite" / "data.db")
    with pytest.raises(AssertionError, match=f"^sqlite: .*{message}"):
        workloads.sqlite(clock, stack, transactions=5)


def test_notices_an_index_that_lacks_a_row(clock: NotedTimed, stack: NotedStack) -> None:
    def unindex(file: Path) -> None:
        with closing(sqlite3.connect(file)) as database:
            database.executescript(
                "CREATE INDEX place ON item (id); PRAGMA writable_schema = ON;"
                "UPDATE sqlite_schema SET sql = 'CREATE INDEX place ON item (content)' WHERE name = 'place'"
            )

    stack.broken = lambda: unindex(stack.path / "sqlite" / "data.db")
    with pytest.raises(AssertionError, match=r"^sqlite: .*integrity_check .*missing from index place"):
        workloads.sqlite(clock, stack, transactions=5)


def test_notices_another_journal_mode_than_asked(tmp_path: Path) -> None:
    with (
        pytest.raises(AssertionError, match=r"^sqlite: .*journal.* delete .*none$"),
        _opened(tmp_path / "data.db", "none", "full"),
    ):
        pass


def test_is_skipped_by_a_python_without_sqlite(
    clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(pytest.skip.Exception, match="sqlite3: "):
        workloads.sqlite(clock, stack)


rocksdb = pytest.mark.skipif(commands.which("db_bench") is None, reason="needs db_bench: apt install rocksdb-tools")


RECORDED = """\
filluniquerandom :    1279.760 micros/op 781 ops/sec 0.105 seconds 50 operations;    0.1 MB/s
Count: 50 Average: 1724.6600  StdDev: 12044.48
Min: 3  Median: 3.0000  Max: 86036
Percentiles: P50: 3.00 P75: 3.42 P99: 81036.00 P99.9: 85036.00 P99.99: 86036.00
"""


@rocksdb
def test_rocksdb_writes_each_key_and_records_what_db_bench_prints(
    clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Reading millions of keys may take longer than other commands.
    monkeypatch.setattr(commands, "limit", 0.0)
    clock.altered = lambda output: RECORDED
    workloads.rocksdb(clock, stack, transactions=50)
    assert clock.blocks == [block()]
    assert stack.remounts == 1
    assert {name: value for name, (value, _, _) in clock.recorded.items()} == pytest.approx(
        {
            **{"latency_p50": 3e-6, "latency_p99": 0.081036, "latency_p999": 0.085036, "longest_stall": 0.086036},
            "transactions_per_second": 1e6 / 1279.76,
        }
    )
    assert clock.recorded["longest_stall"][1:] == ("s", "lower")
    assert clock.recorded["transactions_per_second"][1:] == ("1/s", "higher")


def cut(directory: Path) -> None:
    (log,) = directory.glob("*.log")
    os.truncate(log, log.stat().st_size // 2)


@rocksdb
@pytest.mark.parametrize(
    ("broken", "error", "message"),
    [
        (cut, AssertionError, r"^rocksdb: readseq \D*\d+ \D*50 keys$"),
        (lambda directory: (directory / "CURRENT").unlink(), commands.CommandError, "open error"),
    ],
    ids=["truncated log", "lost file"],
)
def test_rocksdb_notices(
    clock: NotedTimed, stack: NotedStack, broken: Callable[[Path], object], error: type[Exception], message: str
) -> None:
    stack.broken = lambda: broken(stack.path / "rocksdb")
    with pytest.raises(error, match=message):
        workloads.rocksdb(clock, stack, transactions=50)
