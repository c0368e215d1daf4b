"""Built-in scenarios, run by name: ``--fsstack-scenario=filesystems``."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack import options

#: In a checkout, the scenarios are beside the package. When installed, they are inside.
_PACKAGE = Path(__file__).parents[1]


def directory() -> Path:
    """Return the directory of the scenarios."""
    return next(path for path in (_PACKAGE / "scenarios", _PACKAGE.parent / "scenarios") if path.is_dir())


def file_of(scenario: str) -> str:
    """Return the file of a scenario, given by name or by a node id in it."""
    return scenario.partition("::")[0] if "::" in scenario else f"test_{scenario}.py"


def as_option(item: pytest.Item) -> str | None:
    """Return the option that runs one test of a scenario, or None for other tests."""
    if item.path.parent != directory():
        return None
    return f"--fsstack-scenario={own_id(item)}"


def own_id(item: pytest.Item) -> str:
    """Return the id of a test, starting with its file name."""
    return item.nodeid[item.nodeid.index(item.path.name) :]


class Scenarios:
    """A plugin that collects the chosen scenarios, or chosen tests of them.

    It collects the directory instead of the file, because pytest's ids of tests in a file outside of the root directory
    begin with ``::``.
    """

    def __init__(self, config: pytest.Config, chosen: list[str]) -> None:
        self.chosen, self.directory = chosen, directory()
        words = list(config.args) if config.args_source is config.ArgsSource.ARGS else []
        config.args[:] = [*words, str(self.directory)]

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if collection_path.parent != self.directory or not collection_path.name.startswith("test_"):
            return None
        return collection_path.name not in map(file_of, self.chosen) or None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        # Before -k deselects items. --last-failed has left out items already, and a worker of a kernel has other ids.
        incomplete = session.testsfailed or config.getoption("lf", False) or options.worker_input(config)
        ids = [own_id(item) for item in items if item.path.parent == self.directory]
        for test in self.chosen if not incomplete else ():
            if "::" in test and not any(_selects(test, item_id) for item_id in ids):
                raise pytest.UsageError(
                    f"--fsstack-scenario: there is no test {test!r}; add --collect-only -q to the name of the scenario "
                    "for a list"
                )
        selected = [item for item in items if self._selected(item)]
        if len(selected) < len(items):
            config.hook.pytest_deselected(items=[item for item in items if item not in selected])
            items[:] = selected

    def _selected(self, item: pytest.Item) -> bool:
        return item.path.parent != self.directory or any(_selects(scenario, own_id(item)) for scenario in self.chosen)


def _selects(scenario: str, item_id: str) -> bool:
    """Whether an argument selects an item: by the name of a scenario, or the id of a test, a class or a function."""
    test = scenario if "::" in scenario else file_of(scenario)
    return item_id == test or item_id.startswith((f"{test}::", f"{test}["))
