"""Another executable makes the stack: wrappers that stand for another version, and call the installed tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.devices import LoopDevice
from pytest_fsstack.machine import commands
from pytest_fsstack.stack.places import BuildContext
from tests.real.conftest import built

pytestmark = pytest.mark.root


def wrapper(directory: Path, tool: str, version: str) -> Path:
    """An executable that notes its words, names another version, and is otherwise the installed tool."""
    installed = commands.which(tool)
    if installed is None:
        pytest.skip(f"needs {tool}")
    path = directory / f"{tool}-{version}" / tool
    path.parent.mkdir()
    path.write_text(
        f'#!/bin/sh\necho "$*" >> {directory}/{tool}.log\n'
        f'case "$*" in -V|-version|--version) echo "{tool} {version}"; exit;; esac\nexec {installed} "$@"\n'
    )
    path.chmod(0o755)
    return path


def words(directory: Path, tool: str) -> list[str]:
    log = directory / f"{tool}.log"
    return log.read_text().splitlines() if log.exists() else []


def test_a_stack_of_wrappers_stands_and_is_remounted(context: BuildContext, tmp_path: Path) -> None:
    mkfs, fuse = (wrapper(tmp_path, tool, "9.9") for tool in ("mkfs.ext4", "gocryptfs"))
    # mke2fs goes by its name, of which there is no filesystem.
    odd = mkfs.with_name("mkfs.ext4-9.9")
    mkfs.rename(odd)
    text = f"ext4(binary='{odd}') | gocryptfs(binary='{fuse}')"
    with built(text, LoopDevice(256 << 20), context) as stack:
        (stack.path / "file").write_bytes(b"kept" * 4096)
        stack.remount()
        assert (stack.path / "file").read_bytes() == b"kept" * 4096
        assert [mount.split()[0] for mount in stack.mounts()] == ["ext4", "fuse.gocryptfs"]
    (made,) = words(tmp_path, "mkfs.ext4")
    assert "-t ext4" in made
    called = words(tmp_path, "gocryptfs")
    assert ["-init" in line for line in called] == [True, False, False]
    # The passphrase is read from a descriptor, as ever.
    assert all("-passfile /proc/self/fd/" in line for line in called)
