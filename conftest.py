"""Run the project's tests by a bare `pytest` in a checkout, but the scenarios if an fsstack option is given."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    asked = any(str(word).startswith("--fsstack-") for word in config.invocation_params.args)
    if asked and config.args_source is config.ArgsSource.TESTPATHS:
        config.args[:] = [str(config.rootpath / "scenarios")]
