"""Databases: how much do commits cost on a stack, and how long do the slowest take?

SQLite with each journal mode, RocksDB and PostgreSQL commit the same transactions, with each degree of syncing, to a
new database. Afterwards each database is checked and read from the device. The known answer: commits without syncs
(`off`) cost nearly nothing, but a power cut loses them.

    fsstack run databases
    fsstack run databases -k sqlite --fsstack-stacks=xfs --fsstack-stacks='luks | xfs' --fsstack-device=/dev/sdb1
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Sizes, Timed, workloads

MiB = 1 << 20


@dataclass(frozen=True)
class Commits(Sizes):
    """The number of transactions of each step."""

    transactions: int


@pytest.mark.fsstack(
    "ext4",
    "ext4-journal = ext4(mount='data=journal')",
    "xfs",
    "btrfs",
    "f2fs",
    "luks = luks | ext4",
    "fscrypt = ext4 | fscrypt",
    "gocryptfs = ext4 | gocryptfs(mount='-allow_other')",
    baseline="ext4",
)
@pytest.mark.fsstack_sizes(
    smoke=Commits(space=512 * MiB, transactions=20),
    small=Commits(space=1024 * MiB, transactions=1_000),
    paper=Commits(space=4096 * MiB, transactions=100_000),
)
@pytest.mark.fsstack_table(
    "matrix",
    metrics={
        "transactions per second": "transactions_per_second",
        "median": "latency_p50",
        "99 %": "latency_p99",
        "99.9 %": "latency_p999",
        "longest stall": "longest_stall",
    },
)
class TestDatabases:
    @pytest.mark.parametrize("synchronous", ["off", "normal", "full"])
    @pytest.mark.parametrize("journal", ["delete", "wal"])
    @pytest.mark.benchmark(group="SQLite")
    def test_sqlite(
        self,
        fsstack: Built,
        timed: Timed,
        sizes: Commits,
        journal: workloads.Journal,
        synchronous: workloads.Synchronous,
    ) -> None:
        into = f"sqlite-{journal}-{synchronous}"
        count = sizes.transactions
        workloads.sqlite(timed, fsstack, transactions=count, journal=journal, synchronous=synchronous, into=into)

    @pytest.mark.parametrize("synchronous", ["off", "on"])
    @pytest.mark.benchmark(group="RocksDB")
    def test_rocksdb(self, fsstack: Built, timed: Timed, sizes: Commits, synchronous: str) -> None:
        sync, into = synchronous == "on", f"rocksdb-{synchronous}"
        workloads.rocksdb(timed, fsstack, transactions=sizes.transactions, sync=sync, into=into)

    @pytest.mark.parametrize("synchronous", ["off", "on"])
    @pytest.mark.benchmark(group="PostgreSQL")
    def test_postgres(
        self, fsstack: Built, timed: Timed, sizes: Commits, synchronous: workloads.SynchronousCommit
    ) -> None:
        count, into = sizes.transactions, f"postgres-{synchronous}"
        workloads.postgres(timed, fsstack, transactions=count, synchronous=synchronous, into=into)
