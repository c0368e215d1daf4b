"""Advice on stacks that another kernel could build."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from pathlib import Path

import pytest

from pytest_fsstack.kernels import advice, vm
from pytest_fsstack.machine import needs


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(advice, "_BOOT", tmp_path)
    monkeypatch.setattr(platform, "release", lambda: "6.18.0")
    monkeypatch.setattr(vm, "known_to_accelerate", lambda: True)
    return tmp_path


def test_the_newest_kernel_that_does_not_run_is_named(boot: Path) -> None:
    for version in "6.9.1-amd64", "6.18.0", "6.12.3-amd64":
        (boot / f"vmlinuz-{version}").touch()
    first, *_, command = advice.another_kernel(["luks+ext4"], ["test_it.py", "-k", "x y"])
    assert first.startswith("luks+ext4: ")
    assert "KVM" in first
    words = shlex.split(command)
    assert words[:6] == [sys.executable, "-m", "pytest", "test_it.py", "-k", "x y"]
    assert words[6:] == [f"--fsstack-kernel={boot}/vmlinuz-6.12.3-amd64", "--fsstack-scale=smoke", "-k", "luks+ext4"]


def test_the_commands_bring_what_guests_need(boot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra `kernel`, the line could not run."""
    (boot / "vmlinuz-6.9.1-amd64").touch()
    lacks = needs.not_installed("needs file", "file"), needs.MissingRequirement(needs.Missing.OTHER, "needs vng", "pip")
    monkeypatch.setattr(needs, "lacking", lambda every: lacks)
    _, packages, pip, _ = advice.another_kernel(["luks+ext4"], [])
    assert packages.split()[-1] == "file"
    assert pip.split()[-2:] == ["pytest-xdist", "virtme-ng"]


@pytest.mark.parametrize("manager", needs.INSTALL)
def test_without_one_it_says_how_to_get_one(boot: Path, monkeypatch: pytest.MonkeyPatch, manager: str) -> None:
    (boot / "vmlinuz-6.18.0").touch()
    monkeypatch.setattr(needs, "package_manager", lambda: manager)
    monkeypatch.setattr(needs, "lacking", lambda every: [])
    first, install, command = advice.another_kernel(["a", "b"], [])
    assert first.startswith("a, b: ")
    assert install.strip() == needs.install_command([advice._PACKAGES[manager]])
    assert f"--fsstack-kernel={boot}/vmlinuz-VERSION" in command
    assert shlex.split(command)[-1] == "a or b"


@pytest.mark.parametrize(
    ("known", "text"), [(None, r"KVM.*\btried\b"), (False, r"\bno KVM\b"), (True, r"KVM.*\bworks\b")]
)
def test_kvm_is_told_as_far_as_it_is_known(
    boot: Path, monkeypatch: pytest.MonkeyPatch, known: bool | None, text: str
) -> None:
    monkeypatch.setattr(vm, "known_to_accelerate", lambda: known)
    assert re.search(text, advice.another_kernel(["a"], [])[0])


@pytest.mark.parametrize("known", [None, False, True])
def test_its_lines_are_short(monkeypatch: pytest.MonkeyPatch, known: bool | None) -> None:
    monkeypatch.setattr(vm, "known_to_accelerate", lambda: known)
    monkeypatch.setattr(advice, "_newest", lambda: None)
    for manager in needs.INSTALL:
        monkeypatch.setattr(needs, "package_manager", lambda manager=manager: manager)
        first, *_ = advice.another_kernel([f"luks+ext4-with-many-options-{number}" for number in range(9)], [])
        assert len(f"fsstack: {first}") <= 120


def test_nothing_is_booted_to_know(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(vm, "_boots_on_kvm", lambda *arguments: pytest.fail("booted"))
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    monkeypatch.setattr(vm, "_trial_result", lambda: tmp_path / "kvm")
    assert vm.known_to_accelerate() is None
    (tmp_path / "kvm").write_text("kvm")
    assert vm.known_to_accelerate() is True
