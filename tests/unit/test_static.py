"""What holds for the whole project: its types, its style, what its start costs, what its README says."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.stack import Layer

ROOT = Path(__file__).parents[2]


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *argv], cwd=ROOT, capture_output=True, text=True)


def test_types_are_strict() -> None:
    done = run("mypy")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]])
def test_style(command: list[str]) -> None:
    done = run("ruff", *command, ".")
    assert done.returncode == 0, done.stdout


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    code = (
        "import sys, pytest, pytest_benchmark.plugin\n"
        "before = set(sys.modules)\n"
        "import pytest_fsstack.plugin, pytest_fsstack.session, pytest_fsstack.hooks\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    ours = {name for name in done.stdout.split() if name.startswith("pytest_fsstack")}
    assert set(done.stdout.split()) - ours == set()
    assert ours == {f"pytest_fsstack{name}" for name in ("", ".plugin", ".session", ".hooks", ".options")}


#: Where a module may look: from left to right, and never back.
LAYERS = [
    "spec",
    "units",
    "host",
    "kmsg",
    "needs",
    "stack",
    "loopback",
    "guard",
    "journal",
    "measure",
    "budget",
    "verdict",
]


def test_imports_point_one_way() -> None:
    for path in (ROOT / "pytest_fsstack").rglob("*.py"):
        module = path.relative_to(ROOT / "pytest_fsstack").with_suffix("").as_posix()
        imports = re.findall(r"^from pytest_fsstack(?:\.(\w+))? import ([^\n(]+)", path.read_text(), re.MULTILINE)
        names = {part or name.split()[0].strip(",") for part, whole in imports for name in whole.split(", ")}
        if module in LAYERS:
            assert not names & {"rounds", "session", "plugin", "options", "results", "report", "workloads"}, module
        if module.startswith("layers/"):
            assert not names & {"measure", "rounds", "session", "plugin", "options", "results", "report"}, module
        if not module.startswith(
            ("plugin", "session", "options", "rounds", "report/", "hooks", "maintenance", "needs", "hosts/controller")
        ):
            assert not re.search(r"^\s*(import|from) pytest\b", path.read_text(), re.MULTILINE), module
        if module != "host":
            assert not re.search(r"^\s*(import|from) sh\b", path.read_text(), re.MULTILINE), module


def options() -> set[str]:
    text = (ROOT / "pytest_fsstack" / "options.py").read_text()
    return {f"--fsstack-{name}" for name in re.findall(r'^    option\(\s*"([\w-]+)"', text, re.MULTILINE)}


def test_the_readme_names_every_option_and_no_other() -> None:
    assert len(options()) > 10
    readme = (ROOT / "README.md").read_text()
    pages = readme + "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    assert options() - set(re.findall(r"--fsstack-[\w-]+", readme)) == set()
    assert set(re.findall(r"--fsstack-[\w-]+", pages)) - options() == set()


def test_the_readme_opens_with_two_commands_of_which_ci_runs_the_second() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    first, second = blocks[0].strip(), blocks[1].strip()
    assert first.endswith("tox -e compare")
    assert second.endswith("tox -e test")
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == second


def test_the_page_of_layers_is_made_from_the_layers() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (ROOT / "docs" / "layers.md").read_text() == generate.page(), "run docs/generate.py"


@pytest.mark.parametrize("layer", BUILT_IN, ids=lambda layer: layer.name)
def test_the_readme_names_every_layer(layer: type[Layer]) -> None:
    assert f"`{layer.name}`" in (ROOT / "README.md").read_text()
