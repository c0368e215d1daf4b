"""A session that waits to be killed while its stack stands."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pytest_fsstack.stack.build import Built


@pytest.mark.fsstack("luks | ext4")
def test_stands(fsstack: Built) -> None:
    (fsstack.path / "file").write_bytes(os.urandom(1 << 20))
    Path(os.environ["STANDING"]).touch()
    time.sleep(600)
