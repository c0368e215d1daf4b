"""Handling of signals while stacks are mounted: delay them to a safe point (docs/safety.md)."""

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
    """Delay signals to safe points from here on."""
    from pytest_fsstack.machine import signals

    with signals.caught(_ended_by), contextlib.ExitStack() as undo:
        # pytest captures the original descriptor while a test runs.
        errors = os.dup(2)
        undo.callback(os.close, errors)
        config.pluginmanager.register(Interruption(errors), _NAME)
        # Only workers of pytest-xdist have a controller.
        if controller := getattr(config, "workerinput", {}).get(hooks.CONTROLLER):
            config.pluginmanager.register(LostController(config, controller), f"{_NAME}-of-controller")
        yield


class Interruption:
    """A pytest plugin that marks what is running, so that a signal is handled at a safe point.

    `errors` is a descriptor of the session's standard error.
    """

    def __init__(self, errors: int) -> None:
        self._errors = errors

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Take down the stack as soon as a signal ends a test, so that errors during that are reported."""
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
                    # pytest has deleted them, but plugins read them.
                    item.funcargs = {}  # type: ignore[attr-defined]
                    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
                    item.ihook.pytest_runtest_logreport(report=report)
            raise

    # Innermost wrappers, which contain little of pytest and of other plugins.

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        from pytest_fsstack.machine import processes

        __tracebackhide__ = True
        # A fixture may have set resource limits for its test. They stay.
        with processes.keeping_limits(self._errors):
            return (yield from _as_a_test())

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        if fixturedef.argname == "fsstack":
            return (yield)
        return (yield from _as_a_test())

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_exception_interact(self) -> Generator[None, Any, Any]:
        """Handle the debugger of --pdb."""
        return (yield from _as_a_test())


class LostController:
    """A plugin for workers that acts like SIGTERM after their controller was killed.

    When its connection is lost, execnet kills the process within 15 seconds, even in the middle of a teardown. The
    thread that would do this closes the channels first. So the callback of a channel keeps it waiting until the session
    has ended.
    """

    def __init__(self, config: pytest.Config, channel: Any) -> None:
        self._lost = False
        self._ends, self._over = threading.Event(), threading.Event()
        config.add_cleanup(self._over.set)
        # pytest-xdist's own channel is older and closes first, which wakes up an idle worker.
        channel.setcallback(lambda item: self._end(), endmarker=None)

    def _end(self) -> None:
        from pytest_fsstack.machine import commands

        self._lost = True
        if not self._ends.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        # If a test ignores the signal, execnet kills the process.
        self._over.wait(commands.limit)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """Let the session close, although pytest-xdist cannot report its end."""
        self._ends.set()
        try:
            yield
        except OSError:
            if not self._lost:
                raise


def _as_a_test() -> Generator[None, Any, Any]:
    from pytest_fsstack.machine import processes, signals

    # pytest leaves out its own frames of a failure, and these are between them.
    __tracebackhide__ = True
    with (
        processes.without_returning_children(),
        processes.keeping_depth(),
        signals.during(signals.State.TEST),
    ):
        return (yield)


def _ended_by(number: signal.Signals) -> BaseException:
    return pytest.exit.Exception(f"fsstack: ended by {number.name}", 128 + number)
