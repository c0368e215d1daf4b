"""Hooks by which other plugins, and a project's conftest, add to this one; so do the built-in parts, but for layers.

PYTEST_DONT_REWRITE: it is loaded into every pytest run of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_fsstack.judging.results import Results
    from pytest_fsstack.report.model import Grid
    from pytest_fsstack.stack.model import Layer

#: Where the plugin declares its options, also after pytest has read the command line.
PARSER: pytest.StashKey[pytest.Parser] = pytest.StashKey()
#: In the input of a worker of pytest-xdist: the execnet channel that closes when its controller is gone.
CONTROLLER = "fsstack_controller"


def pytest_fsstack_layers() -> Sequence[type[Layer]]:  # type: ignore[empty-body]
    """Return layer classes, which stacks can then name."""


def pytest_fsstack_workloads() -> Mapping[str, Callable[..., object]]:  # type: ignore[empty-body]
    """Return workloads by name, each decorated with `pytest_fsstack.workloads.workload`, for ``--fsstack-doctor``."""


def pytest_fsstack_reports() -> Mapping[str, Callable[[Results], str]]:  # type: ignore[empty-body]
    """Return reports by name, which ``--fsstack-report NAME=FILE`` can then write: results in, text out."""


def pytest_fsstack_tables() -> Mapping[str, Callable[..., list[Grid]]]:  # type: ignore[empty-body]
    """Return tables by name, which the marker ``fsstack_table`` can then name: a `View` of a chain in, grids out."""
