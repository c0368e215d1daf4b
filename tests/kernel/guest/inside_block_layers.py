"""Layers between two block devices, inside the guest on its /dev/vda.

`tests/kernel/test_layers_in_guest.py` starts it, with the plugin and `--fsstack-device=/dev/vda`.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.layers.mapper import mapping
from pytest_fsstack.layers.volumes import lvm
from pytest_fsstack.machine import commands, journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.places import BuildContext
from tests.kernel.guest.common import (
    DISK,
    check_round_trip,
    ended,
    forked,
    mapper_nodes,
    mappings,
    nothing_stays_behind,  # noqa: F401 - a fixture for all tests
    read,
    without_udevd,  # noqa: F401 - a fixture
    write,
)

#: Of each stack, what the kernel's tables show of it, as regular expressions. Few stacks with much in them, and small
#: ones where all is written once: each costs ten seconds here.
PLAIN = {
    "linear(offset='512', size='64M') | delay(read=1, write=2, flush=3) | flakey(up=30, down=0) | ext4": [
        r"1-linear: 0 131072 linear \d+:\d+ 1$",
        r"2-delay: 0 131072 delay \d+:\d+ 0 1 \d+:\d+ 0 2 \d+:\d+ 0 3$",
        r"3-flakey: 0 131072 flakey \d+:\d+ 0 30 0 0 ?$",
    ],
    "lvm(kind='striped', stripes=3, stripe_size=16384) | ext4": [r"lvm-lv: 0 \d+ striped 3 32 "],
    "lvm(kind='thin', chunk_size=131072) | ext4": [r"lvm-lv: 0 \d+ thin ", r"lvm-pool-tpool: 0 \d+ thin-pool .* 256 "],
    "lvm(kind='snapshot', chunk_size=16384) | ext4": [r"lvm-lv: .* snapshot-origin ", r"lvm-snap: .* snapshot .* 32$"],
    "lvm(kind='snapshot', on='snapshot') | lvm(extents='50%VG', vgcreate='--physicalextentsize 1M') | ext4": [
        r"1--lvm-snap: .* snapshot ",
        r"2--lvm-lv: 0 \d+ linear ",
    ],
    "raid(level=0, chunk_size=16384) | raid | ext4": [r"1-raid: .* raid raid0 1 32 2 - ", r"2-raid: .* raid raid1 "],
    "raid(level=10) | raid(level=5) | ext4": [
        r"1-raid: .* raid raid10 .*raid10_format near",
        r"2-raid: .* raid raid5_ls \d 128 nosync 3 ",
    ],
    "linear(size='96M') | raid(level=6, devices=5) | ext4": [r" raid raid6_zr "],
    "linear(size='32M') | integrity | ext4": [r" integrity \d+:\d+ 0 4 J .*internal_hash:crc32c"],
    "linear(size='32M') | integrity(integrity='hmac-sha256', tag_size=16, sector_size=4096, mode='bitmap') | ext4": [
        r" integrity \d+:\d+ 0 16 B .*block_size:4096 .*internal_hash:hmac\(sha256\)"
    ],
}

ENCRYPTED = {
    "luks(cipher='serpent-xts-plain64', type='luks1') | ext4": [r"luks: 0 \d+ crypt serpent-xts-plain64 "],
    "luks(no_read_workqueue=True, no_write_workqueue=True, submit_from_crypt_cpus=True) | ext4": [
        r"luks: .* submit_from_crypt_cpus no_read_workqueue no_write_workqueue"
    ],
    "dmcrypt(cipher='xchacha12,aes-adiantum-plain64', key_size=256, same_cpu_crypt=True) | ext4": [
        r" crypt xchacha12,aes-adiantum-plain64 .* same_cpu_crypt$"
    ],
    "linear(size='48M') | luks(integrity='hmac-sha256') | ext4": [
        r"luks: .* crypt capi:authenc\(hmac\(sha256\),xts\(aes\)\)",
        r"luks_dif: 0 \d+ integrity \d+:\d+ \d+ 32 J ",
    ],
    "linear(size='48M') | luks(cipher='aes-gcm-random', key_size=256, integrity='aead', journal=False) | ext4": [
        r"luks: .* crypt capi:gcm\(aes\)-random",
        r"luks_dif: 0 \d+ integrity \d+:\d+ \d+ 28 D ",
    ],
    "linear(size='48M') | luks(cipher='chacha20-random', key_size=256, integrity='poly1305') | ext4": [
        r"luks: .* crypt capi:rfc7539\(chacha20,poly1305\)",
    ],
}


def told(command: str) -> str:
    return subprocess.run(["dmsetup", command], capture_output=True, text=True, check=True).stdout


def found(pattern: str, text: str) -> tuple[str, ...]:
    match = re.search(pattern, text, re.MULTILINE)
    assert match, text
    return match.groups()


def check_tables(stack: Built, expected: dict[str, list[str]]) -> None:
    tables = told("table")
    for pattern in expected[stack.spec]:
        found(pattern, tables)


@pytest.mark.fsstack(*PLAIN)
def test_what_was_written_is_there_after_a_remount(fsstack: Built) -> None:
    check_tables(fsstack, PLAIN)
    data = os.urandom(64 << 10)
    file = write(fsstack, data)
    fsstack.remount()
    assert file.read_bytes() == data
    check_tables(fsstack, PLAIN)
    status = told("status")
    if "raid" in fsstack.spec:
        for line in re.findall(r"^.* raid .*$", status, re.MULTILINE):
            position, whole, action = found(r" raid \w+ \d+ A+ (\d+)/(\d+) (\w+) ", line)
            assert (position, action) == (whole, "idle"), "something is synchronised behind the measurement"
    if "snapshot" in fsstack.spec:
        used, metadata = found(r" snapshot (\d+)/\d+ (\d+)$", status)
        assert int(used) > int(metadata), "nothing was copied"
    if "thin" in fsstack.spec:
        (used,) = found(r" thin-pool \d+ \d+/\d+ (\d+)/\d+ ", status)
        assert int(used) > 0, "nothing is in the pool"


@pytest.mark.fsstack(*ENCRYPTED)
def test_plaintext_is_read_back_but_is_not_on_the_disk(fsstack: Built) -> None:
    check_tables(fsstack, ENCRYPTED)
    check_round_trip(fsstack, hidden=True)
    check_tables(fsstack, ENCRYPTED)


# -- devices that fail -------------------------------------------------------------------------------------------------


def written(device: Path, data: bytes) -> None:
    fd = os.open(device, os.O_WRONLY)
    try:
        os.write(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


@pytest.mark.fsstack("flakey(up=0, down=60, error_writes=True)")
def test_a_device_that_is_down_fails_to_write(fsstack: Built) -> None:
    with pytest.raises(OSError, match="error") as raised:
        written(fsstack.path, b"x" * 4096)
    assert raised.value.errno == errno.EIO
    assert read(fsstack.path, 4096) != b"x" * 4096


@pytest.mark.fsstack("flakey(up=0, down=60, drop_writes=True)")
def test_a_device_that_is_down_forgets_what_it_was_told(fsstack: Built) -> None:
    written(fsstack.path, b"x" * 4096)
    assert read(fsstack.path, 4096) != b"x" * 4096


@pytest.mark.fsstack("linear(size='32M') | integrity(mode='none')")
def test_what_has_decayed_is_not_read(fsstack: Built) -> None:
    data = os.urandom(4096)
    written(fsstack.path, data)
    assert read(fsstack.path, 4096) == data
    offset = next(offset for offset in range(0, 32 << 20, 4096) if read(DISK, 4096, offset) == data)
    fd = os.open(DISK, os.O_WRONLY | os.O_DSYNC)
    try:
        os.pwrite(fd, b"decayed", offset + 100)
    finally:
        os.close(fd)
    with pytest.raises(OSError, match="Invalid") as raised:
        read(fsstack.path, 4096)
    assert raised.value.errno == errno.EILSEQ


# -- what is left ------------------------------------------------------------------------------------------------------


def test_mappings_of_a_tool_that_fails_afterwards_are_removed(tmp_path: Path) -> None:
    context, below, name = (
        BuildContext(tmp_path, journal.Journal(tmp_path / "journals", RealMachine())),
        "fsstack-1-below",
        "fsstack-1-above",
    )
    table = f"{below},,,rw,0 2048 zero;{name},,,rw,0 2048 linear /dev/mapper/{below} 0"
    with pytest.raises(commands.CommandError, match="exit code 3"):
        with mapping(name, context, "sh", "-c", f"dmsetup create --concise '{table}'; exit 3", below=[below]):
            pytest.fail("it yielded a device")
    assert mappings() == []
    context.journal.close()
    assert list((tmp_path / "journals").iterdir()) == []


def test_volumes_of_a_session_that_was_killed_before_it_held_them_are_cleaned_up(tmp_path: Path) -> None:
    group, journals = "fsstack-1-2-lvm", tmp_path / "journals"
    hidden, volume = "fsstack--1--2--lvm-pool_tdata", "fsstack--1--2--lvm-lv"

    def code() -> int:
        with journal.Journal(journals, RealMachine()).entry(lvm.GROUP, name=group):
            subprocess.run(["dmsetup", "create", hidden, "--table", "0 2048 zero"], check=True)
            on_it = f"0 2048 linear /dev/mapper/{hidden} 0"
            subprocess.run(["dmsetup", "create", volume, "--table", on_it], check=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert ended(forked(code, tmp_path / "output")) == -signal.SIGKILL, (tmp_path / "output").read_text()
    assert mapper_nodes() == {"control", hidden, volume}
    (line,) = journal.cleanup(journals, RealMachine(), lambda: {"vg": lvm.GROUP}).undone
    assert f" {group} " in line


@pytest.mark.fsstack("lvm(kind='thin') | ext4")
@pytest.mark.usefixtures("without_udevd")
def test_volumes_come_and_go_without_udevd(fsstack: Built) -> None:
    data = os.urandom(64 << 10)
    file = write(fsstack, data)
    fsstack.remount()
    assert file.read_bytes() == data
