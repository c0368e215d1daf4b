"""A filler fills as far as it shall, and what cannot be filled is said."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.workloads.data.corpus import payload
from tests.toolkit import NotedStack, NotedTimed, block, flip

MIB = 1 << 20


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch, stack: NotedStack) -> Callable[[float], None]:
    """A filesystem of 100 MiB, 10 of them in use, that stores each byte in as many as this says."""
    ratio = [1.0]

    class Status:
        f_frsize = 4096
        f_blocks = 110 * MIB // 4096

        def __init__(self) -> None:
            used = 10 * MIB + sum(path.stat().st_size for path in stack.path.iterdir()) * ratio[0]
            # 10 MiB are reserved, as those of root on ext4.
            self.f_bfree = self.f_blocks - int(used) // 4096
            self.f_bavail = self.f_bfree - 10 * MIB // 4096

    monkeypatch.setattr(os, "statvfs", lambda path: Status())
    return lambda value: ratio.__setitem__(0, value)


class TestFill:
    @pytest.mark.parametrize(("percent", "size"), [(50, 40), (93, 83), (93.5, 84)])
    def test_fills_to_a_share(self, clock: NotedTimed, stack: NotedStack, room: Any, percent: float, size: int) -> None:
        workloads.fill(clock, stack, percent=percent)
        filler = stack.path / "filler.bin"
        assert filler.read_bytes() == bytes(size * MIB)
        assert clock.blocks == [block()]
        assert clock.kept == {"filler": {"bytes": size * MIB, "percent": 10 + size}}
        assert stack.remounts == 1

    def test_writes_on_until_it_is_full(self, clock: NotedTimed, stack: NotedStack, room: Any) -> None:
        room(0.7)
        workloads.fill(clock, stack, percent=80)
        assert (stack.path / "filler.bin").stat().st_size == 100 * MIB

    def test_says_that_zeros_do_not_fill(self, clock: NotedTimed, stack: NotedStack, room: Any) -> None:
        room(0.01)
        with pytest.raises(AssertionError, match=r"^fill: [\d,]+ bytes.* 1\d\.\d percent.*\bbytes="):
            workloads.fill(clock, stack)

    def test_writes_so_many_bytes(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        source = payload(tmp_path, 2 * MIB + 5, 1)
        workloads.fill(clock, stack, bytes=5 * MIB + 7, payload=source, cold=False)
        content = source.read_bytes()[: 2 * MIB]
        assert (stack.path / "filler.bin").read_bytes() == (content * 3)[: 5 * MIB + 7]
        assert clock.blocks == [block(bytes=5 * MIB + 7, cold=False, preload=[source])]
        assert clock.kept["filler"]["bytes"] == 5 * MIB + 7

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda path: flip(path, MIB), r"1 MiB.* 1,048,576 .*filler\.bin"),
            (lambda path: os.truncate(path, 10), r"filler\.bin .*10 bytes.* 3,145,728$"),
            (lambda path: path.unlink(), r"filler\.bin\D*$"),
        ],
        ids=["altered byte", "truncated", "lost"],
    )
    def test_notices(
        self, clock: NotedTimed, stack: NotedStack, broken: Callable[[Path], object], message: str
    ) -> None:
        stack.broken = lambda: broken(stack.path / "filler.bin")
        with pytest.raises(AssertionError, match=rf"^fill: \D*{message}"):
            workloads.fill(clock, stack, bytes=3 * MIB)

    def test_notices_that_it_is_not_full(self, clock: NotedTimed, stack: NotedStack, room: Any) -> None:
        stack.broken = lambda: room(0.9)
        with pytest.raises(AssertionError, match=r"^fill: .*\b46\.0 percent.* 50$"):
            workloads.fill(clock, stack, percent=50)

    def test_says_where_there_is_no_room(
        self, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written = iter([MIB, MIB])

        def write(descriptor: int, piece: Any) -> int:
            for size in written:
                return size
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(AssertionError, match=r"^fill: .* 2,097,152 .*5,242,880 bytes"):
            workloads.fill(clock, stack, bytes=5 * MIB)
