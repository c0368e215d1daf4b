"""A program that commits transactions to a database on the stack, or reads it after a power cut.

``python commit.py commit ENGINE DIRECTORY RECORDED < WORK`` marks the beginning of each transaction in the log of the
device. ``python commit.py read ENGINE DIRECTORY < WORK`` prints all rows as JSON. WORK is JSON too: the transactions,
each a list of keys and values (null removes a key), and the command of PostgreSQL.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

MARK = "user.mark"
Changes = Sequence[tuple[str, "str | None"]]


class Sqlite:
    """SQLite with a journal mode and a degree of syncing that its documentation of both pragmas calls durable.

    A checkpoint of the write-ahead log comes after every ten pages, so cuts hit checkpoints too.
    """

    def __init__(self, directory: str, journal: str, synchronous: str) -> None:
        import sqlite3

        self.database = sqlite3.connect(os.path.join(directory, "data.db"), isolation_level=None)
        for pragma in f"journal_mode = {journal}", f"synchronous = {synchronous}", "wal_autocheckpoint = 10":
            self.database.execute(f"PRAGMA {pragma}")
        self.database.execute("CREATE TABLE IF NOT EXISTS item (key TEXT PRIMARY KEY, value TEXT)")

    def commit(self, changes: Changes) -> None:
        self.database.execute("BEGIN IMMEDIATE")
        for key, value in changes:
            if value is None:
                self.database.execute("DELETE FROM item WHERE key = ?", (key,))
            else:
                self.database.execute("REPLACE INTO item VALUES (?, ?)", (key, value))
        self.database.execute("COMMIT")

    def read(self) -> dict[str, str]:
        problems = [text for (text,) in self.database.execute("PRAGMA integrity_check")]
        if problems != ["ok"]:
            raise ValueError(f"integrity_check reports {problems[0]}")
        return dict(self.database.execute("SELECT key, value FROM item"))

    def close(self) -> None:
        self.database.close()


class RocksDB:
    """RocksDB by its C interface. Each batch of writes is synced. Tables are small, so cuts hit their creation."""

    def __init__(self, directory: str) -> None:
        self.library = ctypes.CDLL(ctypes.util.find_library("rocksdb"))
        options = self.made("options_create")
        self.call("options_set_create_if_missing", options, ctypes.c_ubyte(1))
        self.call("options_set_write_buffer_size", options, ctypes.c_size_t(64 << 10))
        self.database = self.made("open", options, os.fsencode(os.path.join(directory, "data")), errors=True)
        self.synced = self.made("writeoptions_create")
        self.call("writeoptions_set_sync", self.synced, ctypes.c_ubyte(1))

    def made(self, name: str, *arguments: Any, errors: bool = False) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.call(name, *arguments, errors=errors))

    def call(self, name: str, *arguments: Any, errors: bool = False) -> Any:
        """Call a function that returns a pointer, a number or nothing. Raises `ValueError` with the library's error."""
        function = self.library[f"rocksdb_{name}"]
        function.restype = ctypes.c_void_p
        error = ctypes.c_char_p()
        result = function(*arguments, *([ctypes.byref(error)] if errors else []))
        if error.value:
            raise ValueError(error.value.decode(errors="replace"))
        return result

    def commit(self, changes: Changes) -> None:
        batch = self.made("writebatch_create")
        for key, value in changes:
            name = key.encode(), ctypes.c_size_t(len(key))
            if value is None:
                self.call("writebatch_delete", batch, *name)
            else:
                self.call("writebatch_put", batch, *name, value.encode(), ctypes.c_size_t(len(value)))
        self.call("write", self.database, self.synced, batch, errors=True)
        self.call("writebatch_destroy", batch)

    def read(self) -> dict[str, str]:
        iterator = self.made("create_iterator", self.database, self.made("readoptions_create"))
        length, rows = ctypes.c_size_t(), {}

        def text(part: str) -> str:
            start = self.call(f"iter_{part}", iterator, ctypes.byref(length))
            return ctypes.string_at(start, length.value).decode()

        self.call("iter_seek_to_first", iterator)
        while (self.call("iter_valid", iterator) or 0) & 0xFF:
            key = text("key")
            rows[key] = text("value")
            self.call("iter_next", iterator)
        self.call("iter_get_error", iterator, errors=True)
        self.call("iter_destroy", iterator)
        return rows

    def close(self) -> None:
        self.call("close", self.database)


class Postgres:
    """PostgreSQL in single-user mode, without a server. A checkpoint comes before each seventh transaction."""

    def __init__(self, words: Sequence[str]) -> None:
        self.count = 0
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, cwd="/", text=True)
        self.answer()

    def answer(self) -> str:
        """Read the output up to the next prompt. Raises `ValueError` if the output has an error."""
        assert self.process.stdout
        text = ""
        while not text.endswith("backend> "):
            character = self.process.stdout.read(1)
            if not character:
                raise ValueError(f"postgres has ended: {text.strip()}")
            text += character
        if error := re.search(r"^.*(?:ERROR|FATAL|PANIC):.*", text, re.M):
            raise ValueError(error[0])
        return text

    def ask(self, statement: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(f"{statement}\n")
        self.process.stdin.flush()
        return self.answer()

    def commit(self, changes: Changes) -> None:
        self.count += 1
        if self.count % 7 == 0:
            self.ask("CHECKPOINT")
        statements = []
        for key, value in changes:
            statements.append(f"DELETE FROM item WHERE key = '{key}'")
            if value is not None:
                statements.append(f"INSERT INTO item VALUES ('{key}', '{value}')")
        # PostgreSQL runs the statements of one line as one transaction.
        self.ask("; ".join(statements))

    def read(self) -> dict[str, str]:
        text = self.ask("SELECT key, value FROM item")
        return dict(re.findall(r'\t 1: key = "(\w+)".*\n\t 2: value = "(\w+)"', text))

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        if code := self.process.wait(timeout=60):
            raise ValueError(f"postgres ended with exit code {code}")


Engine = Sqlite | RocksDB | Postgres


@contextlib.contextmanager
def opened(name: str, directory: str, words: Sequence[str]) -> Iterator[Engine]:
    """Open a database. Create it if it does not exist."""
    engine: Engine
    if name.startswith("sqlite"):
        engine = Sqlite(directory, *(("wal", "full") if name == "sqlite-wal" else ("delete", "extra")))
    else:
        engine = RocksDB(directory) if name == "rocksdb" else Postgres(words)
    with contextlib.closing(engine):
        yield engine


def main(action: str, name: str, directory: str, recorded: str = "") -> None:
    """Perform the action of the command line with the work of stdin."""
    work = json.load(sys.stdin)
    with opened(name, directory, work["words"]) as engine:
        if action == "read":
            rows = engine.read()
        else:
            for index, changes in enumerate(work["transactions"]):
                os.setxattr(recorded, MARK, str(index).encode())
                engine.commit(changes)
            if recorded:
                os.setxattr(recorded, MARK, str(len(work["transactions"])).encode())
    if action == "read":
        print(json.dumps(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
