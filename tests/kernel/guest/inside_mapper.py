"""What runs inside the guest, on its /dev/vda: encryption in the device-mapper, for real.

`tests/kernel/test_mapper_in_guest.py` starts it, with the plugin and `--fsstack-device=/dev/vda`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack import guard, host, journal, needs, workloads
from pytest_fsstack.measure import Timed
from pytest_fsstack.stack import Built
from pytest_fsstack.workloads import needs_of
from pytest_fsstack.workloads.direct import differing

DISK = Path("/dev/vda")
HERE = Path(__file__).parent

ENCRYPTED = (
    "luks | ext4",
    "luks(cipher='aes-cbc-essiv:sha256', key_size=256) | ext4",
    "luks(sector_size=4096) | xfs",
    "luks | btrfs(compress='zlib')",
    "dmcrypt | ext4",
    "dmcrypt(cipher='aes-cbc-essiv:sha256', key_size=128) | ext4",
)


# -- what is there -----------------------------------------------------------------------------------------------------


def mappings() -> list[str]:
    listed = subprocess.run(["dmsetup", "ls"], capture_output=True, text=True, check=True).stdout
    return [] if "No devices found" in listed else listed.splitlines()


def mapper_nodes() -> set[str]:
    return {path.name for path in Path("/dev/mapper").iterdir()}


def mounted() -> set[str]:
    """What is mounted from the disk or from a mapping, in the mount namespace of any process."""
    found = set()
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        with contextlib.suppress(OSError):  # processes end while one looks
            for line in table.read_text().splitlines():
                if line.partition(" - ")[2].split()[1].startswith(("/dev/vda", "/dev/dm-", "/dev/mapper/")):
                    found.add(line)
    return found


def dissolves(seconds: float) -> bool:
    """Whether within that time no mapping and no mount of one is left."""
    return host.wait_until(lambda: not any(Path("/sys/block").glob("dm-*")) and not mounted(), seconds)


def on_the_disk(text: bytes) -> bool:
    """Whether these bytes stand anywhere on the medium: read past the caches, which may hold what is older."""
    step, overlap = 4 << 20, 4096
    fd = os.open(DISK, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, step + overlap) as window:
            size = os.lseek(fd, 0, os.SEEK_END)
            for offset in range(0, size, step):
                length = os.preadv(fd, [window], offset)
                if window.find(text, 0, length) >= 0:
                    return True
    finally:
        os.close(fd)
    return False


@pytest.fixture(autouse=True, scope="class")
def nothing_stays_behind() -> Iterator[None]:
    """Around the stack of each test: it is torn down when this goes on."""
    yield
    assert dissolves(0), "the teardown did not wait for the end of the mappings"
    assert mappings() == []
    # Names of mappings are links that udevd removes in its own time.
    assert host.wait_until(lambda: mapper_nodes() == {"control"}, 5), mapper_nodes()
    assert guard.labelled(DISK)


# -- stacks ------------------------------------------------------------------------------------------------------------


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


@pytest.mark.fsstack("ext4", "btrfs(compress='zlib')")
def test_plaintext_is_found_on_the_disk_without_encryption(fsstack: Built) -> None:
    check_round_trip(fsstack, hidden=False)


@pytest.mark.fsstack(*ENCRYPTED)
def test_plaintext_is_read_back_but_is_not_on_the_disk(fsstack: Built) -> None:
    check_round_trip(fsstack, hidden=True)
    assert len(mappings()) == 1


@pytest.mark.fsstack("ext4 | loop | luks | ext4")
def test_a_remount_closes_and_opens_a_mapping_that_stands_on_a_filesystem(fsstack: Built) -> None:
    data = os.urandom(64 << 10)
    file = write(fsstack, data)
    fsstack.remount()
    assert file.read_bytes() == data


@pytest.mark.fsstack("raw", "dmcrypt(cipher='aes-cbc-essiv:sha256', key_size=128)", "luks")
def test_workloads_write_to_the_device_on_top_and_through_it(fsstack: Built) -> None:
    size = 1 << 20
    for block in 4096, 65536:
        workloads.dd_write(Timed(fsstack), fsstack, size=size, block=block)
        workloads.dd_read(Timed(fsstack), fsstack, size=size, block=block, prepare=False)
    zeros = differing(DISK, Path("/dev/zero"), size, 4096) is None
    assert zeros is (fsstack.path == DISK)
    if not needs.missing(needs_of(workloads.fio)):
        workloads.fio(Timed(fsstack), fsstack, rw="randwrite", size=size, iodepth=4)
        workloads.fio(Timed(fsstack), fsstack, rw="read", size=size, direct=False)


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="class")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file with the arguments and the environment of every tool that the stack's layers run."""
    tools, told = tmp_path_factory.mktemp("tools"), tmp_path_factory.mktemp("told") / "told"
    for tool in ("cryptsetup", "dmsetup", "wipefs", "mkfs.ext4", "mount"):
        wrapper = tools / tool
        wrapper.write_text(f'#!/bin/sh\n{{ echo "$0 $*"; env; }} >>{told}\nexec {host.which(tool)} "$@"\n')
        wrapper.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
        yield told


