"""Hashes of the machine and of disks: comparable, without the facts behind them."""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path

#: Made for this plugin alone, so that its hashes are those of nobody else (machine-id(5)).
APPLICATION = bytes.fromhex("5be8c51a1d0f4b7c9a63f1d27c0e48b6")


def machine_id(path: Path = Path("/etc/machine-id")) -> str | None:
    """32 hexadecimal digits that are the same at each start of this machine; None if it has no id.

    machine-id(5) asks for a keyed hash in place of the id itself. This is sd_id128_get_machine_app_specific(3):
    HMAC-SHA256 of the application, with the machine's id as the key, cut to 128 bits and marked as a UUID of version 4.
    """
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    # "uninitialized" stands there in images, before their first start.
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        return None
    digest = bytearray(hmac.digest(bytes.fromhex(text), APPLICATION, hashlib.sha256)[:16])
    digest[6] = digest[6] & 0x0F | 0x40
    digest[8] = digest[8] & 0x3F | 0x80
    return digest.hex()


def hashed(serial: str) -> str:
    """32 hexadecimal digits for a serial number: equal ones tell that it is the same disk.

    They do not stand against somebody who tries all serial numbers of a maker.
    """
    return hmac.digest(APPLICATION, serial.encode(errors="surrogateescape"), hashlib.sha256)[:16].hex()
