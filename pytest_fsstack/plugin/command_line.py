"""Hooks of runs that may mention an option: everything that starts before tests are collected."""

from __future__ import annotations

import os
from collections.abc import Generator
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fsstack import options
from pytest_fsstack.options.settings import OVERWRITABLE, Settings

if TYPE_CHECKING:
    from pytest_fsstack.session.state import Session


def declare(config: pytest.Config) -> None:
    """Declare the options, and register the plugins that they need."""
    options.declare(config)
    config.pluginmanager.register(CommandLine(), "fsstack-started-by-options")


class CommandLine:
    """A pytest plugin that starts sessions, kernels and other parts that options ask for."""

    #: Whether all scenarios run, because there are no tests.
    _instead_of_tests = False

    @pytest.hookimpl(wrapper=True)
    def pytest_load_initial_conftests(
        self, early_config: pytest.Config, args: list[str], parser: pytest.Parser
    ) -> Generator[None, Any, Any]:
        if words := getattr(early_config.known_args_namespace, "fsstack_overwrite", None):
            from pytest_fsstack.devices import look_up

            # Resolve the devices before any conftest runs: --fsstack-overwrite permits these very devices, not a later
            # meaning of their names.
            early_config.stash[OVERWRITABLE] = {word: look_up(word) for word in words}
        if getattr(early_config.known_args_namespace, "fsstack_exit", None) != "bisect":
            return (yield)
        from pytest_fsstack.plugin.bisecting import Bisecting, skipping_what_cannot_start

        early_config.pluginmanager.register(Bisecting(), "fsstack-bisecting")
        with skipping_what_cannot_start():
            result = yield
            if not early_config.known_args_namespace.help:
                # pytest does this next, and would end with its own exit code. Conftests have declared their options.
                parser.parse(args)
            return result

    def pytest_configure(self, config: pytest.Config) -> None:
        settings = Settings.of(config)
        if settings.fio or any(map(_is_fio, config.args)):
            from pytest_fsstack.session.commands import FioFiles

            config.pluginmanager.register(FioFiles(config), "fsstack-fio")
        if options.any_given(config):
            if settings.commands:
                from pytest_fsstack.session.commands import Commands

                config.pluginmanager.register(Commands(config), "fsstack-commands")
            else:
                for name in "setup", "check", "shell":
                    if settings.is_typed(name):
                        raise pytest.UsageError(f"--fsstack-{name} does nothing without --fsstack-command: add one")
            # Behind the commands, which replace the arguments that pytest would collect by itself.
            if not (scenarios := settings.scenarios) and _only_names_a_device(config):
                scenarios, self._instead_of_tests = list(options.SCENARIOS), True
            if scenarios:
                from pytest_fsstack.options.scenarios import Scenarios

                config.pluginmanager.register(Scenarios(config, scenarios), "fsstack-scenarios")
            # Report mistakes on the command line before tests are collected.
            session = _session_of(config)
            if any(map(settings.value, ("compare", "compare-anyway", "save-reference", "history", "max-regression"))):
                from pytest_fsstack.over_time import plugin as past

                past.start(config, session)

    def pytest_report_header(self, config: pytest.Config) -> list[str]:
        if not self._instead_of_tests:
            return []
        where = config.invocation_params.dir
        return [f"fsstack: there are no tests in {where}, so these scenarios run: {', '.join(options.SCENARIOS)}"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int | None:
        if options.worker_input(config):
            from pytest_fsstack.kernels.worker import leave_out_plugins

            leave_out_plugins(config)
        settings = Settings.of(config)
        if settings.cleanup:
            from pytest_fsstack.session.cleanup import cleanup

            return cleanup(config)
        if not settings.doctor and (settings.kernels or any(map(settings.is_typed, ("boots", "judge-one-boot")))):
            from pytest_fsstack.kernels import boots

            boots.check(settings)
        if settings.doctor or settings.dry_run:
            # Workers of pytest-xdist could not show anything.
            for name, value in ("numprocesses", None), ("dist", "no"), ("tx", []):
                if hasattr(config.option, name):
                    setattr(config.option, name, value)
        if settings.doctor:
            from pytest_fsstack.preflight.doctor import Doctor

            config.pluginmanager.register(Doctor(config, _session_of(config)), "fsstack-doctor")
        elif settings.dry_run:
            from pytest_fsstack.preflight.dry_run import DryRun

            config.pluginmanager.register(DryRun(config, _session_of(config)), "fsstack-dry-run")
        elif settings.kernels and not (hasattr(config, "workerinput") or settings.only_looks):
            return _start_kernels(config)
        return None


def _session_of(config: pytest.Config) -> Session:
    # The help and completions do not need this import.
    from pytest_fsstack.plugin.running import session_of

    return session_of(config)


def _only_names_a_device(config: pytest.Config) -> bool:
    """Whether the command line names a device but nothing to run on it, in a directory without tests."""
    settings = Settings.of(config)
    if not settings.is_typed("device") or config.args_source is not config.ArgsSource.INVOCATION_DIR:
        return False
    if settings.commands or settings.fio or settings.doctor or options.worker_input(config):
        return False
    skipped, patterns = [*config.getini("norecursedirs"), "__pycache__"], config.getini("python_files")
    for _, directories, files in os.walk(config.invocation_params.dir):
        if any(fnmatch(file, pattern) for file in files for pattern in patterns):
            return False
        directories[:] = [name for name in directories if not any(fnmatch(name, pattern) for pattern in skipped)]
    return True


def _is_fio(word: str) -> bool:
    """Whether a word names a file of fio jobs, or a test in one."""
    return word.partition("::")[0].endswith(".fio")


def _start_kernels(config: pytest.Config) -> int | None:
    """Start the kernels. This sets options of pytest-xdist, so it runs before xdist reads them."""
    from pytest_fsstack.kernels import controller

    session = _session_of(config)
    try:
        config.pluginmanager.register(controller.start(config, session), "fsstack-kernels")
    except pytest.exit.Exception as ended:
        # No session has begun that would catch this, and the first guest takes half a minute.
        session.close()
        print(f"{ended.msg} before the guests were started")
        return ended.returncode
    return None
