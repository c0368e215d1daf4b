"""Servers of any kind, here shell scripts."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from pytest_fsstack.layers.network import servers
from pytest_fsstack.machine import commands
from pytest_fsstack.stack.places import BuildContext, Directory

pytestmark = pytest.mark.root


@dataclass(frozen=True)
class Slow(servers.NetworkLayer):
    name: ClassVar = "slow"
    ending: ClassVar = signal.SIGTERM


def test_a_server_that_does_not_end_in_time_is_named_and_killed(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "RELEASE", 0.5)
    (tmp_path / "slow").mkdir()
    with pytest.raises(commands.CommandError, match=r"unshare .*survived SIGTERM"):
        with Slow().server(
            Directory(tmp_path), context, "trap '' TERM", f": >{servers.READY}", "while :; do sleep 0.1; done"
        ) as namespaces:
            server = Path(f"/proc/{namespaces.pid}")
    assert not server.exists()
