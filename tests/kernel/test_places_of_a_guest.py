"""A checkout and a virtual environment below /var/tmp, where virtme-ng has a directory of its own in the guest."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_fsstack
from tests.kernel import boot
from tests.kernel.test_kernel_parameter import guests, older

pytestmark = [pytest.mark.root, pytest.mark.kernel]

__all__ = ["older"]

TEST = """
import os
import sys
import tempfile
from pathlib import Path

import pytest
import pytest_fsstack

from pytest_fsstack.machine import mounts

@pytest.mark.fsstack("ext4")
def test_it(fsstack, request):
    (fsstack.path / "file").write_text("text")
    Path("written").write_text("to a copy in memory")
    results = Path(os.environ["FSSTACK_RESULTS"])
    (results / "prefix").write_text(sys.prefix)
    (results / "package").write_text(pytest_fsstack.__file__)
    (results / "temporary").write_text(mounts.holding(Path(tempfile.gettempdir())).kind)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fsstack é, ", dir="/var/tmp") as directory:
        yield Path(directory)


def environment_in(place: Path, package: Path) -> Path:
    """Make a virtual environment with virtme-ng of its own; return its Python. The rest is of the one that runs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (modules,) = place.glob("lib/python*/site-packages")
    here = Path(sysconfig.get_path("purelib"))
    shutil.copytree(here / "virtme", modules / "virtme")
    (modules / "also.pth").write_text(f"{package.parent}\n{here}\n")
    script = place / "bin/virtme-run"
    script.write_text(f"#!/bin/sh\nexec '{place}/bin/python' -m virtme.commands.run \"$@\"\n")
    script.chmod(0o755)
    return place / "bin/python"


def test_a_checkout_and_an_environment_below_var_tmp_work_in_a_guest(older: Path, place: Path) -> None:
    checkout = place / "checkout"
    package = Path(pytest_fsstack.__file__).parent
    shutil.copytree(package, checkout / "pytest_fsstack", ignore=shutil.ignore_patterns("__pycache__"))
    python = environment_in(place / "environment", checkout / "pytest_fsstack")
    (checkout / "test_it.py").write_text(TEST)
    (checkout / "pytest.ini").write_text("[pytest]\n")
    words = ["--fsstack-size=64M", "--fsstack-vm-accel=tcg", "--fsstack-vm-cpus=1", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [python, *boot.PYTEST[1:], *words, f"--fsstack-kernel={older}"],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=boot.pytest_environment(),
        timeout=900,
    )
    assert result.returncode == 0, result.stdout
    assert not (checkout / "written").exists()
    (results,) = checkout.glob("fsstack-results-*")
    assert (results / "prefix").read_text() == str(place / "environment")
    assert (results / "package").read_text() == str(checkout / "pytest_fsstack/__init__.py")
    assert (results / "temporary").read_text() == "tmpfs"
    assert guests(checkout) == []
