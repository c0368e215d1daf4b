"""dm-crypt by block size: how much does it cost, and is another kernel faster?

``dd`` and fio with direct I/O run on the block device, without a filesystem: plain dm-crypt (AES-128 in CBC mode)
against the bare device. The publication compared a bio-based with a request-based dm-crypt on an SD card. Name two
kernels to compare them, the base first. On one kernel, dm-crypt is compared with and without its work queues, which
today's kernels offer instead.

    pytest scenarios/test_dmcrypt_block_size.py --fsstack-device=/dev/mmcblk0p2
    pytest scenarios/test_dmcrypt_block_size.py --fsstack-kernel=vmlinuz-base --fsstack-kernel=vmlinuz-patched
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pytest_fsstack import Built, Sizes, Timed, parse_size, workloads

MiB = 1 << 20
SWEEP = ("4K", "64K", "256K", "1M")


@dataclass(frozen=True)
class Transfer(Sizes):
    """`bytes` are read or written in each step."""

    bytes: int


@pytest.mark.fsstack(
    "plain = raw",
    "dmcrypt = dmcrypt(cipher='aes-cbc-plain64', key_size=128)",
    "dmcrypt-no-queues = dmcrypt(cipher='aes-cbc-plain64', key_size=128, no_read_workqueue=True, "
    "no_write_workqueue=True)",
)
@pytest.mark.fsstack_sizes(
    smoke=Transfer(space=64 * MiB, bytes=2 * MiB),
    small=Transfer(space=128 * MiB, bytes=64 * MiB),
    paper=Transfer(space=1100 * MiB, bytes=1024 * MiB),
)
@pytest.mark.fsstack_table(
    "change",
    metrics={
        "dd_write": "throughput",
        "dd_read": "throughput",
        "fio_write": "fio_write_bandwidth",
        "fio_read": "fio_read_bandwidth",
    },
)
@pytest.mark.fsstack_table("times")
class TestDmcryptBlockSize:
    @pytest.mark.parametrize("block", SWEEP)
    @pytest.mark.benchmark(group="dd write")
    def test_dd_write(self, fsstack: Built, timed: Timed, sizes: Transfer, block: str) -> None:
        workloads.dd_write(timed, fsstack, size=sizes.bytes, block=parse_size(block))

    @pytest.mark.parametrize("block", SWEEP)
    @pytest.mark.benchmark(group="dd read")
    @pytest.mark.fsstack_repeat("auto")
    def test_dd_read(self, fsstack: Built, timed: Timed, sizes: Transfer, block: str) -> None:
        workloads.dd_read(timed, fsstack, size=sizes.bytes, block=parse_size(block))

    @pytest.mark.parametrize("block", ["64K"])
    @pytest.mark.benchmark(group="fio write")
    def test_fio_write(self, fsstack: Built, timed: Timed, sizes: Transfer, block: str) -> None:
        workloads.fio(timed, fsstack, rw="write", size=sizes.bytes, block=parse_size(block))

    @pytest.mark.parametrize("block", ["64K"])
    @pytest.mark.benchmark(group="fio read")
    @pytest.mark.fsstack_repeat("auto")
    def test_fio_read(self, fsstack: Built, timed: Timed, sizes: Transfer, block: str) -> None:
        workloads.fio(timed, fsstack, rw="read", size=sizes.bytes, block=parse_size(block))
