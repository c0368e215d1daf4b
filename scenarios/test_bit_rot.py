"""Bit rot: which stacks notice a changed byte?

The stack is taken down, one stored byte is altered, and the stack is opened again. Then all names, attributes and
contents are read. There are four outcomes:

- *reported*: opening the stack or reading failed
- *wrong data*: reading returned other data without an error
- *missing*: a file is gone or has a wrong name, without an error
- *same data*: no difference. The byte was corrected, or is not used.

Afterwards all layers are scrubbed and checked, if they can be. If the byte is right again, it was *corrected*.
Everything is restored before the next flip.

Contents are the bytes of files, also of a second copy. Metadata are the other bytes that writing the files changed, and
the two ends of the device. Half of their flips are in each, and every run of blocks is equally likely. Only bytes that
are not zero are drawn. If encryption stores files of its own in a directory, their bytes are altered instead. Metadata
are then their headers, configuration and other small files, and their names. Each round draws other bytes.

    pytest scenarios/test_bit_rot.py --fsstack-size=512M
    pytest scenarios/test_bit_rot.py --fsstack-size=512M --fsstack-kernel=KERNEL     stacks with the device-mapper

The mirrors `btrfs-raid1`, `zfs-mirror` and `md-raid1` take two devices, and each flip is on one of them. The whole
device is read for each flip, so take a small one. Devices above 4 GiB are skipped. XFS needs 300 MiB.

The test fails if data are wrong without an error, unless each layer declares `Limit.CHECKSUMS`. It fails if files are
missing without an error, unless each layer declares `Limit.NAME_CHECKSUMS`. The controls are stacks that do not check
contents. *Every* flip in contents must return wrong data there, otherwise the flips do not reach the contents.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Sizes, Timed
from pytest_fsstack.truth.correctness import verdict
from pytest_fsstack.truth.damage import rot

MiB = 1 << 20
EXT4 = "ext4(mount='noatime,errors=remount-ro')"
#: The part of the device for layers whose checksums take writing the whole device first.
PART = "linear(size='64M')"


@dataclass(frozen=True)
class Flips(Sizes):
    """`flips` is the number of flips of each kind in a round."""

    flips: int
    shape: rot.Shape


#: The largest device in bytes. All of it is read for each flip.
MOST = 4 << 30
#: The controls: one copy of contents, which no layer checks.
UNCHECKED = ("ext4", "ext4-no-csum", "xfs", "fscrypt", "encfs", "ecryptfs", "luks")
#: The number of flips after which a known fault must have caused a failure.
ENOUGH = 10


@pytest.fixture(scope="class")
def rotting(fsstack: Built, sizes: Flips) -> rot.Rotting:
    """Return the bit rot of a round's stack. Both steps share the places that the first one has found."""
    return rot.Rotting(fsstack, sizes.shape)


