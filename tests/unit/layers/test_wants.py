"""What a layer wants of the filesystem below it: that one is made with it, unless the user's options forbid it."""

from __future__ import annotations

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.filesystems import Filesystem
from pytest_fsstack.stack.model import Stack


def words(text: str, index: int = 0) -> list[str]:
    stack = Stack.parse(text, BUILT_IN)
    layer = stack.layers[index]
    assert isinstance(layer, Filesystem)
    return layer.with_features(layer.mkfs_words(), stack.required_features(index))


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("ext4 | fscrypt", "encrypt,stable_inodes"),
        ("ext4 | bind | fscrypt", "encrypt,stable_inodes"),
        ("f2fs | fscrypt", "encrypt"),
        ("ext4(mkfs='-O ^has_journal -b 1024') | fscrypt", "^has_journal,encrypt,stable_inodes"),
        ("ext4(mkfs='-Oencrypt,none') | fscrypt", "encrypt,none,stable_inodes"),
        ("ext4(mkfs='-O encrypt,stable_inodes') | fscrypt", "encrypt,stable_inodes"),
    ],
)
def test_a_filesystem_is_made_for_the_encryption_above(text: str, features: str) -> None:
    made = words(text)
    assert made.count("-O") == 1
    assert made[made.index("-O") + 1] == features


@pytest.mark.parametrize("text", ["ext4", "ext4 | gocryptfs", "ext4 | loop | f2fs | fscrypt"])
def test_nothing_is_added_that_nobody_wants(text: str) -> None:
    (ext4,) = Stack.parse("ext4", BUILT_IN).layers
    assert isinstance(ext4, Filesystem)
    assert words(text) == ext4.mkfs_words()
