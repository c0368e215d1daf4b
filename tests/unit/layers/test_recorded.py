"""The layer that writes down what is written to it: what it runs, and its server, asked as the kernel asks it."""

from __future__ import annotations

import os
import shlex
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.layers import BUILT_IN, recorder
from pytest_fsstack.preflight.explain import explained
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.truth.damage.writelog import Entry, Kind, LogReader

SIZE = 1 << 20


def test_a_server_stands_on_the_device_and_a_loop_device_on_that() -> None:
    explanation = explained(Stack.parse("recorded(sector=512) | ext4", BUILT_IN), LoopDevice(SIZE))
    assert not explanation.problem
    program = shlex.join([sys.executable, "-I", "-S", str(recorder.__file__)])
    start = explanation.lines.index(f"{program} LOOP DIR/1-recorded.log DIR/1-recorded 512 &")
    assert any(line.startswith("# recorded: ") for line in explanation.lines[:start])
    built = explanation.lines[start:]
    assert any(line.startswith("# LOOP2: ") and "DIR/1-recorded" in line for line in built)
    assert any(line.startswith("mkfs.ext4 ") and line.endswith(" LOOP2") for line in built)


class Kernel:
    """Asks the server as the kernel does (include/uapi/linux/fuse.h), over a socket in place of /dev/fuse."""

    def __init__(self, directory: Path) -> None:
        self.device = directory / "device"
        self.device.write_bytes(bytes(SIZE))
        self.log = directory / "log"
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._file = os.open(self.device, os.O_RDWR)
        server = recorder.Server(self._file, recorder.Log(str(self.log), 512))
        self._thread = threading.Thread(target=server.serve, args=(self._theirs.fileno(),))
        self._thread.start()
        self._asked = 0

    def ask(self, code: int, body: bytes = b"") -> bytes:
        """Raises OSError as the kernel would."""
        self._asked += 1
        self._ours.send(struct.pack("=IIQQIIIHH", 40 + len(body), code, self._asked, 1, 0, 0, 0, 0, 0) + body)
        answer = self._ours.recv(1 << 21)
        length, error, unique = struct.unpack_from("=IiQ", answer)
        assert (length, unique) == (len(answer), self._asked)
        if error:
            raise OSError(-error, os.strerror(-error))
        return answer[16:]

    def tell(self, code: int) -> None:
        """What has no answer."""
        self._ours.send(struct.pack("=IIQQIIIHH", 48, code, 0, 1, 0, 0, 0, 0, 0) + bytes(8))

    def write(self, offset: int, data: bytes) -> None:
        written = self.ask(16, struct.pack("=QQIIQII", 0, offset, len(data), 0, 0, 0, 0) + data)
        assert struct.unpack("=II", written) == (len(data), 0)

    def zero(self, mode: int, offset: int, length: int) -> None:
        assert self.ask(43, struct.pack("=QQQII", 0, offset, length, mode, 0)) == b""

    def close(self) -> None:
        self._ours.close()
        self._thread.join()
        self._theirs.close()
        os.close(self._file)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path)
    yield kernel
    kernel.close()


def test_the_server_is_one_file_of_the_devices_size_that_is_not_cached(kernel: Kernel) -> None:
    begun = kernel.ask(26, struct.pack("=IIII", 7, 45, 131072, 0xFFFFFFFF) + bytes(48))
    assert len(begun) == 64
    assert struct.unpack_from("=II", begun) == (7, 31)
    # No cache for what is written (FUSE_WRITEBACK_CACHE), or the order would be lost.
    assert not struct.unpack_from("=I", begun, 12)[0] & 1 << 16
    attributes = kernel.ask(3)
    assert len(attributes) == 104
    assert struct.unpack_from("=Q", attributes, 24) == (SIZE,)
    assert struct.unpack_from("=I", attributes, 76) == (0o100600,)
    assert struct.unpack("=QII", kernel.ask(14)) == (0, 1, 0)
    assert len(kernel.ask(17)) == 80


def test_what_is_written_is_on_the_device_and_in_the_log_in_its_order(kernel: Kernel) -> None:
    kernel.write(4096, b"a" * 1024)
    assert kernel.ask(20) == b""
    kernel.tell(2)
    kernel.write(4608, b"b" * 512)
    kernel.zero(3, 4096, 512)
    assert kernel.ask(21, struct.pack("=II", 4, 0) + b"user.mark\0here") == b""
    assert LogReader(kernel.log).new() == [
        Entry(Kind.WRITE, 4096, 1024, b"a" * 1024),
        Entry(Kind.FLUSH),
        Entry(Kind.WRITE, 4608, 512, b"b" * 512),
        Entry(Kind.ZERO, 4096, 512),
        Entry(Kind.MARK, mark="here"),
    ]
    assert kernel.ask(15, struct.pack("=QQIIQII", 0, 4096, 1024, 0, 0, 0, 0)) == bytes(512) + b"b" * 512
    assert kernel.device.read_bytes()[4096:5120] == bytes(512) + b"b" * 512


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (43, struct.pack("=QQQII", 0, 0, 4096, 0, 0)),  # to allocate
        (43, struct.pack("=QQQII", 0, SIZE - 4096, 8192, 16, 0)),  # beyond the end
        (21, struct.pack("=II", 1, 0) + b"user.other\0x"),
        (22, b""),
    ],
)
def test_what_it_does_not_know_is_refused_and_not_logged(kernel: Kernel, code: int, body: bytes) -> None:
    with pytest.raises(OSError, match=r"not supported|not implemented"):
        kernel.ask(code, body)
    assert LogReader(kernel.log).new() == []
    assert kernel.device.read_bytes() == bytes(SIZE)
