"""The scenarios' stacks that an ordinary kernel may lack, all of them and all their steps, on a Debian kernel.

In two guests, which may run at the same time.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fsstack.records.results import ChainResults
from pytest_fsstack.workloads.build import LUA
from tests.kernel import boot

pytestmark = [pytest.mark.root, pytest.mark.kernel]

Chains = list[ChainResults]


def run(directory: Path, wanted: str) -> Chains:
    """What becomes of the chosen tests of the scenarios."""
    if reason := LUA.archive.missing():  # a guest has no network
        pytest.skip(str(reason))
    return boot.run_scenarios(directory, "--fsstack-size=512M", "-k", wanted, "scenarios")


def check(chains: Chains, scenario: str, *stacks: str) -> None:
    """Each of these stacks has done all steps of a scenario."""
    (chain,) = [chain for chain in chains if chain.id.endswith(f"::{scenario}")]
    (kernel,) = {name.partition(":")[2] for name in chain.stacks}
    assert chain.steps
    for name in (f"{stack}:{kernel}" for stack in stacks):
        for step in chain.steps:
            assert [key.number for key in chain.of(step, name)] == [0], f"{step} on {name}: {chain.note(step, name)}"
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
