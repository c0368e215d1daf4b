"""A plugin in place of the real one: its fixtures and marks without storage, rounds, verdicts and reports.

With it, pytest itself says which tests a project has, and how each ends that no budget judges.
"""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_fsstack import hooks


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    os.environ["STANDIN"] = "1"
    for name in "fsstack", "fsstack_budget", "fsstack_rounds", "fsstack_repeat":
        config.addinivalue_line("markers", f"{name}(...)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    mark = metafunc.definition.get_closest_marker("fsstack")
    if "fsstack" in metafunc.fixturenames and mark is not None:
        stacks = os.environ.get("STANDIN_STACKS", "").split(",") if os.environ.get("STANDIN_STACKS") else mark.args
        names = [text.partition(" = ")[0] for text in stacks]
        scope: Any = "class" if metafunc.cls else "function"
        metafunc.parametrize("fsstack", names, indirect=True, scope=scope)


@pytest.fixture(scope="class")
def fsstack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return types.SimpleNamespace(path=tmp_path_factory.mktemp("stack"), stack=types.SimpleNamespace(id=request.param))


@pytest.fixture
def fsstack_seed() -> int:
    return 1


class _Timed:
    @contextlib.contextmanager
    def __call__(self, **words: object) -> Iterator[None]:
        yield

    def record(self, *values: object, **words: object) -> None:
        """Record nothing."""


@pytest.fixture
def timed(fsstack: object) -> _Timed:
    return _Timed()
