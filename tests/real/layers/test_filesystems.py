"""Filesystems served by daemons, and what is set and discarded on the device below, on this machine's kernel."""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack.devices import DiskDevice, LoopDevice
from pytest_fsstack.layers import BUILT_IN, zfs
from pytest_fsstack.layers.filesystems import Ext4
from pytest_fsstack.machine import journal
from pytest_fsstack.machine.commands import wait_until
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from pytest_fsstack.stack import kmsg
from pytest_fsstack.stack.build import BuildError, build
from pytest_fsstack.stack.layer import Layer
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import SESSION, Block, BuildContext
from tests.real.conftest import LoopDevice as MakeLoop, Sessions, built, run
from tests.real.layers.test_layers import MARK, SIZE, exercise

pytestmark = pytest.mark.root


def daemons() -> list[str]:
    """The children of this process that serve a filesystem."""
    listed = subprocess.run(["ps", "-o", "comm=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [name for name in listed.stdout.split() if name in ("zfs-fuse", "ntfs-3g")]


@pytest.mark.parametrize(
    "text",
    [
        "ntfs3g(compress=True, mkfs='-c 4096 -L label', mount='noatime,big_writes')",
        "zfs(compress='gzip-6', mkfs='-o ashift=12 -O recordsize=16K', mount='noatime', daemon='--max-arc-size 64')",
        "zfs | gocryptfs",
        "ntfs3g | loop(size='64M') | ext4",
    ],
)
def test_a_filesystem_of_a_daemon(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        exercise(stack)
        assert len(daemons()) == 1
    assert daemons() == []


@pytest.mark.parametrize("text", ["ntfs3g", "zfs"])
def test_a_sync_reaches_the_device(text: str, context: BuildContext) -> None:
    data = os.urandom(4 << 20)
    with built(text, LoopDevice(SIZE), context) as stack:
        (stack.path / "file").write_bytes(data)
        stack.sync()
        assert isinstance(stack.bottom, Block)
        written = int(Path("/sys/dev/block", stack.bottom.number, "stat").read_text().split()[6])
        assert written * 512 >= len(data)
        assert data[8192:8256] in stack.bottom.path.read_bytes()


@pytest.mark.parametrize(
    "texts", [("ntfs3g", "ntfs3g(compress=True)"), ("zfs", "zfs(compress='lzjb')"), ("btrfs", "btrfs(compress='zstd')")]
)
def test_compression_saves_space(texts: tuple[str, str], context: BuildContext) -> None:
    used = {}
    for text in texts:
        with built(text, LoopDevice(SIZE), context) as stack:
            (stack.path / "text").write_bytes(MARK * (1 << 18))
            stack.sync()
            used[text] = stack.usage()
    plain, compressed = used.values()
    assert compressed < plain - (len(MARK) << 17)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("zfs(mkfs='-o no-such-property=1')", r"layer zfs: `zpool create .*no-such-property"),
        ("zfs(mount='no-such-option')", r"layer zfs: `zfs mount .*no-such-option"),
        ("zfs(daemon='--no-such-flag')", r"layer zfs: `zfs-fuse .*no-such-flag"),
        ("ntfs3g(mkfs='--no-such-flag')", r"layer ntfs3g: `mkntfs .*no-such-flag"),
        ("ext4 | loop | ext4(mount='no-such-option')", r"layer ext4: `mount .*no-such-option"),
        ("ext4 | gocryptfs(mount='-no-such-flag')", r"layer gocryptfs: `gocryptfs .*no-such-flag"),
    ],
)
def test_a_mistake_is_told_and_leaves_nothing(text: str, message: str, context: BuildContext) -> None:
    with pytest.raises(BuildError, match=message):
        with built(text, LoopDevice(SIZE), context):
            pass
    assert daemons() == []


@dataclass(frozen=True)
class Corrupted(Ext4):
    """An ext4 whose superblock is overwritten before it is mounted."""

    def create(self, below: Block, context: BuildContext) -> None:
        super().create(below, context)
        with below.path.open("r+b", buffering=0) as device:
            device.write(bytes(64 << 10))
            os.fsync(device.fileno())


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Ext4(mount="nosuchoption"), r"layer ext4: `mount .*[Uu]nknown parameter .*nosuchoption"),
        (Corrupted(), r"layer ext4: `mount .*\n[^\n]*  EXT4-fs \(loop\d+\): VFS: Can't find ext4"),
    ],
)
def test_a_failure_ends_with_what_the_kernel_said_about_it(layer: Layer, message: str, context: BuildContext) -> None:
    try:
        os.close(os.open(kmsg.DEVICE, os.O_RDONLY))
    except OSError as error:
        pytest.skip(f"the kernel's messages cannot be read: {error}")
    for _ in range(2):  # what it said about the first is not said again about the second
        with pytest.raises(BuildError) as raised, build(Stack((layer,)), LoopDevice(SIZE), context):
            pass
        text = str(raised.value)
        assert re.search(message, text, re.DOTALL), text
        assert text.count(text.splitlines()[-1]) == 1


