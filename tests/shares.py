"""A plugin for `python -m tests`: long tests begin the shares that xdist gives to its workers.

``--dist=worksteal`` gives each worker a contiguous share of the tests. A worker whose share is done takes from the end
of another one's. A long test in the middle would start late, and run last while the other workers have nothing to do.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

Item = TypeVar("Item")

#: Files whose tests take half a minute or more, the longest first.
LONG = (
    "tests/kernel/test_one_guest.py",
    "tests/real/test_torture.py",
    "tests/laboratory/test_runs.py",
    "tests/real/test_combinations.py",
    "tests/plugin/test_combinations.py",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reorder the tests in each worker, all alike."""
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = reordered(items, workers, lambda item: item.nodeid.partition("::")[0])


def reordered(items: Sequence[Item], workers: int, file_of: Callable[[Item], str]) -> list[Item]:
    """Return the items with the long ones at the beginnings of equal shares, in turns."""
    rank = functools.cache(lambda file: LONG.index(file) if file in LONG else len(LONG))
    in_order = sorted(items, key=lambda item: rank(file_of(item)))
    count = sum(file_of(item) in LONG for item in items)
    long, others = in_order[:count], iter(in_order[count:])
    shares: list[Item] = []
    for worker in range(workers):
        begin, size = long[worker::workers], (len(items) - len(shares)) // (workers - worker)
        shares += begin
        shares += itertools.islice(others, max(0, size - len(begin)))
    return [*shares, *others]
