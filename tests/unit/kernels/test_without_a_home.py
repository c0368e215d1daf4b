"""A user without a home: a number without an entry in passwd, as in a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.kernels import vm


def test_a_guest_needs_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert vm.guest_environment()["HOME"] == "/"