@pytest.mark.fsstack("dmcrypt | luks | ext4")
def test_two_mappings_hide_the_plaintext_and_show_their_secrets_nowhere(told: Path, fsstack: Built) -> None:
    check_round_trip(fsstack, hidden=True)
    assert len(mappings()) == 2
    passphrase = fsstack._site.secret._bytes
    key = hashlib.shake_256(passphrase).digest(64)
    said = told.read_bytes()
    assert said.count(b"cryptsetup --batch-mode ") == 3
    places = {"what tools were told": said}
    for path in [*Path("/proc").glob("[0-9]*/cmdline"), *Path("/proc").glob("[0-9]*/environ")]:
        with contextlib.suppress(OSError):
            places[str(path)] = path.read_bytes()
    journals = list(journal.default_directory().iterdir())
    assert journals
    places.update({str(path): path.read_bytes() for path in journals})
    for place, content in places.items():
        for secret in (passphrase, key):
            assert secret not in content, place
            assert secret.hex().encode() not in content.lower(), place


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
        host.private_mounts.cache_clear()  # a namespace of its own, as a new process would make
        result = code()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(result)


def session(*arguments: str) -> list[str]:
    """The command of a pytest session of its own."""
    alone = ("-c", os.devnull, f"--rootdir={HERE}", "--noconftest", "-p", "no:cacheprovider")
    plugins = ("-p", "pytest_benchmark.plugin", "-p", "pytest_fsstack.plugin")
    return [sys.executable, "-m", "pytest", *alone, *plugins, *arguments]


def started(said: Path, *arguments: str) -> int:
    """The process of a pytest session, which writes to `said`."""
    return forked(lambda: int(pytest.main(session(*arguments)[3:])), said)


def ended(pid: int, seconds: float = 300.0) -> int:
    """The exit code of a process, which is killed if it takes longer."""
    status: list[int] = []

    def over() -> bool:
        done, code = os.waitpid(pid, os.WNOHANG)
        status.extend([code] if done else [])
        return bool(done)

    if not host.wait_until(over, seconds):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        pytest.fail(f"process {pid} took longer than {seconds:g} s")
    return os.waitstatus_to_exitcode(status[0])


def test_a_comparison_measures_both_stacks(tmp_path: Path) -> None:
    found, output = tmp_path / "found.json", tmp_path / "output"
    options = (f"--fsstack-device={DISK}", "--fsstack-rounds=2", f"--fsstack-json={found}")
    code = ended(started(output, *options, str(HERE / "inside_comparison.py")))
    said = output.read_text()
    assert code == 0, said
    assert "2 rounds are too few for a verdict" in said
    assert "4 passed" in said

    (chain,) = json.loads(found.read_text())["chains"]
    assert [sorted(order) for order in chain["orders"]] == [["ext4", "luks+ext4"]] * 2
    assert [step["name"] for step in chain["steps"]] == ["write", "read"]
    for step in chain["steps"]:
        for stack in ("ext4", "luks+ext4"):
            assert step["stacks"][stack]["verdict"] is None
            metrics = step["stacks"][stack]["metrics"]
            assert len(metrics["seconds"]["samples"]) == 2
            # The bytes of the disk at the bottom, not those of the mapping as well.
            moved = metrics["written_bytes" if step["name"] == "write" else "read_bytes"]["samples"]
            assert all(4 << 20 <= figure < 8 << 20 for figure in moved), (stack, step["name"], moved)
    assert "/dev/mapper/" in chain["stacks"]["luks+ext4"]["mounts"][0]


def test_nothing_stands_after_sigkill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standing, output = tmp_path / "standing", tmp_path / "output"
    monkeypatch.setenv("STANDING", str(standing))
    pid = started(output, f"--fsstack-device={DISK}", str(HERE / "inside_standing.py"))
    try:
        assert host.wait_until(standing.exists, 120), output.read_text()
        assert len(mappings()) == 1
        assert mounted()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    killed = time.monotonic()
    assert dissolves(5), (mappings(), mounted())
    print(f"all of it was gone after {time.monotonic() - killed:.1f} s")

    code = ended(started(output, "--fsstack-cleanup"))
    said = output.read_text()
    assert code == 0, said
    assert f"emptied {DISK} but for its scratch label (of the session of process {pid})" in said
    assert "left alone" not in said
    assert journal.cleanup(journal.default_directory()) == []


def test_a_mapping_of_a_session_that_was_killed_before_it_held_it_is_cleaned_up(tmp_path: Path) -> None:
    name, journals = "fsstack-1-luks", tmp_path / "journals"

    def code() -> int:
        with journal.Journal(journals).entry("dm", name=name):
            subprocess.run(["dmsetup", "create", name, "--table", "0 2048 zero"], check=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert ended(forked(code, tmp_path / "output")) == -signal.SIGKILL, (tmp_path / "output").read_text()
    assert mapper_nodes() == {"control", name}
    (line,) = journal.cleanup(journals)
    assert line.startswith(f"removed the device-mapper device {name} ")


# -- without udevd -----------------------------------------------------------------------------------------------------


def udevd() -> list[Path]:
    """Its processes, the first one of which is the daemon itself."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "comm").read_text().strip() in {"systemd-udevd", "(udev-worker)"}:
                found.append(process)
    return sorted(found, key=lambda process: int(process.name))


@pytest.fixture(scope="class")
def without_udevd() -> Iterator[None]:
    command = (udevd()[0] / "cmdline").read_bytes().split(b"\0")[:-1]
    subprocess.run(["udevadm", "control", "--exit"], check=True)
    assert host.wait_until(lambda: not udevd(), 30)
    assert Path("/run/udev/control").exists(), "a socket that nobody listens to should be there, to see it told apart"
    yield
    subprocess.run(command, check=True)
    subprocess.run(["udevadm", "control", "--ping"], check=True)


@pytest.mark.fsstack("luks | ext4")
@pytest.mark.usefixtures("without_udevd")
def test_mappings_come_and_go_without_udevd(fsstack: Built) -> None:
    check_round_trip(fsstack, hidden=True)
