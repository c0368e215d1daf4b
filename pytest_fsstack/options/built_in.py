"""The package's own workloads, reports and tables, and those of plugins and conftests, through the same hooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from pytest_fsstack.stack.layer import Layer

#: The entry points of other packages that cannot be used, a message each.
BROKEN: pytest.StashKey[list[str]] = pytest.StashKey()


def brought(config: pytest.Config, parts: Literal["reports", "tables", "workloads"]) -> dict[str, Any]:
    """Return the reports, tables or workloads of all plugins and conftests. Raises `pytest.UsageError`."""
    by_name: dict[str, Any] = {}
    for content in getattr(config.hook, f"pytest_fsstack_{parts}")():
        if not isinstance(content, Mapping):
            raise pytest.UsageError(f"pytest_fsstack_{parts} must return functions by name (got {content!r})")
        by_name |= content
    return by_name


def brought_layers(config: pytest.Config) -> MutableMapping[str, type[Layer]]:
    """Return the layers of the package, all plugins and conftests by name.

    Raises `pytest.UsageError`, also if another package cannot bring its parts.
    """
    from pytest_fsstack.layers import known

    if broken := config.stash.get(BROKEN, []):
        raise pytest.UsageError("\n".join(broken))
    return known(map(checked_layers, config.hook.pytest_fsstack_layers()))


def checked_layers(layers: object) -> list[type[Layer]]:
    """Return what an implementation of the hook has returned. Raises `pytest.UsageError` if these are no layers."""
    from pytest_fsstack.stack.layer import Layer

    if isinstance(layers, Iterable):
        layers = list(layers)
        if all(isinstance(layer, type) and issubclass(layer, Layer) for layer in layers):
            return layers
    raise pytest.UsageError(f"pytest_fsstack_layers must return classes of layers (got {layers!r})")


class BuiltIn:
    """A pytest plugin with the built-in parts. Those of other plugins come first."""

    @pytest.hookimpl(trylast=True)
    def pytest_fsstack_workloads(self) -> dict[str, Any]:
        from pytest_fsstack.workloads import BUILT_IN

        return dict(BUILT_IN)

    @pytest.hookimpl(trylast=True)
    def pytest_fsstack_reports(self) -> dict[str, Any]:
        from pytest_fsstack.report import BUILT_IN

        return dict(BUILT_IN)

    @pytest.hookimpl(trylast=True)
    def pytest_fsstack_tables(self) -> dict[str, Any]:
        from pytest_fsstack.report.layouts import BUILT_IN

        return dict(BUILT_IN)
