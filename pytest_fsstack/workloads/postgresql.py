"""PostgreSQL transactions: a server on the stack that runs as nobody, with pgbench as the client."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_fsstack.machine import commands, orphans
from pytest_fsstack.machine.needs import CAP_SETUID, Missing, MissingRequirement, Root, Tool, require
from pytest_fsstack.workloads.base import workload
from pytest_fsstack.workloads.latency import record_durations

if TYPE_CHECKING:
    from pytest_fsstack.measuring.timed import Timed
    from pytest_fsstack.stack.build import Built

SynchronousCommit = Literal["off", "on"]

#: PostgreSQL refuses to run as root.
USER = "nobody"
#: The name of the database's own user.
_ROLE = "fsstack"


@dataclass(frozen=True)
class PostgresTool(Tool):
    """A program of PostgreSQL, which Debian installs in a directory per version outside of PATH."""

    @property
    def path(self) -> str | None:
        """Return the program of the newest version, or the one in PATH."""
        versions = Path("/usr/lib/postgresql").glob(f"*/bin/{self.command}")
        newest = sorted(versions, key=lambda path: [int(number) for number in path.parts[-3].split(".")])
        return os.fspath(newest[-1]) if newest else commands.which(self.command)

    def missing(self) -> MissingRequirement | None:
        return None if self.path else self._how_to_get()


POSTGRES = PostgresTool("postgres", "postgresql", {"dnf": "postgresql-server", "zypper": "postgresql-server"})
PGBENCH = PostgresTool("pgbench", "postgresql", {"dnf": "postgresql-contrib", "zypper": "postgresql-contrib"})
NEEDS = (Root("acting as another user", CAP_SETUID), POSTGRES, PGBENCH, Tool("setpriv", "util-linux"))


@dataclass(frozen=True)
class Reachable:
    """A requirement: the user nobody can enter a directory."""

    directory: Path

    def missing(self) -> MissingRequirement | None:
        code, _, _ = commands.ended(*_as_nobody("test", "-x", self.directory))
        if code == 0:
            return None
        remedy = (
            "allow others to enter the directories above it, and FUSE layers by allow_other, as in mount='-allow_other'"
        )
        return MissingRequirement(Missing.OTHER, f"the user {USER} cannot enter {self.directory}", remedy)


def _as_nobody(*argv: str | os.PathLike[str]) -> list[str]:
    """Return the command that runs another one as the user nobody.

    Its shared memory is in a namespace of its own, so nothing remains if it is killed. It dies with its parent. setpriv
    sets that, because the kernel resets the parent-death signal when the user changes.
    """
    user = pwd.getpwnam(USER)
    change = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--no-new-privs"]
    return ["unshare", "--ipc", "setpriv", *change, "--pdeathsig=KILL", *(os.fspath(word) for word in argv)]


def words(program: str, *arguments: str | os.PathLike[str]) -> list[str]:
    """Return the command that runs a program of PostgreSQL as nobody."""
    return _as_nobody(Path(POSTGRES.path or POSTGRES.command).with_name(program), *arguments)


def make_cluster(directory: Path, *options: str) -> None:
    """Create a database cluster in a new directory, owned by nobody. Raises `CommandError`.

    Skips the running test if nobody cannot enter the parent directory.
    """
    require(Reachable(directory.parent))
    user = pwd.getpwnam(USER)
    directory.mkdir(mode=0o700)
    os.chown(directory, user.pw_uid, user.pw_gid)
    how = ["--auth=trust", f"--username={_ROLE}", "--no-locale", "--encoding=UTF8", "--data-checksums", "--no-sync"]
    commands.run(*words("initdb", "-D", directory, *how, *options), cwd=Path("/"))


@workload(*NEEDS)
def postgres(
    timed: Timed,
    fsstack: Built,
    *,
    transactions: int = 1000,
    synchronous: SynchronousCommit = "on",
    seed: int = 1,
    into: str = "postgres",
) -> None:
    """Commit transactions of ``pgbench`` to a new PostgreSQL server, with its data in the new directory `into`.

    One client runs TPC-B transactions, chosen by the `seed`. `synchronous` is PostgreSQL's ``synchronous_commit``. The
    server runs as nobody for this test only, with a private socket. It starts before the block, so the block is not
    cold. Recorded: ``transactions_per_second``, and the latencies of `Latencies.record`. Afterwards, the server is
    stopped and the stack remounted. ``pg_checksums`` reads all pages, and all balances must match the history. Raises
    `FileExistsError` if `into` exists, and `ValueError` without a transaction.
    """
    if transactions <= 0:
        raise ValueError(f"postgres: transactions must be above 0 (got {transactions})")
    data = fsstack.path / into
    make_cluster(data)
    with fsstack.scratch() as own:
        user = pwd.getpwnam(USER)
        # Nobody else can reach the socket, so the server trusts its clients.
        os.chown(own, user.pw_uid, user.pw_gid)
        client = ["-h", os.fspath(own), "-U", _ROLE]
        with _serving(fsstack, data, own, f"synchronous_commit={synchronous}"):
            commands.run(*words("pgbench", *client, "--initialize", "--quiet", "postgres"), cwd=own)
            commands.run(*words("psql", *client, "-c", "CHECKPOINT", "postgres"), cwd=own)
            work = ["--no-vacuum", f"--transactions={transactions}", f"--random-seed={seed}"]
            with timed(cold=False):
                result = timed.run(
                    *words("pgbench", *client, *work, "--log", f"--log-prefix={own}/log", "postgres"),
                    cwd=own,
                    env=commands.ENGLISH,
                )
        _record(timed, result.stdout, own, transactions)
    timed.reread()
    commands.run(*words("pg_checksums", "--check", "-D", data), cwd=Path("/"))
    _verify(data, transactions)


@contextlib.contextmanager
def _serving(fsstack: Built, data: Path, own: Path, *settings: str) -> Iterator[None]:
    """Run the server with its socket in the directory `own`, and clean up everything afterwards. Raises `CommandError`.

    Its shared memory disappears with its namespace.
    """
    settings = ("listen_addresses=", "dynamic_shared_memory_type=sysv", "autovacuum=off", *settings)
    options = [word for setting in settings for word in ("-c", setting)]
    mark = os.urandom(16).hex()
    server = fsstack.machine.start(*words("postgres", "-D", data, "-k", own, *options), env={orphans.COMMAND: mark})
    try:
        lock = data / "postmaster.pid"

        def ready() -> bool:
            return not server.alive or (lock.exists() and lock.read_text().rstrip().endswith("ready"))

        if not fsstack.machine.wait_until(ready, fsstack.machine.limit) or not server.alive:
            raise server.error("before it was ready")
        try:
            yield
        except commands.CommandError as error:
            if not server.alive:
                raise server.error("during the transactions") from error
            raise
        commands.run(*words("pg_ctl", "stop", "-D", data, "--mode=fast", "--timeout=600"), cwd=own)
    finally:
        server.kill()
        # Its child processes leave the process group, and end when they notice that the server is gone.
        orphans.end_marked(f"{orphans.COMMAND}={mark}", [signal.SIGKILL])


def _record(timed: Timed, output: str, directory: Path, transactions: int) -> None:
    """Record the result of pgbench, and the latencies in its log (``client transaction microseconds ...``)."""
    done = re.search(rf"actually processed: {transactions}/{transactions}$", output, re.M)
    rate = re.search(r"^tps = ([\d.]+) \(without", output, re.M)
    lines = [line.split() for file in directory.glob("log.*") for line in file.read_text().splitlines()]
    if not done or not rate or len(lines) != transactions:
        raise AssertionError(f"postgres: pgbench did not do {transactions} transactions: {output.strip()}")
    timed.record("transactions_per_second", float(rate[1]), unit="1/s", better="higher")
    record_durations(timed, (int(line[2]) * 1000 for line in lines))


def _verify(data: Path, transactions: int) -> None:
    sums = [
        "SELECT count(*) FROM pgbench_history",
        "SELECT sum(delta) FROM pgbench_history",
        *(f"SELECT sum({table[0]}balance) FROM pgbench_{table}" for table in ("accounts", "tellers", "branches")),
    ]
    columns = ", ".join(f"coalesce(({query}), 0)" for query in sums)
    count, history, *balances = query(data, f"SELECT {columns}")
    if int(count) != transactions or any(balance != history for balance in balances):
        raise AssertionError(
            f"postgres: read again, {count} of {transactions} transactions are there, whose sum is {history}, and the "
            f"sums of the accounts, tellers and branches are {', '.join(balances)}"
        )


def query(data: Path, statement: str) -> list[str]:
    """Return all values of an SQL query, from a server that runs only for it. Raises `CommandError`."""
    with open(os.memfd_create("statement"), "w+b") as file:
        file.write(f"{statement}\n".encode())
        file.seek(0)
        output = commands.run(
            *words("postgres", "--single", "-D", data, "postgres"), stdin=file.fileno(), cwd=Path("/")
        )
    return re.findall(r'^\t \d+: \S+ = "(.*)"\t\(typeid', output, re.M)
