"""Settings for all tests."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from pathlib import Path

import pytest

from tests.aftermath import nothing_outlives_the_tests
from tests.sessions import FEW_PLUGINS, ROOM, free, heed_signals

# pytest also loads this file for the scenarios of a checkout, where test requirements may be missing.
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    # On a busy machine, the duration of an example means nothing.
    settings.register_profile("fsstack", deadline=None)
    # The same examples each time. A gate must not fail by chance; `tox -e unit` draws others.
    settings.register_profile("gate", deadline=None, derandomize=True)
    settings.load_profile("fsstack")

__all__ = ["nothing_outlives_the_tests"]

HERE = Path(__file__).parent
#: The time limit of a test with its fixtures in seconds, by folder: several times the maximum seen on a busy machine.
#: In `kernel`, it exceeds the limits for guests. A failure is better than a hanging run.
LIMITS = {"unit": 300, "plugin": 300, "real": 900, "laboratory": 900, "kernel": 3600}

#: Prefixes of variables that CI systems set, and tox: by TOX_ENV_DIR, all sessions inside would share pytest's cache.
OF_CI = (
    *("GITHUB_", "GITLAB_", "CI_", "JENKINS_", "FORGEJO_", "GITEA_", "GIT_BRANCH", "GIT_COMMIT", "BUILD_", "BRANCH_"),
    "TOX_",
)

heed_signals()

#: A directory on a disk, by the Filesystem Hierarchy Standard.
ELSEWHERE = "/var/tmp"


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have temporary files elsewhere if TMPDIR is small, as a file system in memory often is."""
    paths = [Path(os.path.abspath(word.partition("::")[0])) for word in config.args]
    if any(HERE in (path, *path.parents) for path in paths) and free(tempfile.gettempdir()) < ROOM <= free(ELSEWHERE):
        os.environ["TMPDIR"] = tempfile.tempdir = ELSEWHERE


def pytest_report_header() -> list[str]:
    return [f"temporary files: {ELSEWHERE}"] if os.environ.get("TMPDIR") == ELSEWHERE else []


@pytest.fixture(autouse=True)
def _sessions_inside_have_few_plugins(request: pytest.FixtureRequest) -> None:
    """Load few plugins in sessions that tests start. The mark `plugins` names others."""
    if "pytester" in request.fixturenames:
        # After pytester, which discards the options of the outer session.
        request.getfixturevalue("pytester")
    environment = request.getfixturevalue("monkeypatch")
    # These sessions must not report to the CI system in which the tests run.
    for name in os.environ:
        if name == "CI" or name.startswith(OF_CI):
            environment.delenv(name)
    if request.node.path.relative_to(HERE).parts[0] in ("plugin", "real"):
        for name, value in FEW_PLUGINS.items():
            environment.setenv(name, value)
        if others := request.node.get_closest_marker("plugins"):
            environment.setenv("PYTEST_ADDOPTS", " ".join(f"-p {name}" for name in others.args))


@functools.cache
def _has_room() -> bool:
    """Return whether there was enough space before the first test."""
    return free(tempfile.gettempdir()) >= ROOM


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and config.pluginmanager.hasplugin("timeout"):
            item.add_marker(pytest.mark.timeout(LIMITS[item.path.relative_to(HERE).parts[0]]))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if HERE / "real" in item.path.parents and not _has_room():
        pytest.skip(f"needs {ROOM >> 20} MiB of space in {tempfile.gettempdir()}: set TMPDIR to a directory with more")
    if item.get_closest_marker("root"):
        from pytest_fsstack.machine.needs import Root, require

        # Root in a container may lack the capability.
        require(Root("the test of loop devices, mounts or guests"))
