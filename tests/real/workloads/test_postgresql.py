"""PostgreSQL on a stack: what it measures and notices, and that nothing of its server stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine import commands, directories, needs
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.workloads import postgresql
from tests.real.conftest import built, lines_naming

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(needs.missing(postgresql.NEEDS)), reason="; ".join(needs.missing(postgresql.NEEDS))),
]

SIZE = 320 << 20


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory that other users can enter, as they can not that of pytest."""
    with directories.scratch(Path("/tmp")) as directory:
        directory.chmod(0o711)
        yield directory


@pytest.fixture
def context_directory(public: Path) -> Path:
    return public / "context"


def test_transactions_are_measured_and_nothing_stays(context: BuildContext) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        clock = Timed(stack)
        workloads.postgres(clock, stack, transactions=20)
        assert clock.sample is not None
        figures = clock.sample.values
        assert figures["transactions_per_second"] > 0
        assert 0 < figures["latency_p50"] <= figures["latency_p999"] <= figures["longest_stall"]
        # Each commit is synced, with at least one block of the log.
        assert figures["written_bytes"] >= 20 * 4096
        assert lines_naming(stack.path) == []
    # Programs of other users have such segments, too.
    assert not any({"dest", "nobody"} <= {*line.split()} for line in commands.run("ipcs", "-m").splitlines())


def spoil_page(data: Path) -> None:
    largest = max((data / "base").glob("*/*"), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(5 * 8192 + 4000)
        file.write(b"other")


def lose_history(data: Path) -> None:
    postgresql.query(data, "DELETE FROM pgbench_history WHERE ctid = '(0,3)'")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (spoil_page, "checksum verification failed in file"),
        (lose_history, r"postgres: .*\b19\b.*\b20\b"),
    ],
)
def test_damage_is_noticed(
    broken: Callable[[Path], object], message: str, context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    remount = Built.remount

    def remounted(stack: Built) -> None:
        remount(stack)
        broken(stack.path / "postgres")

    monkeypatch.setattr(Built, "remount", remounted)
    with (
        built("ext4", LoopDevice(SIZE), context) as stack,
        pytest.raises((AssertionError, commands.CommandError), match=message),
    ):
        workloads.postgres(Timed(stack), stack, transactions=20)


def test_a_server_that_dies_is_named_and_the_stack_is_taken_down(
    context: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Timed.run

    def dying(timed: Timed, *words: str, **options: object) -> object:
        (server,) = context.machine.daemons
        os.kill(server, 9)
        return run(timed, *words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Timed, "run", dying)
    with (
        built("ext4", LoopDevice(SIZE), context) as stack,
        pytest.raises(commands.CommandError, match=r"`.*\bpostgres\b.*` .*\bSIGKILL\b"),
    ):
        workloads.postgres(Timed(stack), stack, transactions=20)


def test_a_directory_that_others_cannot_enter_is_skipped(context: BuildContext) -> None:
    with built("ext4", LoopDevice(SIZE), context) as stack:
        stack.path.chmod(0o700)
        with pytest.raises(pytest.skip.Exception, match=rf"\bnobody\b.*{stack.path}\b"):
            workloads.postgres(Timed(stack), stack)


def test_the_server_of_a_session_that_is_killed_ends_with_it(tmp_path: Path, public: Path) -> None:
    test = "from pytest_fsstack import workloads\n\n\ndef test_it(fsstack, timed):\n"
    (tmp_path / "test_it.py").write_text(f"{test}    workloads.postgres(timed, fsstack, transactions=10**6)\n")
    pytest_words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    environment = {**os.environ, "TMPDIR": str(public)}
    options = ["--fsstack-stacks=ext4", "--fsstack-size=320M", "--fsstack-rounds=1"]
    session = subprocess.Popen([*pytest_words, *options], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    try:
        assert commands.wait_until(
            lambda: any("pgbench" in line and "--log" in line for line in lines_naming(public)), 60
        )
    finally:
        session.kill()
        session.wait()
    assert commands.wait_until(lambda: lines_naming(public) == [], 60)
    result = subprocess.run([*pytest_words, "--fsstack-cleanup"], cwd=tmp_path, env=environment, capture_output=True)
    assert result.returncode == 0, result.stdout
    assert list(public.rglob("fsstack-*")) == []
