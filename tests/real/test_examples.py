"""The examples of the docs run as they stand, and import nothing but what is public."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from pytest_fsstack import FUSE
from pytest_fsstack.machine import needs
from tests.install import OF_TESTS
from tests.real.test_scenarios import unmeasured
from tests.toolkit import chains_of, imported
from tests.warm import session as run_pytest

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
NAMES = sorted(path.stem for path in EXAMPLES.glob("test_*.py"))

pytestmark = pytest.mark.root


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_on_every_stack_that_the_kernel_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "found.json"
    alone = ("-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null", f"--rootdir={tmp_path}")
    words = ("--fsstack-rounds=1", "--fsstack-scale=smoke", "--fsstack-size=512M", f"--fsstack-json={file}")
    result = run_pytest(*alone, *words, EXAMPLES / f"{name}.py", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    chains = chains_of(file)
    for stack, why in unmeasured(chains).items():
        assert f"({platform.release()})" in why, f"{stack}: {why}"
    assert f"[{name}.py]({name}.py)" in (EXAMPLES / "README.md").read_text()


def test_an_example_brings_a_layer_beside_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs.require(FUSE, needs.Tool("mergerfs", OF_TESTS["mergerfs"]))
    file = tmp_path / "found.json"
    words = ("-p", "no:cacheprovider", "--fsstack-rounds=1", "--fsstack-size=128M", f"--fsstack-json={file}")
    # Named is the directory above, so that the conftest comes when the tests are collected.
    chosen = ("-c", "/dev/null", f"--rootdir={EXAMPLES}", str(EXAMPLES), "-k", "mergerfs")
    result = run_pytest(*words, *chosen)
    assert result.returncode == 0, result.stdout + result.stderr
    (chain,) = chains_of(file)
    assert unmeasured([chain]) == {}
    assert list(chain.stacks) == ["ext4", "ext4+mergerfs", "ext4+mergerfs-branches.8"]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_imports_only_what_is_public(name: str) -> None:
    assert {module for module, _ in imported((EXAMPLES / f"{name}.py").read_text())} <= {"pytest_fsstack"}
