"""The line for which this project was asked for, as it stands, with a loop device for the disk."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.conftest import LoopDevice, lacking

pytestmark = pytest.mark.root

ROOT = Path(__file__).parents[2]
#: The scenarios of the line that take minutes even at this scale. Other tests run them.
LONG = ("bit_rot", "contents", "databases", "posix", "power_cut", "ssd_encryption", "xfstests")
#: Otherwise, the line runs for hours. All scenarios are collected.
SHORT = ["--fsstack-scale=smoke", "--fsstack-rounds=1", "--color=no"]
SHORT += [f"--deselect={directory}test_{name}.py" for name in LONG for directory in ("", "scenarios/")]


def run_line(
    where: Path, *line: str, short: bool = True, packages: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run pytest in a directory. `packages` is a directory with an installed package."""
    environment = {**os.environ, "PYTEST_ADDOPTS": shlex.join(SHORT) if short else "--color=no"}
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    command = [sys.executable, "-m", "pytest", *line, "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=800)


def installed(directory: Path) -> Path:
    """Return a directory with the package as setup.cfg installs it: the scenarios are inside."""
    shutil.copytree(ROOT / "pytest_fsstack", directory / "pytest_fsstack")
    shutil.copytree(ROOT / "scenarios", directory / "pytest_fsstack/scenarios")
    return directory


def outcomes(output: str) -> dict[str, int]:
    """Return the numbers in the last line of a session."""
    last = output.strip().splitlines()[-1]
    return {name: int(number) for number, name in re.findall(r"(\d+) (\w+)", last)}


@pytest.mark.parametrize("place", ["checkout", "installed"])
def test_the_first_line_runs_as_it_stands(place: str, loop_device: LoopDevice, tmp_path: Path) -> None:
    if reasons := lacking("btrfs"):
        pytest.skip("; ".join(reasons))
    empty = tmp_path / "empty"
    empty.mkdir()
    where, packages = (ROOT, None) if place == "checkout" else (empty, installed(tmp_path / "packages"))
    device = loop_device(size=400 << 20).path
    result = run_line(where, f"--fsstack-device={device}", "-k", "btrfs", packages=packages)
    assert result.returncode == 0, result.stdout + result.stderr
    numbers = outcomes(result.stdout)
    assert numbers["passed"] >= 10
    assert numbers["skipped"] >= 6  # those of `degraded`
    assert re.search(
        rf"^fsstack: {sum(numbers.get(name, 0) for name in COUNTED)} tests,.* runs of ", result.stdout, re.M
    )
    assert re.search(r"scenarios.* run", result.stdout)


#: The outcomes that a selected test can have in a session without errors.
COUNTED = ("passed", "skipped", "xfailed", "xpassed", "failed")

#: Devices of other kinds, and other words: the sizes of the loop devices in MiB, and the words of the line.
LINES = {
    "luks": ([400], ["-k", "luks", "--collect-only"]),
    "and not": ([400], ["-k", "xfs and not power_cut", "--collect-only"]),
    "two devices": ([400, 400], ["-k", "btrfs", "--collect-only"]),
    "small device": ([200], ["-k", "filesystems and (btrfs or xfs)", "--fsstack-dry-run"]),
    "tiny device": ([8], ["-k", "filesystems and ext4", "--fsstack-dry-run"]),
    "directory": ([], ["-k", "encryption_overhead and (btrfs or gocryptfs)", "--fsstack-dry-run"]),
}


@pytest.mark.parametrize("name", LINES)
def test_other_first_lines_are_accepted(name: str, loop_device: LoopDevice, tmp_path: Path) -> None:
    sizes, words = LINES[name]
    devices = [f"--fsstack-device={loop_device(size=size << 20).path}" for size in sizes]
    if not devices:
        (tmp_path / "directory").mkdir()
        devices = [f"--fsstack-device=dir:{tmp_path / 'directory'}"]
    result = run_line(ROOT, *devices, *words, "-q", short=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^  stacks: |tests collected", result.stdout, re.M)
    if name in ("small device", "directory"):
        assert re.search(r"^  missing here: .*(needs 300.0 MiB|needs a block device)", result.stdout, re.M)


def test_two_devices_are_a_group_for_the_tests_that_need_two(loop_device: LoopDevice) -> None:
    devices = [loop_device(size=400 << 20).path for _ in range(2)]
    words = [f"--fsstack-device={device}" for device in devices]
    result = run_line(ROOT, *words, "-k", "degraded and btrfs-raid1", "-q")
    assert result.returncode == 0, result.stdout + result.stderr
    assert outcomes(result.stdout)["passed"] == 6
