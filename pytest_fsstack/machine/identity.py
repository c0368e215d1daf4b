"""Hashes of machines and disks: comparable, but not reversible."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

#: A random application id for this plugin (machine-id(5)).
APPLICATION = bytes.fromhex("5be8c51a1d0f4b7c9a63f1d27c0e48b6")


def machine_id(path: Path = Path("/etc/machine-id")) -> str | None:
    """Return an id of this machine as 32 hexadecimal digits, or None if the machine has no id.

    machine-id(5) requires a keyed hash instead of the id itself. This is sd_id128_get_machine_app_specific(3):
    HMAC-SHA256 of the application, with the machine's id as the key, cut to 128 bits and marked as a UUID of version 4.
    """
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    # Images contain "uninitialized" before their first boot.
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        return None
    digest = bytearray(hmac.digest(bytes.fromhex(text), APPLICATION, hashlib.sha256)[:16])
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return digest.hex()


def hashed(serial: str) -> str:
    """Hash a serial number to 32 hexadecimal digits. Equal hashes mean the same disk.

    The hash does not protect against trying all serial numbers of a manufacturer.
    """
    return hmac.digest(APPLICATION, serial.encode(errors="surrogateescape"), hashlib.sha256)[:16].hex()
