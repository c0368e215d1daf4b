"""Contents of others on a disk: a whole session refuses each kind with exit code 4, and no byte changes."""

from __future__ import annotations

import functools
import gzip
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack import devices
from pytest_fsstack.layers.volumes.md import Md
from pytest_fsstack.machine import commands, guard, needs
from pytest_fsstack.machine.guard import label
from tests import guarding
from tests.real.conftest import Loop, LoopDevice, run, small_session
from tests.real.machine.headers import headers

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("locks")]

MIB = 1 << 20

LUKS = ("cryptsetup", "-q", "luksFormat", "--pbkdf=pbkdf2", "--pbkdf-force-iterations=1000", "--key-file=-")

#: What makes each kind, but for the device.
TOOLS = {
    "ext2": ("mkfs.ext2", "-q", "-F"),
    "ext3": ("mkfs.ext3", "-q", "-F"),
    "ext4": ("mkfs.ext4", "-q", "-F"),
    "ext4 at 1 MiB": ("mkfs.ext4", "-q", "-F", "-E", "offset=1048576"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
    "vfat": ("mkfs.vfat",),
    "exfat": ("mkfs.exfat",),
    "ntfs": ("mkfs.ntfs", "-q", "-F", "-f"),
    "f2fs": ("mkfs.f2fs", "-q", "-f"),
    "nilfs2": ("mkfs.nilfs2", "-q", "-f"),
    "jfs": ("mkfs.jfs", "-q"),
    "reiserfs": ("mkreiserfs", "-q", "-ff"),
    "minix": ("mkfs.minix",),
    "bfs": ("mkfs.bfs",),
    "swap": ("mkswap",),
    "luks1": (*LUKS, "--type=luks1"),
    "luks2": (*LUKS, "--type=luks2"),
    "md": ("mdadm", "--create", f"/dev/md/foreign{os.getpid()}", "--run", "--force", "--level=1", "--raid-devices=1"),
    "bcache": ("make-bcache", "-B"),
    "bcachefs": ("mkfs.bcachefs", "-q", "-f"),
    "udf": ("mkudffs",),
    "apfs by its own tool": ("mkapfs",),
}


def written(offset: int, data: bytes) -> Callable[[Loop], None]:
    return lambda loop: loop.write(data, offset)


def partitioned(table: str) -> Callable[[Loop], None]:
    def make(loop: Loop) -> None:
        run("sfdisk", "-q", "--no-reread", loop.path, stdin=f"label: {table}\nsize=24MiB\n")

    return make


def _lvm_label() -> bytes:
    # lib/format_text/layout.h of LVM2: a label in sector 1 with the CRC of what follows it, and the header of the PV.
    header = b"A" * 32 + (320 * MIB).to_bytes(8, "little") + bytes(64)
    rest = (32).to_bytes(4, "little") + b"LVM2 001" + header
    rest = rest.ljust(512 - 20, b"\0")
    crc = zlib.crc32(rest, 0xF597A6CF ^ 0xFFFFFFFF) ^ 0xFFFFFFFF
    return b"LABELONE" + (1).to_bytes(8, "little") + crc.to_bytes(4, "little") + rest


def zfs_labels(loop: Loop) -> None:
    # Uberblocks of the four labels (include/sys/uberblock_impl.h of OpenZFS), two at each end.
    block = (0x00BAB10C).to_bytes(8, "little") + (5000).to_bytes(8, "little") + (7).to_bytes(8, "little")
    size = loop.image.stat().st_size
    for copy in 0, 256 << 10, size - (512 << 10), size - (256 << 10):
        for number in range(8):
            loop.write(block.ljust(1024, b"\0"), copy + (128 << 10) + number * 1024)


def behind_a_detached_header(loop: Loop) -> None:
    # All of it is ciphertext, and says of itself nothing at all.
    block = os.urandom(MIB)
    for number in range(loop.image.stat().st_size // MIB):
        loop.write(block[number:] + block[:number], number * MIB)


def only_the_second_table(loop: Loop) -> None:
    partitioned("gpt")(loop)
    loop.write(bytes(33 * 512), 512)


def no_table_but_the_second(loop: Loop) -> None:
    partitioned("gpt")(loop)
    loop.write(bytes(34 * 512), 0)


HEADERS = headers(320 * MIB)

#: What is made without a tool.
BY_HAND: dict[str, Callable[[Loop], None]] = {
    "lvm": written(512, _lvm_label()),
    "md 1.2": written(4096, (0xA92B4EFC).to_bytes(4, "little") + (1).to_bytes(4, "little") + os.urandom(248)),
    **{kind: written(offset, data) for kind, (_, offset, data) in HEADERS.items()},
    "zfs": zfs_labels,
    "gpt": partitioned("gpt"),
    "mbr": partitioned("dos"),
    "the second table of a gpt alone": written(320 * MIB - 512, b"EFI PART" + bytes(84)),
    "the second table of a gpt and a protective mbr": only_the_second_table,
    "the second table of a gpt as sfdisk writes it": no_table_but_the_second,
    "data behind a detached header": behind_a_detached_header,
    "random": written(0, os.urandom(8 * MIB)),
    "random at the end": written(319 * MIB, os.urandom(MIB)),
    "one percent of random in the middle": written(160 * MIB, os.urandom(4 * MIB)),
    "text in the middle of the first part": written(9 * MIB, b"a diary\n" * 1000),
    "gzip": written(0, gzip.compress(os.urandom(MIB))),
    "tar": written(0, b"diary".ljust(257, b"\0") + b"ustar\x0000" + b"\0" * 247),
    "a single byte in the last sector": written(320 * MIB - 7, b"x"),
    "the scratch label of another size": written(0, label._LABEL.format(size=1, id="0" * 32, digest="0" * 64).encode()),
}

#: What blkid calls them, where it knows them.
NAMES = {
    **{kind: name for kind, (name, _, _) in HEADERS.items()},
    **{"bcache": "bcache", "udf": "udf", "apfs by its own tool": "apfs", "md": "linux_raid_member"},
    **{"ext4": "(ext4)", "swap": "(swap)", "lvm": "(LVM2_member)", "gpt": "(gpt)", "mbr": "(dos)"},
    "the second table of a gpt and a protective mbr": "gpt",
}


@pytest.fixture
def foreign(request: pytest.FixtureRequest, loop_device: LoopDevice) -> Loop:
    kind: str = request.param
    loop = loop_device(size=320 * MIB)
    if kind in BY_HAND:
        BY_HAND[kind](loop)
        return loop
    tool = TOOLS[kind]
    if commands.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    # The kernel's driver writes the superblock of md. Without it, "md 1.2" has one that is made by hand.
    if kind == "md" and (reasons := needs.missing(Md().needs())):
        pytest.skip("; ".join(reasons))
    run(*tool, loop.path, *(("77824",) if kind == "ext4 at 1 MiB" else ()), stdin="passphrase")
    return loop


@pytest.mark.parametrize(("foreign", "kind"), [(kind, kind) for kind in [*TOOLS, *BY_HAND]], indirect=["foreign"])
def test_foreign_contents_are_refused_and_named(foreign: Loop, kind: str, loop_device: LoopDevice) -> None:
    refused = functools.partial(pytest.raises, guard.Refused, match=f"`--fsstack-overwrite={foreign.path}`")
    with foreign.untouched():
        with refused() as caught, guarding.claimed(foreign.path, overwrite=False):
            pytest.fail("the device was claimed")
        assert NAMES.get(kind, "") in str(caught.value)
        blank = loop_device()
        with blank.untouched():
            for loops in (foreign, blank), (blank, foreign):
                group = devices.parse_device("+".join(str(loop.path) for loop in loops), size=0, overwrite=())
                with refused() as caught, group.held():
                    pytest.fail("the group was held")
                assert caught.value.device == foreign.path


@pytest.mark.parametrize("foreign", ["ext4", "luks2", "gpt", "one percent of random in the middle"], indirect=True)
def test_a_session_ends_before_it_begins(foreign: Loop, tmp_path: Path) -> None:
    with foreign.untouched():
        result = small_session(tmp_path, f"--fsstack-device={foreign.path}")
    output = result.stdout + result.stderr
    assert result.returncode == 4, output
    assert len(re.findall(f"{foreign.path} .*`--fsstack-overwrite={foreign.path}`", output)) == 1
    assert "Traceback" not in output
    assert "passed" not in output
