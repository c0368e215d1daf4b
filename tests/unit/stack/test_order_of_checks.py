"""When a device is looked at: before each write, after it, and before each mount."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine.port import Word
from pytest_fsstack.preflight.recording import RecordingJournal, RecordingMachine
from pytest_fsstack.stack.build import BuildError, build
from pytest_fsstack.stack.layer import PoolLayer
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, BuildContext, Directory, Pool

SAID: list[str] = []


@dataclass(frozen=True)
class Disk(LoopDevice):
    """A device that notes what it is asked, and is another one from then on."""

    size: int = 1 << 30
    another_from: str = ""

    @contextlib.contextmanager
    def opened(self, context: BuildContext, count: int = 1) -> Iterator[Block]:
        blocks = [self.block(context, f" {number}" if number else "") for number in range(count)]
        yield blocks[0] if count == 1 else Pool.of(blocks)

    def block(self, context: BuildContext, suffix: str) -> Block:
        def asked(what: str) -> Any:
            def answer() -> None:
                SAID.append(f"{what}{suffix}")
                if f"{what}{suffix}" == self.another_from:
                    raise OSError("it is another one now")

            return answer

        return Block(
            Path(f"/dev/fake{suffix.strip()}"),
            asked("check"),
            context.machine,
            asked("written"),
            verify=asked("verify"),
            opened=asked("opened"),
        )


@dataclass(frozen=True)
class Made(PoolLayer):
    """Made by a tool of one device or of two, and mounted."""

    name: ClassVar = "made"
    gives: ClassVar = Directory

    def create(self, below: Block, context: BuildContext) -> None:
        below.overwrite("mkfs.made")

    @contextlib.contextmanager
    def opened(self, below: Block, context: BuildContext) -> Iterator[Directory]:
        SAID.append("mount")
        yield Directory(context.directory)


ON_ONE, ON_TWO = Stack((Made(),)), Stack((Made(devices=2),))


class Telling(RecordingMachine):
    """Notes its commands between what the device notes."""

    def run(self, *argv: Word, **keywords: Any) -> str:
        SAID.append(str(argv[0]))
        return super().run(*argv, **keywords)


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    SAID.clear()
    return BuildContext(tmp_path, RecordingJournal(Telling(tmp_path)))


def test_before_each_write_after_it_and_before_each_mount(context: BuildContext) -> None:
    with build(ON_ONE, Disk(), context) as built:
        made = ["check", "wipefs", "check", "mkfs.made", "verify", "written", "verify", "mount", "opened"]
        assert made == SAID
        SAID.clear()
        built.remount()
        assert SAID == ["verify", "mount", "opened"]


@pytest.mark.parametrize("another_from", ["check", "verify", "written", "opened"])
def test_nothing_is_done_to_another_device(context: BuildContext, another_from: str) -> None:
    with (
        pytest.raises(BuildError, match="it is another one now"),
        build(ON_ONE, Disk(another_from=another_from), context),
    ):
        pass
    assert SAID[-1] == another_from
    assert ("mount" in SAID) == (another_from == "opened")


def test_of_a_pool_each_device_is_checked_before_a_tool_gets_any(context: BuildContext) -> None:
    with build(ON_TWO, Disk(), context):
        wiped = ["check", "wipefs", "check 1", "wipefs", "check", "check 1", "mkfs.made"]
        looked_at = [f"{what}{suffix}" for what in ("verify", "written", "verify") for suffix in ("", " 1")]
        assert [*wiped, *looked_at, "mount", "opened", "opened 1"] == SAID
    assert context.machine.lines[2] == "mkfs.made /dev/fake /dev/fake1"  # type: ignore[attr-defined]


@pytest.mark.parametrize("another_from", ["check", "check 1"])
def test_if_one_of_two_is_another_one_no_tool_formats_any(context: BuildContext, another_from: str) -> None:
    with (
        pytest.raises(BuildError, match="it is another one now"),
        build(ON_TWO, Disk(another_from=another_from), context),
    ):
        pass
    assert "mkfs.made" not in SAID
