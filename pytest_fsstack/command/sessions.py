"""Subcommands that run pytest sessions, or only evaluate pytest's configuration."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence

import pytest

from pytest_fsstack import options
from pytest_fsstack.command import CommandLineError, first_word
from pytest_fsstack.options.commands import named


def run(arguments: Namespace) -> int:
    """Run a scenario by name. Return pytest's exit code. Raises `CommandLineError`."""
    scenario = first_word(arguments, f"run: name a scenario first: {', '.join(options.SCENARIOS)}")
    return _pytest([f"--fsstack-scenario={scenario}", *arguments.words])


def bench(arguments: Namespace) -> int:
    """Compare stacks by commands. Return pytest's exit code. Raises `CommandLineError`."""
    words, command = arguments.words, [*arguments.command]
    if arguments.measured:
        # A single argument may be a whole quoted command line.
        join = shlex.join if len(arguments.measured) > 1 and not arguments.shell else " ".join
        try:
            name, line = named(join(arguments.measured))
        except ValueError as error:
            raise CommandLineError(f"bench: {error}") from None
        command.append(f"{name}={line}")
    flags = [options.named(name).flags for name in ("command", "fio")]
    if not command and not any(word.endswith(".fio") or word.startswith(tuple(flags)) for word in words):
        raise CommandLineError(
            "bench: no command; name one after --, as in: fsstack bench --stack ext4 -- tar -cf all.tar /usr/share/doc"
        )
    given = {
        "stacks": arguments.stack,
        "budget": arguments.budget,
        "setup": arguments.setup,
        "check": arguments.check,
        "command": command,
    }
    typed = [f"{options.named(name).flags}={text}" for name, texts in given.items() for text in texts]
    shell = [options.named("shell").flags] if arguments.shell else []
    return _pytest(["-qq", "-rN", "--no-header", *typed, *shell, *words], _Brief())


class _Brief:
    """A pytest plugin for short output: no progress dots, and `report.brief` at the end."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        early_config.pluginmanager.register(object(), options.BRIEF)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        return (report.outcome, "", "") if report.when == "call" or report.skipped else None


def doctor(arguments: Namespace) -> int:
    """Run the doctor. Return 0 if all selected parts can run."""
    option, words = options.named("doctor"), arguments.words
    wish = words.pop(0) if words and words[0] in option.choices else option.choices[0]
    return _pytest([f"{option.flags}={wish}", *words])


def cleanup(arguments: Namespace) -> int:
    """Undo changes of killed sessions."""
    return _pytest(["--fsstack-cleanup", *arguments.words])


def ask(function: Callable[[pytest.Config], int], words: Sequence[str] = ()) -> int:
    """Call the function instead of a session, once pytest has read its options, the ini and the first conftests.

    So layers of other plugins and of the project's conftest are available. Return the function's result, or 4 if it
    raises `pytest.UsageError`.
    """
    from pytest_fsstack import plugin

    class Instead:
        @pytest.hookimpl(tryfirst=True)
        def pytest_cmdline_main(self, config: pytest.Config) -> int:
            return function(config)

    class Early:
        @pytest.hookimpl(tryfirst=True)
        def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
            # An ini or the environment may keep pytest from loading the plugin.
            if not early_config.pluginmanager.is_registered(plugin):
                early_config.pluginmanager.register(plugin, "fsstack-switched-off")
            options.declare(early_config)
            # Registered last, so it is called first. A kernel in the ini must not be booted.
            early_config.pluginmanager.register(Instead(), "fsstack-command")

    return _pytest(words, Early())


def _pytest(words: Sequence[str], *plugins: object) -> int:
    return int(pytest.main(list(words), plugins=list(plugins)))
