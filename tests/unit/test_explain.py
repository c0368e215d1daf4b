"""`fsstack stacks explain`: all commands in order, no secret, and nothing is run or written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fsstack.devices import DirectoryDevice, DiskDevice, LoopDevice, RamDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands
from pytest_fsstack.preflight import explain
from pytest_fsstack.stack.model import Device, Stack
from pytest_fsstack.stack.places import SESSION

LOOP = LoopDevice(1 << 30)


def explained(text: str, device: Device = LOOP) -> list[str]:
    explanation = explain.explained(Stack.parse(text, BUILT_IN), device)
    assert explanation.problem == ""
    # The environment of device-mapper's tools shows whether udevd runs here.
    return [line.removeprefix("DM_DISABLE_UDEV=1 ") for line in explanation.lines]


def commands_of(text: str, device: Device = LOOP) -> list[str]:
    return [line for line in explained(text, device) if line and not line.startswith("#")]


def test_the_commands_of_luks_stand_in_the_order_in_which_they_are_run() -> None:
    assert commands_of("luks | ext4(mount='noatime')") == [
        "cryptsetup --batch-mode luksFormat --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --cipher "
        "aes-xts-plain64 --key-size 512 --key-file /proc/self/fd/SECRET LOOP",
        "cryptsetup --batch-mode open --type luks --key-file /proc/self/fd/SECRET LOOP fsstack-ID-1-luks",
        "dmsetup remove --deferred fsstack-ID-1-luks",
        "wipefs -aq DM",
        "mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard DM",
        "mkdir -p DIR/2-ext4",
        "mount -t ext4 -o noatime DM DIR/2-ext4",
        # A remount is of what is mounted, and leaves the mapping.
        "umount DIR/2-ext4",
        "mkdir -p DIR/2-ext4",
        "mount -t ext4 -o noatime DM DIR/2-ext4",
        "umount DIR/2-ext4",
    ]


def test_sections_and_names_are_explained_and_only_those_that_there_are() -> None:
    lines = explained("luks | ext4")
    assert re.findall(r"^## (\w+)", "\n".join(lines), re.MULTILINE) == ["build", "remount", "take"]
    legend = [line.split(":")[0] for line in lines[1:4]]
    assert legend == ["# DIR", "# ID", "# SECRET"]
    assert not any(line.startswith("# SECRET") for line in explained("ext4"))
    # Nothing is mounted.
    assert re.findall(r"^## (\w+)", "\n".join(explained("raw")), re.MULTILINE) == ["build"]


def test_a_daemon_runs_in_the_background_and_gets_its_passphrase_by_a_descriptor() -> None:
    shown = commands_of("encfs", DirectoryDevice(Path("/srv/x")))
    encfs = "encfs --standard --stdinpass -f /srv/x/fsstack-XXXXXXXX/data/encfs.ciphertext DIR/1-encfs <&SECRET &"
    assert shown == [
        "mkdir -p /srv/x/fsstack-XXXXXXXX/data",
        "mkdir /srv/x/fsstack-XXXXXXXX/data/encfs.ciphertext",
        "mkdir -p DIR/1-encfs",
        encfs,
        "umount DIR/1-encfs",
        "mkdir -p DIR/1-encfs",
        encfs,
        "umount DIR/1-encfs",
        "rm -r /srv/x/fsstack-XXXXXXXX",
    ]


def test_numbers_are_exact_on_the_device_and_said_to_be_none_above_a_layer_that_takes_room() -> None:
    (table,) = {line for line in commands_of("linear(offset='1M') | raw") if "--table" in line}
    assert table == "dmsetup create fsstack-ID-1-linear --table '0 2095104 linear LOOP 2048'"
    assert not any("lengths" in line for line in explained("linear | delay | ext4"))
    assert sum("lengths" in line for line in explained("luks | linear | delay | ext4")) == 1


def test_what_a_layer_does_without_a_command_is_said() -> None:
    raid = explained("raid | ext4")
    assert [line.partition(":")[0] for line in raid if "written" in line] == ["# DM3", "# DM4"]
    assert not any("written" in line for line in explained("ext4 | overlay"))
    (loop,) = {line for line in explained("ext4 | loop(size='64M') | ext4") if line.startswith("# LOOP2:")}
    assert re.search(r"DIR/1-ext4/container\.img\b.*\b64\.0 MiB\b", loop)
    # The room that a filesystem leaves is known when it stands.
    (loop,) = {line for line in explained("ext4 | loop | ext4") if line.startswith("# LOOP2:")}
    assert "container.img" in loop
    assert "MiB" not in loop


def test_names_that_follow_from_a_key_are_not_invented() -> None:
    shown = "\n".join(explained("ext4 | ecryptfs") + explained("ext4 | fscrypt"))
    assert "ecryptfs_sig=KEYID" in shown
    assert "rm_enckey KEYID" in shown
    assert re.findall(r"[0-9a-f]{16,}", shown) == []


def test_a_word_of_the_users_own_stays_even_if_it_looks_like_a_key() -> None:
    assert any("-U 0123456789abcdef0" in line for line in explained("ext4(mkfs='-U 0123456789abcdef0')"))


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_layer_can_be_explained_twice_alike(name: str) -> None:
    text = BUILT_IN[name].example_stack()
    first = explained(text)
    assert first == explained(text)
    assert SESSION not in " ".join(first)


@pytest.mark.parametrize("device", [RamDevice(1 << 30), DiskDevice(Path("/dev/zero"), False, discard=True)])
def test_other_devices_show_what_they_do(device: Device) -> None:
    shown = commands_of("ext4", device)
    first = {"ram": "mkdir -p DIR/0-ram", "/dev/zero": "blkdiscard /dev/zero"}[device.spec]
    assert shown[0] == first
    assert any(line.startswith("mkfs.ext4") for line in shown)


def test_a_problem_ends_the_lines_and_is_told_by_the_names_in_them() -> None:
    text = "ext4 | loop(size='64M') | linear(size='1G') | ext4"
    explanation = explain.explained(Stack.parse(text, BUILT_IN), LOOP)
    assert re.search(r"linear: linear\(size='1G'\) .*\bLOOP2\b", explanation.problem)
    assert any(re.search(r"^# LOOP2: .*DIR/1-ext4/container\.img", line) for line in explanation.lines)


def test_no_process_is_started_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with commands.recorded_commands() as ran:
        explained("lvm(kind='striped') | zfs")
        explained("ext4 | gocryptfs")
    assert ran == []
    assert list(tmp_path.iterdir()) == []


def test_settings_are_set_before_the_layers_and_back_in_reverse() -> None:
    lines = commands_of("luks | ext4 @ queue/scheduler=bfq, top/read_ahead_kb=1M, vm.dirty_bytes=64M")
    queue = "/sys/block/{}/queue/{}".format
    assert lines[:2] == [f"echo bfq >{queue('LOOP', 'scheduler')}", "echo 67108864 >/proc/sys/vm/dirty_bytes"]
    assert [line.split()[0] for line in lines[2:7]] == ["cryptsetup", "cryptsetup", "dmsetup", "echo", "wipefs"]
    assert lines[5] == f"echo 1024 >{queue('DM', 'read_ahead_kb')}"
    assert lines[-4:] == [
        "umount DIR/2-ext4",
        f"echo OLD >{queue('DM', 'read_ahead_kb')}",
        "echo OLD >/proc/sys/vm/dirty_bytes",
        f"echo OLD >{queue('LOOP', 'scheduler')}",
    ]
