"""The headers by which other systems find their data, if Debian has no tool that makes them in a test."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

MIB = 1 << 20


def _md(size: int) -> bytes:
    """Of version 1 (include/uapi/linux/raid/md_p.h): magic, version, UUID, offsets of the data and of itself."""
    block = bytearray(256)
    struct.pack_into("<II8x16s", block, 0, 0xA92B4EFC, 1, os.urandom(16))
    struct.pack_into("<QQQ", block, 128, 0, size // 512 - 16, size // 512 - 16)
    return bytes(block)


def _crc64(data: bytes) -> int:
    """As lib/crc64.c of Linux, inverted before and after."""
    mask = (1 << 64) - 1
    crc = mask
    for byte in data:
        crc ^= byte << 56
        for _ in range(8):
            crc = (crc << 1 ^ (0x42F0E1EBA9EA3693 if crc >> 63 else 0)) & mask
    return crc ^ mask


def _bcache() -> bytes:
    """The superblock of a cache (include/uapi/linux/bcache.h), without buckets for journals."""
    magic = bytes.fromhex("c68573f64e1a45ca8265f57f48ba6d81")
    geometry = struct.pack("<QHHHHIHH", 640, 8, 1024, 1, 0, 0, 1, 0)
    rest = struct.pack("<QQ", 8, 1) + magic + os.urandom(32) + b"photos".ljust(32, b"\0") + bytes(80) + geometry
    return struct.pack("<Q", _crc64(rest)) + rest


def _bitlocker() -> bytes:
    """The first sector of Windows 7 and later, with the places of three copies of the metadata."""
    identifier = bytes.fromhex("3bd667492920d84a8399f6a339e3d001")
    sector = b"\xebX\x90-FVE-FS-".ljust(160, b"\0") + identifier + struct.pack("<QQQ", 16 * MIB, 32 * MIB, 48 * MIB)
    return sector.ljust(510, b"\0") + b"U\xaa"


def _apfs(size: int) -> bytes:
    """The superblock of a container, with Fletcher's checksum (Apple File System Reference, nx_superblock_t)."""
    block = struct.pack("<QQHHHHIIQ", 1, 1, 1, 0x8000, 0, 0, 0x4253584E, 4096, size // 4096).ljust(4088, b"\0")
    one = two = 0
    for (word,) in struct.iter_unpack("<I", block):
        one = (one + word) % 0xFFFFFFFF
        two = (two + one) % 0xFFFFFFFF
    low = 0xFFFFFFFF - (one + two) % 0xFFFFFFFF
    high = 0xFFFFFFFF - (one + low) % 0xFFFFFFFF
    return struct.pack("<II", low, high) + block


def headers(size: int) -> Mapping[str, tuple[str, int, bytes]]:
    """Return by the name of each kind: what blkid calls it, and what stands at which offset on a device of `size`."""
    suspended = ("S1SUSPEND", "S2SUSPEND", "ULSUSPEND", "LINHIB0001")
    return {
        "md 0.90": ("linux_raid_member", size - 65536, struct.pack("<III", 0xA92B4EFC, 0, 90)),
        "md 1.0": ("linux_raid_member", size - 8192, _md(size)),
        "bcache cache": ("bcache", 4096, _bcache()),
        # The metadata at the end of its device, version 8.4 (drbd_int.h: struct meta_data_on_disk).
        "drbd": ("drbd", size - 4096, bytes(60) + struct.pack(">I", 0x8374026B)),
        "bluestore": ("ceph_bluestore", 0, b"bluestore block device\n12345678-1234-1234-1234-123456789abc\n"),
        "bitlocker": ("BitLocker", 0, _bitlocker().ljust(16 * MIB, b"\0") + b"-FVE-FS-\x40\0\2\0"),
        "apfs": ("apfs", 0, _apfs(size)),
        "hfs+": ("hfsplus", 1024, b"H+\0\4" + bytes(36) + struct.pack(">II", 4096, size // 4096)),
        # At the end of the first page of swap space, where mkswap wrote SWAPSPACE2.
        **{f"hibernated, {text}": ("swsuspend", 4086, text.encode().ljust(10, b"\0")) for text in suspended},
    }
