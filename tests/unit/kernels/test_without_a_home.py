"""Users without a home, as in a container without an entry in passwd."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.kernels import vm


def test_a_guest_needs_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert vm.guest_environment()["HOME"] == "/"
