"""What a stack's directory need not have: what its layers declare, from the topmost block device up."""

from __future__ import annotations

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.stack.model import Limit, Stack


def stack(text: str) -> Stack:
    return Stack.parse(text, BUILT_IN)


def test_the_layers_on_a_block_device_add_up() -> None:
    both = stack("ext3 | gocryptfs").limits
    assert set(both) == {Limit.ALLOCATION, Limit.HOLES}
    assert "gocryptfs" in both[Limit.HOLES]
    assert stack("ext4").limits == {}
    # What is below a container file stores none of the files.
    assert stack("vfat | loop | ext4 | bind").limits == {}


def test_an_option_may_add_one() -> None:
    assert Limit.HARD_LINKS not in stack("ext4 | encfs").limits
    assert Limit.HARD_LINKS in stack("ext4 | encfs(mode='paranoia')").limits


@pytest.mark.parametrize(
    ("text", "bytes"), [("ext4", 255), ("ext4 | ecryptfs", 143), ("ext4 | encfs | securefs", 143), ("luks | raw", 255)]
)
def test_the_shortest_of_the_longest_names_counts(text: str, bytes: int) -> None:
    assert stack(text).name_max == bytes


def test_each_says_where_it_is_documented() -> None:
    for layer in BUILT_IN.values():
        assert all(len(source) > 10 for source in layer().limited().values()), layer.name
