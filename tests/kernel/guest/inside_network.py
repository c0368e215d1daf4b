"""Network filesystems with their servers, inside the guest on its /dev/vda.

`tests/kernel/test_layers_in_guest.py` starts it, with the plugin and `--fsstack-device=/dev/vda`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.session.cleanup import kinds
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext, Directory
from tests.kernel.guest.common import ended, forked, processes

SIZE = 1 << 20


def networks() -> dict[str, Path]:
    """A process of each network namespace other than the guest's own."""
    processes = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # processes end while one looks
            processes[os.readlink(process / "ns/net")] = process
    processes.pop(os.readlink("/proc/self/ns/net"))
    return processes


def server() -> Path:
    (process,) = networks().values()
    return process


def left() -> list[str]:
    """The namespaces, mounts and threads of servers that are there."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = [line for line in lines if " - nfs4 " in line or " - cifs " in line]
    return [*networks(), *mounts, *map(str, processes("nfsd", "nfsdcld", "smbd"))]


@pytest.fixture(autouse=True, scope="class")
def nothing_stays_behind() -> Iterator[None]:
    """Around the stack of each test: it is torn down when this goes on."""
    assert not left()
    yield
    assert commands.wait_until(lambda: not left(), 60), left()


@pytest.mark.fsstack(
    "ext4 | nfs",
    "xfs | nfs(version='4.1', mount='nconnect=2')",
    "btrfs | nfs",
    "ext4 | samba",
    "xfs | samba(version='3.0', mount='seal')",
)
def test_what_is_written_is_read_back_and_is_in_the_directory_below(fsstack: Built) -> None:
    data = os.urandom(SIZE)
    (fsstack.path / "file").write_bytes(data)
    fsstack.remount()
    assert (fsstack.path / "file").read_bytes() == data
    assert next(fsstack.below.glob("*/file")).read_bytes() == data


@pytest.mark.fsstack("ext4 | nfs", "ext4 | samba")
def test_a_cold_block_reads_from_the_server_and_from_the_disk(fsstack: Built) -> None:
    def moved() -> tuple[int, int]:
        (lines,) = (line for line in (server() / "net/dev").read_text().splitlines() if "lo:" in line)
        return int(lines.split()[1]), int(Path("/sys/block/vda/stat").read_text().split()[2]) * 512

    (fsstack.path / "file").write_bytes(os.urandom(SIZE))
    with Timed(fsstack)():
        before = moved()
        (fsstack.path / "file").read_bytes()
        after = moved()
    assert all(new - old >= SIZE for old, new in zip(before, after)), (before, after)


@pytest.mark.fsstack("ext4 | nfs(delay=100)", "ext4 | samba(delay=100)")
def test_a_delay_makes_each_round_trip_longer(fsstack: Built) -> None:
    start = time.monotonic()
    (fsstack.path / "directory").mkdir()
    assert time.monotonic() - start > 0.2


def opened(name: str, directory: Path, act: Callable[[Path], None]) -> None:
    """Open a layer on a directory in memory, and act in it."""
    (layer,) = Stack.parse(name, BUILT_IN).layers
    below = Directory(directory / "below")
    below.path.mkdir(exist_ok=True)
    context = BuildContext(directory, journal.Journal(directory / "journals", RealMachine()))
    layer.create(below, context)
    with layer.opened(below, context) as place:
        (place.path / "file").write_text("content")
        act(place.path)
    context.journal.close()


def check_sigkill(name: str, directory: Path) -> None:
    """Kill a session while it uses a layer: all of it goes, and what was written is below."""

    def code() -> int:
        opened(name, directory, lambda path: os.kill(os.getpid(), signal.SIGKILL))
        return 0

    assert ended(forked(code, directory / "output")) == -signal.SIGKILL, (directory / "output").read_text()
    report = journal.cleanup(directory / "journals", RealMachine(), lambda: kinds(BUILT_IN.values()))
    assert report.left == []
    assert commands.wait_until(lambda: not left(), 300), left()
    assert (directory / "below" / name / "file").exists()


def check_ended_server(name: str, end: Callable[[], None], directory: Path) -> None:
    """End the server of a layer in use: the teardown ends too, and nothing is left."""
    start = time.monotonic()
    opened(name, directory, lambda path: end())
    print(f"it ended after {time.monotonic() - start:.1f} s")
    assert commands.wait_until(lambda: not left(), 60), left()
    assert (directory / "below" / name / "file").exists()


def kill_processes() -> None:
    while processes := networks():
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):  # it ends by itself after another one of them
                os.kill(int(process.name), signal.SIGKILL)


def stop_threads() -> None:
    (server() / "root/proc/fs/nfsd/threads").write_text("0")


def test_nothing_of_nfs_survives_a_killed_session(tmp_path: Path) -> None:
    check_sigkill("nfs", tmp_path)


def test_nothing_of_samba_survives_a_killed_session(tmp_path: Path) -> None:
    check_sigkill("samba", tmp_path)


def test_the_teardown_of_nfs_ends_after_its_threads_were_ended(tmp_path: Path) -> None:
    check_ended_server("nfs", stop_threads, tmp_path)


def test_the_teardown_of_nfs_ends_after_its_processes_were_killed(tmp_path: Path) -> None:
    check_ended_server("nfs", kill_processes, tmp_path)
