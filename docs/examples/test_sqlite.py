"""What does a safe transaction cost? Each is on the disk before the next one begins (SQLite, synchronous=FULL).

pytest docs/examples/test_sqlite.py
"""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from pytest_fsstack import Built, Timed

TRANSACTIONS = 300


@pytest.mark.fsstack("ext4", "xfs", "btrfs", "luks | ext4", "ext4 | gocryptfs")
@pytest.mark.fsstack_budget("100%")
def test_transactions(fsstack: Built, timed: Timed) -> None:
    path = fsstack.path / "orders.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA synchronous = FULL; CREATE TABLE orders (number INTEGER, goods TEXT);")
    with timed(), contextlib.closing(sqlite3.connect(path)) as database:
        for number in range(TRANSACTIONS):
            with database:
                database.execute("INSERT INTO orders VALUES (?, ?)", (number, "x" * 200))
    fsstack.remount()
    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM orders").fetchone() == (TRANSACTIONS,)