@pytest.mark.parametrize("text", ["ext4", "zfs"])
def test_what_keeps_a_stack_busy_is_named(text: str, context: BuildContext) -> None:
    with pytest.raises(BuildError, match=rf"\b{os.getpid()} \(.*\) .*/held"):
        with built(text, LoopDevice(SIZE), context) as stack:
            held = open(stack.path / "held", "w")  # noqa: SIM115 - it must still be open when the stack goes
    held.close()
    assert daemons() == []


def test_pools_of_the_system_are_neither_seen_nor_touched(context: BuildContext, tmp_path: Path) -> None:
    """Another session's zfs-fuse stands for that of the system: its own mounts, its own daemon, the same names."""
    with built("zfs", LoopDevice(SIZE), context) as stack:
        (stack.path / "file").write_bytes(MARK)
        code = f"""
import os
from pathlib import Path
from pytest_fsstack.machine import commands, mounts
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers.zfs import Zfs
from pytest_fsstack.stack.build import build
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext
from pytest_fsstack.machine.real import RealMachine
BuildContext.name = lambda context, layer: f"fsstack-{SESSION}-1-{{layer}}"
mounts.private_namespace()
here = Path({str(tmp_path)!r})
(here / "other").mkdir()
context = BuildContext(here / "other", Journal(here / "other-journal", RealMachine()))
with build(Stack((Zfs(),)), LoopDevice({SIZE}), context) as stack:
    assert "fsstack-{SESSION}-1-zfs" in commands.run("zpool", "list", "-H", "-o", "name").split()
    assert list(stack.path.iterdir()) == []
    print("stood")
"""
        assert run(sys.executable, "-c", code) == "stood"
        assert (stack.path / "file").read_bytes() == MARK
        stack.remount()
        assert (stack.path / "file").read_bytes() == MARK


def test_a_session_that_ends_leaves_the_hidden_directories_of_others(context: BuildContext, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from pytest_fsstack.layers import zfs
from pytest_fsstack.machine import mounts
from pytest_fsstack.machine.real import RealMachine
mounts.private_namespace()
with zfs._hidden(RealMachine(), Path({str(tmp_path / "state")!r})):
    input()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True) as other:
        assert context.machine.wait_until((tmp_path / "state").exists, 60.0)
        with zfs._hidden(context.machine, tmp_path / "state"):
            other.communicate("\n")
            assert context.machine.mount_at(tmp_path / "state")
    assert other.returncode == 0


@pytest.mark.parametrize("text", ["zfs", "ntfs3g"])
def test_nothing_stands_after_sigkill(text: str, sessions: Sessions) -> None:
    sessions.write(text)
    process = sessions.start("--fsstack-rounds=1")
    process.kill()
    process.wait()
    assert sessions.nothing_is_left(), sessions.left
    report = journal.cleanup(sessions.journals, RealMachine(), lambda: kinds(BUILT_IN.values()))
    assert report.undone
    assert report.left == []


