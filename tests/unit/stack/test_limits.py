"""Features that a stack's directory may lack, as its layers declare them from the topmost block device up."""

from __future__ import annotations

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.needs import KernelFilesystem, Missing, MissingRequirement
from pytest_fsstack.stack.layer import Limit
from pytest_fsstack.stack.model import Stack


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
    ("text", "lengths"),
    [
        ("ext4", [(1, 255)]),
        ("luks | raw", [(1, 255)]),
        ("ext4 | ecryptfs", [(1, 143)]),
        ("ext4 | ecryptfs(fnek=False)", [(1, 255)]),
        # The others were measured with the tools.
        ("ext4 | gocryptfs", [(1, 255)]),
        ("ext4 | gocryptfs(mount='-longnames=false')", [(1, 175)]),
        ("ext4 | gocryptfs(mount='-o longnames=false,noatime')", [(1, 175)]),
        ("ext4 | gocryptfs(mount='-longnames=true')", [(1, 255)]),
        ("ext4 | encfs", [(1, 175)]),
        ("ext4 | securefs", [(1, 143)]),
        ("ext4 | securefs(format=2)", [(1, 255)]),
        ("ext4 | securefs | gocryptfs", [(1, 95), (176, 255)]),
        ("ext4 | encfs | gocryptfs", [(1, 127), (176, 255)]),
    ],
)
def test_each_layer_has_names_that_the_layer_below_can_store(text: str, lengths: list[tuple[int, int]]) -> None:
    assert stack(text).name_lengths == {length for first, last in lengths for length in range(first, last + 1)}
    assert stack(text).name_max == lengths[-1][1]


def test_zfs_has_the_limits_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    lack = MissingRequirement(Missing.OTHER, "needs zfs", "")
    for missing, limits in (None, set()), (lack, {Limit.ATTRIBUTES, Limit.ALLOCATION, Limit.HOLES}):
        monkeypatch.setattr(KernelFilesystem, "missing", lambda self, missing=missing: missing)
        assert set(stack("zfs").limits) == limits


def test_each_says_where_it_is_documented() -> None:
    for layer in BUILT_IN.values():
        assert all(len(source) > 10 for source in layer().limited().values()), layer.name
