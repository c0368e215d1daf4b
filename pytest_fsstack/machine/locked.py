"""Memory for secrets. The kernel neither swaps it out nor writes it into core dumps."""

from __future__ import annotations

import mmap

from pytest_fsstack.machine.libc import libc


def locked_memory(size: int, fd: int = -1) -> mmap.mmap:
    """Return zeroed private memory, or a mapping of an open file. Raises OSError.

    While a page is mapped here, it stays in RAM for all processes. It can still be swapped out if RLIMIT_MEMLOCK is
    smaller than it, which is at least 64 KiB on all common systems, and has no effect on root.
    """
    import ctypes

    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if fd == -1 else mmap.mmap(fd, size)
    memory.madvise(mmap.MADV_DONTDUMP)
    first = ctypes.c_char.from_buffer(memory)
    libc().mlock(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size))
    return memory
