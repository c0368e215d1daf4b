"""The package among the examples brings its layer by its entry point, and the layer works."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from flit_core import buildapi

from pytest_fsstack import FUSE, KernelFilesystem, Root
from pytest_fsstack.machine import needs
from tests.install import OF_TESTS
from tests.real.test_scenarios import unmeasured
from tests.sessions import FEW_PLUGINS
from tests.toolkit import chains_of, imported

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
PACKAGE = EXAMPLES / "fuse_overlayfs"
MODULE = PACKAGE / "pytest_fsstack_fuse_overlayfs.py"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for sys.path with the package in it, as pip unpacks its wheel."""
    monkeypatch.chdir(PACKAGE)
    wheel = tmp_path / buildapi.build_wheel(str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


@pytest.mark.root
def test_a_package_brings_a_layer_that_is_compared_with_others(installed: Path, tmp_path: Path) -> None:
    needs.require(Root("mounting"), FUSE, KernelFilesystem("overlay"), needs.Tool("fuse-overlayfs", "fuse-overlayfs"))
    file = tmp_path / "found.json"
    # The package is found by its entry point, and so are all others that are not refused here.
    others = ("randomly", "sugar", "xdist", "allure_pytest", "cacheprovider", "html", "hypothesispytest", "pyfakefs")
    alone = (*(f"-pno:{name}" for name in others), "--noconftest", "-c", "/dev/null", f"--rootdir={tmp_path}")
    words = ("--fsstack-rounds=1", "--fsstack-size=128M", f"--fsstack-json={file}")
    (tmp_path / "test_write.py").write_text(
        "import pytest\n"
        "@pytest.mark.fsstack('ext4 | overlay', 'ext4 | fuse_overlayfs')\n"
        "@pytest.mark.fsstack_budget('100%')\n"
        "def test_write(fsstack, timed):\n"
        "    with timed():\n"
        "        (fsstack.path / 'file').write_bytes(b'x' * (1 << 20))\n"
        "    fsstack.remount()\n"
        "    assert (fsstack.path / 'file').stat().st_size == 1 << 20\n"
    )
    environment = {name: value for name, value in os.environ.items() if name not in FEW_PLUGINS}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *alone, *words, str(tmp_path / "test_write.py")],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(installed), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "fsstack-fuse-overlayfs-1.0" in result.stdout
    (chain,) = chains_of(file)
    assert list(chain.stacks) == ["ext4+overlay", "ext4+fuse_overlayfs"]
    assert unmeasured([chain]) == {}


def test_it_is_short_and_imports_only_what_is_public() -> None:
    lines = [line for line in MODULE.read_text().splitlines() if line.strip()]
    assert len(lines) < 30
    assert {module for module, _ in imported(MODULE.read_text())} == {"pytest_fsstack"}


def test_what_it_takes_is_installed_with_the_tests_tools_and_is_in_the_list_of_examples() -> None:
    assert OF_TESTS["fuse-overlayfs"] == "fuse-overlayfs"
    assert "(fuse_overlayfs/pytest_fsstack_fuse_overlayfs.py)" in (EXAMPLES / "README.md").read_text()
