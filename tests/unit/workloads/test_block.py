"""``dd`` on a directory: what it is told, and what is noticed afterwards. Devices are in tests/real."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack import workloads
from pytest_fsstack.machine import commands
from pytest_fsstack.machine.descriptors import read_direct
from pytest_fsstack.workloads import direct
from pytest_fsstack.workloads.block import seconds_of_dd
from pytest_fsstack.workloads.data.corpus import payload
from pytest_fsstack.workloads.direct import DirectIO, differing, sampled
from tests.toolkit import NotedStack, NotedTimed, block, flip

SIZE, BLOCK = 64 * 4096, 4096


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return payload(tmp_path, SIZE + 5, 1)


class TestWrite:
    def test_writes_the_payload(self, clock: NotedTimed, stack: NotedStack, source: Path) -> None:
        workloads.dd_write(clock, stack, payload=source, size=SIZE, block=BLOCK, direct=False)
        assert (stack.path / "dd.bin").read_bytes() == source.read_bytes()[:SIZE]
        assert clock.blocks == [block(bytes=SIZE, cold=True, preload=[source])]
        assert clock.recorded["dd_rate"][0] > 0
        assert clock.recorded["dd_rate"][1:] == ("B/s", "higher")
        assert stack.remounts == 1

    def test_replaces_what_a_step_before_has_left(self, clock: NotedTimed, stack: NotedStack) -> None:
        (stack.path / "dd.bin").write_bytes(bytes(2 * SIZE))
        workloads.dd_write(clock, stack, size=SIZE, direct=False)
        assert (stack.path / "dd.bin").stat().st_size == SIZE

    @pytest.mark.parametrize(
        ("is_direct", "sync", "words"),
        [
            (False, "", []),
            (True, "", ["oflag=direct"]),
            (True, "dsync", ["oflag=direct,dsync"]),
            (False, "sync", ["oflag=sync"]),
            (True, "fsync", ["oflag=direct", "conv=fsync"]),
            (False, "fdatasync", ["conv=fdatasync"]),
        ],
    )
    def test_says_how_to_write(
        self,
        clock: NotedTimed,
        stack: NotedStack,
        is_direct: bool,
        sync: Any,
        words: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(DirectIO, "missing", lambda self: None)
        clock.instead = lambda: None
        with pytest.raises(AssertionError, match=r"^dd_write: .*''$"):
            workloads.dd_write(clock, stack, size=SIZE, block=BLOCK, direct=is_direct, sync=sync)
        assert clock.inside == [
            ("dd", "if=/dev/zero", f"of={stack.path}/dd.bin", f"bs={BLOCK}", f"count={SIZE // BLOCK}", *words)
        ]

    @pytest.mark.parametrize("offset", [0, 100_000, SIZE - 1])
    @pytest.mark.parametrize("zeros", [True, False])
    def test_notices_an_altered_byte(
        self, clock: NotedTimed, stack: NotedStack, source: Path, zeros: bool, offset: int
    ) -> None:
        stack.broken = lambda: flip(stack.path / "dd.bin", offset)
        with pytest.raises(AssertionError, match=rf"^dd_write\b\D* 4096 bytes.* {offset // 4096 * 4096:,} .*dd\.bin"):
            workloads.dd_write(clock, stack, payload=None if zeros else source, size=SIZE, block=BLOCK, direct=False)

    def test_notices_what_is_missing(self, clock: NotedTimed, stack: NotedStack) -> None:
        stack.broken = lambda: os.truncate(stack.path / "dd.bin", 1000)
        with pytest.raises(AssertionError, match=r"^dd_write\b.*dd\.bin .*1,000 bytes.* 262,144$"):
            workloads.dd_write(clock, stack, size=SIZE, direct=False)
        stack.broken = (stack.path / "dd.bin").unlink
        with pytest.raises(AssertionError, match=r"^dd_write\b\D*dd\.bin\D*$"):
            workloads.dd_write(clock.another(), stack, size=SIZE, direct=False)


class TestRead:
    @pytest.mark.parametrize("zeros", [True, False])
    def test_reads_what_it_prepares(self, clock: NotedTimed, stack: NotedStack, source: Path, zeros: bool) -> None:
        given = None if zeros else source
        for _ in range(2):
            workloads.dd_read(clock.another(), stack, payload=given, size=SIZE, block=BLOCK, direct=False)
        assert (stack.path / "dd.bin").read_bytes() == (bytes(SIZE) if zeros else source.read_bytes()[:SIZE])
        assert clock.blocks[0] == block(bytes=SIZE, direction="read", cold=True)
        assert clock.recorded["dd_rate"][1:] == ("B/s", "higher")

    def test_reads_what_a_step_before_has_written(self, clock: NotedTimed, stack: NotedStack, source: Path) -> None:
        workloads.dd_write(clock, stack, payload=source, size=SIZE, direct=False)
        written = (stack.path / "dd.bin").stat()
        workloads.dd_read(clock.another(), stack, payload=source, size=SIZE, direct=False)
        workloads.dd_read(clock.another(), stack, payload=source, size=SIZE, direct=False, prepare=False)
        assert (stack.path / "dd.bin").stat().st_mtime_ns == written.st_mtime_ns

    def test_preparing_may_take_longer_than_other_commands(
        self, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(commands, "limit", 0.0)
        workloads.dd_read(clock, stack, size=SIZE, direct=False)

    def test_notices_a_short_read(self, clock: NotedTimed, stack: NotedStack) -> None:
        clock.altered = lambda text: text.replace("262144 bytes", "262143 bytes")
        with pytest.raises(AssertionError, match=r"^dd_read: dd .*262,143 bytes.* 262,144$"):
            workloads.dd_read(clock, stack, size=SIZE, direct=False)

    def test_notices_that_it_is_not_what_was_written(self, clock: NotedTimed, stack: NotedStack, source: Path) -> None:
        workloads.dd_write(clock, stack, size=SIZE, direct=False)
        with pytest.raises(AssertionError, match=r"^dd_read\b\D* 65536 bytes.* 0 .*dd\.bin"):
            workloads.dd_read(clock.another(), stack, payload=source, size=SIZE, direct=False, prepare=False)


class TestSummary:
    @pytest.mark.parametrize(
        ("output", "seconds"),
        [
            ("1+0 records in\n1+0 records out\n512 bytes copied, 6.4e-05 s, 8.0 MB/s\n", 6.4e-05),
            ("1+0 records in\n1+0 records out\n4096 bytes (4.1 kB, 4.0 KiB) copied, 0.25 s, 16.4 kB/s\n", 0.25),
            ("104857600 bytes (105 MB, 100 MiB) copied, 12 s, 8.7 MB/s\n", 12),
            ("4096 bytes (4.1 kB, 4.0 KiB) copied, 0 s, Infinity B/s\n", 1e-6),
        ],
    )
    def test_is_read(self, output: str, seconds: float) -> None:
        size = int(next(line for line in output.splitlines() if "copied" in line).split()[0])
        assert seconds_of_dd(output, size, "dd_read") == seconds

    @given(st.text())
    def test_is_refused_where_it_is_none(self, output: str) -> None:
        with pytest.raises(AssertionError, match="dd_read: "):
            seconds_of_dd(output.replace("copied", ""), 1, "dd_read")


class TestDirectIO:
    def test_leaves_nothing_behind(self, tmp_path: Path) -> None:
        if missing := DirectIO(tmp_path).missing():
            assert "Invalid argument" in missing.what
            assert "direct=False" in missing.remedy
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("call", ["open", "pwritev", "preadv"])
    def test_a_step_is_skipped_without_it(
        self, call: str, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Some filesystems refuse at the first, some only at the second or third.
        real = getattr(os, call)

        def refuse(first: Any, flags: Any, *args: Any, **keywords: Any) -> Any:
            if call != "open" or (flags & os.O_DIRECT and direct._PROBE in str(first)):
                raise OSError(errno.EINVAL, "Invalid argument")
            return real(first, flags, *args, **keywords)

        monkeypatch.setattr(os, call, refuse)
        with pytest.raises(pytest.skip.Exception, match=r"\(Invalid argument\): .*direct=False"):
            workloads.dd_write(clock, stack, size=SIZE)
        assert list(stack.path.iterdir()) == []

    @given(st.integers(0, 20_000), st.integers(1, 9000))
    def test_reads_any_bytes(self, offset: int, size: int) -> None:
        # On the directory of this file, because /tmp may be one that cannot.
        path = Path(__file__)
        if DirectIO(path.parent).missing():
            pytest.skip("the tests are on a filesystem without direct I/O")
        assert read_direct(path, offset, size) == path.read_bytes()[offset : offset + size]


@given(st.integers(1, 5000), st.sampled_from([1, 512, 4096]))
def test_a_sample_has_both_ends_and_is_repeatable(blocks: int, block: int) -> None:
    chosen = sampled(blocks * block, block)
    assert chosen == sampled(blocks * block, block)
    assert {chosen[0], chosen[-1]} == {0, blocks - 1}
    assert len(chosen) >= min(blocks, 64)


def test_what_is_spoilt_differs(tmp_path: Path, source: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(source.read_bytes())
    assert differing(target, source, SIZE, BLOCK) is None
    direct.spoil(target, source, SIZE, BLOCK)
    assert differing(target, source, SIZE, BLOCK) == 0
