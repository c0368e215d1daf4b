"""Stacks of several real devices: what is built, what is refused, and that nothing is formatted but what was meant."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice as LoopFile, RamDevice, parse_device
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import guard
from pytest_fsstack.machine.descriptors import opened
from pytest_fsstack.stack.build import BuildError, build
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext
from tests.real.conftest import Loop, LoopDevice, built, run, small_session

pytestmark = pytest.mark.root

MIB = 1 << 20
MIRROR = 'pool(2) | btrfs(data="raid1", metadata="raid1")'
LOGGED = ("ext4(external_log=True)", "xfs(external_log=True)")
Held = AbstractContextManager[None]


def group(*paths: Path, overwrite: bool = False) -> Held:
    given_up = {guard.identify(path).identity for path in paths} if overwrite else ()
    return parse_device("+".join(map(str, paths)), size=0, overwrite=given_up).held()


@pytest.fixture
def pair(loop_device: LoopDevice) -> tuple[Loop, Loop]:
    return loop_device(size=256 * MIB), loop_device(size=256 * MIB)


# -- what is built -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("pool(4) | btrfs(data='raid10', metadata='raid10')", "RAID10"),
        ("pool(2) | btrfs(data='single', metadata='raid1')", "single"),
    ],
)
def test_btrfs_has_its_profile_on_files(text: str, profile: str, context: BuildContext) -> None:
    device = RamDevice(256 * MIB) if profile == "single" else LoopFile(256 * MIB)
    content = os.urandom(4 * MIB)
    with built(text, device, context) as stack:
        (stack.path / "file").write_bytes(content)
        stack.sync()
        usage = run("btrfs", "filesystem", "df", stack.path)
        assert re.search(rf"^Data, {profile}:", usage, re.MULTILINE)
        assert len(stack.disks) == stack.stack.members
        stack.remount()
        assert (stack.path / "file").read_bytes() == content
        assert all(checked.clean for checked in [*stack.scrub().values(), *stack.fsck().values()])


@pytest.mark.parametrize(
    ("text", "sections"),
    [
        ("zfs(vdev='mirror', devices=2)", {"mirror-0": 2}),
        ("pool(4) | zfs(vdev='mirror', log=True, cache=True)", {"mirror-0": 2, "logs": 1, "cache": 1}),
    ],
)
def test_zfs_has_its_devices_in_their_roles(text: str, sections: dict[str, int], context: BuildContext) -> None:
    content = os.urandom(4 * MIB)
    with built(text, LoopFile(256 * MIB), context) as stack:
        (stack.path / "file").write_bytes(content)
        stack.remount()
        assert (stack.path / "file").read_bytes() == content
        lines = [Path(line.split()[0]).name for line in run("zpool", "status").splitlines() if line.startswith("\t")]
        for section, count in sections.items():
            start = lines.index(section) + 1
            assert set(lines[start : start + count]) <= {disk.path.name for disk in stack.disks}
        assert all(checked.clean for checked in stack.scrub().values())


@pytest.mark.parametrize("text", ["xfs(external_log=True)", "ext4(external_log=True, mkfs='-b 1024')"])
def test_a_log_is_on_the_second_device(text: str, context: BuildContext) -> None:
    content = os.urandom(4 * MIB)
    with built(text, LoopFile(384 * MIB), context) as stack:
        log = stack.disks[1].path
        before = written_sectors(log)
        (stack.path / "file").write_bytes(content)
        stack.sync()
        assert written_sectors(log) > before
        stack.remount()
        assert (stack.path / "file").read_bytes() == content
        (checked,) = stack.fsck().values()
        assert checked.clean, checked


def written_sectors(device: Path) -> int:
    return int((Path("/sys/class/block") / device.name / "stat").read_text().split()[6])


@pytest.mark.parametrize(
    ("text", "incomplete", "lost"),
    [(MIRROR, "MISSING", [1, 0]), ("pool(2) | zfs(vdev='mirror')", "DEGRADED", [0])],
    ids=["btrfs", "zfs"],
)
def test_it_lives_without_a_device_and_is_whole_again(
    text: str, incomplete: str, lost: list[int], loop_device: LoopDevice, context: BuildContext
) -> None:
    def state() -> str:
        return run("btrfs", "filesystem", "show", stack.path) if text == MIRROR else run("zpool", "status")

    parsed = Stack.parse(text, BUILT_IN)
    # On 256 MiB, Btrfs sometimes has no room for the chunks that a rebuild needs (ENOSPC in the kernel's log).
    loops = [loop_device(size=1024 * MIB) for _ in range(parsed.members)]
    device = parse_device("+".join(str(loop.path) for loop in loops), size=0, overwrite=())
    contents = {"before": os.urandom(4 * MIB)}
    with device.held(), build(parsed, device, context) as stack:
        (stack.path / "before").write_bytes(contents["before"])
        for number in lost:
            stack.take_away(number)
            assert incomplete in state()
            name = f"without {number}"
            contents[name] = os.urandom(4 * MIB)
            (stack.path / name).write_bytes(contents[name])
            stack.remount()
            assert all(checked.clean for checked in [*stack.scrub().values(), *stack.fsck().values()])
            stack.give_back()
            stack.wait_until_rebuilt()
            stack.remount()
            assert {name: (stack.path / name).read_bytes() for name in contents} == contents
            assert incomplete not in state()
            if text == MIRROR:
                assert "single" not in re.sub("GlobalReserve.*", "", run("btrfs", "filesystem", "df", stack.path))
            assert all(checked.clean for checked in [*stack.scrub().values(), *stack.fsck().values()])
    assert all(guard.labelled(loop.path) for loop in loops)


def test_what_cannot_lose_a_device_says_so_and_stands(context: BuildContext) -> None:
    with built("pool(2) | btrfs(data='raid0', metadata='raid1')", LoopFile(256 * MIB), context) as stack:
        with pytest.raises(BuildError, match="btrfs: data"):
            stack.take_away()
        with pytest.raises(BuildError, match=r"`pool\(2\) \| btrfs\(.*\bdevices\b"):
            stack.give_back()
        assert stack.is_open
    with built(MIRROR, LoopFile(256 * MIB), context) as stack:
        with pytest.raises(BuildError, match=r"`.*`.*\b2\b.*\b2\b"):
            stack.take_away(2)
        stack.take_away()
        with pytest.raises(BuildError, match=r"`.*`.*\b1\b.*\blost\b"):
            stack.take_away()


def test_the_commands_of_two_devices_build_a_mirror_and_leave_both_labelled(
    pair: tuple[Loop, Loop], tmp_path: Path
) -> None:
    words = [f"--fsstack-device={loop.path}" for loop in pair]
    result = small_session(tmp_path, *words, f"--fsstack-stacks={MIRROR}", "--fsstack-dry-run")
    for loop in pair:
        assert re.search(rf"\bdevice: {loop.path}\b.*\bOVERWRITTEN$", result.stdout, re.MULTILINE)
    result = small_session(tmp_path, *words, "-v", f"--fsstack-stacks={MIRROR}")
    assert result.returncode == 0, result.stdout
    assert "test_write[pool-2+btrfs-raid1-raid1] PASSED" in result.stdout
    assert [guard.labelled(loop.path) for loop in pair] == [True, True]


def test_a_stack_of_one_device_uses_the_first_one_of_a_group(pair: tuple[Loop, Loop], tmp_path: Path) -> None:
    first, second = pair
    word = f"--fsstack-device={first.path}+{second.path}"
    with second.untouched():
        result = small_session(tmp_path, word, "--fsstack-dry-run")
        (line,) = [line for line in result.stdout.splitlines() if f"device: {second.path}" in line]
        assert "OVERWRITTEN" not in line
        assert small_session(tmp_path, word).returncode == 0
    assert guard.labelled(first.path)
    result = small_session(tmp_path, word, "--fsstack-stacks=ext4", f"--fsstack-stacks={MIRROR}", "--fsstack-dry-run")
    assert re.search(rf"\bdevice: {second.path}\b.*\bOVERWRITTEN\b.* pool-2\+btrfs", result.stdout)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stacks", [(MIRROR,), ("ext4", MIRROR)], ids=["three devices for two", "one stack of one device"]
)
def test_devices_are_one_group_only_if_all_stacks_need_just_that_many(
    pair: tuple[Loop, Loop], loop_device: LoopDevice, tmp_path: Path, stacks: tuple[str, ...]
) -> None:
    loops = [*pair, loop_device()] if len(stacks) == 1 else [*pair]
    with contextlib.ExitStack() as untouched:
        for loop in loops:
            untouched.enter_context(loop.untouched())
        devices = [f"--fsstack-device={loop.path}" for loop in loops]
        result = small_session(tmp_path, *devices, *(f"--fsstack-stacks={text}" for text in stacks))
    assert result.returncode in (1, 2, 4)
    assert re.search(r"\bpool\b.*\b2\b.*--fsstack-device=/dev/sdb\+/dev/sdc", result.stdout + result.stderr)
    assert "PASSED" not in result.stdout


@pytest.mark.usefixtures("locks")
def test_two_partitions_of_one_disk_are_two_devices(pair: tuple[Loop, Loop]) -> None:
    with group(*pair[0].partition("gpt", "size=100MiB", "size=100MiB")):
        pass


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"/dev/loop0\+/dev/loop0: /dev/loop0 "):
        parse_device("/dev/loop0+/dev/loop0", size=0, overwrite=())


@pytest.mark.usefixtures("locks")
@pytest.mark.parametrize("position", [0, 1])
def test_one_of_two_that_is_too_small_is_refused(
    pair: tuple[Loop, Loop], loop_device: LoopDevice, position: int
) -> None:
    loops = [pair[0], pair[0]]
    loops[position] = loop_device(size=8 * MIB)
    loops[1 - position] = pair[1]
    refused = pytest.raises(guard.Refused, match=rf"{loops[position].path} .*\(8388608 bytes\)")
    with loops[0].untouched(), loops[1].untouched(), refused:
        with group(*(loop.path for loop in loops)):
            pytest.fail("the group was held")


@pytest.fixture
def exchanged(pair: tuple[Loop, Loop], loop_device: LoopDevice, tmp_path: Path) -> Iterator[tuple[Path, Path, Loop]]:
    """A link to the second device, which a test turns to a third one, with somebody's files."""
    other = loop_device(size=256 * MIB)
    run("mkfs.ext4", "-q", "-L", "photos", other.path)
    link = tmp_path / "by-id"
    link.symlink_to(pair[1].path)
    with other.untouched():
        yield pair[0].path, link, other


