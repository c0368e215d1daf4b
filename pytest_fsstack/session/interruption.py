"""Signals that come while stacks stand: they wait for a safe point; see docs/safety.md."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator, Iterator
from typing import Any

import pytest

_NAME = "fsstack-signals"


def are_caught(config: pytest.Config) -> bool:
    return config.pluginmanager.has_plugin(_NAME)


@contextlib.contextmanager
def caught(config: pytest.Config) -> Iterator[None]:
    """From here on, signals wait for a safe point."""
    from pytest_fsstack.machine import signals

    with signals.caught(_ended_by):
        config.pluginmanager.register(Interruption(), _NAME)
        yield


class Interruption:
    """The pytest plugin that says what runs, so that a signal finds its moment."""

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
                    report = item.ihook.pytest_runtest_makereport(item=item, call=call)
                    item.ihook.pytest_runtest_logreport(report=report)
            raise

    # The innermost ones, so that of pytest and of other plugins little is in them.

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
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
