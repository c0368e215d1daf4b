"""The names that stacks of encrypting layers support, measured with the tools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.examples.fuse_overlayfs.pytest_fsstack_fuse_overlayfs import FuseOverlayfs
from pytest_fsstack.devices import DirectoryDevice
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import mounts, needs
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import build
from pytest_fsstack.stack.layer import Layer
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import BuildContext

pytestmark = pytest.mark.root

LAYERS: dict[str, type[Layer]] = {**BUILT_IN, "fuse_overlayfs": FuseOverlayfs}

_ENCRYPTING = ("gocryptfs", "encfs", "securefs")
TEXTS = [
    *(" | ".join(pair) for pair in itertools.product(("directory", *_ENCRYPTING), _ENCRYPTING)),
    "gocryptfs(mount='-longnames=false')",
    "gocryptfs(mount='-o longnames=false')",
    "gocryptfs(init='-raw64=false')",
    "gocryptfs(plaintextnames=True)",
    "encfs | gocryptfs(init='-longnamemax=100')",
    "encfs | gocryptfs(init='-raw64=false')",
    "encfs(mode='paranoia')",
    "securefs(format=2) | encfs",
    # Its first two layers are tested as well. The key derivation of cryfs takes seconds, so it is in no other stack.
    "securefs | cryfs | encfs",
    "fuse_overlayfs",
    "encfs | fuse_overlayfs",
    "encfs | directory",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_stack_takes_the_names_that_it_declares_and_no_others(text: str, tmp_path: Path) -> None:
    stack = Stack.parse(text, LAYERS)
    needs.require(*(need for layer in stack.layers for need in layer.needs()))
    mounts.private_namespace()
    for name in "device", "session":
        (tmp_path / name).mkdir()
    context = BuildContext(tmp_path / "session", Journal(tmp_path / "journal", RealMachine()))
    with build(stack, DirectoryDevice(tmp_path / "device"), context) as built:
        for count in range(min(2, len(stack.layers)), len(stack.layers) + 1):
            assert set(accepted(built.places[count])) == Stack(stack.layers[:count]).name_lengths


def accepted(directory: Path) -> Iterator[int]:
    """Yield the lengths of names with which a file can be made and read."""
    for length in range(1, 256):
        file = directory / ("n" * length)
        try:
            file.write_bytes(b"content")
        except OSError:
            continue
        assert file.read_bytes() == b"content"
        file.unlink()
        yield length
