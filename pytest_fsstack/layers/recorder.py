"""A separate process below a stack: it shows a block device as a file, and logs all writes.

Usage: ``python recorder.py DEVICE LOG TARGET SECTOR``. It mounts itself on the file TARGET (a FUSE filesystem whose
root is a single file), and passes reads and writes through to DEVICE. It appends each write, zeroed range and flush to
LOG in the order of arrival. Requests are handled one at a time, so a flush is logged after all writes that were
completed before it was sent. Setting the extended attribute `MARK` of TARGET adds a mark to the log.

The log has the format of the kernel's dm-log-writes (Documentation/admin-guide/device-mapper/log-writes.rst), with one
difference: writes are in the order of their arrival, not of the next flush.

Flushes are not passed on, because power cuts are simulated from the log, and never happen to the device.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from collections.abc import Callable

MARK = "user.mark"

# -- the log -----------------------------------------------------------------------------------------------------------

MAGIC, VERSION = 0x6A736677736872, 1
FLUSH, FUA, DISCARD, IS_MARK = 1, 2, 4, 8
#: Magic, version, number of entries, sector size in bytes; in the first sector.
SUPER = struct.Struct("<QQQI")
#: First sector, number of sectors, flags, length of a mark. A mark's text follows in the same sector, data in the next.
ENTRY = struct.Struct("<QQQQ")


class Log:
    """A log for appending. An existing one is continued."""

    def __init__(self, path: str, sector: int) -> None:
        self.sector = sector
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._end = os.lseek(self._fd, 0, os.SEEK_END)
        self._entries = 0
        if self._end:
            _, _, self._entries, self.sector = SUPER.unpack(os.pread(self._fd, SUPER.size, 0))
        else:
            self._end = sector
            os.pwrite(self._fd, self._padded(SUPER.pack(MAGIC, VERSION, 0, sector)), 0)

    def _padded(self, head: bytes) -> bytes:
        return head.ljust(self.sector, b"\0")

    def add(
        self, flags: int, offset: int = 0, length: int = 0, data: bytes | memoryview = b"", mark: bytes = b""
    ) -> None:
        """Add an entry, with `offset` and `length` in bytes. Raises OSError."""
        if offset % self.sector or length % self.sector or len(mark) > self.sector - ENTRY.size:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        head = self._padded(ENTRY.pack(offset // self.sector, length // self.sector, flags, len(mark)) + mark)
        whole = len(head) + len(data)
        if os.pwritev(self._fd, [head, data], self._end) != whole:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._end += whole
        self._entries += 1
        # Written last, so that readers of this number find as many complete entries.
        os.pwrite(self._fd, struct.pack("<Q", self._entries), 16)


# -- FUSE (include/uapi/linux/fuse.h) ----------------------------------------------------------------------------------

_IN, _OUT = struct.Struct("=IIQQIIIHH"), struct.Struct("=IiQ")
_INIT = struct.Struct("=IIIIHHIIHHI28x")
_ATTR = struct.Struct("=QIIQQQQQQIIIIIIIIII")
_TRANSFER = struct.Struct("=QQIIQII")
_RANGE = struct.Struct("=QQQII")
_STATFS = struct.Struct("=QQQQQIIII24x")
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_DIRECT_IO = 1
_PAGES = 256
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16
_FORGET, _INTERRUPT, _BATCH_FORGET = 2, 36, 42
_REGULAR = 0o100600

_libc = ctypes.CDLL(None, use_errno=True)


class Server:
    """A FUSE server for one file. `log` records all writes."""

    def __init__(self, device: int, log: Log) -> None:
        self._device, self._log = device, log
        self._size = os.lseek(device, 0, os.SEEK_END)
        self._answers: dict[int, Callable[[memoryview], bytes]] = {
            3: self._attributes,
            4: self._attributes,  # nothing but the times can change
            14: lambda _: struct.pack("=QII", 0, _DIRECT_IO, 0),
            15: self._read,
            16: self._write,
            17: lambda _: _STATFS.pack(0, 0, 0, 1, 0, 4096, 255, 4096, 0),
            18: lambda _: b"",  # release
            20: self._flush,
            21: self._mark,
            25: lambda _: b"",  # a descriptor was closed
            26: self._begin,
            38: lambda _: b"",  # unmounted
            43: self._zero,
        }

    def serve(self, fuse: int) -> None:
        """Answer requests until the file is unmounted. Raises OSError."""
        buffer = bytearray(_PAGES * 4096 + 4096)
        view = memoryview(buffer)
        while True:
            try:
                length = os.readv(fuse, [buffer])
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                raise
            if not length:
                return
            _, code, unique, *_ = _IN.unpack_from(buffer)
            if code in (_FORGET, _INTERRUPT, _BATCH_FORGET):
                continue
            number, reply = 0, b""
            try:
                answer = self._answers.get(code)
                if answer is None:
                    raise OSError(errno.ENOSYS, "")
                reply = answer(view[_IN.size : length])
            except OSError as error:
                number = -(error.errno or errno.EIO)
            try:
                os.writev(fuse, [_OUT.pack(_OUT.size + len(reply), number, unique), reply])
            except OSError as error:
                if error.errno != errno.ENOENT:  # the caller is gone
                    raise

    def _begin(self, request: memoryview) -> bytes:
        _, minor, readahead, flags = struct.unpack_from("=IIII", request)
        return _INIT.pack(
            7, min(minor, 31), readahead, flags & (_BIG_WRITES | _MAX_PAGES), 0, 0, _PAGES * 4096, 1, _PAGES, 0, 0
        )

    def _attributes(self, request: memoryview) -> bytes:
        return _ATTR.pack(
            *(3600, 0, 0),
            *(1, self._size, self._size // 512, 0, 0, 0, 0, 0, 0),
            *(_REGULAR, 1, 0, 0, 0, 4096, 0),
        )

    def _read(self, request: memoryview) -> bytes:
        _, offset, length, *_ = _TRANSFER.unpack_from(request)
        return os.pread(self._device, length, offset)

    def _write(self, request: memoryview) -> bytes:
        _, offset, length, *_ = _TRANSFER.unpack_from(request)
        data = request[_TRANSFER.size : _TRANSFER.size + length]
        self._log.add(0, offset, length, data)
        count = 0
        while count < length:
            count += os.pwrite(self._device, data[count:], offset + count)
        return struct.pack("=II", length, 0)

    def _flush(self, request: memoryview) -> bytes:
        self._log.add(FLUSH)
        return b""

    def _zero(self, request: memoryview) -> bytes:
        _, offset, length, mode, _ = _RANGE.unpack_from(request)
        if (
            mode not in (_PUNCH_HOLE | _KEEP_SIZE, _ZERO_RANGE, _ZERO_RANGE | _KEEP_SIZE)
            or offset + length > self._size
        ):
            raise OSError(errno.EOPNOTSUPP, "")
        self._log.add(DISCARD, offset, length)
        span = ctypes.c_longlong(offset), ctypes.c_longlong(length)
        if _libc.fallocate(self._device, _PUNCH_HOLE | _KEEP_SIZE, *span) != 0:
            # The device cannot zero ranges by itself.
            for start in range(offset, offset + length, 1 << 20):
                os.pwrite(self._device, bytes(min(1 << 20, offset + length - start)), start)
        return b""

    def _mark(self, request: memoryview) -> bytes:
        length, _ = struct.unpack_from("=II", request)
        name, _, value = bytes(request[8:]).partition(b"\0")
        if name.decode() != MARK:
            raise OSError(errno.EOPNOTSUPP, "")
        self._log.add(IS_MARK, mark=value[:length])
        return b""


def main(device: str, log: str, target: str, sector: int) -> None:
    """Mount, and answer requests until the unmount. Raises OSError."""
    fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    server = Server(os.open(device, os.O_RDWR | os.O_CLOEXEC), Log(log, sector))
    options = f"fd={fuse},rootmode={_REGULAR:o},user_id=0,group_id=0,allow_other".encode()
    if _libc.mount(os.fsencode(device), os.fsencode(target), b"fuse.recorded", 0, options) != 0:
        raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}")
    server.serve(fuse)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
