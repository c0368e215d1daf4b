"""Secrets: one a stack, and in no log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pytest_fsstack.machine import commands
from pytest_fsstack.machine.journal import Journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.stack.model import BuildContext


def test_each_stack_has_a_passphrase_of_its_own(tmp_path: Path) -> None:
    found = set()
    for _ in range(5):
        with BuildContext(tmp_path, Journal(tmp_path, RealMachine())).secret.passphrase() as fd:
            found.add(commands.run("cat", f"/proc/self/fd/{fd}", fds=(fd,)))
    assert len(found) == 5
    assert {len(text) for text in found} == {64}


def test_no_log_has_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.DEBUG),
        BuildContext(tmp_path, Journal(tmp_path, RealMachine())).secret.passphrase() as fd,
    ):
        said = commands.run("cat", stdin=fd)
    assert len(said) == 64
    assert said not in caplog.text
    assert said[:16] not in caplog.text
