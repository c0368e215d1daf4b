"""The built-in layers, one file per family. To add one: write its class in a family's file and name it below."""

from __future__ import annotations

from pytest_fsstack.layers import (
    dmcrypt,
    filesystems,
    integrity,
    kernel_encryption,
    lvm,
    mapper,
    passthrough,
    raid,
    recorded,
    stacked,
    zfs,
)
from pytest_fsstack.stack.model import Layer

#: By name, in the order of the docs.
BUILT_IN: dict[str, type[Layer]] = {
    layer.name: layer
    for layer in (
        passthrough.Raw,
        dmcrypt.Luks,
        dmcrypt.Dmcrypt,
        integrity.Integrity,
        mapper.Linear,
        lvm.Lvm,
        raid.Raid,
        mapper.Delay,
        mapper.Flakey,
        recorded.Recorded,
        filesystems.Ext2,
        filesystems.Ext3,
        filesystems.Ext4,
        filesystems.Xfs,
        filesystems.Btrfs,
        filesystems.F2fs,
        filesystems.Nilfs2,
        filesystems.Jfs,
        filesystems.Reiserfs,
        zfs.Zfs,
        filesystems.Bcachefs,
        filesystems.Exfat,
        filesystems.Vfat,
        filesystems.Ntfs,
        filesystems.Ntfs3g,
        filesystems.Tmpfs,
        stacked.Gocryptfs,
        stacked.Encfs,
        stacked.Cryfs,
        stacked.Securefs,
        kernel_encryption.Ecryptfs,
        kernel_encryption.Fscrypt,
        passthrough.PlainDirectory,
        passthrough.Bind,
        passthrough.Overlay,
        passthrough.Loop,
    )
}
