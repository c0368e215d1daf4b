"""The scenarios' stacks that an ordinary kernel may lack, all of them and all their steps, on a Debian kernel.

In two guests, which may run at the same time.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_fsstack.judging.results import ChainResults
from pytest_fsstack.workloads.build import LUA
from tests.kernel import boot
from tests.kernel.test_filesystems_in_guest import NEWER
from tests.toolkit import chains_of

pytestmark = [pytest.mark.root, pytest.mark.kernel]

ROOT = Path(__file__).parents[2]

Chains = list[ChainResults]


def run(directory: Path, wanted: str) -> Chains:
    """What becomes of the chosen tests of the scenarios, at *smoke* and in one round."""
    try:
        boot.check()
        vmlinuz = boot.kernel(boot.cache_directory(), NEWER)
    except boot.Missing as missing:
        pytest.skip(str(missing))
    if reason := LUA.archive.missing():  # a guest has no network
        pytest.skip(str(reason))
    found = directory / "found.json"
    guest = (f"--fsstack-kernel={vmlinuz}", "--fsstack-vm-accel=tcg", "--fsstack-vm-cpus=1", "--fsstack-size=512M")
    smallest = ("--fsstack-scale=smoke", "--fsstack-rounds=1", f"--fsstack-json={found}")
    words = ["-p", "no:cacheprovider", *smallest, "-k", wanted, *guest]
    done = subprocess.run(
        [*boot.PYTEST, *words, "scenarios"], cwd=ROOT, env=boot.pytest_environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    return chains_of(found)


def check(chains: Chains, scenario: str, *stacks: str) -> None:
    """Each of these stacks has done all steps of a scenario."""
    (chain,) = [chain for chain in chains if chain.id.endswith(f"::{scenario}")]
    (kernel,) = {name.partition(":")[2] for name in chain.stacks}
    assert chain.steps
    for name in (f"{stack}:{kernel}" for stack in stacks):
        for step in chain.steps:
            assert [*chain.of(step, name)] == [0], f"{step} on {name}: {chain.note(step, name)}"
            assert not chain.incomplete(step, name)


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Chains:
    return run(tmp_path_factory.mktemp("scenarios"), "TestSsdEncryption and (dmcrypt or ecryptfs)")


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Chains:
    whole = "TestStackedEncryption or TestSmallFiles or TestDmcryptBlockSize"
    filesystems = "TestFilesystems and (jfs or nilfs2 or reiserfs or ntfs3)"
    backups = "(TestHardlinkBackup or TestPoolFirst or TestLinksFirst) and (lvm or jfs or nilfs2)"
    return run(tmp_path_factory.mktemp("scenarios"), f"{whole} or ({filesystems}) or ({backups})")


class TestEncryptionOnALaptop:
    """Half of all: it takes as long as the others together."""

    def test_ssd_encryption(self, laptop: Chains) -> None:
        on = {"dmcrypt": ("ext4", "btrfs", "btrfs-zlib", "btrfs-lzo"), "ecryptfs": ("ext4", "btrfs", "btrfs-zlib")}
        stacks = [f"{below}-{encryption}" for encryption, filesystems in on.items() for below in filesystems]
        check(laptop, "TestSsdEncryption", "ext4-plain", *stacks)


class TestTheOtherScenarios:
    @pytest.mark.parametrize("chain", ["TestStackedEncryption", "TestSmallFiles"])
    def test_stacked_encryption(self, chains: Chains, chain: str) -> None:
        check(chains, chain, "encfs", "ecryptfs")

    def test_dmcrypt_block_size(self, chains: Chains) -> None:
        check(chains, "TestDmcryptBlockSize", "plain", "dmcrypt", "dmcrypt-no-queues")

    def test_filesystems(self, chains: Chains) -> None:
        check(chains, "TestFilesystems", "ext4", "jfs", "nilfs2", "reiserfs", "ntfs3")

    @pytest.mark.parametrize("chain", ["TestHardlinkBackup", "TestPoolFirst", "TestLinksFirst"])
    def test_hardlink_backup(self, chains: Chains, chain: str) -> None:
        check(chains, chain, "ext4", "lvm", "lvm-dmcrypt", "jfs", "nilfs2")
