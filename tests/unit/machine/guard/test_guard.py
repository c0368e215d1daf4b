"""The guard on machines that exist only as files: what it reads from /proc and /sys."""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.machine import blockdev, commands, guard
from pytest_fsstack.machine.guard import disk, holding, reading, users
from tests import guarding


class Machine:
    """A fake /proc, /sys and /dev."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.sys, self.dev = root / "proc", root / "sys", root / "dev"
        self.numbers: dict[str, str] = {}
        for directory in self.proc, self.sys / "dev/block", self.sys / "block", self.sys / "fs/btrfs", self.dev:
            directory.mkdir(parents=True)
        self._opened = blockdev.opened
        for module, name, value in (
            (users, "PROC", self.proc),
            (users, "PATIENCE", 0.05),
            (users, "TERMINATION", 0.05),
            (blockdev, "SYS", self.sys),
            (blockdev, "number", self._number),
            (blockdev, "opened", self._open),
            (holding, "LOCKS", root / "lock"),
        ):
            monkeypatch.setattr(module, name, value)
        (self.proc / "swaps").write_text("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")
        self.process(1, "init")
        (self.proc / "self").symlink_to("1")

    def _open(self, path: Path, *words: Any) -> AbstractContextManager[int]:
        return self._opened(self.dev / path.relative_to("/dev") if path.is_relative_to("/dev") else path, *words)

    def _number(self, path: str | Path | int) -> str | None:
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        os.stat(path)
        return self.numbers.get(os.path.realpath(path))

    def _block(self, sysfs: Path, number: str, sectors: int) -> Path:
        sysfs.mkdir()
        (sysfs / "holders").mkdir()
        for name, value in ("dev", number), ("size", str(sectors)), ("ro", "0"):
            (sysfs / name).write_text(value + "\n")
        (self.sys / "dev/block" / number).symlink_to(sysfs)
        node = self.dev / sysfs.name
        node.touch()
        self.numbers[str(node)] = number
        return node

    def disk(self, name: str, number: str, sectors: int = 1 << 20, slaves: Iterable[str] = ()) -> Path:
        sysfs = self.sys / "block" / name
        node = self._block(sysfs, number, sectors)
        (sysfs / "slaves").mkdir()
        (sysfs / "diskseq").write_text("5\n")
        for slave in slaves:
            below = (self.sys / "dev/block" / self.numbers[str(self.dev / slave)]).resolve()
            (sysfs / "slaves" / slave).symlink_to(below)
            (below / "holders" / name).symlink_to(sysfs)
        return node

    def partition(self, disk: str, name: str, number: str, start: int, sectors: int) -> Path:
        sysfs = self.sys / "block" / disk / name
        node = self._block(sysfs, number, sectors)
        (sysfs / "partition").write_text("1\n")
        (sysfs / "start").write_text(f"{start}\n")
        return node

    def process(self, pid: int, comm: str, namespace: str = "1", root: str = "/", state: str = "S") -> Path:
        directory = self.proc / str(pid)
        for name in "ns", "fd", "fdinfo", "task", "map_files":
            (directory / name).mkdir(parents=True)
        (directory / "task" / str(pid)).symlink_to("..")
        (directory / "maps").write_text("")
        (directory / "comm").write_text(comm + "\n")
        (directory / "stat").write_text(f"{pid} ({comm}) {state} 1 1\n")
        (directory / "mountinfo").write_text("")
        (directory / "ns/mnt").symlink_to(f"mnt:[{namespace}]")
        (directory / "ns/pid").symlink_to("pid:[4026531836]")
        (directory / "root").symlink_to(root)
        return directory

    def mount(self, pid: int, number: str, target: str, source: str | Path = "none", kind: str = "ext4") -> None:
        escaped = str(source).replace(" ", "\\040")
        with (self.proc / str(pid) / "mountinfo").open("a") as file:
            file.write(f"20 1 {number} / {target} rw,relatime shared:1 - {kind} {escaped} rw\n")

    def opened(self, pid: int, node: Path, flags: str = "0100000") -> None:
        (self.proc / str(pid) / "fd/3").symlink_to(node)
        (self.proc / str(pid) / "fdinfo/3").write_text(f"pos:\t0\nflags:\t{flags}\nmnt_id:\t9\n")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def sdb(machine: Machine) -> Path:
    return machine.disk("sdb", "8:16")


def refusal(path: Path) -> str:
    """Return why a device is refused, without its name."""
    with pytest.raises(guard.Refused) as caught:
        # Nobody closes it soon.
        users.check_unused(guard.identify(path), frozenset(), 0.01)
    message = str(caught.value)
    assert caught.value.device == path
    assert message.startswith(f"{path} ")
    assert message.endswith(caught.value.reason)
    assert "\n" not in message
    return caught.value.reason


def test_an_idle_disk_is_accepted(machine: Machine, sdb: Path) -> None:
    machine.process(7, "other", namespace="2")
    guarding.check_idle(sdb)


# -- mounts ------------------------------------------------------------------------------------------------------------


def test_mounts_that_only_a_process_outside_a_chroot_sees(machine: Machine, sdb: Path) -> None:
    machine.process(7, "jailed", root="/jail")
    machine.process(8, "free", root="/other")
    machine.mount(8, "8:16", "/mnt")
    assert re.search(r"/mnt\b.*\b8\b.*\bfree\b", refusal(sdb))


def test_a_mount_with_an_anonymous_number_is_found_by_its_source(machine: Machine, sdb: Path) -> None:
    machine.mount(1, "0:40", "/mnt", source=sdb, kind="btrfs")
    assert "/mnt" in refusal(sdb)


def test_a_source_without_a_node_in_our_namespace_is_found_by_its_name(machine: Machine, sdb: Path) -> None:
    (machine.sys / "class/block").mkdir(parents=True)
    (machine.sys / "class/block/fsstack-test-sdb").symlink_to(machine.sys / "block/sdb")
    machine.mount(1, "0:40", "/mnt", source="/dev/fsstack-test-sdb", kind="btrfs")
    assert "/mnt" in refusal(sdb)


def test_a_device_that_the_kernel_exports(machine: Machine, sdb: Path) -> None:
    (machine.sys / "module/nvmet").mkdir(parents=True)
    assert "configfs" in refusal(sdb)
    namespace = machine.sys / "kernel/config/nvmet/subsystems/testnqn/namespaces/1"
    namespace.mkdir(parents=True)
    (namespace / "device_path").write_text(f"{sdb}\n")
    (namespace / "enable").write_text("1\n")
    assert f"{namespace}/enable" in refusal(sdb)
    (namespace / "enable").write_text("0\n")
    guarding.check_idle(sdb)


# -- partitions --------------------------------------------------------------------------------------------------------


@pytest.fixture
def laptop(machine: Machine) -> Machine:
    """A disk with the root filesystem on LVM on LUKS on its second partition; the third is idle."""
    machine.disk("sda", "8:0", 3000000)
    machine.partition("sda", "sda1", "8:1", 2048, 100000)
    machine.partition("sda", "sda2", "8:2", 200000, 1000000)
    machine.partition("sda", "sda3", "8:3", 2000000, 1000000)
    machine.disk("dm-0", "253:0", slaves=["sda2"])
    machine.disk("dm-1", "253:1", slaves=["dm-0"])
    machine.mount(1, "253:1", "/")
    machine.mount(1, "8:1", "/boot")
    return machine


@pytest.mark.parametrize("name", ["sda", "sda2", "dm-0", "dm-1"])
def test_all_that_the_root_filesystem_is_on_is_refused(laptop: Machine, name: str) -> None:
    assert "root" in refusal(laptop.dev / name)


def test_the_root_filesystem_of_a_chrooted_session_is_that_of_init_too(laptop: Machine) -> None:
    laptop.process(9, "pytest", root="/jail")
    (laptop.proc / "self").unlink()
    (laptop.proc / "self").symlink_to("9")
    assert "root" in refusal(laptop.dev / "sda2")


def test_an_idle_partition_of_the_disk_with_the_root_filesystem_is_accepted(laptop: Machine) -> None:
    guarding.check_idle(laptop.dev / "sda3")


def test_a_partition_is_in_use_when_its_disk_is(machine: Machine, sdb: Path) -> None:
    sdb1 = machine.partition("sdb", "sdb1", "8:17", 2048, 100000)
    machine.mount(1, "8:16", "/mnt")
    assert re.search(r"/dev/sdb\b.*/mnt", refusal(sdb1))


def test_a_partition_is_in_use_when_one_that_overlaps_it_is(machine: Machine, sdb: Path) -> None:
    sdb1 = machine.partition("sdb", "sdb1", "8:17", 2048, 100000)
    machine.partition("sdb", "sdb2", "8:18", 50000, 100000)
    machine.mount(1, "8:18", "/mnt")
    assert re.search(r"/dev/sdb2\b.*/mnt", refusal(sdb1))


# -- several ways to one disk ------------------------------------------------------------------------------------------


def paths_to_one_disk(machine: Machine, file: str = "device/wwid", text: str = "naa.6001405", *names: str) -> None:
    for name in names or ("sdb", "sdc"):
        path = machine.sys / "block" / name / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")


@pytest.mark.parametrize("file", ["device/wwid", "wwid", "serial"])
def test_a_mount_through_another_path_to_the_disk(machine: Machine, sdb: Path, file: str) -> None:
    machine.disk("sdc", "8:32")
    paths_to_one_disk(machine, file)
    guarding.check_idle(sdb)
    machine.mount(1, "8:32", "/mnt")
    assert re.search(r"/dev/sdc\b.*6001405.*/mnt", refusal(sdb))


def test_a_partition_that_is_mounted_through_another_path(machine: Machine, sdb: Path) -> None:
    machine.disk("sdc", "8:32")
    for name, numbers in ("sdb", ("8:17", "8:18")), ("sdc", ("8:33", "8:34")):
        machine.partition(name, f"{name}1", numbers[0], 2048, 100000)
        machine.partition(name, f"{name}2", numbers[1], 102048, 100000)
    paths_to_one_disk(machine)
    machine.mount(1, "8:33", "/mnt")
    assert "/dev/sdc1" in refusal(sdb)
    assert "/dev/sdc1" in refusal(machine.dev / "sdb1")
    guarding.check_idle(machine.dev / "sdb2")


def test_another_path_is_part_of_a_mapping(machine: Machine, sdb: Path) -> None:
    machine.disk("sdc", "8:32")
    machine.disk("dm-0", "253:0", slaves=["sdc"])
    paths_to_one_disk(machine)
    assert re.search(r"/dev/sdc\b.*/dev/dm-0", refusal(sdb))


def multipath(machine: Machine) -> Path:
    for name, number in ("sdb", "8:16"), ("sdc", "8:32"):
        machine.disk(name, number)
    paths_to_one_disk(machine)
    node = machine.disk("dm-0", "253:0", slaves=["sdb", "sdc"])
    paths_to_one_disk(machine, "dm/uuid", "mpath-36001405", "dm-0")
    return node


def test_the_paths_of_an_idle_multipath_device_are_its_own(machine: Machine) -> None:
    guarding.check_idle(multipath(machine))


def test_a_path_that_is_not_in_the_multipath_device(machine: Machine) -> None:
    node = multipath(machine)
    machine.disk("sdd", "8:48")
    paths_to_one_disk(machine, "device/wwid", "naa.6001405", "sdd")
    machine.mount(1, "8:48", "/mnt")
    assert "/dev/sdd" in refusal(node)
    assert re.search("/dev/dm-0|/mnt", refusal(machine.dev / "sdd"))


def test_two_namespaces_of_one_controller_are_two_disks(machine: Machine) -> None:
    one = machine.disk("nvme0n1", "259:0")
    machine.disk("nvme0n2", "259:1")
    paths_to_one_disk(machine, "device/serial", "S4EVNX0N", "nvme0n1", "nvme0n2")
    for name in "nvme0n1", "nvme0n2":
        paths_to_one_disk(machine, "wwid", f"eui.{name}", name)
    machine.mount(1, "259:1", "/mnt")
    guarding.check_idle(one)


def test_disks_that_say_nothing_of_themselves_are_not_the_same(machine: Machine, sdb: Path) -> None:
    machine.disk("sdc", "8:32")
    paths_to_one_disk(machine, "device/wwid", "")
    machine.mount(1, "8:32", "/mnt")
    guarding.check_idle(sdb)


def test_another_path_that_is_only_read_is_no_reason(machine: Machine, sdb: Path) -> None:
    sdc = machine.disk("sdc", "8:32")
    paths_to_one_disk(machine)
    machine.process(7, "multipathd")
    machine.opened(7, sdc)
    guarding.check_idle(sdb)
    (machine.proc / "7/fdinfo/3").write_text("flags:\t0100002\n")
    assert re.search(r"/dev/sdc\b.*\b7\b.*\bmultipathd\b", refusal(sdb))


# -- swap, device mapper, md, loop -------------------------------------------------------------------------------------


def test_a_swap_file_is_not_the_device(machine: Machine, sdb: Path) -> None:
    (machine.dev / "swapfile").touch()
    with (machine.proc / "swaps").open("a") as file:
        file.write(f"{machine.dev / 'swapfile'} file 1000 0 -2\n")
    guarding.check_idle(sdb)


def test_a_kernel_without_swap_has_no_list_of_it(machine: Machine, sdb: Path) -> None:
    (machine.proc / "swaps").unlink()
    (machine.proc / "filesystems").touch()
    guarding.check_idle(sdb)


def test_a_member_of_a_device_mapper_device(machine: Machine, sdb: Path) -> None:
    machine.disk("dm-3", "253:3", slaves=["sdb"])
    (machine.sys / "block/dm-3/dm").mkdir()
    (machine.sys / "block/dm-3/dm/name").write_text("vg-data\n")
    assert "vg-data" in refusal(sdb)


def test_a_partition_in_an_md_array(machine: Machine, sdb: Path) -> None:
    machine.partition("sdb", "sdb1", "8:17", 2048, 100000)
    machine.disk("md0", "9:0", slaves=["sdb1"])
    assert re.search(r"/dev/sdb1\b.*/dev/md0\b", refusal(sdb))


def test_an_idle_device_mapper_device_is_accepted(machine: Machine, sdb: Path) -> None:
    guarding.check_idle(machine.disk("dm-3", "253:3", slaves=["sdb"]))


# -- open files --------------------------------------------------------------------------------------------------------


def test_a_process_that_closes_it_soon_is_waited_for(
    machine: Machine, sdb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(7, "udev-worker")
    machine.opened(7, sdb)
    looked: list[str] = []

    def close_it(link: str) -> str | None:
        if looked:
            return None
        looked.append(link)
        return "8:16"

    monkeypatch.setattr(users, "_number_behind", close_it)
    guarding.check_idle(sdb)
    assert looked


@pytest.mark.parametrize(("flags", "refused"), [("0100000", False), ("0100001", True), ("0100002", True)])
def test_only_writing_to_the_whole_disk_endangers_a_partition(
    machine: Machine, sdb: Path, flags: str, refused: bool
) -> None:
    sdb1 = machine.partition("sdb", "sdb1", "8:17", 2048, 100000)
    machine.process(7, "smartd")
    machine.opened(7, sdb, flags)
    if refused:
        assert re.search(r"/dev/sdb\b.*\b7\b.*\bsmartd\b", refusal(sdb1))
    else:
        guarding.check_idle(sdb1)


# -- checks that cannot be made ----------------------------------------------------------------------------------------


def test_a_process_that_has_vanished_is_no_reason(machine: Machine, sdb: Path) -> None:
    (machine.proc / "7").mkdir()
    guarding.check_idle(sdb)


def test_a_zombie_is_no_reason(machine: Machine, sdb: Path) -> None:
    (machine.process(7, "dead", namespace="2", state="Z") / "mountinfo").unlink()
    guarding.check_idle(sdb)


def test_the_mounts_of_a_process_that_vanishes_are_read_from_another(
    machine: Machine, sdb: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine.process(6, "dead", namespace="2", state="Z") / "mountinfo").unlink()
    machine.process(7, "alive", namespace="2")
    machine.mount(7, "8:16", "/mnt")
    assert re.search(r"/mnt\b.*\b7\b.*\balive\b", refusal(sdb))


def test_a_living_process_that_cannot_be_looked_into_is_a_reason(machine: Machine, sdb: Path) -> None:
    (machine.process(7, "alive", namespace="2") / "mountinfo").unlink()
    assert re.search("No such file or directory .*/7/.*mountinfo", refusal(sdb))


@pytest.mark.parametrize(
    "missing", ["proc/swaps", "proc/1/mountinfo", "sys/block/sdb/ro", "sys/block/sdb/holders", "sys/dev/block/8:16"]
)
def test_a_missing_source_of_knowledge_is_a_reason(machine: Machine, sdb: Path, missing: str) -> None:
    path = machine.dev.parent / missing
    path.rename(path.with_name("moved-away"))
    assert re.search(f"No such file or directory .*/{path.name}", refusal(sdb))


def test_an_ordinary_user_is_told_to_be_root(
    machine: Machine, sdb: Path, monkeypatch: pytest.MonkeyPatch, become: Callable[[int], None]
) -> None:
    hide_files_of(1, machine, monkeypatch)
    become(1000)
    assert re.search("Permission denied.*sudo", refusal(sdb))


def test_init_may_hide_its_files_from_root(
    machine: Machine, sdb: Path, monkeypatch: pytest.MonkeyPatch, become: Callable[[int], None]
) -> None:
    hide_files_of(1, machine, monkeypatch)
    become(0)
    guarding.check_idle(sdb)


def test_others_may_not_hide_their_files_from_root(
    machine: Machine, sdb: Path, monkeypatch: pytest.MonkeyPatch, become: Callable[[int], None]
) -> None:
    machine.process(7, "secret")
    hide_files_of(7, machine, monkeypatch)
    become(0)
    assert re.search("Permission denied .*/7/fd", refusal(sdb))
    assert "sudo" not in refusal(sdb)


def hide_files_of(pid: int, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.opened(pid, machine.dev)

    def denied(link: str) -> str | None:
        if link.startswith(str(machine.proc / str(pid) / "task" / str(pid) / "fd")):
            raise PermissionError(errno.EACCES, "Permission denied", link)
        return None

    monkeypatch.setattr(users, "_number_behind", denied)


def test_a_container_that_hides_the_processes_of_the_host(machine: Machine, sdb: Path) -> None:
    link = machine.proc / "1/ns/pid"
    link.unlink()
    link.symlink_to("pid:[4026532000]")
    assert "--pid=host" in refusal(sdb)


def test_a_disk_that_was_plugged_in_again_is_another_one(machine: Machine, sdb: Path) -> None:
    with guard.held(guard.identify(sdb), overwrite=True) as disk:
        disk.check()
        (machine.sys / "block/sdb/diskseq").write_text("6\n")
        with pytest.raises(guard.Refused) as first:
            disk.check()
        assert first.value.device == sdb
        # What was another one once may have been so in between: it stays refused.
        (machine.sys / "block/sdb/diskseq").write_text("5\n")
        with pytest.raises(guard.Refused) as again:
            disk.check()
        assert again.value is first.value


def test_a_partition_is_told_apart_by_the_sequence_number_of_its_disk(machine: Machine, sdb: Path) -> None:
    sdb1 = machine.partition("sdb", "sdb1", "8:17", 2048, 100000)
    facts = guard.identify(sdb1).facts()
    assert facts == {
        "path": str(sdb1),
        "number": "8:17",
        "size": 51200000,
        "diskseq": 5,
        "start": 2048,
        "serial": None,
        "backing": None,
    }


# -- contents ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16 << 20, (16 << 20) + 512, 40 << 20, 1 << 30, 3_000_592_982_016])
def test_samples_reach_both_ends_and_the_gaps_are_even(size: int) -> None:
    samples = sorted(reading.samples(size))
    assert samples[0][0] == 0
    assert max(map(sum, samples)) == size
    ends = itertools.accumulate(map(sum, samples), max)
    gaps = [start - end for end, (start, _) in zip(ends, samples[1:])]
    assert max(gaps, default=0) <= size // 1000


@pytest.mark.parametrize("output", ["\n", "TYPE", "TYPE='ext4", '"', "\x00\xff=\n' ", "DEVNAME=/dev/sdb\n=\\"])
def test_a_blkid_that_cannot_be_understood_is_no_blank_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    (tmp_path / "said").write_text(output, encoding="latin-1")
    (tmp_path / "blkid").write_text(f"#!/bin/sh\ncat '{tmp_path}/said'\n")
    (tmp_path / "blkid").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(guard.Refused, match=r"`blkid .*sdb'?`") as caught:
        guard.signature(tmp_path / "sdb")
    assert isinstance(caught.value.__cause__, commands.CommandError)
    assert caught.value.__cause__.returncode == 0


@pytest.mark.parametrize(
    ("tags", "facts"),
    [
        ({"TYPE": "ext4", "USAGE": "filesystem", "LABEL": "my data"}, r"\bext4\b.*'my data'"),
        ({"TYPE": "crypto_LUKS", "USAGE": "crypto"}, r"\bcrypto_LUKS\b"),
        ({"PTTYPE": "gpt", "PTUUID": "1"}, r"\bgpt\b"),
        ({"TYPE": "swap", "USAGE": "other", "PTTYPE": "dos"}, r"\bswap\b.*\bdos\b"),
        ({"SYSTEM_ID": "x"}, r"\bSYSTEM_ID\b"),
    ],
)
def test_what_blkid_found_in_words(tags: dict[str, str], facts: str) -> None:
    assert re.search(facts, reading.in_words(tags) or "")
    assert reading.in_words({}) is None


def test_the_size_of_a_device_in_words() -> None:
    assert disk.shown_size(1000) == "1000 bytes"
    assert disk.shown_size(64 << 20) == "64.0 MiB (67108864 bytes)"
    assert disk.shown_size(3 << 30) == "3.0 GiB (3221225472 bytes)"


# -- locks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def locks(machine: Machine, sdb: Path) -> tuple[guard.Disk, guard.Disk, guard.Disk]:
    (machine.proc / "locks").write_text("")
    one = machine.partition("sdb", "sdb1", "8:17", 2048, 100000)
    two = machine.partition("sdb", "sdb2", "8:18", 200000, 100000)
    return guard.identify(sdb), guard.identify(one), guard.identify(two)


def test_two_partitions_of_a_disk_can_be_claimed_at_once(locks: tuple[guard.Disk, guard.Disk, guard.Disk]) -> None:
    _, one, two = locks
    with holding._locked(one), holding._locked(two):
        pass


@pytest.mark.parametrize(("first", "second"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_a_claim_excludes_all_others_on_the_same_bytes(
    locks: tuple[guard.Disk, guard.Disk, guard.Disk], first: int, second: int
) -> None:
    with (
        holding._locked(locks[first]),
        pytest.raises(guard.InUse),
        holding._locked(locks[second]),
    ):
        pytest.fail("both have it")
    with holding._locked(locks[second]):
        pass
