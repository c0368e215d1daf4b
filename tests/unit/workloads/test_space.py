"""The space of a small file, measured where it is stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack import workloads
from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.build import Built
from pytest_fsstack.stack.model import Stack
from pytest_fsstack.stack.places import Block, Directory
from tests.toolkit import NotedStack, NotedTimed, block


class TestSmallFileSpace:
    def test_says_what_a_file_takes(self, clock: NotedTimed, stack: NotedStack) -> None:
        workloads.small_file_space(clock, stack, sizes=(0, 1, 5000), count=10)
        assert clock.blocks == [block(bytes=50_010, files=30)]
        assert {name: figure for name, figure in clock.recorded.items() if name.startswith("raw")} == {
            "raw_0": (0, "B", "lower"),
            "raw_1": (1, "B", "lower"),
            "raw_5000": (5000, "B", "lower"),
        }
        assert clock.recorded["allocated_0"][0] == 0
        assert clock.recorded["allocated_5000"][0] >= 5000
        # Of nothing a byte more counts.
        assert set(clock.resolutions) == set(clock.recorded)
        assert set(clock.resolutions.values()) == {1}
        assert list(stack.path.iterdir()) == []

    def test_looks_where_it_is_stored(
        self, clock: NotedTimed, stack: NotedStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stored = tmp_path / "stored"
        stored.mkdir()
        monkeypatch.setattr(NotedStack, "stored", stored)

        def encrypted() -> None:
            for path in stored.iterdir():
                path.unlink()
            for index, path in enumerate(path for path in stack.path.rglob("*") if path.is_file()):
                (stored / str(index)).write_bytes(bytes(path.stat().st_size + 8))

        monkeypatch.setattr(stack, "sync", encrypted)
        workloads.small_file_space(clock, stack, sizes=(0, 1), count=3)
        assert clock.recorded["raw_0"][0] == 8
        assert clock.recorded["raw_1"][0] == 9

    def test_notices_other_content(self, clock: NotedTimed, stack: NotedStack) -> None:
        stack.broken = lambda: (stack.path / "small-files" / "1" / "2").write_text("xy")
        with pytest.raises(AssertionError, match=r"^small_file_space: .*: 1/2$"):
            workloads.small_file_space(clock, stack)


def test_settling_does_nothing_but_remount(clock: NotedTimed, stack: NotedStack) -> None:
    workloads.settle(clock, stack)
    assert clock.blocks == [block(cold=False)]
    assert clock.inside == []
    assert stack.remounts == 1


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ext4", 1),
        ("ext4 | gocryptfs", 1),
        ("luks | ext4 | encfs | bind", 2),
        ("ext4 | loop | xfs", 3),
        ("ext4 | tmpfs", 2),
        ("gocryptfs", 0),
        ("gocryptfs | bind", 0),
    ],
)
def test_a_stack_says_where_it_stores(text: str, place: int) -> None:
    parsed = Stack.parse(text, BUILT_IN)
    machine = RealMachine()
    bottom = Block(Path("/0"), lambda: None, machine) if Block in parsed.layers[0].takes else Directory(Path("/0"))
    built = Built(parsed, None, bottom, None)  # type: ignore[arg-type]
    for index, layer in enumerate(parsed.layers, 1):
        path = Path(f"/{index}")
        built._places.append(Directory(path) if layer.gives is Directory else Block(path, lambda: None, machine))
    assert built.stored == Path(f"/{place}")
