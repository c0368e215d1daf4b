"""The guard on real devices: each state in which one must not be touched, and not a byte of it changed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, guard, mounts
from tests import guarding
from tests.real.conftest import Loop, LoopDevice, run, swapped_on

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("locks")]

MIB = 1 << 20
#: A mounted ext4 would go on writing in the background else.
QUIET = "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = [tool for tool in tools if commands.which(tool) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}; python -m tests.install")


def refused_idle(device: Path, *loops: Loop) -> str:
    """The reason; not even a device that was given up may be claimed in this state."""
    return _refused(device, *loops, overwrite=True)


def refused_contents(device: Path, *loops: Loop) -> str:
    """The reason; nothing uses the device, which holds something."""
    guarding.check_idle(device)
    with pytest.raises(guard.Refused):
        guarding.check_contents(device)
    reason = _refused(device, *loops, overwrite=False)
    assert f"`--fsstack-overwrite={device}`" in reason
    return reason


def _refused(device: Path, *loops: Loop, overwrite: bool) -> str:
    with contextlib.ExitStack() as stack:
        for loop in loops:
            stack.enter_context(loop.untouched())
        with pytest.raises(guard.Refused) as caught, guarding.claimed(device, overwrite=overwrite):
            pytest.fail("the device was claimed")
    message, reason = str(caught.value), caught.value.reason
    assert caught.value.device == device
    assert message.startswith(f"{device} ")
    assert message.endswith(reason)
    assert "\n" not in message
    return reason


@contextlib.contextmanager
def process(*argv: str | os.PathLike[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that says a line when it is ready, and ends with the block."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as running:
        assert running.stdout
        try:
            assert running.stdout.readline(), "it ended at once"
            yield running
        finally:
            running.kill()


@pytest.fixture
def ext4(loop_device: LoopDevice) -> Loop:
    loop = loop_device()
    run("mkfs.ext4", *QUIET, "-L", "data", loop.path)
    return loop


# -- in use ------------------------------------------------------------------------------------------------------------


def test_mounted_here(ext4: Loop, mount: Callable[[Path], Path]) -> None:
    target = mount(ext4.path)
    assert str(target) in refused_idle(ext4.path, ext4)


def test_mounted_under_another_name(ext4: Loop, mount: Callable[[Path], Path], tmp_path: Path) -> None:
    target = mount(ext4.path)
    link = tmp_path / "by-id"
    link.symlink_to(ext4.path)
    assert str(target) in refused_idle(link, ext4)


def test_mounted_in_another_namespace(ext4: Loop, tmp_path: Path) -> None:
    script = 'mount "$0" "$1" && sync && echo ready && read line'
    with process("unshare", "-m", "--propagation", "private", "sh", "-c", script, ext4.path, tmp_path) as other:
        assert mounts.at(tmp_path) is None
        assert re.search(rf"{tmp_path}\b.*\b{other.pid}\b", refused_idle(ext4.path, ext4))


@pytest.mark.usefixtures("impatient")
def test_mounted_where_no_process_sees_it(ext4: Loop, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    # A namespace stays without a process in it as long as something has it open, such as this descriptor.
    script = 'mount "$0" "$1" && sync && echo ready && read line'
    with process("unshare", "-m", "--propagation", "private", "sh", "-c", script, ext4.path, target) as other:
        namespace = os.open(f"/proc/{other.pid}/ns/mnt", os.O_RDONLY)
    try:
        reason = refused_idle(ext4.path, ext4)
        assert "kernel" in reason
        assert str(target) not in reason
    finally:
        os.close(namespace)


@needs("mkfs.btrfs")
def test_second_device_of_a_mounted_btrfs(loop_device: LoopDevice, mount: Callable[[Path], Path]) -> None:
    first, second = loop_device(size=128 * MIB), loop_device(size=128 * MIB)
    run("mkfs.btrfs", "-q", "-f", first.path, second.path)
    uuid = run("blkid", "-p", "-o", "value", "-s", "UUID", second.path)
    target = mount(first.path)
    assert str(target) in refused_idle(first.path, first, second)
    assert f"btrfs {uuid}" in refused_idle(second.path, first, second)


@pytest.mark.usefixtures("impatient")
def test_external_journal_of_a_mounted_ext4(loop_device: LoopDevice, mount: Callable[[Path], Path]) -> None:
    journal, data = loop_device(), loop_device()
    run("mkfs.ext4", "-q", "-b", "4096", "-O", "journal_dev", journal.path)
    run("mkfs.ext4", *QUIET, "-b", "4096", "-J", f"device={journal.path}", data.path)
    mount(data.path)
    assert "kernel" in refused_idle(journal.path, journal, data)


@needs("sfdisk")
@pytest.mark.parametrize("table", ["gpt", "dos"])
def test_disk_with_a_mounted_partition(loop_device: LoopDevice, mount: Callable[[Path], Path], table: str) -> None:
    disk = loop_device()
    one, two = disk.partition(table, "size=24MiB", "size=24MiB")
    run("mkfs.ext4", *QUIET, one)
    target = mount(one)
    assert re.search(rf"{one} .*{target}\b", refused_idle(disk.path, disk))
    assert str(target) in refused_idle(one, disk)
    # The other one is free all the same, as on a laptop with one disk.
    guarding.check_idle(two)
    guarding.check_contents(two)


def test_swap(loop_device: LoopDevice) -> None:
    loop = loop_device()
    with swapped_on(loop.path):
        assert f"`swapoff {loop.path}`" in refused_idle(loop.path, loop)


def test_behind_a_loop_device(loop_device: LoopDevice) -> None:
    below = loop_device()
    above = loop_device("--offset", str(32 * MIB), on=below.path)
    assert f"`losetup -d {above.path}`" in refused_idle(below.path, below)


@needs("sfdisk")
def test_disk_with_a_partition_behind_a_loop_device(loop_device: LoopDevice) -> None:
    disk = loop_device()
    (part,) = disk.partition("gpt", "size=24MiB")
    above = loop_device(on=part)
    assert re.search(f"{part} .*`losetup -d {above.path}`", refused_idle(disk.path, disk))


@pytest.mark.parametrize("mode", ["<", "<>"])
@pytest.mark.usefixtures("impatient")
def test_open_in_another_process(loop_device: LoopDevice, mode: str) -> None:
    loop = loop_device()
    with process("sh", "-c", f'exec 5{mode}"$0"; echo ready; read line', loop.path) as other:
        assert f" {other.pid} (sh)" in refused_idle(loop.path, loop)


@pytest.mark.usefixtures("impatient")
def test_open_in_this_process(loop_device: LoopDevice) -> None:
    loop = loop_device()
    with loop.path.open("rb"):
        assert re.search(rf"\b{os.getpid()}\b", refused_idle(loop.path, loop))


def test_read_only(loop_device: LoopDevice) -> None:
    loop = loop_device("--read-only")
    assert "`blockdev --setrw`" in refused_idle(loop.path, loop)


def test_too_small(loop_device: LoopDevice) -> None:
    loop = loop_device(size=8 * MIB)
    reason = refused_idle(loop.path, loop)
    assert re.search(r"8\.0 MiB \(8388608 bytes\).*16\.0 MiB \(16777216 bytes\)", reason)


def test_the_disk_of_the_root_filesystem() -> None:
    number = os.stat("/").st_dev
    sysfs = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not sysfs.exists():
        pytest.skip("the root filesystem is on no block device")
    with pytest.raises(guard.Refused, match=r"\broot\b"):
        guarding.check_idle(Path("/dev") / sysfs.resolve().name)


def test_detached_loop_device(loop_device: LoopDevice) -> None:
    loop = loop_device()
    run("losetup", "-d", loop.path)
    with pytest.raises(guard.Refused, match=r"\bmedium\b"):
        guarding.check_idle(loop.path)


# -- not blank ---------------------------------------------------------------------------------------------------------


@needs("sfdisk")
@pytest.mark.parametrize("table", ["gpt", "dos"])
def test_partition_table(loop_device: LoopDevice, table: str) -> None:
    loop = loop_device()
    parts = loop.partition(table, "size=24MiB")
    assert str(parts[0]) in refused_contents(loop.path, loop)
    run("partx", "-d", loop.path)
    assert f"({table})" in refused_contents(loop.path, loop)


@needs("sfdisk")
def test_partition_with_a_filesystem(loop_device: LoopDevice) -> None:
    loop = loop_device()
    (part,) = loop.partition("gpt", "size=24MiB")
    run("mkfs.ext4", "-q", part)
    assert "(ext4)" in refused_contents(part, loop)


@needs("mkfs.btrfs")
def test_contradicting_signatures(loop_device: LoopDevice) -> None:
    loop = loop_device(size=128 * MIB)
    run("mkfs.btrfs", "-q", loop.path)
    btrfs = loop.path.read_bytes()[64 << 10 : 68 << 10]
    run("wipefs", "-aq", loop.path)
    run("mkfs.ext4", "-q", loop.path)
    loop.write(btrfs, 64 << 10)
    # blkid names none of them.
    assert "signatures" in refused_contents(loop.path, loop)


@pytest.mark.parametrize("where", [1, 5 * MIB + 77, 32 * MIB, 64 * MIB - 1])
def test_data_anywhere_on_a_small_device(loop_device: LoopDevice, where: int) -> None:
    loop = loop_device()
    loop.write(b"\x01", where)
    assert re.search(rf"\bbyte {where}\b.*\b{64 * MIB}\b", refused_contents(loop.path, loop))


def test_data_behind_a_stale_cache(loop_device: LoopDevice) -> None:
    loop = loop_device()
    with loop.path.open("rb", buffering=0) as device:
        # Whoever drops the caches meanwhile leaves nothing stale: it begins again, before what it wrote then.
        for at in range(40 * MIB, 0, -MIB):
            os.pread(device.fileno(), MIB, at)
            # Below the loop device, so that its own cache goes on showing zeros as long as somebody has it open.
            with loop.image.open("r+b") as image:
                image.seek(at)
                image.write(b"data")
                os.fsync(image.fileno())
            if os.pread(device.fileno(), 4, at) == bytes(4):
                break
        else:
            pytest.fail("the cache was never stale")
        with pytest.raises(guard.Refused, match=rf"\bbyte {at}\b"):
            guarding.check_contents(loop.path)


@needs("sfdisk")
def test_data_written_through_the_whole_disk_that_is_still_in_its_cache(loop_device: LoopDevice) -> None:
    loop = loop_device()
    (part,) = loop.partition("dos", "start=2048, size=24MiB")
    guarding.check_contents(part)
    with loop.path.open("r+b", buffering=0) as disk:
        disk.seek(2 * MIB)
        disk.write(b"data")
        with pytest.raises(guard.Refused, match=rf"\bbyte {1 * MIB}\b"):
            guarding.check_contents(part)


# -- the scratch label -------------------------------------------------------------------------------------------------


@pytest.fixture
def scratch(loop_device: LoopDevice) -> Loop:
    loop = loop_device()
    guarding.write_label(loop.path)
    assert guard.labelled(loop.path)
    return loop


def test_blank_is_accepted_and_labelled_afterwards(loop_device: LoopDevice) -> None:
    loop = loop_device()
    with guarding.claimed(loop.path, overwrite=False) as disk:
        assert disk.path == loop.path
        disk.check()
    assert guard.labelled(loop.path)
    assert loop.image.read_bytes()[:64].startswith(b"pytest-fsstack scratch device: ")


def test_labelled_is_accepted_again_and_again(scratch: Loop) -> None:
    for _ in range(2):
        with guarding.claimed(scratch.path, overwrite=False) as disk:
            run("wipefs", "-aq", disk.path)
            run("mkfs.ext4", "-q", "-F", disk.path)
        assert guard.labelled(scratch.path)
        assert guard.signature(scratch.path) == ""


def test_what_a_test_left_between_the_ends_is_scratch(loop_device: LoopDevice) -> None:
    loop = loop_device()
    with guarding.claimed(loop.path, overwrite=False):
        loop.write(b"left by a test", 30 * MIB)
    guarding.check_contents(loop.path)


def test_given_up_is_accepted(ext4: Loop) -> None:
    with guarding.claimed(ext4.path, overwrite=True):
        assert guard.signature(ext4.path).startswith("ext4 ")
    guarding.check_contents(ext4.path)


@needs("sfdisk")
def test_a_partition_is_labelled_without_its_neighbour_being_touched(loop_device: LoopDevice) -> None:
    disk = loop_device()
    one, two = disk.partition("gpt", "size=24MiB", "size=24MiB")
    run("mkfs.ext4", "-q", one)
    before = one.read_bytes(), disk.image.read_bytes()[:MIB]
    with guarding.claimed(two, overwrite=False):
        pass
    assert guard.labelled(two)
    assert (one.read_bytes(), disk.image.read_bytes()[:MIB]) == before


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["mkfs.ext4", "-q", "-F"], id="ext4"),
        pytest.param(["mkfs.btrfs", "-q", "-f"], id="btrfs", marks=needs("mkfs.btrfs")),
    ],
)
def test_a_filesystem_that_the_user_made_later_is_not_ours(loop_device: LoopDevice, argv: list[str]) -> None:
    loop = loop_device(size=320 * MIB)
    guarding.write_label(loop.path)
    run(*argv, loop.path)
    assert f"({argv[0].removeprefix('mkfs.')})" in refused_contents(loop.path, loop)


def test_the_label_in_front_of_a_wiped_filesystem_is_not_ours(scratch: Loop) -> None:
    text = scratch.path.read_bytes()[:512]
    run("mkfs.ext4", "-q", "-F", scratch.path)
    # Whatever leaves room for a boot loader may leave the text alone as well.
    scratch.write(text, 0)
    run("wipefs", "-aq", scratch.path)
    assert guard.signature(scratch.path) == ""
    assert re.search(r"\bbyte 0\b", refused_contents(scratch.path, scratch))


@pytest.mark.parametrize("where", [200, 4096, MIB - 1, 63 * MIB, 64 * MIB - 1])
def test_a_label_with_anything_beside_it_is_not_ours(scratch: Loop, where: int) -> None:
    scratch.write(b"x", where)
    assert re.search(r"\bbyte 0\b", refused_contents(scratch.path, scratch))


def test_a_label_copied_to_a_bigger_device_is_not_ours(scratch: Loop, loop_device: LoopDevice) -> None:
    bigger = loop_device(size=128 * MIB)
    run("dd", f"if={scratch.path}", f"of={bigger.path}", "bs=1M", "conv=notrunc,fsync", "status=none")
    reason = refused_contents(bigger.path, bigger)
    assert re.search(r"\blabel\b.*64\.0 MiB \(67108864 bytes\).*128\.0 MiB \(134217728 bytes\)", reason)


# -- while it is claimed -----------------------------------------------------------------------------------------------


def test_two_claims_at_once(scratch: Loop, locks: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from tests import guarding\n"
        "from pytest_fsstack.machine.guard import holding\n"
        "holding.LOCKS = pathlib.Path(sys.argv[2])\n"
        "with guarding.claimed(pathlib.Path(sys.argv[1]), overwrite=False): print('ready', flush=True); input()"
    )
    with process(sys.executable, "-c", code, scratch.path, locks) as other:
        reason = refused_idle(scratch.path, scratch)
        assert re.search(rf"\b{other.pid} \(.*\({locks}/pytest-fsstack-.*--fsstack-wait=", reason)
    with guarding.claimed(scratch.path, overwrite=False):
        reason = refused_idle(scratch.path, scratch)
        assert "session" in reason
        # It would wait for itself.
        assert "--fsstack-wait" not in reason


@needs("sfdisk")
def test_a_disk_and_its_partition_at_once(loop_device: LoopDevice) -> None:
    disk = loop_device()
    one, two = disk.partition("gpt", "size=24MiB", "size=24MiB")
    with guarding.claimed(one, overwrite=True):
        assert "session" in refused_idle(disk.path, disk)
        with guarding.claimed(two, overwrite=True):
            pass


def test_still_in_use_at_the_end(scratch: Loop, mount: Callable[[Path], Path]) -> None:
    digests: list[str] = []
    targets: list[Path] = []

    def leave_it_mounted() -> None:
        with guarding.claimed(scratch.path, overwrite=False) as disk:
            run("mkfs.ext4", *QUIET, "-F", disk.path)
            targets.append(mount(disk.path))
            digests.append(scratch.digest())

    with pytest.raises(guard.Refused) as caught:
        leave_it_mounted()
    assert str(targets[0]) in caught.value.reason
    assert digests == [scratch.digest()]


@pytest.mark.usefixtures("impatient")
def test_busy_before_the_next_write(scratch: Loop) -> None:
    with guarding.claimed(scratch.path, overwrite=False) as disk:
        with scratch.path.open("rb"), pytest.raises(guard.Refused, match=rf"\b{os.getpid()}\b"):
            disk.check()
        disk.check()


def test_it_is_recorded_once_it_has_passed_until_it_is_labelled(ext4: Loop) -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def record(disk: guard.Disk) -> Iterator[None]:
        seen.append(guard.signature(disk.path).split()[0])
        yield
        seen.append("labelled" if guard.labelled(disk.path) else "not labelled")

    refused = pytest.raises(guard.Refused, match=r"\(ext4\)")
    with refused, guarding.claimed(ext4.path, overwrite=False, record=record):
        pytest.fail("the device was claimed")
    assert seen == []
    with guarding.claimed(ext4.path, overwrite=True, record=record):
        pass
    assert seen == ["ext4", "labelled"]


def test_nothing_to_probe_with_is_a_refusal(loop_device: LoopDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = loop_device()
    monkeypatch.setattr(commands, "which", lambda _: None)
    with pytest.raises(guard.Refused, match="`blkid ") as caught:
        guarding.check_contents(loop.path)
    assert isinstance(caught.value.__cause__, commands.CommandError)
    assert caught.value.__cause__.returncode is None
