"""What holds for all tests."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.sessions import FEW_PLUGINS, heed_signals

# pytest loads this file also for the scenarios of a checkout, which need nothing that only the tests have.
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    # Machines that run other things beside say nothing by how long one example takes.
    settings.register_profile("fsstack", deadline=None)
    settings.load_profile("fsstack")

HERE = Path(__file__).parent
#: Seconds that a test may take with its fixtures, by its folder: several times what a busy machine was seen to need,
#: and in `kernel` longer than whatever waits for guests there. A test that hangs is better shown than waited for.
LIMITS = {"unit": 300, "plugin": 300, "real": 900, "laboratory": 900, "kernel": 3600}

#: How the variables begin that CI sets.
OF_CI = ("GITHUB_", "GITLAB_", "CI_", "JENKINS_", "FORGEJO_", "GITEA_", "GIT_BRANCH", "GIT_COMMIT", "BUILD_", "BRANCH_")

heed_signals()


@pytest.fixture(autouse=True)
def _sessions_inside_have_few_plugins(request: pytest.FixtureRequest) -> None:
    """A test names the others that it needs by the mark `plugins`."""
    if "pytester" in request.fixturenames:
        # After pytester, which forgets what the outer session was given.
        request.getfixturevalue("pytester")
    environment = request.getfixturevalue("monkeypatch")
    # Nor do they tell the CI that the tests run in, if any, of what they measure.
    for name in os.environ:
        if name == "CI" or name.startswith(OF_CI):
            environment.delenv(name)
    if request.node.path.relative_to(HERE).parts[0] in ("plugin", "real"):
        for name, value in FEW_PLUGINS.items():
            environment.setenv(name, value)
        if others := request.node.get_closest_marker("plugins"):
            environment.setenv("PYTEST_ADDOPTS", " ".join(f"-p {name}" for name in others.args))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and config.pluginmanager.hasplugin("timeout"):
            item.add_marker(pytest.mark.timeout(LIMITS[item.path.relative_to(HERE).parts[0]]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root, for loop devices, mounts or guests: run pytest with sudo")
