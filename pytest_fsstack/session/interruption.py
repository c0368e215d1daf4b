"""Signals that come while stacks stand: they wait for a safe point; see docs/safety.md."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from pytest_fsstack import hooks

_NAME = "fsstack-signals"


def are_caught(config: pytest.Config) -> bool:
    return config.pluginmanager.has_plugin(_NAME)


@contextlib.contextmanager
def caught(config: pytest.Config) -> Iterator[None]:
    """Let signals wait for a safe point from here on."""
    from pytest_fsstack.machine import signals

    with signals.caught(_ended_by), contextlib.ExitStack() as undo:
        # While a test runs, pytest captures what is written to the usual one.
        errors = os.dup(2)
        undo.callback(os.close, errors)
        config.pluginmanager.register(Interruption(errors), _NAME)
        # Its own plugin: only a worker of pytest-xdist has a controller.
        if controller := getattr(config, "workerinput", {}).get(hooks.CONTROLLER):
            config.pluginmanager.register(LostController(config, controller), f"{_NAME}-of-controller")
        yield


class Interruption:
    """The pytest plugin that says what runs, so that a signal finds its moment.

    `errors` is a descriptor of the session's standard error.
    """

    def __init__(self, errors: int) -> None:
        self._errors = errors

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Take down what stands as soon as a signal ends a test: what goes wrong with that is then reported."""
        from pytest_fsstack.machine import signals

        signals.safe_point()
        try:
            return (yield)
        except BaseException:
            if signals.received() is None:
                raise
            runner: Any = item.config.pluginmanager.get_plugin("runner")
            with signals.during(signals.State.UNDOING):
                call = pytest.CallInfo.from_call(lambda: runner.pytest_runtest_teardown(item, None), when="teardown")
                if call.excinfo:
                    # pytest has taken them away, and plugins look into them.
                    item.funcargs = {}  # type: ignore[attr-defined]
                    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
                    item.ihook.pytest_runtest_logreport(report=report)
            raise

    # The innermost ones, so that of pytest and of other plugins little is in them.

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        from pytest_fsstack.machine import processes

        # A fixture may have set limits for its test: what it has set stays.
        with processes.keeping_limits(self._errors):
            return (yield from _as_a_test())

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if fixturedef.argname == "fsstack":
            return (yield)
        return (yield from _as_a_test())

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_exception_interact(self) -> Generator[None, Any, Any]:
        """The debugger of --pdb."""
        return (yield from _as_a_test())


class LostController:
    """The pytest plugin of a worker that ends it as by SIGTERM when its controller was killed.

    Once execnet's connection is lost, execnet ends the process within 15 seconds, in the middle of a teardown. It does
    that in the thread that closes the channels first: that thread waits here until the session has ended.
    """

    def __init__(self, config: pytest.Config, channel: Any) -> None:
        self._lost = False
        self._ends, self._over = threading.Event(), threading.Event()
        config.add_cleanup(self._over.set)
        # pytest-xdist's own channel is older, so it is closed before: a worker without a test to run awakes by that.
        channel.setcallback(lambda item: self._end(), endmarker=None)

    def _end(self) -> None:
        from pytest_fsstack.machine import commands

        self._lost = True
        if not self._ends.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        # A test that ignores the signal is left to execnet.
        self._over.wait(commands.limit)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """Let the session close though pytest-xdist cannot report its end."""
        self._ends.set()
        try:
            yield
        except OSError:
            if not self._lost:
                raise


def _as_a_test() -> Generator[None, Any, Any]:
    from pytest_fsstack.machine import processes, signals

    with (
        processes.without_returning_children(),
        processes.keeping_depth(),
        signals.during(signals.State.TEST),
    ):
        return (yield)


def _ended_by(number: signal.Signals) -> BaseException:
    return pytest.exit.Exception(f"fsstack: ended by {number.name}", 128 + number)
