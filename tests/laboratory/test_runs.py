"""Runs on the hosts of a cluster, and what of them survives a fault."""

from __future__ import annotations

import pytest

from tests.laboratory.conftest import Laboratory

pytestmark = pytest.mark.root


def test_two_hosts_run_a_session_each(laboratory: Laboratory) -> None:
    laboratory.write("node1", "node2")
    done = laboratory.lab("run", "--directory=run", "LAB.toml", "--", "--fsstack-rounds=2", "test_write.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(laboratory.state().files()) == {"node1", "node2"}
