"""The built-in layers, one file per family. To add a layer, write its class in the file of its family, and list it
below.
"""

from __future__ import annotations

import importlib
from collections import ChainMap, UserDict
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fsstack.stack.layer import Layer


class _BuiltIn(UserDict[str, Any]):
    """Layers by name. A family is imported on first use, because most sessions need one or two."""

    def __getitem__(self, name: str) -> type[Layer]:
        family, _, cls = self.data[name].rpartition(".")
        layer: type[Layer] = getattr(importlib.import_module(f"{__name__}.{family}"), cls)
        return layer


#: Modules and classes by name, in the order of the docs.
BUILT_IN = _BuiltIn(
    {
        "raw": "passthrough.Raw",
        "pool": "passthrough.PoolOfDevices",
        "luks": "dmcrypt.Luks",
        "dmcrypt": "dmcrypt.Dmcrypt",
        "integrity": "integrity.Integrity",
        "linear": "mapper.Linear",
        "lvm": "volumes.lvm.Lvm",
        "raid": "volumes.raid.Raid",
        "md": "volumes.md.Md",
        "bcache": "volumes.caches.Bcache",
        "writecache": "volumes.caches.Writecache",
        "delay": "mapper.Delay",
        "flakey": "mapper.Flakey",
        "recorded": "recorded.Recorded",
        "ext2": "filesystems.Ext2",
        "ext3": "filesystems.Ext3",
        "ext4": "filesystems.Ext4",
        "xfs": "filesystems.Xfs",
        "btrfs": "filesystems.Btrfs",
        "f2fs": "filesystems.F2fs",
        "nilfs2": "filesystems.Nilfs2",
        "jfs": "filesystems.Jfs",
        "reiserfs": "filesystems.Reiserfs",
        "zfs": "zfs.Zfs",
        "bcachefs": "bcachefs.Bcachefs",
        "exfat": "filesystems.Exfat",
        "vfat": "filesystems.Vfat",
        "ntfs": "filesystems.Ntfs",
        "ntfs3g": "filesystems.Ntfs3g",
        "tmpfs": "filesystems.Tmpfs",
        "gocryptfs": "stacked.Gocryptfs",
        "encfs": "stacked.Encfs",
        "cryfs": "stacked.Cryfs",
        "securefs": "stacked.Securefs",
        "ecryptfs": "kernel_encryption.Ecryptfs",
        "fscrypt": "kernel_encryption.Fscrypt",
        "sshfs": "network.sshfs.Sshfs",
        "nfs": "network.nfs.Nfs",
        "samba": "network.samba.Samba",
        "squashfs": "images.Squashfs",
        "erofs": "images.Erofs",
        "directory": "passthrough.PlainDirectory",
        "bind": "passthrough.Bind",
        "overlay": "passthrough.Overlay",
        "loop": "passthrough.Loop",
    }
)


def known(brought: Iterable[Iterable[type[Layer]]]) -> MutableMapping[str, type[Layer]]:
    """Return the layers of the plugin, of other plugins and of conftests, by name."""
    return ChainMap({layer.name: layer for layers in brought for layer in layers}, BUILT_IN)
