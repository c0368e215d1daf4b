"""Databases and power cuts: transactions drawn from a seed, and the rows that a database must have afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.needs import Need, Tool
from pytest_fsstack.truth.damage import commit
from pytest_fsstack.truth.damage.promises import Broken, Found, Kind, Unreadable
from pytest_fsstack.workloads import postgresql
from pytest_fsstack.workloads.database import Sqlite

#: The requirements of each database. The package of RocksDB's tools brings the library that `commit` loads.
NEEDS: Mapping[str, tuple[Need, ...]] = {
    "sqlite-wal": (Sqlite(),),
    "sqlite-delete": (Sqlite(),),
    "rocksdb": (Tool("db_bench", "rocksdb-tools"),),
    "postgres": postgresql.NEEDS,
}
_KEYS, _LONGEST = 40, 1500


def draw_transactions(seed: int, count: int) -> list[list[tuple[str, str | None]]]:
    """Draw transactions. Each sets or removes one to three keys."""
    draw = random.Random(f"transactions/{seed}")

    def value(key: int, number: int) -> str | None:
        if draw.random() < 0.2:
            return None
        return hashlib.shake_128(f"{seed}/{number}/{key}".encode()).hexdigest(draw.randint(1, _LONGEST // 2))

    return [
        [(f"key{key}", value(key, number)) for key in draw.sample(range(_KEYS), draw.randint(1, 3))]
        for number in range(count)
    ]


class Database:
    """A database in a directory on the stack, and the transactions that are committed to it."""

    def __init__(self, name: str, seed: int, count: int) -> None:
        self.name, self.steps = name, draw_transactions(seed, count)
        self._states: list[dict[str, bytes]] = [{}]
        for changes in self.steps:
            changed = {**self._states[-1], **{key: value.encode() for key, value in changes if value is not None}}
            removed = {key for key, value in changes if value is None}
            self._states.append({key: value for key, value in changed.items() if key not in removed})

    def make(self, directory: Path) -> None:
        """Create the database, without rows. Raises `CommandError`."""
        if self.name == "postgres":
            postgresql.make_cluster(directory / "data", "--wal-segsize=1")
            postgresql.query(directory / "data", "CREATE TABLE item (key text, value text)")
        else:
            code, output, error = self._run("commit", directory, transactions=[])
            if code:
                raise commands.CommandError(["commit.py", self.name], code, error or output)

    def words(self, directory: Path, recorded: Path) -> list[str]:
        """Return the command that commits the transactions."""
        return [sys.executable, "-I", "-S", commit.__file__, "commit", self.name, str(directory), str(recorded)]

    def stdin(self, directory: Path) -> str:
        """Return the input of that command."""
        return self._work(directory, self.steps)

    def found(self, directory: Path) -> Found:
        """Open the database after a power cut and return its rows. If it cannot be read, return the reason instead."""
        try:
            code, output, error = self._run("read", directory, transactions=[])
            if self.name == "postgres" and not code:
                commands.run(*postgresql.words("pg_checksums", "--check", "-D", directory / "data"), cwd=Path("/"))
        except commands.CommandError as failure:
            return {self.name: Unreadable(str(failure))}
        if code:
            return {self.name: Unreadable((error.strip() or f"exit code {code}").splitlines()[-1])}
        return {key: value.encode() for key, value in json.loads(output.splitlines()[-1]).items()}

    def broken(self, found: Found, count: int) -> Iterator[Broken]:
        """Yield the broken promises of a database with `count` committed transactions and one that was begun."""
        for content in found.values():
            if isinstance(content, Unreadable):
                yield Broken(Kind.UNREADABLE, f"{self.name} cannot be read: {content.why}", self.name)
                yield Broken(Kind.LOST, f"{self.name}: all {count} transactions are lost", self.name)
                return
        if found in self._states[count : count + 2]:
            return
        earlier = [number for number, state in enumerate(self._states[:count]) if state == found]
        if earlier:
            text = f"{self.name} is as after transaction {earlier[-1]}, and {count} were committed"
            yield Broken(Kind.LOST, text, self.name)
        else:
            text = f"{self.name} is as after no transaction, and {count} were committed"
            yield Broken(Kind.INVENTED, text, self.name)

    def shown(self, begun: int) -> str:
        """Return when a cut was, by the transaction that had begun."""
        return f"during transaction {begun} of {len(self.steps)} of {self.name}"

    def _run(self, action: str, directory: Path, transactions: list[Any]) -> tuple[int, str, str]:
        with open(os.memfd_create("work"), "w+b") as file:
            file.write(self._work(directory, transactions).encode())
            file.seek(0)
            words = [sys.executable, "-I", "-S", commit.__file__, action, self.name, str(directory)]
            return commands.ended(*words, stdin=file.fileno(), timeout=300.0)

    def _work(self, directory: Path, transactions: list[Any]) -> str:
        data = directory / "data"
        single = postgresql.words("postgres", "--single", "-D", data, "postgres") if self.name == "postgres" else []
        return json.dumps({"words": single, "transactions": transactions})
