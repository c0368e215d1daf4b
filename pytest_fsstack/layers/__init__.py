"""The built-in layers, one file per family. To add one: write its class in a family's file and name it below."""

from __future__ import annotations

from pytest_fsstack.layers.filesystems import Btrfs, Ext2, Ext3, Ext4, Tmpfs, Xfs
from pytest_fsstack.layers.mapper import Dmcrypt, Luks
from pytest_fsstack.layers.passthrough import Bind, Loop, Raw
from pytest_fsstack.layers.stacked import Encfs, Gocryptfs
from pytest_fsstack.stack import Layer

BUILT_IN: tuple[type[Layer], ...] = (
    Raw,
    Luks,
    Dmcrypt,
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Btrfs,
    Tmpfs,
    Gocryptfs,
    Encfs,
    Bind,
    Loop,
)
