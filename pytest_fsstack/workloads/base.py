"""The decorator of workloads."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, get_args, get_origin

from pytest_fsstack.machine.needs import Need, require
from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def workload(*needs: Need) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Declare the requirements of a workload. Tests that call it are skipped without them, and the doctor lists them.

    The arguments of its calls are recorded in the results, for comparisons with other runs. A call raises `ValueError`
    if an argument is none of the values of its type, a named `Literal`.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        signature = functools.cache(functools.partial(inspect.signature, function))

        @functools.wraps(function)
        def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            __tracebackhide__ = True
            require(*needs)
            _note(function, signature(), args, kwargs)
            return function(*args, **kwargs)

        checked.needs = needs  # type: ignore[attr-defined]
        return checked

    return decorate


def needs_of(function: Callable[..., Any]) -> tuple[Need, ...]:
    """Return the declared requirements of a function. Empty without the decorator."""
    return getattr(function, "needs", ())


def _note(
    function: Callable[..., Any], signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return  # the call itself raises a better error
    for name, value in bound.arguments.items():
        values = _values(function, signature.parameters[name].annotation)
        if values and value not in values:
            known = ", ".join(str(other) for other in values if other != "")
            raise ValueError(f"{function.__name__}: {name} must be one of {known} (got {value!r})")
    bound.apply_defaults()
    timed = next((value for value in bound.arguments.values() if isinstance(value, Timed)), None)
    if timed is not None:
        options = {key: value for key, value in bound.arguments.items() if not isinstance(value, (Timed, Built))}
        timed.working(function.__name__, {key: _plain(value) for key, value in options.items()})


def _values(function: Callable[..., Any], annotation: Any) -> tuple[object, ...]:
    """Return the values of a parameter whose type is a `Literal`, or the name of one in the function's module."""
    kind = getattr(function, "__globals__", {}).get(annotation) if isinstance(annotation, str) else annotation
    return get_args(kind) if get_origin(kind) is Literal else ()


def _plain(value: Any) -> Any:
    """Convert an option to JSON data that is the same in each run: paths to names, objects to their simple fields."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, Path):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {key: inner for key, inner in fields.items() if inner is None or isinstance(inner, (str, int, float))}
    return type(value).__name__
