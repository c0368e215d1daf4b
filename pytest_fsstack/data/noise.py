"""Bytes and numbers that are the same for the same label everywhere."""

from __future__ import annotations

import hashlib
import struct

#: Raise it whenever the same label would give other bytes, so that nothing cached is taken for what it no longer is.
FORMAT = 1


def noise(count: int, *label: object) -> bytes:
    """`count` bytes that depend on the label alone, by a published function: `random` promises less."""
    return hashlib.shake_128(repr((FORMAT, *label)).encode()).digest(count)


def numbers(count: int, *label: object) -> tuple[int, ...]:
    """`count` numbers below 65536, as `noise`."""
    return struct.unpack(f"<{count}H", noise(2 * count, *label))
