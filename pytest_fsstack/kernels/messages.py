"""Messages between the controlling process and the workers of kernels, beside those of pytest-xdist."""

from __future__ import annotations

from typing import Any

import msgspec

from pytest_fsstack.judging.course import CellRun, ChainPlan, Figures, Outcome


class Collected(msgspec.Struct, tag=True):
    """The chains that a worker has collected, by names that all workers share, and the indices of their tests."""

    chains: dict[str, ChainPlan]
    tests: dict[str, list[int]]


class Measured(msgspec.Struct, tag=True):
    """A run of a stack, and the environment that it ran in."""

    chain: str
    stack: str
    run: CellRun
    environment: dict[str, Any]


class Report(msgspec.Struct):
    """The end of a test, with the figures for other programs."""

    step: str
    stack: str
    outcome: Outcome
    figures: Figures | None


class Turn(msgspec.Struct):
    """The order for a turn: tests, and a run of a stack in a round from 0 on, or without a stack the reports."""

    tests: int
    stack: str = ""
    number: int = 0
    repetitions: dict[str, int] = {}
    reports: list[Report] = []


#: What a worker sends.
FromWorker = Collected | Measured
