"""Sessions as in a container: few device nodes, and root without some capabilities.

A private mount namespace has a /dev with the nodes that containers have. `setpriv` takes capabilities away.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fsstack.machine.needs import FUSE, LOOP_DEVICES, Root, Tool, require
from tests.sessions import FEW_PLUGINS

pytestmark = pytest.mark.root

TEST = """
import pytest

@pytest.mark.fsstack("ext4", "ext4 | gocryptfs")
def test_it(fsstack):
    (fsstack.path / "file").write_text("text")
"""

#: A small /dev, as containers have it: no nodes of loop devices and FUSE.
SMALL_DEV = """
set -e
mkdir -p "$1/dev" && mount -t tmpfs fsstack "$1/dev" && cd "$1/dev"
for node in null zero full random urandom tty; do cp -a /dev/$node .; done
for node in $2; do cp -a /dev/$node .; done
mkdir shm pts
mount --move "$1/dev" /dev
cd "$1" && shift 2 && exec "$@"
"""
LACKS_MKNOD = ("setpriv", "--bounding-set=-mknod")
LACKS_ADMIN = ("setpriv", "--bounding-set=-sys_admin")


def run(directory: Path, *words: str, nodes: str | None = "", rights: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run a session, with a small /dev that has these further nodes (None: with the machine's own /dev)."""
    require(Root("mounting"), LOOP_DEVICES, FUSE, Tool("gocryptfs", "gocryptfs"), Tool("mkfs.ext4", "e2fsprogs"))
    (directory / "test_it.py").write_text(TEST)
    alone = ("-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir=.", "-rs", "--fsstack-size=64M")
    argv = [*rights, sys.executable, "-m", "pytest", *alone, *words, "test_it.py"]
    if nodes is not None:
        argv = ["unshare", "--mount", "sh", "-c", SMALL_DEV, "sh", str(directory), nodes, *argv]
    result = subprocess.run(
        argv, cwd=directory, capture_output=True, text=True, env={**os.environ, **FEW_PLUGINS}, timeout=300
    )
    return result.returncode, result.stdout + result.stderr


def test_missing_nodes_are_made_if_root_may(tmp_path: Path) -> None:
    code, output = run(tmp_path)
    assert code == 0, output
    assert "2 passed" in output


@pytest.mark.parametrize("words", [(), ("--fsstack-doctor=show",)])
def test_nodes_that_cannot_be_made_are_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, output = run(tmp_path, *words, rights=LACKS_MKNOD)
    assert code == (1 if words else 0), output
    for node in "/dev/loop-control", "/dev/fuse":
        assert f"{node} does not exist" in output
        assert f"--device={node}" in output
    assert "--privileged" in output
    assert "--fsstack-kernel" not in output


@pytest.mark.parametrize("words", [(), ("--fsstack-doctor=show",)])
def test_the_node_of_a_free_loop_device_is_named(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, output = run(tmp_path, *words, nodes="loop-control fuse", rights=LACKS_MKNOD)
    assert code == (1 if words else 0), output
    assert re.search(r"/dev/loop\d+ does not exist.* --device=/dev/loop\d+", output)
    assert "No such file or directory" not in output


@pytest.mark.parametrize("words", [(), ("--fsstack-doctor=show",)])
def test_root_without_the_right_to_mount_is_told_the_capability(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, output = run(tmp_path, *words, nodes=None, rights=LACKS_ADMIN)
    assert code == (1 if words else 0), output
    assert "CAP_SYS_ADMIN" in output
    assert "--cap-add=SYS_ADMIN" in output
    assert "Permission denied" not in output


def test_a_fuse_filesystem_on_a_directory_needs_the_capability_too(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    words = ("--fsstack-device=dir:directory", "--fsstack-stacks=gocryptfs")
    code, output = run(tmp_path, *words, nodes=None, rights=LACKS_ADMIN)
    assert code == 0, output
    assert "mounting by FUSE needs CAP_SYS_ADMIN" in output


def test_the_tests_of_this_folder_are_skipped_without_the_capability() -> None:
    path = Path(__file__)
    # Without itself: if nothing were skipped, it would start session after session.
    words = ["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(path), "-k", "not tests_of_this_folder"]
    result = subprocess.run(
        [*LACKS_ADMIN, sys.executable, *words], cwd=path.parents[2], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^SKIPPED .*CAP_SYS_ADMIN.*--cap-add=SYS_ADMIN", result.stdout, re.M)
    assert "passed" not in result.stdout
