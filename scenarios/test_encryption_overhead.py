"""The cost of encryption on this machine.

Encryption below the filesystem (LUKS), in it (fscrypt) and above it (gocryptfs, EncFS) is compared with plain ext4.
btrfs and xfs show how much the choice of a filesystem alone costs. The steps: write one incompressible file in blocks
of 4 KiB, unpack a source tree, sum up its space, compare it with an empty directory, delete it. Each step starts with
cold caches and ends when everything has reached the device.

    pytest scenarios/test_encryption_overhead.py                            on a sparse file
    pytest scenarios/test_encryption_overhead.py --fsstack-device=/dev/sdb1 on a device, which is overwritten
    pytest --pyargs pytest_fsstack.scenarios -k "luks or gocryptfs"         from anywhere, some of the stacks

To compare the encryption of a filesystem with dm-crypt below it, on a kernel with OpenZFS and dm-crypt:

    pytest scenarios/test_encryption_overhead.py --fsstack-stacks=zfs --fsstack-stacks='luks | zfs' \\
        --fsstack-stacks='zfs(encryption="aes-256-gcm")'

Any healthy machine keeps the budgets here, whatever its disk. They find broken stacks, not slow ones. Give budgets for
your own machine on the command line or in the ini: ``--fsstack-budget 'luks*: 30%'``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack import Built, Corpus, Sizes, Timed, workloads

MiB = 1 << 20


@dataclass(frozen=True)
class Stream(Sizes):
    """`file` is the size of the one big file, in bytes."""

    file: int


def budget(*, daemons: str, btrfs: str, xfs: str, encfs: str = "") -> pytest.MarkDecorator:
    """Return the sanity limits of a step. Encryption by daemons may be slower than that of the kernel."""
    # Without the processor's instructions for AES, a kernel encrypted 70 MB/s.
    by_the_kernel = {"luks*": "1500%", "*fscrypt": "1500%"}
    by_a_daemon = {"*gocryptfs": daemons, "*encfs": encfs or daemons}
    overheads = {**by_the_kernel, **by_a_daemon, "btrfs": btrfs, "xfs": xfs}
    return pytest.mark.fsstack_budget(overhead=overheads, sanity=True)


@pytest.mark.fsstack(
    "ext4", "luks | ext4", "ext4 | fscrypt", "ext4 | gocryptfs", "ext4 | encfs", "btrfs", "xfs", baseline="ext4"
)
@pytest.mark.fsstack_sizes(
    smoke=Stream(space=300 * MiB, file=4 * MiB),
    small=Stream(space=512 * MiB, file=40 * MiB),
    paper=Stream(space=2048 * MiB, file=400 * MiB),
)
class TestEncryptionOverhead:
    @pytest.mark.benchmark(group="stream write")
    @budget(daemons="2500%", btrfs="400%", xfs="400%")
    def test_stream_write(self, fsstack: Built, timed: Timed, sizes: Stream, payloads: Callable[..., Path]) -> None:
        """Write one incompressible file with dd, in blocks of 4 KiB."""
        workloads.stream_write(timed, fsstack, payload=payloads(sizes.file), size=sizes.file)

    @pytest.mark.benchmark(group="extract")
    @budget(daemons="3500%", btrfs="600%", xfs="400%", encfs="4000%")
    def test_extract(self, fsstack: Built, timed: Timed, corpus: Corpus) -> None:
        """Unpack a source tree with tar."""
        workloads.extract(timed, fsstack, corpus)

    @pytest.mark.benchmark(group="du")
    @pytest.mark.fsstack_repeat("auto")
    @budget(daemons="1500%", btrfs="500%", xfs="500%")
    def test_du(self, fsstack: Built, timed: Timed) -> None:
        """Sum up the space of the tree with du."""
        workloads.du(timed, fsstack)

    @pytest.mark.benchmark(group="rsync")
    @pytest.mark.fsstack_repeat("auto")
    @budget(daemons="1500%", btrfs="500%", xfs="500%")
    def test_rsync_dry_run(self, fsstack: Built, timed: Timed, corpus: Corpus, tmp_path: Path) -> None:
        """Compare the tree with an empty directory by rsync: almost all stat calls."""
        workloads.rsync_dry_run(timed, fsstack, tmp_path / "empty", corpus=corpus)

    @pytest.mark.benchmark(group="delete")
    @budget(daemons="3500%", btrfs="800%", xfs="800%")
    def test_delete(self, fsstack: Built, timed: Timed, corpus: Corpus) -> None:
        """Delete the tree with rm -rf."""
        workloads.delete(timed, fsstack, corpus=corpus)
