"""Subcommands in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_fsstack.command import main

RunCommand = Callable[..., str]


@pytest.fixture
def run_command(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> RunCommand:
    """Return a function that runs a subcommand and returns its output, standard error last.

    The module's `COMMAND`, if it has one, comes first.
    """
    command = getattr(request.module, "COMMAND", ())

    def run(*words: object, code: int = 0) -> str:
        result = main([*command, *map(str, words)])
        out, err = capfd.readouterr()
        assert result == code, out + err
        return out + err

    return run
