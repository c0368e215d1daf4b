"""Filesystems that encrypt by themselves, and their plain twins, inside the guest on its /dev/vda.

`tests/kernel/test_native_encryption_in_guest.py` starts it, with the plugin and `--fsstack-device=/dev/vda`.
"""

from __future__ import annotations

import pytest

from pytest_fsstack.machine import commands
from pytest_fsstack.stack.build import Built
from tests.kernel.guest.common import (
    check_round_trip,
    keys,
    nothing_stays_behind,  # noqa: F401 - a fixture for all tests
)


@pytest.mark.fsstack(
    "bcachefs",
    "bcachefs(encrypted=True)",
    "bcachefs(encrypted=True, compress='lz4')",
    "zfs",
    "zfs(encryption='aes-256-gcm')",
    "zfs(encryption='aes-128-ccm', compress='lz4')",
)
def test_only_what_is_encrypted_is_hidden(fsstack: Built) -> None:
    (layer,) = fsstack.stack.layers
    check_round_trip(fsstack, hidden=layer.is_encrypting())
    (mount,) = fsstack.mounts()
    assert mount.split()[0] == layer.name, "another driver"
    # The key is in the filesystem. The keyring of the mount command has ended, and the kernel collects its keys.
    assert commands.wait_until(lambda: not keys(), 300), keys()
    assert all(checked.clean for checked in [*fsstack.scrub().values(), *fsstack.fsck().values()])
