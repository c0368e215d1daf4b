"""Attacks on sessions with two devices: nothing of what is somebody's may be written to, on either position."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands, guard
from pytest_fsstack.machine.descriptors import opened
from tests.real.conftest import Loop, LoopDevice, Sessions, run
from tests.real.machine.test_hidden_users_of_devices import DESCRIPTORS_OF_ITS_OWN, MAIN_THREAD_ENDED, MAPPING, running
from tests.real.machine.test_several_devices import LOGGED, MIB, MIRROR, group

pytestmark = pytest.mark.root


@pytest.fixture
def pair(loop_device: LoopDevice) -> tuple[Loop, Loop]:
    return loop_device(size=320 * MIB), loop_device(size=320 * MIB)


# -- who uses one of them ----------------------------------------------------------------------------------------------

Use = Callable[[Loop, Path], AbstractContextManager[object]]


@contextlib.contextmanager
def open_by(loop: Loop, directory: Path) -> Iterator[None]:
    with opened(loop.path):
        yield


@contextlib.contextmanager
def mounted_elsewhere(loop: Loop, directory: Path) -> Iterator[None]:
    run("mkfs.ext4", "-q", loop.path)
    script = f"mount -o ro {loop.path} {directory} && echo ready && exec sleep 600"
    with subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def member_of_a_mounted_pool(loop: Loop, directory: Path) -> Iterator[None]:
    # Only the first of its devices is named as the source of the mount.
    first = directory / "first"
    with first.open("wb") as file:
        file.truncate(320 * MIB)
    with attached(first) as other:
        run("mkfs.btrfs", "-q", "-f", "-d", "raid1", other, loop.path)
        (target := directory / "pool").mkdir()
        run("mount", "-o", f"ro,device={loop.path}", other, target)
        try:
            yield
        finally:
            run("umount", target)
            run("btrfs", "device", "scan", "--forget", loop.path)


@contextlib.contextmanager
def behind_a_loop(loop: Loop, directory: Path) -> Iterator[None]:
    with attached(loop.path):
        yield


@contextlib.contextmanager
def read_only(loop: Loop, directory: Path) -> Iterator[None]:
    run("blockdev", "--setro", loop.path)
    try:
        yield
    finally:
        run("blockdev", "--setrw", loop.path)


@contextlib.contextmanager
def with_a_mounted_partition(loop: Loop, directory: Path) -> Iterator[None]:
    (part,) = loop.partition("gpt", "size=200MiB")
    run("mkfs.ext4", "-q", part)
    run("mount", "-o", "ro", part, directory)
    try:
        yield
    finally:
        run("umount", directory)


@contextlib.contextmanager
def attached(below: Path) -> Iterator[Path]:
    loop = Path(run("losetup", "-f", "--show", below))
    try:
        yield loop
    finally:
        run("losetup", "-d", loop)


USES: dict[str, Use] = {
    "open": open_by,
    "mounted in another namespace": mounted_elsewhere,
    "member of a mounted pool": member_of_a_mounted_pool,
    "behind a loop device": behind_a_loop,
    "read-only": read_only,
    "with a mounted partition": with_a_mounted_partition,
    "open in a thread whose process seems dead": lambda loop, directory: running(MAIN_THREAD_ENDED, loop.path),
    "open in a thread with descriptors of its own": lambda loop, directory: running(DESCRIPTORS_OF_ITS_OWN, loop.path),
    "mapped into memory": lambda loop, directory: running(MAPPING, loop.path),
}


@pytest.mark.usefixtures("locks", "impatient")
@pytest.mark.parametrize(("use", "position"), list(zip(USES, itertools.cycle([0, 1]))))
def test_a_device_that_somebody_uses_is_refused_with_the_flag_too(
    pair: tuple[Loop, Loop], tmp_path: Path, use: str, position: int
) -> None:
    (directory := tmp_path / "here").mkdir()
    with USES[use](pair[position], directory), pair[0].untouched(), pair[1].untouched():
        for overwrite in False, True:
            with pytest.raises(guard.Refused) as caught, group(*(loop.path for loop in pair), overwrite=overwrite):
                pytest.fail("the group was held")
            assert caught.value.device == pair[position].path


# -- the same bytes by two names ---------------------------------------------------------------------------------------


def another_loop_on_the_file(pair: tuple[Loop, Loop], undo: ExitStack) -> tuple[Path, Path]:
    return pair[0].path, undo.enter_context(attached(pair[0].image))


def a_loop_on_the_device(pair: tuple[Loop, Loop], undo: ExitStack) -> tuple[Path, Path]:
    return pair[0].path, undo.enter_context(attached(pair[0].path))


def a_node_of_its_own(pair: tuple[Loop, Loop], undo: ExitStack) -> tuple[Path, Path]:
    node = pair[0].image.with_name("node")
    status = pair[0].path.stat()
    os.mknod(node, status.st_mode, status.st_rdev)
    return pair[0].path, node


def a_link(pair: tuple[Loop, Loop], undo: ExitStack) -> tuple[Path, Path]:
    link = pair[0].image.with_name("link")
    link.symlink_to(pair[0].path)
    return pair[0].path, link


def a_partition(pair: tuple[Loop, Loop], undo: ExitStack) -> tuple[Path, Path]:
    return pair[0].path, pair[0].partition("gpt", "size=100MiB", "size=100MiB")[0]


@pytest.mark.usefixtures("locks", "impatient")
@pytest.mark.parametrize("swapped", [False, True], ids=["second", "first"])
@pytest.mark.parametrize(
    "names", [another_loop_on_the_file, a_loop_on_the_device, a_node_of_its_own, a_link, a_partition]
)
def test_two_names_of_the_same_bytes_are_refused(
    pair: tuple[Loop, Loop],
    names: Callable[[tuple[Loop, Loop], ExitStack], tuple[Path, Path]],
    swapped: bool,
) -> None:
    with ExitStack() as undo:
        one, other = names(pair, undo)
        undo.enter_context(pair[0].untouched())
        for overwrite in False, True:
            paths = (other, one) if swapped else (one, other)
            with pytest.raises(guard.Refused), group(*paths, overwrite=overwrite):
                pytest.fail("the group was held")


# -- what whole sessions make of it ------------------------------------------------------------------------------------


def test_a_device_that_two_groups_name_differently_is_refused(
    pair: tuple[Loop, Loop], loop_device: LoopDevice, sessions: Sessions
) -> None:
    third, (first, second) = loop_device(size=320 * MIB), pair
    link = sessions.directory / "link"
    link.symlink_to(second.path)
    sessions.write(MIRROR)
    groups = [f"--fsstack-device={one}+{other}" for one, other in ((first.path, second.path), (link, third.path))]
    with first.untouched(), second.untouched(), third.untouched():
        result = sessions.run(*groups, "--fsstack-rounds=1")
    assert result.returncode == 4, result.stdout
    assert re.search(f"{link} .*session", result.stdout + result.stderr)


@pytest.mark.parametrize("flag", ["{second}", "{first}+{second}", "{link}"], ids=["of the other", "of both", "by link"])
def test_the_flag_is_of_one_device_only(pair: tuple[Loop, Loop], sessions: Sessions, flag: str) -> None:
    first, second = pair
    for loop in pair:
        run("mkfs.ext4", "-q", loop.path)
    # When the command line has been read, the link leads to the device with data that nobody gave up.
    link = sessions.directory / "link"
    link.symlink_to(second.path)
    sessions.write(MIRROR)
    (sessions.directory / "conftest.py").write_text(
        "import os\ndef pytest_configure(config):\n"
        f"    os.symlink({str(first.path)!r}, 'new')\n    os.replace('new', {str(link)!r})\n"
    )
    devices = [f"--fsstack-device={first.path}", f"--fsstack-device={second.path}"]
    word = flag.format(first=first.path, second=second.path, link=link)
    with first.untouched(), second.untouched():
        result = sessions.run(*devices, f"--fsstack-overwrite={word}", "--fsstack-rounds=1")
    assert result.returncode == 4, result.stdout
    assert "passed" not in result.stdout


@pytest.mark.parametrize("stack", [MIRROR, LOGGED[0]])
def test_after_sigkill_what_somebody_put_there_since_stays_on_both_devices(
    pair: tuple[Loop, Loop], sessions: Sessions, stack: str
) -> None:
    first, second = pair
    sessions.write(stack)
    process = sessions.start(*(f"--fsstack-device={loop.path}" for loop in pair), "--fsstack-rounds=1")
    sessions.kill(process)
    assert first.free()
    assert second.free()
    option = f"device={second.path}" if stack == MIRROR else f"journal_path={second.path}"
    (target := sessions.directory / "here").mkdir()

    def photo(text: str = "") -> str:
        run("mount", "-o", option, first.path, target)
        try:
            if text:
                (target / "photo").write_text(text)
            return (target / "photo").read_text()
        finally:
            run("umount", target)
            subprocess.run(["btrfs", "device", "scan", "--forget", first.path, second.path], capture_output=True)

    assert photo("not to be lost")
    with first.untouched(), second.untouched():
        result = sessions.run("--fsstack-cleanup")
        assert all(f"disk {loop.path}" in result.stdout for loop in pair), result.stdout
        again = sessions.run(*(f"--fsstack-device={loop.path}" for loop in pair), "--fsstack-rounds=1")
        assert again.returncode == 4, again.stdout
    assert photo() == "not to be lost"


def test_after_sigkill_both_devices_are_given_over_again_one_by_one(
    pair: tuple[Loop, Loop], sessions: Sessions
) -> None:
    sessions.write(MIRROR)
    devices = [f"--fsstack-device={loop.path}" for loop in pair]
    process = sessions.start(*devices, "--fsstack-rounds=1")
    sessions.kill(process)
    (sessions.directory / "wait").unlink()
    assert commands.wait_until(lambda: all(loop.free(1) for loop in pair), 60)
    flags = [f"--fsstack-overwrite={loop.path}" for loop in pair]
    assert sessions.run(*devices, flags[0], "--fsstack-rounds=1").returncode == 4
    result = sessions.run(*devices, *flags, "--fsstack-rounds=1")
    assert result.returncode == 0, result.stdout
    assert [guard.labelled(loop.path) for loop in pair] == [True, True]
