"""The kernel as a parameter, with a real guest: the same test on Debian's kernel and on the running one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_fsstack import host
from tests.kernel import boot

pytestmark = [pytest.mark.root, pytest.mark.kernel]

TEST = """
import pytest

@pytest.mark.fsstack("ext4")
@pytest.mark.benchmark
def test_write(fsstack, timed):
    with timed(bytes=1 << 20):
        (fsstack.path / "file").write_bytes(bytes(1 << 20))
"""


@pytest.fixture(scope="module")
def vmlinuz() -> Path:
    try:
        boot.check()
        return boot.kernel(boot.cache_directory())
    except boot.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def command(vmlinuz: Path, tmp_path: Path) -> list[str]:
    (tmp_path / "test_it.py").write_text(TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    words = ["--fsstack-rounds=1", "--fsstack-size=512M", "--fsstack-vm-accel=tcg", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "pytest", *words, f"--fsstack-kernel={vmlinuz}"]


def guests(directory: Path) -> list[str]:
    """The QEMU processes that share this directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if line.startswith((b"qemu", b"/usr/bin/qemu")) and f"path={directory}".encode() in line:
            found.append(process.name)
    return found


def test_a_stack_is_measured_on_both_kernels_and_compared(command: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*command, "--fsstack-kernel=host", "--fsstack-json=out.json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (chain,) = json.loads((tmp_path / "out.json").read_text())["chains"]
    guest, here = chain["stacks"]
    assert guest.startswith("ext4:6.1")
    assert here.startswith("ext4:host-")
    assert chain["stacks"][guest]["mounts"][0].startswith("ext4 /dev/vda")
    assert "emulated" in done.stdout
    assert guests(tmp_path) == []


def test_sigkill_leaves_no_guest(command: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert host.wait_until(lambda: guests(tmp_path), 60)
    time.sleep(2)
    process.kill()
    process.wait()
    assert host.wait_until(lambda: not guests(tmp_path), 10)
