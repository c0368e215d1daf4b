"""Hashes of what would tell too much."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from pytest_fsstack.machine import identity

ID = "0123456789abcdef0123456789abcdef"


def test_a_machine_id_is_hashed_always_alike_and_is_a_uuid(tmp_path: Path) -> None:
    path = tmp_path / "machine-id"
    path.write_text(f"{ID}\n")
    identity_of_machine = identity.machine_id(path)
    assert identity_of_machine is not None
    assert identity_of_machine == identity.machine_id(path) != ID
    assert uuid.UUID(identity_of_machine).version == 4
    path.write_text(ID[::-1])
    assert identity.machine_id(path) not in (identity_of_machine, None)


@pytest.mark.parametrize("text", ["", "uninitialized\n", "0123", ID.upper(), "\udcff"])
def test_without_an_id_there_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "machine-id"
    path.write_text(text, errors="surrogateescape")
    assert identity.machine_id(path) is None
    assert identity.machine_id(tmp_path / "none") is None


@pytest.mark.skipif(shutil.which("systemd-id128") is None, reason="systemd-id128 is not installed")
def test_it_is_what_systemd_makes_of_it() -> None:
    words = ["systemd-id128", "machine-id", f"--app-specific={identity.APPLICATION.hex()}"]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        pytest.skip(f"systemd-id128: {result.stderr}")
    assert result.stdout.strip() == identity.machine_id()


def test_serial_numbers_are_told_apart_and_not_told() -> None:
    assert identity.hashed("S4EVNX0N") == identity.hashed("S4EVNX0N") != identity.hashed("S4EVNX0M")
    assert len(identity.hashed("S4EVNX0N")) == 32
    assert "S4EVNX0N" not in identity.hashed("S4EVNX0N")
