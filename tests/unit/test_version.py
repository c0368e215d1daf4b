"""The version of a release, of a checkout, and of what is built from one."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import sh

from pytest_fsstack import version

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(root: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return str(sh.git(*identity, *words, _cwd=str(root), _env=environment, _tty_out=False)).strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone with the module alone."""
    package = tmp_path / "pytest_fsstack"
    package.mkdir()
    shutil.copy(version.__file__, package)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "Begin")
    return tmp_path


@pytest.fixture
def full(checkout: Path) -> Callable[[], str]:
    """Return the version as the clone's module gives it."""

    def load() -> str:
        spec = importlib.util.spec_from_file_location("copied_version", checkout / "pytest_fsstack/version.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        text: str = module.full()
        return text

    return load


def test_a_checkout_has_its_commit(checkout: Path, full: Callable[[], str]) -> None:
    commit = git(checkout, "rev-parse", "--short=7", "HEAD")
    assert full() == f"{version.__version__}+g{commit}"
    module = checkout / "pytest_fsstack/version.py"
    module.write_text(module.read_text() + "\n")
    assert full() == f"{version.__version__}+g{commit}.dirty"


def test_commits_after_a_release_have_their_commit(checkout: Path, full: Callable[[], str]) -> None:
    git(checkout, "tag", f"v{version.__version__}")
    assert full() == version.__version__
    git(checkout, "commit", "-q", "--allow-empty", "-m", "Go on")
    assert full() == f"{version.__version__}+g{git(checkout, 'rev-parse', '--short=7', 'HEAD')}"


def test_an_unpacked_source_distribution_keeps_its_version(checkout: Path, full: Callable[[], str]) -> None:
    shutil.rmtree(checkout / ".git")
    (checkout / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: pytest-fsstack\nVersion: 0.1.0+g1234567\n")
    assert full() == "0.1.0+g1234567"


def test_a_repository_that_git_cannot_read_gives_no_commit(checkout: Path, full: Callable[[], str]) -> None:
    (checkout / ".git/HEAD").write_text("nothing\n")
    assert full() == version.__version__


def test_a_repository_of_the_environment_is_not_asked(
    checkout: Path, full: Callable[[], str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "Begin elsewhere")
    commit = git(checkout, "rev-parse", "--short=7", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert full() == f"{version.__version__}+g{commit}"
