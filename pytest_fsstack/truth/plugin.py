"""The hooks of this wing. Sessions find them by their entry point, as those of any other package."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_fsstack.records.findings import Fault
    from pytest_fsstack.records.results import Results


@pytest.hookimpl(trylast=True)
def pytest_fsstack_faults() -> Mapping[str, Sequence[Fault]]:
    from pytest_fsstack.truth.correctness.known import FAULTS

    return FAULTS


@pytest.hookimpl(trylast=True)
def pytest_fsstack_counterexamples(results: Results) -> Mapping[str, str]:
    from pytest_fsstack.truth.correctness.scripts import counterexamples

    return counterexamples(results)


@pytest.hookimpl(trylast=True)
def pytest_fsstack_workloads() -> Mapping[str, Callable[..., object]]:
    from pytest_fsstack.truth.correctness.exploring import explore
    from pytest_fsstack.truth.correctness.fsxfile import fsx
    from pytest_fsstack.truth.correctness.posix import pjdfstest

    return {"explore": explore, "fsx": fsx, "pjdfstest": pjdfstest}
