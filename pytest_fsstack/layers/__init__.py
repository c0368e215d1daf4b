"""The built-in layers, one file per family. To add one: write its class in a family's file and name it below."""

from __future__ import annotations

from pytest_fsstack.layers.dmcrypt import Dmcrypt, Luks
from pytest_fsstack.layers.filesystems import (
    Bcachefs,
    Btrfs,
    Exfat,
    Ext2,
    Ext3,
    Ext4,
    F2fs,
    Jfs,
    Nilfs2,
    Ntfs,
    Ntfs3g,
    Reiserfs,
    Tmpfs,
    Vfat,
    Xfs,
)
from pytest_fsstack.layers.integrity import Integrity
from pytest_fsstack.layers.kernel_encryption import Ecryptfs, Fscrypt
from pytest_fsstack.layers.lvm import Lvm
from pytest_fsstack.layers.mapper import Delay, Flakey, Linear
from pytest_fsstack.layers.passthrough import Bind, Loop, Overlay, Raw
from pytest_fsstack.layers.raid import Raid
from pytest_fsstack.layers.stacked import Cryfs, Encfs, Gocryptfs, Securefs
from pytest_fsstack.layers.zfs import Zfs
from pytest_fsstack.stack import Layer

BUILT_IN: tuple[type[Layer], ...] = (
    Raw,
    Luks,
    Dmcrypt,
    Integrity,
    Linear,
    Lvm,
    Raid,
    Delay,
    Flakey,
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Btrfs,
    F2fs,
    Nilfs2,
    Jfs,
    Reiserfs,
    Zfs,
    Bcachefs,
    Exfat,
    Vfat,
    Ntfs,
    Ntfs3g,
    Tmpfs,
    Gocryptfs,
    Encfs,
    Cryfs,
    Securefs,
    Ecryptfs,
    Fscrypt,
    Bind,
    Overlay,
    Loop,
)
