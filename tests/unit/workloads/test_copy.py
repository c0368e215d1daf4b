"""One big file is copied, written over and read back, and what is not its copy is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.workloads.data.corpus import payload
from tests.toolkit import NotedStack, NotedTimed, block, flip

#: No multiple of a block.
SIZE = 64 * 4096 + 17


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return payload(tmp_path, SIZE, 1)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return payload(tmp_path, SIZE, 2)


@pytest.fixture
def copied(stack: NotedStack, source: Path) -> Path:
    target: Path = stack.path / "copy.bin"
    target.write_bytes(source.read_bytes())
    return target


@pytest.mark.parametrize("step", [workloads.copy_file, workloads.overwrite_file])
@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda path: flip(path, 5000), r"4096 bytes.* 4,096 .*copy\.bin"),
        (lambda path: flip(path, SIZE - 1), r"4096 bytes.* 262,144 .*copy\.bin"),
        (lambda path: os.truncate(path, 1000), r"copy\.bin .*1,000 bytes.* 262,161$"),
        (lambda path: path.unlink(), r"copy\.bin\D*$"),
    ],
    ids=["altered byte", "altered last byte", "truncated", "lost"],
)
def test_what_is_no_copy_is_noticed(
    clock: NotedTimed,
    stack: NotedStack,
    source: Path,
    step: Callable[[NotedTimed, NotedStack, Path], None],
    broken: Callable[[Path], object],
    message: str,
) -> None:
    target = stack.path / "copy.bin"
    if step is workloads.overwrite_file:
        target.touch()
    stack.broken = lambda: broken(target)
    with pytest.raises(AssertionError, match=rf"^{step.__name__}: \D*{message}"):
        step(clock, stack, source)


class TestCopyFile:
    def test_copies(self, clock: NotedTimed, stack: NotedStack, source: Path) -> None:
        workloads.copy_file(clock, stack, source)
        assert (stack.path / "copy.bin").read_bytes() == source.read_bytes()
        assert clock.blocks == [block(bytes=SIZE, preload=[source])]
        assert stack.remounts == 1

    def test_copies_nothing(self, clock: NotedTimed, stack: NotedStack, tmp_path: Path) -> None:
        (tmp_path / "empty").touch()
        workloads.copy_file(clock, stack, tmp_path / "empty")
        assert (stack.path / "copy.bin").stat().st_size == 0


class TestOverwriteFile:
    @pytest.mark.parametrize("truncate", [True, False])
    def test_overwrites_the_same_file(
        self, clock: NotedTimed, stack: NotedStack, other: Path, copied: Path, truncate: bool
    ) -> None:
        number = copied.stat().st_ino
        workloads.overwrite_file(clock, stack, other, truncate=truncate)
        assert copied.read_bytes() == other.read_bytes()
        assert copied.stat().st_ino == number
        assert clock.blocks == [block(bytes=SIZE, preload=[other])]
        assert (clock.inside[0][0] == "cp") == truncate

    def test_in_place_it_keeps_its_size(
        self, clock: NotedTimed, stack: NotedStack, tmp_path: Path, copied: Path
    ) -> None:
        with pytest.raises(ValueError, match=r"262,161 bytes .* 4,096 bytes"):
            workloads.overwrite_file(clock, stack, payload(tmp_path, 4096, 1), truncate=False)


class TestReadBack:
    def test_reads(self, clock: NotedTimed, stack: NotedStack, source: Path, copied: Path) -> None:
        workloads.read_back(clock, stack, source=source)
        assert clock.blocks == [block(bytes=SIZE, direction="read")]

    def test_notices_that_it_was_not_all(self, clock: NotedTimed, stack: NotedStack, copied: Path) -> None:
        clock.altered = lambda text: text.replace("262161 bytes", "262160 bytes")
        with pytest.raises(AssertionError, match=r"^read_back: dd .*262,160 bytes.* 262,161$"):
            workloads.read_back(clock, stack)

    def test_notices_other_content(self, clock: NotedTimed, stack: NotedStack, source: Path, copied: Path) -> None:
        flip(copied, 5)
        with pytest.raises(AssertionError, match=r"^read_back: \D*4096 bytes.* 0 .*copy\.bin"):
            workloads.read_back(clock, stack, source=source)