@pytest.mark.parametrize("text", ["ext4", "btrfs", "ntfs3g", "xfs | gocryptfs"])
def test_what_is_deleted_is_free_after_a_sync(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        file = stack.path / "file"

        def usage() -> int:
            stack.sync()
            return stack.usage()

        def falls_to(limit: int) -> bool:
            # The cleaner of Btrfs may still hold the file. On a busy machine it lets go of it after the sync.
            return wait_until(lambda: usage() <= limit, 60.0 if text == "btrfs" else 0.0)

        for _ in range(5):
            file.write_bytes(os.urandom(8 << 20))
            written = usage()
            file.unlink()
            assert falls_to(written - (7 << 20))


# -- discard -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["ext4", "xfs", "btrfs", "ntfs3g"])
def test_what_is_not_used_is_discarded_down_to_the_file(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(SIZE), context) as stack:
        (stack.path / "file").write_bytes(os.urandom(64 << 20))
        stack.sync()
        image = Path("/sys/block", stack.bottom.path.name, "loop/backing_file").read_text()
        assert "(deleted)" in image
        (stack.path / "file").unlink()
        # On a busy machine, ext4 frees the blocks a moment after its sync has returned. A second trim counts those.
        trimmed = itertools.accumulate(iter(stack.trim, None))
        assert wait_until(lambda: next(trimmed) >= 64 << 20, 60.0)
        data = stack.bottom.path.read_bytes()
        assert data.count(b"\0") > len(data) - (48 << 20)


def test_discard_passes_through_a_container_file(context: BuildContext) -> None:
    with built("ext4 | loop | xfs", LoopDevice(2 * SIZE), context) as stack:
        (stack.path / "file").write_bytes(os.urandom(64 << 20))
        stack.sync()
        before = stack.usage()
        (stack.path / "file").unlink()
        stack.trim()
        assert stack.usage() <= before - (56 << 20)


def test_a_device_is_discarded_before_each_stack_and_keeps_its_label(
    loop_device: MakeLoop, locks: Path, context: BuildContext
) -> None:
    loop = loop_device(size=SIZE)
    for discard in False, True:
        with built("ext4", DiskDevice(loop.path, overwrite=False, discard=discard), context) as stack:
            allocated = loop.image.stat().st_blocks * 512
            (stack.path / "file").write_bytes(os.urandom(64 << 20))
            stack.sync()
        assert loop.image.stat().st_blocks * 512 > 64 << 20
    assert allocated < 32 << 20


# -- settings ----------------------------------------------------------------------------------------------------------


#: Governors of the test's own, on a machine that may have none.
GOVERNORS = """
from pathlib import Path
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack import tuning
RealMachine.sysfs = Path(__file__).parent / "sys"
tuning.queue = lambda machine, device: Path("/sys/block", device.name, "queue")
"""


@pytest.fixture
def governor(sessions: Sessions) -> Path:
    (sessions.directory / "conftest.py").write_text(GOVERNORS)
    cpufreq = sessions.directory / "sys/devices/system/cpu/cpu0/cpufreq"
    cpufreq.mkdir(parents=True)
    (cpufreq / "scaling_available_governors").write_text("performance powersave\n")
    (cpufreq / "scaling_governor").write_text("powersave\n")
    return cpufreq / "scaling_governor"


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_the_governor_is_set_for_the_session_however_it_ends(
    number: signal.Signals | None, governor: Path, sessions: Sessions
) -> None:
    sessions.write("ext4")
    process = sessions.start("--fsstack-rounds=1", "--fsstack-governor=performance")
    assert governor.read_text().strip() == "performance"
    if number:
        process.send_signal(number)
    else:
        (sessions.directory / "wait").unlink()
    assert (process.wait(60) == 0) == (number is None)
    assert governor.read_text().strip() == "powersave"
    assert sessions.nothing_is_left(), sessions.left


def test_a_governor_that_the_kernel_does_not_offer_is_told_with_those_that_it_does(
    governor: Path, sessions: Sessions
) -> None:
    sessions.write("ext4")
    done = sessions.run("--fsstack-governor=turbo")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert re.search(r"ERROR: --fsstack-governor: .*'turbo'.*\bcpu0\b.*\bperformance, powersave\b", done.stderr)


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["--fsstack-scheduler=turbo"], r"ERROR: --fsstack-scheduler: .*'turbo'.*\bloop\d+"),
        (["--fsstack-readahead=130K"], r"ERROR: --fsstack-readahead: .*\b4K\b.*\b130K\b"),
        (["--fsstack-readahead=much"], "ERROR: --fsstack-readahead: 'much' "),
        (["--fsstack-discard", "--fsstack-device=dir:/"], "ERROR: --fsstack-discard: .* dir:/ "),
    ],
)
def test_a_value_that_cannot_be_is_one_message(arguments: list[str], pattern: str, sessions: Sessions) -> None:
    sessions.write("ext4")
    done = sessions.run(*arguments)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert re.search(pattern, done.stderr)
