"""The studies' stacks that an ordinary kernel may lack, all in one boot of a Debian kernel that has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_fsstack.workloads.build import LUA
from tests.kernel import boot
from tests.kernel.test_filesystems_in_guest import NEWER

pytestmark = [pytest.mark.root, pytest.mark.kernel]

ROOT = Path(__file__).parents[2]
#: Of each study's stacks that need more than ext4, Btrfs, XFS and FUSE, as many as emulation does in some minutes.
WANTED = " or ".join(
    (
        "(TestSsdEncryption and ext4-ecryptfs)",
        "(TestStackedEncryption and ecryptfs)",
        "(TestDmcryptBlockSize and no-queues)",
        "(TestFilesystems and (jfs or nilfs2 or reiserfs or ntfs3))",
    )
)


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    try:
        boot.check()
        vmlinuz = boot.kernel(boot.cache_directory(), NEWER)
    except boot.Missing as missing:
        pytest.skip(str(missing))
    if reason := LUA.archive.missing():  # a guest has no network
        pytest.skip(reason)
    found = tmp_path_factory.mktemp("studies") / "found.json"
    guest = (f"--fsstack-kernel={vmlinuz}", "--fsstack-vm-accel=tcg", "--fsstack-size=512M")
    words = ["-p", "no:cacheprovider", "--fsstack-scale=smoke", f"--fsstack-json={found}", "-k", WANTED, *guest]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "scenarios"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    content: list[dict[str, Any]] = json.loads(found.read_text())["chains"]
    return content


@pytest.mark.parametrize(
    ("study", "stacks"),
    [
        ("TestSsdEncryption", {"ext4-plain", "ext4-ecryptfs"}),
        ("TestStackedEncryption", {"ecryptfs", "encfs"}),
        ("TestDmcryptBlockSize", {"plain", "dmcrypt-no-queues"}),
        ("TestFilesystems", {"jfs", "nilfs2", "reiserfs", "ntfs3"}),
    ],
)
def test_all_steps_of_a_study_run_in_a_guest(chains: list[dict[str, Any]], study: str, stacks: set[str]) -> None:
    (chain,) = [chain for chain in chains if chain["id"].endswith(f"::{study}")]
    kernels = {name.partition(":")[2] for name in chain["stacks"]}
    assert len(kernels) == 1
    (kernel,) = kernels
    for stack in stacks:
        for step in chain["steps"]:
            facts = step["stacks"][f"{stack}:{kernel}"]
            assert facts["rounds"] == [1], f"{step['name']} on {stack}: {facts['note']}"
            assert facts["incomplete"] is None, f"{step['name']} on {stack}: {facts['note']}"
