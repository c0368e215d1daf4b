"""Long tests begin the shares of xdist's workers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.scheduler import WorkStealingScheduling

from tests.__main__ import PLACES
from tests.shares import LONG, reordered

ROOT = Path(__file__).parents[2]


class Worker:
    """Keeps the tests that xdist sends to it at first."""

    shutting_down = False

    def __init__(self) -> None:
        self.tests: list[int] = []
        self.gateway = SimpleNamespace(id=str(id(self)))

    def send_runtest_some(self, tests: list[int]) -> None:
        self.tests += tests

    def send_steal(self, tests: list[int]) -> None:
        raise AssertionError("nothing is left to give")


def shares(tests: list[str], count: int) -> list[list[str]]:
    """Return what xdist gives to each worker at first."""
    config = SimpleNamespace(getvalue=lambda name: ["popen"] * count, option=SimpleNamespace())
    scheduler = WorkStealingScheduling(cast(Any, config))
    workers = [Worker() for _ in range(count)]
    for worker in workers:
        scheduler.add_node(cast(Any, worker))
        scheduler.add_node_collection(cast(Any, worker), tests)
    scheduler.schedule()
    return [[tests[number] for number in worker.tests] for worker in workers]


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5, 16])
def test_long_tests_begin_the_shares_of_all_workers(workers: int) -> None:
    tests = [f"{file}::test" for file in LONG[::-1]]
    tests[2:2] = [f"short{number}::test" for number in range(203)]
    order = reordered(tests, workers, lambda test: test.partition("::")[0])
    assert sorted(order) == sorted(tests)
    first_shares = shares(order, workers)
    for number, file in enumerate(LONG):
        assert first_shares[number % workers][number // workers] == f"{file}::test"
    short = [test for test in order if test.startswith("short")]
    assert short == [test for test in tests if test.startswith("short")]


def test_few_tests_are_all_kept() -> None:
    tests = [LONG[0], "short", LONG[1]]
    assert sorted(reordered(tests, 8, lambda test: test)) == sorted(tests)


def test_all_long_files_are_among_the_places() -> None:
    assert [file for file in LONG if not (ROOT / file).exists()] == []
    assert [file for file in LONG if not any(file.startswith(place.partition("::")[0]) for place in PLACES)] == []
