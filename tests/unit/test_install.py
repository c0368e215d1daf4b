"""The installation of what the tests need."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_fsstack.machine import commands
from tests import install


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that lacks a package. Installing it takes a moment, and the policy must be there all the time."""
    path = tmp_path / "policy-rc.d"

    def run(words: list[str], **options: Any) -> SimpleNamespace:
        if words[:2] == ["apt-get", "install"]:
            there = [path.exists()]
            time.sleep(0.2)
            return SimpleNamespace(returncode=0 if all([*there, path.exists()]) else 100)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(install, "POLICY", path)
    monkeypatch.setattr(install, "OF_TESTS", {"no-such-tool": "package"})
    monkeypatch.setattr(commands, "which", lambda tool: None if tool == "no-such-tool" else f"/usr/bin/{tool}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", run)
    return path


def test_no_service_starts_while_two_runs_install(policy: Path) -> None:
    def start(delay: float) -> int:
        time.sleep(delay)
        return install.install_packages({})

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(start, (0.0, 0.1))) == [0, 0]
    assert not policy.exists()


@pytest.mark.parametrize(("content", "stays"), [(install.NO_SERVICES, False), ("#!/bin/sh\nexit 0\n", True)])
def test_the_policy_of_a_killed_run_is_removed(policy: Path, content: str, stays: bool) -> None:
    policy.write_text(content)
    assert install.install_packages({}) == 0
    assert policy.exists() == stays
