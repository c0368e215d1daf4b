"""Helpers for tests of mappings inside the guest, on its /dev/vda."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, guard, mounts
from pytest_fsstack.stack.build import Built

DISK = Path("/dev/vda")
HERE = Path(__file__).parent


# -- what is there -----------------------------------------------------------------------------------------------------


def mappings() -> list[str]:
    listed = subprocess.run(["dmsetup", "ls"], capture_output=True, text=True, check=True).stdout
    return [] if "No devices found" in listed else listed.splitlines()


def mapper_nodes() -> set[str]:
    return {path.name for path in Path("/dev/mapper").iterdir()}


def read_of_processes(name: str) -> dict[Path, str]:
    """Return the contents of a file in /proc of each process."""
    contents = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # processes end while one looks
            contents[process] = (process / name).read_text().strip()
    return contents


def processes(*names: str) -> list[Path]:
    """Return the processes with one of these names, the oldest first."""
    matches = [process for process, name in read_of_processes("comm").items() if name in names]
    return sorted(matches, key=lambda process: int(process.name))


def mount_lines() -> set[str]:
    """Return the lines of all mounts, in the mount namespace of any process."""
    return {line for table in read_of_processes("mountinfo").values() for line in table.splitlines()}


def mounted() -> list[str]:
    """What is mounted from the disk or from a mapping."""
    places = "/dev/vda", "/dev/dm-", "/dev/mapper/"
    return [line for line in mount_lines() if line.partition(" - ")[2].split()[1].startswith(places)]


def keys() -> list[str]:
    """The keys that eCryptfs could use, of any keyring."""
    return [line for line in Path("/proc/keys").read_text().splitlines() if line.split()[7] == "user"]


def mounted_ecryptfs() -> list[str]:
    return [line for line in mount_lines() if " - ecryptfs " in line]


def nothing_is_left(seconds: float) -> bool:
    # The kernel collects the keys that nobody refers to in its own time.
    return commands.wait_until(lambda: not (mounted() or mounted_ecryptfs() or keys()), seconds)


def dissolves(seconds: float) -> bool:
    """Whether within that time no mapping and no mount of one is left."""
    return commands.wait_until(lambda: not any(Path("/sys/block").glob("dm-*")) and not mounted(), seconds)


def read(device: Path, length: int, offset: int = 0) -> bytes:
    """Read the medium past the caches, which may hold other data."""
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, length) as buffer:
            os.preadv(fd, [buffer], offset)
            return buffer[:]
    finally:
        os.close(fd)


def on_the_disk(text: bytes) -> bool:
    """Whether these bytes stand anywhere on the medium."""
    size = int(Path("/sys/block", DISK.name, "size").read_text()) * 512
    step, overlap = 4 << 20, 4096
    return any(text in read(DISK, min(step + overlap, size - offset), offset) for offset in range(0, size, step))


@pytest.fixture(autouse=True, scope="class")
def nothing_stays_behind() -> Iterator[None]:
    """Around the stack of each test: it is torn down when this goes on."""
    yield
    assert dissolves(0), "the teardown did not wait for the end of the mappings"
    assert mappings() == []
    # Names of mappings are links that udevd removes in its own time.
    assert commands.wait_until(lambda: mapper_nodes() == {"control"}, 60), mapper_nodes()
    assert guard.labelled(DISK)


def write(stack: Built, data: bytes) -> Path:
    file = stack.path / "file"
    file.write_bytes(data)
    stack.sync()
    return file


def check_round_trip(stack: Built, *, hidden: bool) -> None:
    # Random, for a layer that compresses would hide text as well; larger than what is stored among metadata.
    data = os.urandom(64 << 10)
    file = write(stack, data)
    stack.remount()
    assert file.read_bytes() == data
    assert on_the_disk(data[8192:8256]) is not hidden


# -- other processes ---------------------------------------------------------------------------------------------------


def forked(code: Callable[[], int], said: Path) -> int:
    """Run it in a process that has imported everything already: a new Python takes a minute for that here."""
    pid = os.fork()
    if pid:
        return pid
    result = 99
    try:
        # No way out of here leads back into the session that forked.
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115
        mounts.private_namespace.cache_clear()  # a namespace of its own, as a new process would make
        result = code()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(result)


def session(*arguments: str) -> list[str]:
    """The command of a pytest session of its own."""
    alone = ("-c", os.devnull, f"--rootdir={HERE}", "--noconftest", "-p", "no:cacheprovider")
    return [sys.executable, "-m", "pytest", *alone, *arguments]


def started(output: Path, *arguments: str) -> int:
    """The process of a pytest session, which writes to `said`."""
    return forked(lambda: int(pytest.main(session(*arguments)[3:])), output)


def ended(pid: int, seconds: float = 300.0) -> int:
    """The exit code of a process, which is killed if it takes longer."""
    status: list[int] = []

    def over() -> bool:
        ended, code = os.waitpid(pid, os.WNOHANG)
        status.extend([code] if ended else [])
        return bool(ended)

    if not commands.wait_until(over, seconds):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pytest.fail(f"process {pid} took longer than {seconds:g} s")
    return os.waitstatus_to_exitcode(status[0])


# -- without udevd -----------------------------------------------------------------------------------------------------


def udevd() -> list[Path]:
    """Its processes, the first one of which is the daemon itself."""
    return processes("systemd-udevd", "(udev-worker)")


@pytest.fixture(scope="class")
def without_udevd() -> Iterator[None]:
    command = (udevd()[0] / "cmdline").read_bytes().split(b"\0")[:-1]
    subprocess.run(["udevadm", "control", "--exit"], check=True)
    assert commands.wait_until(lambda: not udevd(), 300)
    assert Path("/run/udev/control").exists(), "a socket that nobody listens to should be there, to see it told apart"
    yield
    subprocess.run(command, check=True)
    subprocess.run(["udevadm", "control", "--ping"], check=True)