def changed(link: Path, other: Loop) -> str:
    """Return a pattern for the refusal of a link, with the numbers of its device and of the other one."""
    return rf"{link} .*\b{guard.identify(link).number}\b.*\b{guard.identify(other.path).number}\b"


@pytest.mark.usefixtures("locks")
@pytest.mark.parametrize(("text", "position"), [(MIRROR, 0), (LOGGED[0], 1)])
def test_one_of_two_that_was_exchanged_is_refused_and_the_other_one_is_put_in_order(
    exchanged: tuple[Path, Path, Loop], pair: tuple[Loop, Loop], context: BuildContext, text: str, position: int
) -> None:
    first, link, other = exchanged
    names = (first, link) if position else (link, first)
    device = parse_device("+".join(map(str, names)), size=0, overwrite=())
    stack = Stack.parse(text, BUILT_IN)
    change = changed(link, other)
    with device.held():
        with build(stack, device, context):
            pass
        link.unlink()
        link.symlink_to(other.path)
        with pytest.raises((guard.Refused, BuildError), match=change), build(stack, device, context):
            pytest.fail("it was built")
    assert [guard.labelled(loop.path) for loop in pair] == [True, True]


@pytest.mark.usefixtures("locks")
def test_a_device_that_was_exchanged_while_it_was_away_is_not_taken_back(
    exchanged: tuple[Path, Path, Loop], context: BuildContext
) -> None:
    first, link, other = exchanged
    device = parse_device(f"{first}+{link}", size=0, overwrite=())
    change = changed(link, other)
    with device.held(), build(Stack.parse(MIRROR, BUILT_IN), device, context) as stack:
        stack.take_away(1)
        link.unlink()
        link.symlink_to(other.path)
        with pytest.raises((guard.Refused, BuildError), match=change):
            stack.give_back()


@pytest.mark.usefixtures("locks")
@pytest.mark.parametrize("text", [MIRROR, LOGGED[0]])
def test_nothing_is_formatted_if_the_second_device_is_in_use_by_now(
    pair: tuple[Loop, Loop], context: BuildContext, text: str
) -> None:
    device = parse_device("+".join(str(loop.path) for loop in pair), size=0, overwrite=())
    first, second = pair
    with device.held():
        in_use_here = rf"{second.path} .*\b{os.getpid()}\b"
        with opened(second.path, os.O_RDONLY | os.O_EXCL), second.untouched():
            with pytest.raises((guard.Refused, BuildError), match=in_use_here):
                with build(Stack.parse(text, BUILT_IN), device, context):
                    pytest.fail("it was built")
        assert guard.labelled(first.path)
