"""Numbers of devices by their names, also of devices that disappear while they are looked up."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pytest_fsstack.machine import blockdev


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a /sys with one device, whose node is missing from /dev."""
    monkeypatch.setattr(blockdev, "SYS", tmp_path)
    device = tmp_path / "class/block/dm-400/dev"
    device.parent.mkdir(parents=True)
    device.write_text("253:400\n")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("/dev/dm-400", "253:400"),
        ("/dev/dm-400 (deleted)", "253:400"),
        ("/dev/dm-401", None),
        ("/dev/" + 300 * "n", None),
        ("tmpfs", None),
    ],
)
def test_a_device_without_a_node_has_its_number_from_sysfs(sysfs: Path, name: str, number: str | None) -> None:
    assert blockdev.number_of_name(name) == number


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ENODEV])
def test_a_device_that_disappears_while_it_is_looked_up_has_no_number(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def read(path: Path) -> str:
        assert path.exists()
        raise OSError(code, os.strerror(code), os.fspath(path))

    monkeypatch.setattr(blockdev, "read", read)
    assert blockdev.number_of_name("/dev/dm-400") is None


def test_other_errors_of_sysfs_are_not_taken_for_a_missing_device(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: Path) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))

    monkeypatch.setattr(blockdev, "read", read)
    with pytest.raises(PermissionError):
        blockdev.number_of_name("/dev/dm-400")
