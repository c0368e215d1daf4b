"""Databases before a power cut: what was committed must be there, whole, and nothing else."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from pytest_fsstack.machine import needs
from pytest_fsstack.truth.damage import commit
from pytest_fsstack.truth.damage.databases import NEEDS, Database, draw_transactions
from pytest_fsstack.truth.damage.promises import Found, Kind, Unreadable

SEED, COUNT = 1, 20


def states() -> list[dict[str, bytes]]:
    """The rows before the first transaction, and after each."""
    rows: dict[str, bytes] = {}
    after = [dict(rows)]
    for changes in draw_transactions(SEED, COUNT):
        for key, value in changes:
            rows.pop(key, None)
            if value is not None:
                rows[key] = value.encode()
        after.append(dict(rows))
    return after


def kinds(found: Found, count: int) -> set[Kind]:
    return {broken.kind for broken in Database("sqlite-wal", SEED, COUNT).broken(found, count)}


def test_what_was_committed_must_be_there_and_what_had_begun_may_be() -> None:
    after = states()
    assert after[9] != after[10] != after[11] != after[12]
    assert kinds(after[10], 10) == kinds(after[11], 10) == set()
    assert kinds(after[9], 10) == {Kind.LOST}
    assert kinds({}, 10) == {Kind.LOST}
    assert kinds(after[12], 10) == {Kind.INVENTED}
    assert kinds(after[COUNT], COUNT) == set()
    assert kinds(after[COUNT - 1], COUNT) == {Kind.LOST}
    assert kinds({"sqlite-wal": Unreadable("malformed")}, 10) == {Kind.LOST, Kind.UNREADABLE}


def test_half_a_transaction_is_a_state_that_never_was() -> None:
    after, (changes, *_) = states(), [changes for changes in draw_transactions(SEED, COUNT) if len(changes) > 1]
    number = draw_transactions(SEED, COUNT).index(changes)
    key, value = next((key, value) for key, value in changes if value)
    assert kinds({**after[number], key: value.encode()}, number) == {Kind.INVENTED}
    assert kinds({**after[number], "other": b"1"}, number) == {Kind.INVENTED}


def test_transactions_follow_from_the_seed() -> None:
    assert draw_transactions(1, 50) == draw_transactions(1, 50) != draw_transactions(2, 50)


@pytest.mark.parametrize("name", ["sqlite-wal", "sqlite-delete", "rocksdb"])
def test_what_was_committed_is_read(name: str, tmp_path: Path) -> None:
    if reasons := needs.missing(NEEDS[name]):
        pytest.skip("; ".join(reasons))
    database = Database(name, SEED, COUNT)
    database.make(tmp_path)
    assert database.found(tmp_path) == {}
    with commit.opened(name, str(tmp_path), []) as opened:
        for changes in database.steps:
            opened.commit(changes)
    assert database.found(tmp_path) == states()[-1]
    file = max(tmp_path.rglob("*.sst" if name == "rocksdb" else "data.db"))
    os.truncate(file, file.stat().st_size * 2 // 3)
    assert kinds(database.found(tmp_path), COUNT)


def test_each_degree_of_syncing_is_one_that_promises_durability(tmp_path: Path) -> None:
    for name, journal, synchronous in (("sqlite-wal", "wal", 2), ("sqlite-delete", "delete", 3)):
        directory = tmp_path / name
        directory.mkdir()
        with commit.opened(name, str(directory), []) as opened:
            assert isinstance(opened, commit.Sqlite)
            assert opened.database.execute("PRAGMA journal_mode").fetchone() == (journal,)
            assert opened.database.execute("PRAGMA synchronous").fetchone() == (synchronous,)


def test_a_damaged_index_is_noticed(tmp_path: Path) -> None:
    database = Database("sqlite-delete", SEED, COUNT)
    database.make(tmp_path)
    with commit.opened(database.name, str(tmp_path), []) as opened:
        opened.commit(database.steps[0])
    with contextlib.closing(sqlite3.connect(tmp_path / "data.db", isolation_level=None)) as raw:
        raw.execute("PRAGMA writable_schema = ON")
        sql = "CREATE TABLE item (value TEXT, key TEXT PRIMARY KEY)"
        raw.execute("UPDATE sqlite_schema SET sql = ? WHERE name = 'item'", (sql,))
    (content,) = database.found(tmp_path).values()
    assert isinstance(content, Unreadable)
    assert "integrity_check" in content.why
