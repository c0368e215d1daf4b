"""Hooks of runs that use stacks, and the plugin's state during a run."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from typing import Any

import pytest

from pytest_fsstack import hooks, options
from pytest_fsstack.options import labels
from pytest_fsstack.session.ending import SessionEnd, header
from pytest_fsstack.session.outcomes import Outcomes
from pytest_fsstack.session.selecting import unknown_words
from pytest_fsstack.session.state import Session

#: The key of the plugin's state.
KEY: pytest.StashKey[Session] = pytest.StashKey()


def session_of(config: pytest.Config) -> Session:
    """Return the plugin's state, creating it on first use."""
    if KEY not in config.stash:
        options.declare(config)
        session = Session(config)
        running = Running(session)
        config.stash[KEY] = session
        config.pluginmanager.register(running, "fsstack-running")
        config.pluginmanager.register(Outcomes(session), "fsstack-outcomes")
        if labels.of_ci(os.environ):
            from pytest_fsstack.plugin import ci

            ci.start(config, session)
    return config.stash[KEY]


def generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once on each of its stacks."""
    session = session_of(metafunc.config)
    if session.mistake_in_ini:
        return  # if this test is selected, the mistake ends the session
    # Items live until the end. Without this, the garbage collector walks through all of them several times.
    gc.freeze()
    parameters = session.parameters.of(metafunc.definition, session.mistakes)
    if parameters is not None:
        values = [parameter.value for parameter in parameters]
        # Outside of a class, both scopes mean the same, but with the wider one pytest would reorder the whole module.
        metafunc.parametrize("fsstack", values, indirect=True, scope="class" if metafunc.cls else "function")


class Running:
    """A pytest plugin that gives a session its machine, chains and reports."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ending = SessionEnd(session)
        self._earlier = session.config.pluginmanager.get_plugins()
        #: Lines about words of -k that select nothing.
        self._unknown_words: list[str] = []

    def pytest_plugin_registered(self, plugin: object) -> None:
        layers = getattr(plugin, "pytest_fsstack_layers", None)
        if layers and plugin not in self._earlier:
            # Test directories may have conftests, which are loaded during collection.
            self._session.add_layers(layers())

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        # Workers of pytest-xdist must resolve device names to the same devices.
        if not self._session.mistake_in_ini:
            node.workerinput[options.DEVICES] = self._session.settings.identities()

    def pytest_sessionstart(self) -> None:
        # Guests boot before tests are collected. Other sessions wait until there are stacks.
        if not self._session.only_looks and self._session.settings.kernels:
            self._session.set_up_machine()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
        # Before -k deselects items: selected tests may need the effects of deselected ones.
        collected = list(items)
        yield
        gc.unfreeze()
        if self._session.mistake_in_ini:
            if any("fsstack" in getattr(item, "fixturenames", ()) for item in items):
                raise self._session.mistake_in_ini
            return
        self._take_over(config, collected, items)
        self._unknown_words = unknown_words(config, collected, len(items))

    def _take_over(self, config: pytest.Config, collected: list[pytest.Item], items: list[pytest.Item]) -> None:
        """Register the plugin that runs chains round by round: here, or in the worker of a kernel."""
        if reason := os.environ.get(options.GUEST_DOWN):
            from pytest_fsstack.kernels.standin import StandIn

            config.pluginmanager.register(StandIn(config, reason), "fsstack-stand-in")
        elif self._session.only_looks:
            self._session.plan(collected, items, None)
        elif "turns" in options.worker_input(config):
            from pytest_fsstack.kernels.worker import Worker

            self._session.plan(collected, items, Worker)
        else:
            from pytest_fsstack.rounds.loop import Loop

            self._session.plan(collected, items, Loop)

    def pytest_report_collectionfinish(self) -> list[str]:
        lines = header(self._session) if self._session.chains else []
        lines += [f"fsstack: {line}" for line in self._unknown_words]
        if self._session.chains and self._session.is_planned and not self._session.only_looks:
            from pytest_fsstack.preflight.announcement import announcement

            lines.append(f"fsstack: {announcement(self._session)}")
        return lines

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._ending.summarize(terminalreporter)
        if stacks := self._session.lacking_kernel():
            from pytest_fsstack.kernels.advice import another_kernel

            first, *commands = another_kernel(stacks, list(map(str, self._session.config.invocation_params.args)))
            terminalreporter.write_line(f"fsstack: {first}")
            for command in commands:
                terminalreporter.write_line(command)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int | pytest.ExitCode) -> Generator[None]:
        if exitstatus == pytest.ExitCode.USAGE_ERROR:
            # Pytest prints it in the worker only, where nobody sees it.
            output: dict[str, str] = getattr(session.config, "workeroutput", {})
            kernel = options.worker_input(session.config).get("kernel")
            output[hooks.MISTAKE] = f"{f'in the kernel {kernel}: ' if kernel else ''}{sys.exc_info()[1]}"
        self._ending.finish(session)
        try:
            yield
        finally:
            self._ending.write_missing_reports()

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if number := self._session.close():
            self._ending.exit_by_signal(number)
