"""Run the project's tests by a bare `pytest` in a checkout, but the scenarios if an fsstack option is given."""

from __future__ import annotations

import pytest

INSTEAD = pytest.StashKey[bool]()
#: Options that name what runs.
NAMING = ("--fsstack-command", "--fsstack-scenario", "--fsstack-fio")


def pytest_configure(config: pytest.Config) -> None:
    options = [str(word) for word in config.invocation_params.args if str(word).startswith("--fsstack-")]
    asked = bool(options) and not any(option.startswith(NAMING) for option in options)
    config.stash[INSTEAD] = asked and config.args_source is config.ArgsSource.TESTPATHS
    if config.stash[INSTEAD]:
        config.args[:] = [str(config.rootpath / "scenarios")]
        # Otherwise, the header would name the tests.
        config.args_source = config.ArgsSource.ARGS


def pytest_report_header(config: pytest.Config) -> list[str]:
    if not config.stash.get(INSTEAD, False):
        return []
    return ["fsstack: an option is given, so the scenarios in scenarios/ run. `pytest tests` runs the project's tests"]
