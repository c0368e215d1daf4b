"""Hooks with which plugins and conftests add layers, workloads, reports and tables.

The built-in reports, tables and workloads use them as well. PYTEST_DONT_REWRITE: every pytest run of the machine
imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_fsstack.records.findings import Fault
    from pytest_fsstack.records.results import Results
    from pytest_fsstack.report.model import Grid
    from pytest_fsstack.stack.layer import Layer

#: The parser with which the plugin can still declare options after pytest has read the command line.
PARSER: pytest.StashKey[pytest.Parser] = pytest.StashKey()
#: A key in `workerinput` of pytest-xdist: an execnet channel that closes when the controller ends.
CONTROLLER = "fsstack_controller"
#: The key in a worker's output of the user's mistake that ended it.
MISTAKE = "fsstack_mistake"


def pytest_fsstack_layers() -> Sequence[type[Layer]]:  # type: ignore[empty-body]
    """Return layer classes for use in stacks."""


def pytest_fsstack_faults() -> Mapping[str, Sequence[Fault]]:  # type: ignore[empty-body]
    """Return known faults by the name of their layer, as `pytest_fsstack.Fault`. Scenarios expect their findings."""


def pytest_fsstack_counterexamples(results: Results) -> Mapping[str, str]:  # type: ignore[empty-body]
    """Return scripts that show findings, by file name, for ``--fsstack-counterexamples``."""


def pytest_fsstack_workloads() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return workloads by name, for ``--fsstack-doctor``. Decorate each with `pytest_fsstack.workloads.workload`."""


def pytest_fsstack_reports() -> Mapping[str, Callable[[Results], str]]:  # type: ignore[empty-body]
    """Return reports by name, for ``--fsstack-report NAME=FILE``. A report turns results into text."""


def pytest_fsstack_tables() -> Mapping[str, Callable[..., list[Grid]]]:  # type: ignore[empty-body]
    """Return tables by name, for the marker ``fsstack_table``. A table turns a `View` of a chain into grids."""
