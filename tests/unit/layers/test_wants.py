"""What a layer wants of the filesystem below it: that one is made with it, unless the user's options forbid it."""

from __future__ import annotations

import re

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.layers.filesystems import Filesystem
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.spec import SpecError


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


@pytest.mark.parametrize("text", ["ext4 | fscrypt", "x = ext4(mkfs='-b 1024') | fscrypt(contents='Adiantum')"])
def test_the_text_of_the_stack_stays_what_it_was(text: str) -> None:
    stack = Stack.parse(text, BUILT_IN)
    assert str(stack) == text
    assert Stack.parse(str(stack), BUILT_IN) == stack


@pytest.mark.parametrize(
    ("text", "facts", "marked"),
    [
        ("xfs | fscrypt", r"^fscrypt .*\bencryption\b.*`ext4`.*`f2fs`.*\bxfs\b", "xfs"),
        ("tmpfs | fscrypt", r"^fscrypt .*\bencryption\b.*`ext4`.*`f2fs`.*\btmpfs\b", "tmpfs"),
        (
            "luks | ext4(mkfs='-O ^encrypt') | fscrypt",
            r"^fscrypt .*\bencryption\b.*`ext4`.*`f2fs`.*mkfs: '-O \^encrypt'.* \^encrypt\b",
            "mkfs='-O ^encrypt'",
        ),
    ],
)
def test_options_that_forbid_it_are_a_mistake_at_their_place(text: str, facts: str, marked: str) -> None:
    with pytest.raises(SpecError) as caught:
        Stack.parse(text, BUILT_IN)
    assert re.search(facts, caught.value.message)
    assert text[caught.value.start : caught.value.end] == marked
