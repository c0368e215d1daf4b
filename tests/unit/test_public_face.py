"""The public names of `pytest_fsstack` and its `workloads`, imported lazily. The examples import no others."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

import pytest_fsstack
from pytest_fsstack import workloads
from tests.toolkit import imported

ROOT = Path(__file__).parents[2]
PUBLIC = {
    "pytest_fsstack": set(pytest_fsstack.__all__) | {"workloads"},
    "pytest_fsstack.workloads": {
        *workloads.BUILT_IN,
        "Journal",
        "LUA",
        "RemovalOrder",
        "Source",
        "Synchronous",
        "SynchronousCommit",
        "linux",
        "needs_of",
        "workload",
    },
    "pytest_fsstack.truth.correctness": {
        path.stem for path in (ROOT / "pytest_fsstack/truth/correctness").glob("[!_]*.py")
    },
    "pytest_fsstack.truth.damage": {path.stem for path in (ROOT / "pytest_fsstack/truth/damage").glob("[!_]*.py")},
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PUBLIC["pytest_fsstack.truth.damage.power"] = {"Damage", "power_cuts"}


@pytest.mark.parametrize("name", pytest_fsstack.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pytest_fsstack, name) is not None


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'pytest_fsstack'.*'Layre'"):
        pytest_fsstack.Layre  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(pytest_fsstack, "data.backup")


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, pytest_fsstack; print(*[name for name in sys.modules if name.startswith('pytest_fsstack.')])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == ""


def test_pytest_does_not_warn_of_the_package_that_the_command_has_imported() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AssertionRewritingHook(pytest.Config.fromdictargs({}, [])).mark_rewrite("pytest_fsstack")


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.py")), ids=lambda path: path.name)
def test_scenarios_import_public_names_only(path: Path) -> None:
    taken = imported(path.read_text())
    assert bool(taken) == path.name.startswith("test_")
    for module, name in taken:
        assert name in PUBLIC.get(module, set()), f"{module} {name}"


def test_examples_in_the_docs_import_public_names_only() -> None:
    lines = [
        line.strip()
        for page in PAGES
        for line in re.findall(r"^\s*((?:from|import) pytest_fsstack[^\n`]*)$", page.read_text(), re.MULTILINE)
    ]
    assert len(lines) > 2
    for line in lines:
        for module, name in imported(line):
            assert name in PUBLIC.get(module, set()), line
