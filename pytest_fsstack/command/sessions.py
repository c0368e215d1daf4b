"""Subcommands that are sessions of pytest, and those that only ask its configuration."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence

import pytest

from pytest_fsstack import options
from pytest_fsstack.command import first_word


def run(arguments: Namespace) -> int:
    """Run a scenario by its name; returns pytest's exit code. Raises `CommandLineError`."""
    scenario = first_word(arguments, f"run: name a scenario first: {', '.join(options.SCENARIOS)}")
    return _pytest([f"--fsstack-scenario={scenario}", *arguments.words])


def doctor(arguments: Namespace) -> int:
    """Ask the doctor; returns 0 if all that is selected can run."""
    option, words = options.named("doctor"), arguments.words
    wish = words.pop(0) if words and words[0] in option.choices else option.choices[0]
    return _pytest([f"{option.flags}={wish}", *words])


def cleanup(arguments: Namespace) -> int:
    """Undo what killed sessions have left."""
    return _pytest(["--fsstack-cleanup", *arguments.words])


def ask(function: Callable[[pytest.Config], int], words: Sequence[str] = ()) -> int:
    """Call the function in place of a session, once pytest has read its options, the ini and the first conftests.

    So what other plugins and the project's own conftest bring is known as in a session. Returns what the function
    returns, or 4 if it raises `pytest.UsageError`.
    """

    class Instead:
        @pytest.hookimpl(tryfirst=True)
        def pytest_cmdline_main(self, config: pytest.Config) -> int:
            return function(config)

    class Early:
        @pytest.hookimpl(tryfirst=True)
        def pytest_load_initial_conftests(self, early_config: pytest.Config, parser: pytest.Parser) -> None:
            options.declare(early_config, parser)
            # Registered after all plugins, so it is asked before them: a kernel in the ini must not be booted.
            early_config.pluginmanager.register(Instead(), "fsstack-command")

    return _pytest(words, Early())


def _pytest(words: Sequence[str], *plugins: object) -> int:
    return int(pytest.main(list(words), plugins=list(plugins)))
