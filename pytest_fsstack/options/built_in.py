"""The package's own workloads, reports and tables, through the hooks for plugins."""

from __future__ import annotations

from typing import Any

import pytest


class BuiltIn:
    """A pytest plugin with the built-in parts. Those of other plugins come first."""

    @pytest.hookimpl(trylast=True)
    def pytest_fsstack_workloads(self) -> dict[str, Any]:
        from pytest_fsstack.correctness.exploring import explore
        from pytest_fsstack.correctness.fsxfile import fsx
        from pytest_fsstack.correctness.posix import pjdfstest
        from pytest_fsstack.workloads import BUILT_IN

        return {**BUILT_IN, "explore": explore, "fsx": fsx, "pjdfstest": pjdfstest}

    @pytest.hookimpl(trylast=True)
    def pytest_fsstack_reports(self) -> dict[str, Any]:
        from pytest_fsstack.report import BUILT_IN

        return dict(BUILT_IN)

    @pytest.hookimpl(trylast=True)
    def pytest_fsstack_tables(self) -> dict[str, Any]:
        from pytest_fsstack.report.layouts import BUILT_IN

        return dict(BUILT_IN)
