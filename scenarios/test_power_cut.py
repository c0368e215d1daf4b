"""Power cuts: does a stack keep all synced data, and invent none?

A process writes, renames, removes and syncs files on the stack, in a random order: by fsync, fdatasync, sync, syncfs,
O_SYNC, O_DSYNC, msync, and fsync of the directory. Below the stack, the layer `recorded` logs each write that reaches
the device, and each flush. From the log, the device is rebuilt as a power cut at some moment leaves it. Flushed writes
are complete. Of the others, or of the last 32, some are lost, and some are torn at 512 or 4096 bytes. Then the stack is
mounted, which recovers journals, every file is read, and the filesystem's own checker runs. A third of the cuts hit the
recovery from another cut.

`test_power_cut` syncs files one by one. `test_sync_of_all` also syncs all at once, and its cuts follow that. Half of
the other cuts come directly after a sync.

POSIX and the practice of Linux promise this (the exact rules are in pytest_fsstack/truth/damage/promises.py):

- A file has the bytes and the size of its last fsync, or those that were written since.
- A name leads to the file of the last fsync of its directory, or of a later change.
- A renamed file has its old name or its new one.

Databases commit transactions in the same way: SQLite with `journal_mode = wal` and `synchronous = full`, and with
`delete` and `extra`, RocksDB with `sync`, and PostgreSQL. Their documentation calls these settings durable. After a cut
the database must open, pass its own check, and have each committed transaction. The transaction that was being
committed must be there as a whole or not at all.

The test fails if a cut is not survived, unless a layer declares `Limit.POWER_CUTS`. Known faults are expected failures.
Two controls must lose data: ext4 without barriers, and ext4 under a program whose fsync does nothing (eatmydata).

    pytest scenarios/test_power_cut.py --fsstack-rounds=3        each round has other operations and other cuts
    pytest scenarios/test_power_cut.py -k sqlite
    pytest scenarios/test_power_cut.py -k luks --fsstack-kernel=KERNEL      in a VM with dm-crypt
    pytest scenarios/test_power_cut.py --fsstack-stacks='xfs | gocryptfs(aessiv=True)'
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Finding, Limit, Sizes, Timed
from pytest_fsstack.truth.correctness import verdict
from pytest_fsstack.truth.damage.power import Damage, power_cuts

MiB = 1 << 20


@dataclass(frozen=True)
class Cuts(Sizes):
    """The numbers of operations and power cuts in each round."""

    operations: int
    cuts: int


#: The controls. They must lose data, which shows that the scenario notices losses.
MUST_LOSE = ("ext4-nobarrier", "ext4-eatmydata")
WITHOUT_FSYNC = ("ext4-eatmydata",)
#: Stacks on which the journal below keeps data that a layer would lose.
SAVED_BELOW = ("gocryptfs-journal",)
#: The number of cuts after which a known fault must have caused a failure.
ENOUGH = 25


SIZES = pytest.mark.fsstack_sizes(
    smoke=Cuts(space=320 * MiB, operations=60, cuts=4),
    small=Cuts(space=512 * MiB, operations=200, cuts=25),
    paper=Cuts(space=512 * MiB, operations=1000, cuts=200),
)
TABLE = pytest.mark.fsstack_table(
    "counts",
    columns={
        "power cuts": "cuts",
        "mounts": "mounted of cuts",
        "fsck clean": "clean of checked",
        "has all that was synced": "synced_there of cuts",
        "has only what was written": "nothing_invented of mounted",
        "can be read": "all_readable of mounted",
        "survived": "survived of cuts",
    },
)


STACKS = pytest.mark.fsstack(
    "ext4",
    "ext4-journal = ext4(mount='data=journal')",
    "ext4-writeback = ext4(mount='data=writeback')",
    "ext4-nobarrier = ext4(mount='nobarrier')",
    "ext4-eatmydata = ext4",
    "ext2",
    "xfs",
    "btrfs",
    "zfs",
    "zfs-encrypted = zfs(encryption='aes-256-gcm')",
    "bcachefs",
    "bcachefs-encrypted = bcachefs(encrypted=True)",
    "luks | ext4",
    "fscrypt = ext4 | fscrypt",
    "overlay = ext4 | overlay",
    "squashfs = ext4 | squashfs | overlay",
    "erofs = ext4 | erofs | overlay",
    "gocryptfs = ext4 | gocryptfs",
    "gocryptfs-journal = ext4(mount='data=journal') | gocryptfs",
    "encfs = ext4 | encfs",
    "cryfs = ext4 | cryfs",
    "securefs = ext4 | securefs",
    "sshfs = ext4 | sshfs",
    "nfs = ext4 | nfs",
    "samba = ext4 | samba",
    baseline="ext4",
    on="recorded(sector=512)",
    keep=MUST_LOSE,
)
REMARK = pytest.mark.fsstack_remark(
    "ext4-nobarrier and ext4-eatmydata are controls, which must lose something; ext2 promises nothing before it is "
    "repaired; with data=writeback, ext4 may show old data in files that were not synced"
)


@STACKS
@SIZES
@pytest.mark.fsstack_rounds(1)
@TABLE
@REMARK
@pytest.mark.benchmark(group="power cut")
def test_power_cut(
    request: pytest.FixtureRequest, fsstack: Built, timed: Timed, sizes: Cuts, fsstack_seed: int
) -> None:
    """Sync files and directories one by one."""
    conclude(request, timed, fsstack, sizes, fsstack_seed)


@STACKS
@SIZES
@pytest.mark.fsstack_rounds(1)
@TABLE
@REMARK
@pytest.mark.benchmark(group="sync of all")
def test_sync_of_all(
    request: pytest.FixtureRequest, fsstack: Built, timed: Timed, sizes: Cuts, fsstack_seed: int
) -> None:
    """Sync all files at once, by sync and syncfs."""
    conclude(request, timed, fsstack, sizes, fsstack_seed, of_all=True)


@pytest.mark.fsstack(
    "ext4",
    "ext4-nobarrier = ext4(mount='nobarrier')",
    "ext4-eatmydata = ext4",
    "xfs",
    "btrfs",
    "luks | ext4",
    "fscrypt = ext4 | fscrypt",
    "overlay = ext4 | overlay",
    "gocryptfs = ext4 | gocryptfs(mount='-allow_other')",
    baseline="ext4",
    on="recorded(sector=512)",
    keep=MUST_LOSE,
)
@SIZES
@pytest.mark.fsstack_rounds(1)
@TABLE
@pytest.mark.benchmark(group="databases")
@pytest.mark.parametrize("database", ["sqlite-wal", "sqlite-delete", "rocksdb", "postgres"])
def test_database(
    request: pytest.FixtureRequest, fsstack: Built, timed: Timed, sizes: Cuts, fsstack_seed: int, database: str
) -> None:
    conclude(request, timed, fsstack, sizes, fsstack_seed, database=database)


def conclude(
    request: pytest.FixtureRequest,
    timed: Timed,
    fsstack: Built,
    sizes: Cuts,
    seed: int,
    *,
    of_all: bool = False,
    database: str = "",
) -> None:
    """Cut the power, and give the verdict. Half of the cuts are enough for syncs of all files."""
    name, parts = fsstack.stack.id, 2 if of_all else 1
    damage = power_cuts(
        timed,
        fsstack,
        seed=seed,
        operations=sizes.operations // parts,
        cuts=sizes.cuts // parts,
        without_fsync=name in WITHOUT_FSYNC,
        of_all=of_all,
        database=database,
    )
    findings = broken(fsstack, damage)
    verdict.conclude(
        request.node,
        timed,
        fsstack,
        findings,
        summary=f"{damage.cuts - damage.survived} of {damage.cuts} power cuts were not survived",
        enough=sizes.cuts >= ENOUGH,
        # The faults of other tests need not show in these.
        of_others=not of_all and not database,
        expected=name not in SAVED_BELOW,
    )


def broken(fsstack: Built, damage: Damage) -> list[Finding]:
    """Return the broken promises, the first of each kind. A control that loses nothing is broken too."""
    lost = damage.cuts - damage.survived
    if fsstack.stack.id in MUST_LOSE:
        text = f"it is a control, and has survived all {damage.cuts} power cuts"
        return [] if lost else [Finding("control", text)]
    return [] if Limit.POWER_CUTS in fsstack.stack.limits else damage.findings
