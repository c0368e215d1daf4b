"""Stacks below a directory whose name has everything in it that some syntax of an option gives a meaning to."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.stack.places import BuildContext
from tests.real.conftest import built
from tests.warm import session as run_pytest

pytestmark = pytest.mark.root

ODD = "a,b:c\"d'e f\u00a0g\\h\ni=j;k$l*m#n%o{p}q~r"


@pytest.fixture
def context_directory(tmp_path: Path) -> Path:
    return tmp_path / ODD


@pytest.mark.parametrize(
    "text",
    [
        "ext4",
        "xfs | bind",
        "btrfs | loop(size='64M') | ext2",
        "ext4 | overlay",
        "ext4 | gocryptfs",
        "ext4 | gocryptfs(reverse=True)",
        "ext4 | encfs",
        "ext4 | securefs",
        "ext4 | ecryptfs",
        "ext4 | fscrypt",
        "ntfs3g",
        "zfs",
        "ext4 | sshfs",
        "lvm | ext4",
    ],
)
def test_a_stack_stands_below_it(text: str, context: BuildContext) -> None:
    with built(text, LoopDevice(320 << 20), context) as stack:
        assert ODD in str(stack.path)
        plain = stack.below if "reverse" in text else stack.path
        (plain / "file").write_text("content")
        stack.remount()
        assert (plain / "file").read_text() == "content"
        assert list(stack.path.iterdir())


def test_a_session_runs_below_it(tmp_path: Path) -> None:
    (tmp_path / ODD).mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.fsstack('ext4 | overlay')\n"
        "def test_it(fsstack):\n    (fsstack.path / 'file').write_text('content')\n"
    )
    options = ["-p", "no:cacheprovider", "--fsstack-size=64M", f"--fsstack-dir={tmp_path / ODD}"]
    result = run_pytest(*options, cwd=tmp_path)
    assert "1 passed" in result.stdout, result.stdout
    assert list((tmp_path / ODD).iterdir()) == []
