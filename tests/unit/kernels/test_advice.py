"""Advice on stacks that another kernel could build."""

from __future__ import annotations

import os
import platform
import re
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
    first, second = advice.another_kernel(["luks+ext4"])
    assert first.startswith("luks+ext4: ")
    assert "KVM" in first
    assert second.endswith(f"--fsstack-kernel={boot}/vmlinuz-6.12.3-amd64")


@pytest.mark.parametrize("manager", needs.INSTALL)
def test_without_one_it_says_how_to_get_one(boot: Path, monkeypatch: pytest.MonkeyPatch, manager: str) -> None:
    (boot / "vmlinuz-6.18.0").touch()
    monkeypatch.setattr(needs, "package_manager", lambda: manager)
    first, second = advice.another_kernel(["a", "b"])
    assert first.startswith("a, b: ")
    assert needs.install_command([advice._PACKAGES[manager]]) in second
    assert second.endswith(f"--fsstack-kernel={boot}/vmlinuz-VERSION")


@pytest.mark.parametrize(
    ("known", "told"), [(None, r"KVM.*\btried\b"), (False, r"\bno KVM\b"), (True, r"KVM.*\bworks\b")]
)
def test_kvm_is_told_as_far_as_it_is_known(
    boot: Path, monkeypatch: pytest.MonkeyPatch, known: bool | None, told: str
) -> None:
    monkeypatch.setattr(vm, "known_to_accelerate", lambda: known)
    assert re.search(told, advice.another_kernel(["a"])[0])


@pytest.mark.parametrize("known", [None, False, True])
def test_its_lines_are_short(monkeypatch: pytest.MonkeyPatch, known: bool | None) -> None:
    monkeypatch.setattr(vm, "known_to_accelerate", lambda: known)
    monkeypatch.setattr(advice, "_newest", lambda: None)
    for manager in needs.INSTALL:
        monkeypatch.setattr(needs, "package_manager", lambda manager=manager: manager)
        lines = advice.another_kernel([f"luks+ext4-with-many-options-{number}" for number in range(9)])
        assert max(len(f"fsstack: {line}") for line in lines) <= 120


def test_nothing_is_booted_to_know(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(vm, "_boots_on_kvm", lambda *arguments: pytest.fail("booted"))
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    monkeypatch.setattr(vm, "_trial_result", lambda: tmp_path / "kvm")
    assert vm.known_to_accelerate() is None
    (tmp_path / "kvm").write_text("kvm")
    assert vm.known_to_accelerate() is True
