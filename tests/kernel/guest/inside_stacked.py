"""Encryption of files by the kernel, inside the guest on its /dev/vda.

`tests/kernel/test_layers_in_guest.py` starts it, with the plugin and `--fsstack-device=/dev/vda`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.machine import guard, mounts
from pytest_fsstack.stack.build import Built
from tests.kernel.guest.common import DISK, keys, mounted, mounted_ecryptfs, nothing_is_left, on_the_disk

ENCRYPTED = (
    "ext4 | ecryptfs",
    "ext4 | ecryptfs(cipher='twofish', key_bytes=32, mount='ecryptfs_xattr')",
    "btrfs | ecryptfs",
    "xts = ext4 | fscrypt",
    "hctr2 = ext4 | fscrypt(filenames='AES-256-HCTR2')",
    "essiv = ext4 | fscrypt(contents='AES-128-CBC')",
    "adiantum = ext4 | fscrypt(contents='Adiantum', policy='-f 0x4')",
    "f2fs = f2fs | fscrypt",
    "f2fs-adiantum = f2fs | fscrypt(contents='Adiantum', policy='-f 0x4')",
    "both = ext4 | fscrypt | ecryptfs",
)
NAME = "a-name-that-nobody-must-find"


@pytest.fixture(autouse=True, scope="class")
def nothing_stays_behind() -> Iterator[None]:
    """Around the stack of each test: it is torn down when this goes on."""
    assert not keys()
    yield
    assert not mounted()
    assert not mounted_ecryptfs()
    assert nothing_is_left(10), keys()
    assert guard.labelled(DISK)


def write(stack: Built) -> bytes:
    # Random, for a layer that compresses would hide text as well; larger than what is stored among metadata.
    data = os.urandom(64 << 10)
    (stack.path / NAME).write_bytes(data)
    (stack.path / f"{NAME}-in-a-directory").mkdir()
    return data


@pytest.mark.fsstack(*ENCRYPTED)
def test_what_is_read_back_is_not_on_the_disk(fsstack: Built) -> None:
    data = write(fsstack)
    fsstack.remount()
    assert (fsstack.path / NAME).read_bytes() == data
    assert (fsstack.path / f"{NAME}-in-a-directory").is_dir()
    fsstack.sync()
    assert not on_the_disk(data[8192:8256])
    assert not on_the_disk(NAME.encode())


@pytest.mark.fsstack("ext4 | ecryptfs(fnek=False, passthrough=True)")
def test_ecryptfs_leaves_names_and_plain_files_if_told_so(fsstack: Built) -> None:
    data = write(fsstack)
    fsstack.remount()
    below = fsstack.below / "ecryptfs.ciphertext"
    assert (fsstack.path / NAME).read_bytes() == data
    assert data[8192:8256] not in (below / NAME).read_bytes()
    (below / "plain").write_text("as it is")
    assert (fsstack.path / "plain").read_text() == "as it is"


@pytest.mark.fsstack("ext4 | ecryptfs")
def test_ecryptfs_keeps_its_keys_in_no_keyring_while_it_is_mounted(fsstack: Built) -> None:
    assert mounted_ecryptfs()
    mount = mounts.at(fsstack.path)
    assert mount is not None
    signature = mount.super_options.partition("ecryptfs_sig=")[2][:16]
    assert len(signature) == 16
    for keyring in "@u", "@us", "@s":
        listed = subprocess.run(["keyctl", "list", keyring], capture_output=True, text=True)
        assert signature not in listed.stdout
    # Files made by now are opened with a key that only the mount knows.
    data = write(fsstack)
    Path("/proc/sys/vm/drop_caches").write_text("3\n")
    assert (fsstack.path / NAME).read_bytes() == data
