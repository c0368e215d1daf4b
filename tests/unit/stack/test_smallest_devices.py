"""The smallest devices of layers: a stack that cannot fit is refused before anything is built."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.devices import DeviceGroup, DirectoryDevice, DiskDevice, LoopDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.filesystems import Filesystem
from pytest_fsstack.stack.model import Device, DeviceError, Fits, Stack

MIB = 1 << 20


def parsed(text: str) -> Stack:
    return Stack.parse(text, BUILT_IN)


def needed(text: str, device: Device) -> DeviceError:
    with pytest.raises(DeviceError) as caught:
        parsed(text).check_device(device, BUILT_IN, text)
    return caught.value


@pytest.mark.parametrize(
    ("stack", "least"),
    [
        ("xfs", 300),
        ("luks | xfs", 316),
        ("luks(type='luks1') | xfs", 302),
        ("luks(format='--luks2-metadata-size 16k') | xfs", 300),
        ("dmcrypt | xfs", 300),
        ("linear(offset='1M') | xfs", 301),
        ("lvm | xfs", 301),
        ("lvm(kind='snapshot') | xfs", 669),
        ("pool(2) | lvm(kind='raid1') | xfs", 301),
        ("pool(2) | lvm | xfs", 153),
        ("raid(level=1) | xfs", 600),
        ("md(level=10) | xfs", 150),
        ("md(level=5) | xfs", 150),
        ("ext4 | loop | xfs", 334),
        ("xfs(external_log=True)", 300),
        ("btrfs", 109),
        ("btrfs(data='dup', metadata='dup')", 229),
        ("btrfs(metadata='single')", 45),
        ("pool(2) | btrfs", 69),
        ("pool(2) | btrfs(data='raid1', metadata='raid1')", 125),
        ("zfs", 64),
        ("f2fs", 52),
        ("jfs", 16),
        ("ext3", 2),
    ],
)
def test_the_smallest_device_of_a_stack_is_named(stack: str, least: int) -> None:
    parsed(stack).check_device(LoopDevice(least * MIB), BUILT_IN)
    error = needed(stack, LoopDevice((least - 1) * MIB))
    assert f"--fsstack-size={least}M" in error.lack.remedy
    assert Fits(parsed(stack), LoopDevice((least - 1) * MIB), BUILT_IN).missing() == error.lack


@pytest.mark.parametrize("stack", ["linear(size='64M') | xfs", "ext4 | loop(size='100M') | xfs"])
def test_no_size_of_the_device_helps_a_layer_of_fixed_size(stack: str) -> None:
    error = needed(stack, LoopDevice(1 << 40))
    assert "--fsstack-size" not in str(error)
    assert "300.0 MiB" in error.lack.what
    assert stack[error.start : error.end] == "xfs"


@pytest.mark.parametrize(
    "stack", ["tmpfs", "tmpfs | loop | xfs", "xfs(binary='/opt/mkfs.xfs')", "btrfs(mkfs='-M')", "f2fs(mkfs='-s 2')"]
)
def test_what_is_unknown_is_not_refused(stack: str) -> None:
    parsed(stack).check_device(LoopDevice(16 * MIB), BUILT_IN)


def test_the_log_may_be_on_a_smaller_device_of_a_group() -> None:
    class Disk(DiskDevice):
        def sizes(self, count: int) -> tuple[int, ...]:
            return ((64 if self.path.name == "log" else 300) * MIB,)

    data, log = Disk(Path("/dev/data"), overwrite=False), Disk(Path("/dev/log"), overwrite=False)
    parsed("xfs(external_log=True)").check_device(DeviceGroup((data, log)), BUILT_IN)
    assert "300.0 MiB" in str(needed("xfs(external_log=True)", DeviceGroup((log, data))))


def test_the_size_of_a_directory_is_not_known(tmp_path: Path) -> None:
    parsed("loop | xfs").check_device(DirectoryDevice(tmp_path), BUILT_IN)


FORMATTED = [name for name in BUILT_IN if issubclass(cls := BUILT_IN[name], Filesystem) and cls.smallest]


@pytest.mark.parametrize("name", FORMATTED)
def test_the_real_mkfs_agrees(name: str, tmp_path: Path) -> None:
    """mkfs takes the smallest device, and refuses one that is a sixteenth smaller."""
    layer = parsed(name).layers[0]
    assert isinstance(layer, Filesystem)
    if shutil.which(layer.program.command, path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip(f"{layer.program.command} is not installed")
    (least,) = layer.least_sizes(1)
    assert formatted(layer, tmp_path, least)
    # What mkfs.ext3 makes there has no journal.
    if name != "ext3":
        assert not formatted(layer, tmp_path, least * 15 // 16)


def formatted(layer: Filesystem, directory: Path, size: int) -> bool:
    image = directory / "image"
    with image.open("wb") as file:
        file.truncate(size)
    command = [layer.program.command, *layer.mkfs_words(), str(image)]
    return subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0
