"""Words of options that reach something outside the stack, and those that only look like it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack.machine import blockdev
from pytest_fsstack.stack import outside


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the block device 7:41, also known as loop41 and by a link in the current directory."""
    dev, here = tmp_path / "dev", tmp_path / "here"
    for directory in (
        dev / "mapper",
        dev / "disk/by-id",
        dev / "disk/by-diskseq",
        dev / "zvol/tank",
        tmp_path / "sys/dev/block/7:41",
        here / "directory",
    ):
        directory.mkdir(parents=True)
    (dev / "loop41").touch()
    for link in (
        dev / "disk/by-diskseq/3",
        dev / "mapper/vg-data",
        dev / "disk/by-id/usb-stick",
        here / "harmless",
        dev / "zvol/tank/vol",
        here / "directory/link",
        here / "subvol=x",
    ):
        link.symlink_to(dev / "loop41")
    (here / "file").touch()
    (here / "dangling").symlink_to(tmp_path / "not-there-yet")
    monkeypatch.chdir(here)
    monkeypatch.setattr(outside, "_DEV", dev)
    monkeypatch.setattr(blockdev, "SYS", tmp_path / "sys")
    monkeypatch.setattr(blockdev, "number", number)
    return dev


def number(path: Path) -> str | None:
    os.stat(path)
    return "7:41" if os.path.realpath(path).endswith("/loop41") else None


@pytest.mark.parametrize(
    "text",
    [
        "-d raid1 -m raid1 {dev}/loop41",
        "-l logdev={dev}/loop41,size=16m",
        "-l size=16m,logdev={dev}/loop41",
        "-z {dev}/loop41",
        "-z{dev}/loop41",
        "-z '{dev}/loop41'",
        '-J "device={dev}/loop41"',
        "-J size=4,device={dev}/loop41",
        "--device={dev}/loop41",
        "{dev}/../dev/./loop41",
        "x:{dev}/loop41:y",
        "-z harmless",
        "-zharmless",
        "-z directory/link",
        "logdev=harmless",
        "-z file",
        "mirror loop41",
        "cache vg-data",
        "cache mapper/vg-data",
        "log usb-stick",
        "log=disk/by-id/usb-stick",
        "1 r 7:41",
        "device=UUID=1234-5678",
        "logdev=PARTUUID=1234",
        "LABEL=data",
        "PARTLABEL=data",
        "journal_dev=0x729",
        "noatime,journal_dev=1833",
        "-J device=/dev/fd/987",
        "--header /proc/self/fd/987",
        "-z /no/such/file/yet",
        "-z ../not-yet",
        "-d /etc",
        "upperdir=/home",
        "--config /etc/passwd",
        "subvol={dev}/loop41",
        "subvol=x",
        "logdev=subvol=x,size=64m",
        "-qcharmless",
        "-q -Xqcharmless",
        "tank/vol",
        "mirror tank/vol",
        "upper/../../..",
        "lowerdir=a/..",
        "dangling",
        "log dangling",
        "-d directory",
        "directory",
        "unbalanced ' {dev}/loop41",
        "a\n0 8 linear {dev}/loop41 0",
    ],
)
def test_what_reaches_something_else(text: str, machine: Path) -> None:
    assert outside.find_escape(text.format(dev=machine))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "noatime,discard",
        "-b 4096 -E stride=128",
        "-E lazy_itable_init=0,lazy_journal_init=0",
        "compress=zstd:3",
        "zstd:3",
        "corrupt_bio_byte 32 r 1 0",
        "-O encrypt,stable_inodes",
        "-L 'two words'",
        "-U 01234567-89ab-cdef-0123-456789abcdef",
        "-m uuid=01234567-89ab-cdef-0123-456789abcdef",
        "-o ashift=12 -O recordsize=16K",
        "aes-cbc-essiv:sha256",
        "capi:xts(aes)-plain64",
        "100%FREE",
        "45%VG",
        "size=50%",
        "--label x --uuid 12345678",
        "--key-file /dev/urandom",
        "-d agcount=4,su=64k,sw=4",
        "hmac-sha256",
        "--physicalextentsize 1M",
        "label=data",
    ],
)
def test_what_only_looks_like_it(text: str, machine: Path) -> None:
    assert outside.find_escape(text) is None


def test_a_name_that_the_stacks_own_device_got_from_an_option(machine: Path) -> None:
    assert outside.find_escape("-L usb-stick", own={"7:41"}) is None
    assert outside.find_escape("-L usb-stick", own={"7:42"})


@given(
    before=st.text("ab-=,:'\" ", max_size=12).filter(lambda text: not text or text[-1] in "=,: "),
    after=st.sampled_from(["", ",x=1", ":y", " z", "=1"]),
)
def test_a_device_is_found_wherever_it_stands(before: str, after: str) -> None:
    assert outside.find_escape(f"{before}{outside._DEV}/loop41{after}")
