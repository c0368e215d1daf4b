"""Ageing does the same on every stack, and leaves what it says."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pytest_fsstack import workloads
from pytest_fsstack.workloads import ageing
from pytest_fsstack.workloads.ageing import _base, _content, churn
from pytest_fsstack.workloads.extents import Extent, extents, fragments
from tests.toolkit import NotedStack, NotedTimed, flip

BUDGET = 16 << 20


@given(st.integers(0, 1000), st.integers(4 << 20, 64 << 20))
def test_operations_are_possible_and_keep_to_the_budget(seed: int, budget: int) -> None:
    live: dict[int, int] = {}
    for step in itertools.islice(churn(seed, budget), 600):
        if step.kind == "create":
            assert step.file not in live
            assert step.start == 0
        else:
            assert live[step.file] == step.start
        if step.kind == "delete":
            del live[step.file]
        else:
            assert step.size > 0
            live[step.file] = step.start + step.size
        assert sum(-(-size // 4096) * 4096 for size in live.values()) <= budget


def test_what_is_live_grows_to_the_budget_and_stays_there() -> None:
    live: dict[int, int] = {}
    shares = []
    for step in itertools.islice(churn(1, BUDGET), 5000):
        live[step.file] = 0 if step.kind == "delete" else step.start + step.size
        shares.append(sum(live.values()) / BUDGET)
    assert min(shares[1000:]) > 0.3


def test_operations_are_those_of_their_seed() -> None:
    def some(seed: int) -> list[ageing.Operation]:
        return list(itertools.islice(churn(seed, BUDGET), 100))

    assert some(1) == some(1) != some(2)


def test_too_little_room_is_refused() -> None:
    with pytest.raises(ValueError, match=r"4,194,304 bytes.* 1,048,576$"):
        next(churn(1, 1 << 20))


BASE = _base()


@given(st.integers(0, 5000), st.lists(st.integers(0, 3 << 20), max_size=4))
def test_what_is_appended_continues_the_file(file: int, sizes: list[int]) -> None:
    starts = [0, *itertools.accumulate(sizes)]
    pieces = [_content(BASE, file, start, size) for start, size in zip(starts, sizes)]
    assert [len(piece) for piece in pieces] == sizes
    assert b"".join(pieces) == _content(BASE, file, 0, sum(sizes))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4))))
def test_fragments_are_what_does_not_lie_together(places: list[tuple[int, int]]) -> None:
    places_on_disk = [Extent(0, physical, length) for physical, length in places]
    joined = itertools.pairwise(places)
    expected = bool(places) + sum(first[0] + first[1] != second[0] for first, second in joined)
    assert fragments(places_on_disk) == expected


def test_the_extents_of_a_file_cover_its_data(tmp_path: Path) -> None:
    path = tmp_path / "file"
    # So many holes that one request does not return all.
    with path.open("wb") as file:
        for index in range(700):
            file.seek(index * 8192)
            file.write(b"x" * 4096)
    try:
        extents_of_file = extents(path)
    except OSError as error:
        assert error.errno in (errno.EOPNOTSUPP, errno.ENOTTY)
        pytest.skip(f"the filesystem of {tmp_path} does not tell where a file lies; set TMPDIR to one that does")
    assert [extent.logical for extent in extents_of_file] == [index * 8192 for index in range(700)]
    assert {extent.length for extent in extents_of_file} == {4096}


class TestAge:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch, stack: NotedStack) -> None:
        """A filesystem with little room, whatever is there."""
        real = os.statvfs(stack.path)

        class Status:
            f_frsize = real.f_frsize
            f_bavail = BUDGET * 4 // real.f_frsize

        monkeypatch.setattr(os, "statvfs", lambda path: Status)

    def test_leaves_what_the_operations_say(
        self, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ageing, "_fragmentation", lambda stack, size: 0.5)
        workloads.age(clock, stack, operations=300, percent=25)
        top = stack.path / "aged"
        live: dict[str, int] = {}
        for step in itertools.islice(churn(1, BUDGET), 300):
            live[str(step.file)] = step.start + step.size
            if step.kind == "delete":
                del live[str(step.file)]
        assert {path.name: path.stat().st_size for path in top.rglob("*") if path.is_file()} == live
        assert clock.recorded == {"fragments_per_mib": (0.5, "1/MiB", "lower")}
        assert clock.resolutions.keys() == {"fragments_per_mib"}
        assert clock.kept == {"operations": 300}
        assert [path.name for path in stack.path.iterdir()] == ["aged"]

    def test_stops_at_the_target(self, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch) -> None:
        figures = iter([0.1, 0.2, 0.3, 0.4, 0.5])
        monkeypatch.setattr(ageing, "_BETWEEN_PROBES", 20)
        monkeypatch.setattr(ageing, "_fragmentation", lambda stack, size: next(figures))
        workloads.age(clock, stack, operations=1000, target=0.3)
        assert clock.kept == {"operations": 60, "fragmentation": [[20, 0.1], [40, 0.2], [60, 0.3]]}
        assert clock.recorded["fragments_per_mib"][0] == 0.4

    def test_ends_where_the_target_is_never_reached(
        self, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ageing, "_fragmentation", lambda stack, size: 0.1)
        workloads.age(clock, stack, operations=30, target=100.0)
        assert clock.kept["operations"] == 30

    def test_a_filesystem_that_does_not_tell_is_aged_all_the_same(
        self, clock: NotedTimed, stack: NotedStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refused(path: Path) -> list[Extent]:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

        monkeypatch.setattr(ageing, "_BETWEEN_PROBES", 10)
        monkeypatch.setattr(ageing, "extents", refused)
        workloads.age(clock, stack, operations=30, target=1.0)
        assert clock.recorded == {}
        assert clock.kept == {"operations": 30}
        assert [path.name for path in stack.path.iterdir()] == ["aged"]

    @pytest.mark.parametrize(
        ("how", "message"),
        [
            ({"probe": 32 << 20}, ".*33,554,432 bytes.* 6,710,887$"),
            ({"percent": 99}, ".*335,544 bytes.* 671,089$"),
        ],
    )
    def test_refuses_what_cannot_be(
        self, clock: NotedTimed, stack: NotedStack, how: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=f"^age: {message}"):
            workloads.age(clock, stack, **how)

    @pytest.mark.parametrize(
        ("broken", "message"),
        [
            (lambda file: flip(file, 1), r"\D*: 0/\d+$"),
            (lambda file: file.unlink(), r"\D*\d+ files \D*\d+; .*: 0/\d+$"),
            (lambda file: os.truncate(file, 1), r"\D*[\d,]+ bytes \D*[\d,]+; [^;]*: 0/\d+$"),
        ],
        ids=["altered byte", "lost file", "truncated"],
    )
    def test_notices(
        self,
        clock: NotedTimed,
        stack: NotedStack,
        monkeypatch: pytest.MonkeyPatch,
        broken: Callable[[Path], object],
        message: str,
    ) -> None:
        monkeypatch.setattr(ageing, "_fragmentation", lambda stack, size: 0.5)
        stack.broken = lambda: broken(next(path for path in (stack.path / "aged").rglob("*") if path.is_file()))
        with pytest.raises(AssertionError, match=f"^age: {message}"):
            workloads.age(clock, stack, operations=50)
