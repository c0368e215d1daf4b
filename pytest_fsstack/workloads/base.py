"""What makes a function a workload."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pytest_fsstack.needs import Need, require

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def workload(*needs: Need) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Declare what a workload needs: a test that calls it is skipped where that is missing, and the doctor knows."""

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @functools.wraps(function)
        def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            __tracebackhide__ = True
            require(*needs)
            return function(*args, **kwargs)

        checked.needs = needs  # type: ignore[attr-defined]
        return checked

    return decorate


def needs_of(function: Callable[..., Any]) -> tuple[Need, ...]:
    """What was declared of a function; nothing where it was not decorated."""
    return getattr(function, "needs", ())