@pytest.mark.fsstack(
    f"ext4 = {EXT4}",
    "ext4-no-csum = ext4(mkfs='-O ^metadata_csum', mount='noatime,errors=remount-ro')",
    "xfs = xfs(mount='noatime')",
    "btrfs = btrfs(mount='noatime')",
    "btrfs-dup = btrfs(mkfs='-d dup', mount='noatime')",
    "zfs = zfs(mkfs='-o failmode=continue -O atime=off')",
    "zfs-encrypted = zfs(encryption='aes-256-gcm', mkfs='-o failmode=continue -O atime=off')",
    "bcachefs = bcachefs(mkfs='--data_checksum=crc32c', mount='noatime')",
    "bcachefs-encrypted = bcachefs(encrypted=True, mount='noatime')",
    f"fscrypt = {EXT4} | fscrypt",
    f"gocryptfs = {EXT4} | gocryptfs",
    f"encfs = {EXT4} | encfs",
    f"encfs-paranoia = {EXT4} | encfs(mode='paranoia')",
    f"cryfs = {EXT4} | cryfs",
    f"securefs = {EXT4} | securefs",
    f"ecryptfs = {EXT4} | ecryptfs",
    f"squashfs = {EXT4} | squashfs",
    f"squashfs-none = {EXT4} | squashfs(compress='none')",
    f"erofs = {EXT4} | erofs",
    f"erofs-lz4 = {EXT4} | erofs(compress='lz4')",
    f"overlay = {EXT4} | overlay",
    f"overlay-squashfs = {EXT4} | squashfs | overlay",
    f"overlay-erofs = {EXT4} | erofs | overlay",
    f"sshfs = {EXT4} | sshfs",
    f"nfs = {EXT4} | nfs",
    f"samba = {EXT4} | samba",
    f"luks = {PART} | luks | {EXT4}",
    f"luks-integrity = {PART} | luks(integrity='hmac-sha256', key_size=512, journal=False) | {EXT4}",
    f"integrity = {PART} | integrity(mode='none') | {EXT4}",
    f"raid1 = {PART} | raid(level=1) | {EXT4}",
    "zfs-mirror = pool(2) | zfs(vdev='mirror', mkfs='-o failmode=continue -O atime=off')",
    "btrfs-raid1 = pool(2) | btrfs(data='raid1', metadata='raid1', mount='noatime')",
    f"md-raid1 = md | {EXT4}",
    f"raid1-integrity = {PART} | integrity(mode='none') | raid(level=1) | {EXT4}",
    baseline="ext4",
    keep=("ext4",),
)
@pytest.mark.fsstack_sizes(
    smoke=Flips(space=320 * MiB, most=MOST, flips=2, shape=rot.Shape(large=2, size=256 << 10, small=8)),
    small=Flips(space=320 * MiB, most=MOST, flips=10, shape=rot.Shape(large=4, size=1 * MiB, small=40)),
    paper=Flips(space=320 * MiB, most=MOST, flips=100, shape=rot.Shape(large=8, size=1 * MiB, small=200)),
)
@pytest.mark.fsstack_rounds(1)
@pytest.mark.fsstack_table(
    "counts",
    columns={
        "flips": "flips",
        "reported": "reported of flips",
        "wrong data": "wrong of flips",
        "missing": "missing of flips",
        "same data": "unnoticed of flips",
        "by fsck or scrub": "checked of flips",
        "corrected": "corrected of flips",
    },
)
class TestBitRot:
    @pytest.mark.benchmark(group="contents")
    def test_contents(
        self,
        request: pytest.FixtureRequest,
        fsstack: Built,
        timed: Timed,
        fsstack_seed: int,
        rotting: rot.Rotting,
        sizes: Flips,
    ) -> None:
        tally = flipped("contents", rotting, timed, fsstack_seed, sizes.flips)
        if fsstack.stack.id in UNCHECKED:
            assert tally.wrong == tally.flips, f"flips do not reach the contents: {tally.stories}"
        conclude(request, timed, fsstack, tally, "contents", enough=sizes.flips >= ENOUGH)

    @pytest.mark.benchmark(group="metadata")
    def test_metadata(
        self,
        request: pytest.FixtureRequest,
        fsstack: Built,
        timed: Timed,
        fsstack_seed: int,
        rotting: rot.Rotting,
        sizes: Flips,
    ) -> None:
        tally = flipped("metadata", rotting, timed, fsstack_seed, sizes.flips)
        conclude(request, timed, fsstack, tally, "metadata", enough=sizes.flips >= ENOUGH)


def conclude(
    request: pytest.FixtureRequest, timed: Timed, fsstack: Built, tally: rot.Tally, kind: rot.Kind, *, enough: bool
) -> None:
    findings = tally.findings(fsstack.stack, kind)
    summary = f"after {len(findings)} of {tally.flips} altered bytes, files were wrong or gone without an error"
    verdict.conclude(request.node, timed, fsstack, findings, summary=summary, enough=enough)


def flipped(kind: rot.Kind, rotting: rot.Rotting, timed: Timed, seed: int, count: int) -> rot.Tally:
    """Flip bytes, and record the outcomes."""
    rotting.begin(seed)
    with timed(cold=False):  # each flip is read after a fresh mount
        tally = rotting.flips(kind, count)
    tally.record(timed)
    return tally
