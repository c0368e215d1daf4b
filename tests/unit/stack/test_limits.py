"""What a stack's directory need not have: what its layers declare, from the topmost block device up."""

from __future__ import annotations

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.needs import KernelFilesystem, Missing, MissingRequirement
from pytest_fsstack.stack.model import Limit, Stack


def stack(text: str) -> Stack:
    return Stack.parse(text, BUILT_IN)


def test_the_layers_on_a_block_device_add_up() -> None:
    both = stack("ext3 | gocryptfs").limits
    assert set(both) == {Limit.ALLOCATION, Limit.HOLES, Limit.CHECKSUMS, Limit.NAME_CHECKSUMS}
    assert "gocryptfs" in both[Limit.HOLES]
    assert set(stack("ext4").limits) == {Limit.CHECKSUMS}
    # What is below a container file stores none of the files.
    assert set(stack("vfat | loop | ext4 | bind").limits) == {Limit.CHECKSUMS, Limit.NAME_CHECKSUMS}


def test_contents_have_checksums_if_one_layer_that_sees_them_stored_has() -> None:
    without = ("ext4", "xfs", "luks | ext4", "raid(level=1) | ext4", "ext4 | bind", "ext4 | fscrypt", "btrfs | encfs")
    chosen = (
        "btrfs(mount='noatime,nodatasum')",
        "zfs(mkfs='-O atime=off -Ochecksum=off')",
        "bcachefs(mkfs='--data_checksum none')",
        "bcachefs(mount='noatime,nocow')",
    )
    for text in (*without, *chosen):
        assert stack(text).lacks(Limit.CHECKSUMS), text
    luks = "luks(integrity='hmac-sha256', key_size=512) | ext4"
    for text in (
        "btrfs",
        "zfs",
        "zfs(mkfs='-O checksum=sha256')",
        "bcachefs(mkfs='--data_checksum=crc32c')",
        "bcachefs(encrypted=True, mkfs='--data_checksum=none')",
        "integrity | raid(level=1) | ext4",
        luks,
        "ext4 | cryfs",
        "ext4 | encfs(mode='paranoia')",
    ):
        assert not stack(text).lacks(Limit.CHECKSUMS), text
    assert stack("ext4 | gocryptfs").lacks(Limit.NAME_CHECKSUMS)
    assert not stack("ext4 | cryfs").lacks(Limit.NAME_CHECKSUMS)


def test_an_option_may_add_one() -> None:
    assert Limit.HARD_LINKS not in stack("ext4 | encfs").limits
    assert Limit.HARD_LINKS in stack("ext4 | encfs(mode='paranoia')").limits


@pytest.mark.parametrize(
    ("text", "bytes"), [("ext4", 255), ("ext4 | ecryptfs", 143), ("ext4 | encfs | securefs", 143), ("luks | raw", 255)]
)
def test_the_shortest_of_the_longest_names_counts(text: str, bytes: int) -> None:
    assert stack(text).name_max == bytes


def test_zfs_has_the_limits_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    lack = MissingRequirement(Missing.OTHER, "needs zfs", "")
    for missing, limits in (None, set()), (lack, {Limit.ATTRIBUTES, Limit.ALLOCATION, Limit.HOLES}):
        monkeypatch.setattr(KernelFilesystem, "missing", lambda self, missing=missing: missing)
        assert set(stack("zfs").limits) == limits


def test_each_says_where_it_is_documented() -> None:
    for layer in BUILT_IN.values():
        assert all(len(source) > 10 for source in layer().limited().values()), layer.name
