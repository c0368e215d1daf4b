"""Sizes as people write them."""

from __future__ import annotations

import re

_FACTORS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def parse_size(text: str) -> int:
    """Bytes of ``512M``, ``4G``, ``1.5T`` or a plain number of bytes; units are powers of 1024. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"{text!r} is not a size; write 512M, 4G or a number of bytes")
    return int(float(match[1]) * _FACTORS[match[2].upper()])


def format_size(size: float) -> str:
    """``4.0 GiB``, ``512 B``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_quantity(value: float, unit: str) -> str:
    """A figure with its unit, scaled for reading: bytes in powers of 1024, seconds from µs to s."""
    if unit == "B":
        return format_size(value)
    if unit == "B/s":
        return f"{format_size(value)}/s"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1e3:.3g} ms" if abs(value) >= 1e-3 else f"{value * 1e6:.3g} µs"
    number = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{number} {unit}".rstrip()
