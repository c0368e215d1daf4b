"""What do pooled directories cost, and does mergerfs spread new files over them?

pytest docs/examples/mergerfs
"""

from __future__ import annotations

import pytest

from pytest_fsstack import Built, Timed

FILES = 300


@pytest.mark.fsstack("ext4", "ext4 | mergerfs", "ext4 | mergerfs(branches=8)")
@pytest.mark.fsstack_budget("900%")
class TestMergerfs:
    def test_write(self, fsstack: Built, timed: Timed) -> None:
        with timed(files=FILES):
            for number in range(FILES):
                (fsstack.path / f"file{number}").write_bytes(b"x" * 4096)
        fsstack.remount()
        assert len(list(fsstack.path.glob("file*"))) == FILES

    @pytest.mark.fsstack_repeat("auto")
    def test_list(self, fsstack: Built, timed: Timed) -> None:
        with timed(files=FILES):
            sizes = [file.stat().st_size for file in fsstack.path.glob("file*")]
        assert sizes == [4096] * FILES


@pytest.mark.fsstack("ext4 | mergerfs(branches=4)")
def test_spread(fsstack: Built) -> None:
    """Without `timed` it is an ordinary test, which runs once on each stack."""
    kind, _, _ = fsstack.mounts()[-1].partition(" ")
    assert kind == "fuse.mergerfs"
    for number in range(100):
        (fsstack.path / f"file{number}").touch()
    pooled = [list(fsstack.below.glob(f"branch{number}/file*")) for number in range(4)]
    assert sum(map(len, pooled)) == 100
    assert all(pooled), "mergerfs wrote to some of its directories only"
