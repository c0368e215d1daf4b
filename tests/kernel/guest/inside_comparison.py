"""A comparison that a session inside the guest runs.

Without budgets: what is compared is the kernels.
"""

from __future__ import annotations

import os

import pytest

from pytest_fsstack.measuring.timed import Timed
from pytest_fsstack.stack.build import Built

SIZE = 4 << 20


@pytest.mark.fsstack("ext4", "luks | ext4")
class TestComparison:
    @pytest.mark.benchmark(group="write")
    def test_write(self, fsstack: Built, timed: Timed) -> None:
        data = os.urandom(SIZE)
        # Cold would read every program anew from the host, which takes longest of all in this guest.
        with timed(bytes=SIZE, cold=False):
            (fsstack.path / "file").write_bytes(data)

    @pytest.mark.benchmark(group="read")
    def test_read(self, fsstack: Built, timed: Timed) -> None:
        with timed(bytes=SIZE):
            assert len((fsstack.path / "file").read_bytes()) == SIZE
