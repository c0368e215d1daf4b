"""A lost device: how fast is a mirror without one of its devices, and while it rebuilds?

Files are written and read in four states: with all devices, without the second one, during the rebuild, and after it.
The lost device is emptied before it returns. The step during the rebuild also records the time of the whole rebuild. At
the end everything is read, scrubbed and checked.

    pytest scenarios/test_degraded.py --fsstack-device=/dev/sdb+/dev/sdc

Btrfs writes nothing to a part of the device while it rebuilds that part, so it needs free space. On devices of 1 GiB
with 400 MiB of files, writing 200 MiB more failed for lack of space.
"""

from __future__ import annotations

import filecmp
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_fsstack import Built, Sizes, Timed, workloads

MiB = 1 << 20
Payloads = Callable[..., Path]


@dataclass(frozen=True)
class Sized(Sizes):
    """`file` is in bytes."""

    file: int


@pytest.mark.fsstack(
    "btrfs-raid1 = pool(2) | btrfs(data='raid1', metadata='raid1', mount='noatime')",
    "zfs-mirror = pool(2) | zfs(vdev='mirror')",
    "md-raid1 = md | ext4(mount='noatime')",
    baseline="btrfs-raid1",
)
@pytest.mark.fsstack_sizes(
    smoke=Sized(space=256 * MiB, file=8 * MiB),
    small=Sized(space=2048 * MiB, file=200 * MiB),
    paper=Sized(space=16384 * MiB, file=2048 * MiB),
)
@pytest.mark.fsstack_table("matrix", metrics={"time": "seconds", "rebuild": "rebuild_seconds"})
class TestDegraded:
    @pytest.mark.benchmark(group="write")
    def test_write(self, fsstack: Built, timed: Timed, sizes: Sized, payloads: Payloads) -> None:
        workloads.copy_file(timed, fsstack, payloads(sizes.file), into="before")

    @pytest.mark.benchmark(group="read")
    @pytest.mark.fsstack_repeat("auto")
    def test_read(self, fsstack: Built, timed: Timed, sizes: Sized, payloads: Payloads) -> None:
        workloads.read_back(timed, fsstack, file="before", source=payloads(sizes.file))

    @pytest.mark.benchmark(group="read")
    def test_read_degraded(self, fsstack: Built, timed: Timed, sizes: Sized, payloads: Payloads) -> None:
        fsstack.take_away()
        workloads.read_back(timed, fsstack, file="before", source=payloads(sizes.file))

    @pytest.mark.benchmark(group="write")
    def test_write_degraded(self, fsstack: Built, timed: Timed, sizes: Sized, payloads: Payloads) -> None:
        workloads.copy_file(timed, fsstack, payloads(sizes.file, seed=2), into="degraded")

    @pytest.mark.benchmark(group="write")
    def test_write_rebuilding(self, fsstack: Built, timed: Timed, sizes: Sized, payloads: Payloads) -> None:
        source, target = payloads(sizes.file, seed=3), fsstack.path / "rebuilding"
        start = time.monotonic()
        fsstack.give_back()
        with timed(bytes=sizes.file, preload=[source]):
            timed.run("cp", source, target)
        fsstack.wait_until_rebuilt()
        timed.record("rebuild_seconds", time.monotonic() - start, "s")

    @pytest.mark.benchmark(group="read")
    def test_read_rebuilt(self, fsstack: Built, timed: Timed, sizes: Sized, payloads: Payloads) -> None:
        workloads.read_back(timed, fsstack, file="rebuilding", source=payloads(sizes.file, seed=3))
        for seed, name in (1, "before"), (2, "degraded"):
            assert filecmp.cmp(payloads(sizes.file, seed=seed), fsstack.path / name, shallow=False), f"{name} is wrong"
        for check in fsstack.scrub, fsstack.fsck:
            assert all(checked.clean for checked in check().values()), (
                f"{check.__name__} finds errors after the rebuild"
            )
