"""Whole sessions inside the guest on its /dev/vda. Some are killed.

`tests/kernel/test_layers_in_guest.py` starts it. No test of this file has a stack itself, because a session holds its
disk for as long as it runs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_fsstack.layers import BUILT_IN
from pytest_fsstack.machine import commands, journal
from pytest_fsstack.machine.real import RealMachine
from pytest_fsstack.session.cleanup import kinds
from tests.kernel.guest.common import (
    DISK,
    HERE,
    dissolves,
    ended,
    keys,
    mappings,
    mounted,
    mounted_ecryptfs,
    nothing_is_left,
    started,
)
from tests.toolkit import chains_of


def test_a_comparison_measures_both_stacks(tmp_path: Path) -> None:
    file, output = tmp_path / "found.json", tmp_path / "output"
    options = (f"--fsstack-device={DISK}", "--fsstack-rounds=2", f"--fsstack-json={file}")
    code = ended(started(output, *options, str(HERE / "inside_comparison.py")))
    text = output.read_text()
    assert code == 0, text
    assert "4 passed" in text

    (chain,) = chains_of(file)
    assert [sorted(order) for order in chain.orders] == [["ext4", "luks+ext4"]] * 2
    assert chain.steps == ["write", "read"]
    for step in chain.steps:
        for stack in ("ext4", "luks+ext4"):
            assert chain.worst(step, stack) is None
            assert len(chain.series(step, stack, "seconds")) == 2
            # The bytes of the disk at the bottom, not those of the mapping as well.
            moved = chain.series(step, stack, "written_bytes" if step == "write" else "read_bytes")
            assert all(4 << 20 <= figure < 8 << 20 for figure in moved), (stack, step, moved)
    assert "/dev/mapper/" in chain.stacks["luks+ext4"].mounts[0]


@contextlib.contextmanager
def killed_session(directory: Path, patch: pytest.MonkeyPatch, *stacks: str) -> Iterator[int]:
    """Yield the process of a session whose stack stands, and kill it at the end of the block."""
    standing, output = directory / "standing", directory / "output"
    patch.setenv("STANDING", str(standing))
    chosen = [f"--fsstack-stacks={stack}" for stack in stacks]
    pid = started(output, f"--fsstack-device={DISK}", *chosen, str(HERE / "inside_standing.py"))
    try:
        assert commands.wait_until(standing.exists, 600), output.read_text()
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def clean_up(directory: Path) -> str:
    """Return what a session that cleans up prints."""
    code = ended(started(directory / "output", "--fsstack-cleanup"))
    text = (directory / "output").read_text()
    assert code == 0, text
    return text


def check_sigkill(directory: Path, patch: pytest.MonkeyPatch, *stacks: str, mapped: int, proved: bool) -> None:
    """Kill a session while its stack of so many mappings stands: all of it goes, and a clean-up empties the disk.

    Without `proved`, nothing shows that no files were put on it since, and it is left alone.
    """
    with killed_session(directory, patch, *stacks) as pid:
        assert len(mappings()) == mapped, mappings()
        assert mounted()
    killed = time.monotonic()
    assert dissolves(10), (mappings(), mounted())
    print(f"all of it was gone after {time.monotonic() - killed:.1f} s")

    text = clean_up(directory)
    assert (f"emptied {DISK} but for its scratch label (of the session of process {pid})" in text) is proved
    assert ("left alone" in text) is not proved
    assert (
        journal.cleanup(journal.default_directory(), RealMachine(), lambda: kinds(BUILT_IN.values()))
        == journal.CleanupReport()
    )


def test_nothing_of_a_mapping_stands_after_sigkill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_sigkill(tmp_path, monkeypatch, mapped=1, proved=True)


def test_nothing_of_ecryptfs_stands_after_sigkill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with killed_session(tmp_path, monkeypatch, "ext4 | ecryptfs"):
        assert mounted()
        assert mounted_ecryptfs()
    assert nothing_is_left(10), (mounted(), mounted_ecryptfs(), keys())
    assert "left alone" not in clean_up(tmp_path)


# The last one, because it leaves the disk without a label.
def test_nothing_of_many_mappings_stands_after_sigkill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_sigkill(tmp_path, monkeypatch, "raid | lvm(kind='thin') | ext4", mapped=9, proved=False)
