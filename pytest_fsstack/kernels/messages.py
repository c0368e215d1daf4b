"""Messages between the controller and the workers of kernels, in addition to those of pytest-xdist."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_fsstack.judging.cells import CellRun, ChainPlan, Task
from pytest_fsstack.judging.decisions import Decision
from pytest_fsstack.judging.programs import Figures


class Collected(msgspec.Struct, tag=True):
    """The chains that a worker has collected, and the indices of their tests. All workers use the same names.

    `without_stack` are the reasons why budgets have no stack (`Budgets`).
    """

    chains: dict[str, ChainPlan]
    tests: dict[str, list[int]]
    without_stack: dict[str, str]


class Measured(msgspec.Struct, tag=True):
    """A run, and its environment."""

    chain: str
    task: Task
    run: CellRun
    environment: dict[str, Any]


class Report(msgspec.Struct):
    """The decision on a test, with its figures for other programs."""

    step: str
    stack: str
    decision: Decision
    figures: Figures | None


class Turn(msgspec.Struct):
    """The work of a worker in a turn: a task, or without one to report tests.

    `tests` is the number of tests that xdist sends for the turn.
    """

    tests: int
    task: Task | None = None
    reports: list[Report] = []


#: Messages of workers.
FromWorker = Collected | Measured
