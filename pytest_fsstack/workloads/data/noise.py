"""Bytes and numbers that are the same for the same label everywhere."""

from __future__ import annotations

import hashlib
import struct

#: The version of the generated data. Raise it if the same label gives other bytes, so that caches are not reused.
FORMAT = 1


def noise(count: int, *label: object) -> bytes:
    """Return `count` bytes that depend on the label alone. SHAKE-128 is standardized, unlike `random`."""
    return hashlib.shake_128(repr((FORMAT, *label)).encode()).digest(count)


def numbers(count: int, *label: object) -> tuple[int, ...]:
    """Return `count` numbers below 65536 that depend on the label alone."""
    return struct.unpack(f"<{count}H", noise(2 * count, *label))
