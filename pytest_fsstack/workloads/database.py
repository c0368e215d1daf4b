"""Sequential transactions of SQLite and RocksDB: their rate and latencies."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import Missing, MissingRequirement, Tool
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.latency import Latencies

if TYPE_CHECKING:
    import sqlite3

    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

Journal = Literal["delete", "truncate", "persist", "wal"]
Synchronous = Literal["off", "normal", "full", "extra"]
Rows = list[tuple[int, bytes]]

#: Rows of the new table, and bytes per row.
_ROWS, _BYTES = 1000, 500


class Sqlite:
    """A requirement: Python's own SQLite, which some builds of Python lack."""

    def missing(self) -> MissingRequirement | None:
        if importlib.util.find_spec("_sqlite3"):
            return None
        return MissingRequirement(Missing.OTHER, "needs sqlite3", "install the module sqlite3 of this Python")


@workload(Sqlite())
def sqlite(
    timed: Timed,
    fsstack: Built,
    *,
    transactions: int = 1000,
    journal: Journal = "delete",
    synchronous: Synchronous = "full",
    seed: int = 1,
    into: str = "sqlite",
    cold: bool = True,
) -> None:
    """Commit transactions to a new SQLite database in the new directory `into`.

    Each replaces two of 1000 rows of 500 bytes, chosen by the `seed`, and adds one. `journal` and `synchronous` are
    pragmas of SQLite. Recorded: ``transactions_per_second``, and the latencies of `Latencies.record`. Checked
    afterwards, from the device: ``PRAGMA integrity_check``, and the contents of all rows. Raises `FileExistsError` if
    `into` exists, and `ValueError` without a transaction.
    """
    if transactions <= 0:
        raise ValueError(f"sqlite: transactions must be above 0 (got {transactions})")
    file = fsstack.path / into / "data.db"
    file.parent.mkdir()
    rows = {row: bytes(_BYTES) for row in range(_ROWS)}
    with _opened(file, journal, synchronous) as database:
        database.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, content BLOB)")
        _commit(database, list(rows.items()))
    drawn = _drawn(seed, transactions)
    with timed(cold=cold), _opened(file, journal, synchronous) as database:
        latencies = Latencies()
        latencies.each(lambda changes: _commit(database, changes), drawn)
    latencies.record(timed)
    rate = transactions / latencies.curve()[-1][0]
    timed.record("transactions_per_second", rate, unit="1/s", better="higher")
    for changes in drawn:
        rows.update(changes)
    timed.reread()
    with _opened(file, journal, synchronous) as database:
        _verify(database, rows)


def _drawn(seed: int, transactions: int) -> list[Rows]:
    """Choose the rows that each transaction writes. Many rows share few contents, to save memory."""
    draw = random.Random(seed)
    contents = [draw.randbytes(_BYTES) for _ in range(_ROWS)]
    places = ([*draw.sample(range(_ROWS), 2), _ROWS + number] for number in range(transactions))
    return [[(row, draw.choice(contents)) for row in rows] for rows in places]


def _commit(database: sqlite3.Connection, rows: Rows) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.executemany("REPLACE INTO item VALUES (?, ?)", rows)
    database.execute("COMMIT")


@contextlib.contextmanager
def _opened(file: Path, journal: str, synchronous: str) -> Iterator[sqlite3.Connection]:
    """Open a database. Convert its errors to `AssertionError`, because the stack did not do the work."""
    import sqlite3

    try:
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
            (mode,) = database.execute(f"PRAGMA journal_mode = {journal}").fetchone()
            if mode != journal:
                raise AssertionError(f"sqlite: the journal mode is {mode} instead of {journal}")
            database.execute(f"PRAGMA synchronous = {synchronous}")
            yield database
    except sqlite3.Error as error:
        raise AssertionError(f"sqlite: {file.parent.name}/{file.name}: {error}") from error


def _verify(database: sqlite3.Connection, expected: dict[int, bytes]) -> None:
    problems = [text for (text,) in database.execute("PRAGMA integrity_check")]
    if problems != ["ok"]:
        raise AssertionError(f"sqlite: read again, integrity_check reports {'; '.join(problems[:3])}")
    rows = dict(database.execute("SELECT id, content FROM item"))
    wrong = sorted(row for row in rows.keys() | expected.keys() if rows.get(row) != expected.get(row))
    if wrong:
        raise AssertionError(
            f"sqlite: read again, {len(wrong):,} of {len(expected):,} rows are missing or differ from what "
            f"was committed: {wrong[0]}"
        )


#: The result lines of db_bench: ``readseq : 1.184 micros/op 838222 ops/sec 0.002 seconds 2000 operations``.
_DONE = re.compile(r"^(\w+) +: +([\d.]+) micros/op .* (\d+) operations", re.M)
_PERCENTILES = {"latency_p50": "P50", "latency_p99": "P99", "latency_p999": "P99.9"}


@workload(Tool("db_bench", "rocksdb-tools"))
def rocksdb(
    timed: Timed,
    fsstack: Built,
    *,
    transactions: int = 1000,
    size: int = 1000,
    sync: bool = True,
    seed: int = 1,
    into: str = "rocksdb",
    cold: bool = True,
) -> None:
    """Write `transactions` keys of `size` bytes to a new RocksDB by ``db_bench``, in the new directory `into`.

    Each is written once, in an order from the `seed`. With `sync`, each is synced before the next one. Recorded:
    ``transactions_per_second``, ``longest_stall``, and ``latency_p50``, ``latency_p99`` and ``latency_p999``, which
    db_bench estimates from a histogram. Checked afterwards, from the device: all keys, and the checksums of all files.
    Raises `FileExistsError` if `into` exists, and `ValueError` if there is nothing to write.
    """
    if transactions <= 0 or size <= 0:
        raise ValueError(f"rocksdb: transactions and size must be above 0 (got {transactions} and {size})")
    directory = fsstack.path / into
    directory.mkdir()
    words = ["db_bench", f"--db={directory}", f"--num={transactions}", f"--value_size={size}", f"--seed={seed}"]
    with timed(cold=cold):
        result = timed.run(
            *words, "--benchmarks=filluniquerandom", f"--sync={sync}", "--histogram=true", env=commands.ENGLISH
        )
    microseconds = _counted(result.stdout, "filluniquerandom", transactions)
    timed.record("transactions_per_second", 1e6 / microseconds, unit="1/s", better="higher")
    figures = dict(re.findall(r"\b(Max|P[\d.]+): ([\d.]+)", result.stdout))
    for name, label in {**_PERCENTILES, "longest_stall": "Max"}.items():
        timed.record(name, float(figures[label]) / 1e6, unit="s", resolution=1e-6)
    timed.reread()
    # One more than the number of keys, to detect surplus ones.
    reading = ["--benchmarks=readseq,verifychecksum", "--use_existing_db=true", f"--reads={transactions + 1}"]
    _counted(commands.run(*words, *reading, timeout=commands.DAY), "readseq", transactions)


def _counted(output: str, benchmark: str, expected: int) -> float:
    """Return the microseconds per operation. Raises `AssertionError` if a benchmark of db_bench did not do all."""
    figures = {name: (int(count), float(microseconds)) for name, microseconds, count in _DONE.findall(output)}
    count, microseconds = figures.get(benchmark, (0, 0.0))
    if count != expected:
        raise AssertionError(f"rocksdb: {benchmark} did {count:,} of {expected:,} keys")
    return microseconds
