"""Functions of the C library that Python lacks."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes


@functools.cache
def libc() -> ctypes.CDLL:
    """Return the C library, loaded on first use."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def failure(what: str) -> OSError:
    """Return the error of the last call to the C library."""
    import ctypes

    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")
