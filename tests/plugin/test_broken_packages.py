"""Packages that are installed beside the plugin, and whose entry points cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

MODULES = {
    "absent": "import no_such_module",
    "leaving": "raise SystemExit('this needs a licence')",
    "skipping": "import pytest\npytest.skip('not on this machine', allow_module_level=True)",
    "empty": "",
}
#: What is wrong with each, as its message says.
REASONS = {
    "absent": "No module named 'no_such_module'",
    "leaving": "this needs a licence",
    "skipping": "not on this machine",
    "empty": "has no attribute 'add_all'",
}
TESTS = """
import pytest

def test_without_stacks():
    pass

@pytest.mark.fsstack("plain")
def test_on_a_stack(fsstack):
    pass
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of installed packages."""
    site = tmp_path / "site"
    site.mkdir()
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return site


def install(site: Path, module: str, group: str) -> None:
    """Install a package with an entry point as pip does."""
    (site / f"{module}.py").write_text(MODULES[module])
    metadata = site / f"of_{module}-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: of-{module}\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\nmine = {module}:add_all\n")


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a module of Python. Its output must not have a traceback."""
    result = subprocess.run(
        [sys.executable, "-m", *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert "Traceback (most recent call last)" not in result.stdout
    return result


def assert_named_once(text: str, module: str, group: str) -> None:
    (line,) = [line for line in text.splitlines() if f"of-{module} 1.5" in line]
    assert f"mine = {module}:add_all" in line
    assert f"group {group}" in line
    assert text.count(REASONS[module]) == 1


@pytest.mark.parametrize("module", MODULES)
def test_a_session_names_the_package_once_and_ends(project: Project, site: Path, module: str) -> None:
    project.write(TESTS)
    install(site, module, "fsstack")
    # If no option is given, the first test on a stack loads the packages.
    words = ["--fsstack-rounds=2"] if module == "leaving" else []
    result = run("pytest", "-p", "no:cacheprovider", *words, cwd=project.pytester.path)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert_named_once(result.stdout, module, "fsstack")


def test_a_session_without_stacks_is_not_affected(project: Project, site: Path) -> None:
    project.write(TESTS)
    install(site, "absent", "fsstack")
    for words in (["-k", "without"], ["--help"]):
        result = run("pytest", "-p", "no:cacheprovider", *words, cwd=project.pytester.path)
        assert result.returncode == 0
        assert "absent" not in result.stdout


@pytest.mark.parametrize("module", MODULES)
def test_other_subcommands_work_beside_a_broken_one(tmp_path: Path, site: Path, module: str) -> None:
    install(site, module, "fsstack_commands")
    # That of this package still attaches.
    result = run("pytest_fsstack.command", "pool", "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert_named_once(result.stdout, module, "fsstack_commands")


def test_a_stack_is_not_explained_without_the_layers_of_a_broken_package(tmp_path: Path, site: Path) -> None:
    install(site, "absent", "fsstack")
    result = run("pytest_fsstack.command", "stacks", "explain", "ext4", cwd=tmp_path)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert_named_once(result.stdout, "absent", "fsstack")
