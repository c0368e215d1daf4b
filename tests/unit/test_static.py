"""Checks of the whole project: types, style, the cost of its start, and the commands of its README."""

from __future__ import annotations

import configparser
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.machine.needs import KernelFilesystem
from pytest_fsstack.options import OPTIONS

ROOT = Path(__file__).parents[2]


def test_types_of_all_that_is_python_are_checked() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    top = {path.relative_to(ROOT).parts[0] for pattern in ("*.py", "*/*.py") for path in ROOT.glob(pattern)}
    assert {name for name in top if not name.startswith(".")} == set(settings["mypy"]["files"].split(", "))


def test_imports_point_one_way_and_in_no_circle() -> None:
    pytest.importorskip("importlinter", reason="needs import-linter: pip install pytest-fsstack[test]")
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True, no_logo=True))"
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_only_settings_read_values_of_options() -> None:
    readings = re.compile(r"getoption\(f?[\"']fsstack_|options\.(given_for|on_command_line|in_ini)\(")
    files = [*ROOT.glob("pytest_fsstack/**/*.py"), *ROOT.glob("scenarios/*.py")]
    assert {path.name for path in files if readings.search(path.read_text())} == {"settings.py"}


def test_all_rooms_are_installed() -> None:
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    rooms = {".".join(path.parent.relative_to(ROOT).parts) for path in ROOT.glob("pytest_fsstack/**/__init__.py")}
    assert set(settings["options"]["packages"].split()) == rooms | {"pytest_fsstack.scenarios"}


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest, pytest_benchmark.plugin\n"
        "before = set(sys.modules)\n"
        "import pytest_fsstack.plugin, pytest_fsstack.hooks\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    ours = {name for name in result.stdout.split() if name.startswith("pytest_fsstack")}
    assert set(result.stdout.split()) - ours == set()
    assert ours == {"pytest_fsstack", "pytest_fsstack.plugin", "pytest_fsstack.hooks"}


def options() -> set[str]:
    return {option.flags for option in OPTIONS}


def test_the_pages_name_no_option_that_does_not_exist() -> None:
    assert len(options()) > 10
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    assert set(re.findall(r"--fsstack-[\w-]+", pages)) - options() == set()


def test_the_second_command_runs_the_static_checks_before_the_tests() -> None:
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(ROOT / "tox.ini")
    assert settings["testenv:test"]["commands"].split("\n")[1] == "{[testenv:lint]commands}"
    assert {line.split()[0] for line in settings["testenv:lint"]["commands"].split("\n")[1:]} == {
        *("ruff", "mypy", "codespell"),
    }


def test_the_readme_opens_with_two_commands_of_which_ci_runs_the_second() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    first, second = blocks[0].strip(), blocks[1].strip()
    assert first.endswith("tox -e compare")
    assert second.endswith("tox -e test")
    run = (ROOT / ".ci" / "run").read_text().splitlines()
    assert run[-3] == second
    # A failure of the command ends the run.
    assert run[-2].startswith("test $? -eq 0")


def test_what_follows_from_the_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    # A machine with OpenZFS makes the same pages.
    monkeypatch.setattr(KernelFilesystem, "missing", lambda self: None)
    pages = generate.pages()
    assert {path.name for path in pages} == {
        *("layers.md", "options.md", "command.md"),
        *("pytest-reference.md", "workload-reference.md", "results-types.md"),
    }
    for path, content in pages.items():
        assert path.read_text() == content, "run docs/generate.py"
